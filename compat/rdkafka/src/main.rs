//! rdkafka, which is librdkafka with a face for Rust.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use compat_harness::{Driver, Failed, Member, Outcome, Record, collect, expect, main as run};
use futures_executor::block_on;
use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::util::get_rdkafka_version;
use rdkafka::{ClientContext, Offset, TopicPartitionList};

const CLIENT: &str = "rdkafka";
const WAIT: Duration = Duration::from_secs(30);

struct Rdkafka {
    config: ClientConfig,
    admin: AdminClient<DefaultClientContext>,
    asking: BaseConsumer,
}

fn main() {
    let version = format!("0.39.0 (librdkafka {})", get_rdkafka_version().1);
    run(CLIENT, &version, |bootstrap| {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", bootstrap).set("client.id", CLIENT).set_log_level(RDKafkaLogLevel::Warning);
        Ok(Box::new(Rdkafka { admin: config.create()?, asking: config.create()?, config }))
    });
}

/// The first partition, with an offset or a time.
fn first(topic: &str, offset: i64) -> Outcome<TopicPartitionList> {
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, 0, Offset::Offset(offset))?;
    Ok(list)
}

fn options() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(WAIT)).request_timeout(Some(WAIT))
}

/// An error of one topic, group or resource.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refused(RDKafkaErrorCode);

fn all<T>(answers: Vec<Result<T, (String, RDKafkaErrorCode)>>) -> Outcome {
    for answer in answers {
        answer.map_err(|(_, code)| Refused(code))?;
    }
    Ok(())
}

#[derive(Clone, Default)]
struct Counts {
    acknowledged: Arc<AtomicUsize>,
    assigned: Arc<AtomicUsize>,
}

impl ClientContext for Counts {}

impl ProducerContext for Counts {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if result.is_ok() {
            self.acknowledged.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl ConsumerContext for Counts {
    fn post_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Assign(_) = rebalance {
            self.assigned.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn poll<C: ConsumerContext>(consumer: &BaseConsumer<C>, most: usize) -> Outcome<Vec<Record>> {
    let mut records = Vec::new();
    while records.len() < most {
        let Some(message) = consumer.poll(Duration::from_millis(100)) else { break };
        let message = message?;
        let headers = message.headers().map(|headers| {
            headers.iter().map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec))).collect()
        });
        records.push(Record {
            key: message.key().map(<[u8]>::to_vec),
            value: message.payload().map(<[u8]>::to_vec),
            headers: headers.unwrap_or_default(),
            timestamp: message.timestamp().to_millis(),
            offset: message.offset(),
        });
    }
    Ok(records)
}

struct Joined {
    consumer: BaseConsumer<Counts>,
    counts: Counts,
}

impl Member for Joined {
    fn poll(&mut self, most: usize) -> Outcome<Vec<Record>> {
        poll(&self.consumer, most)
    }

    fn assignment(&self) -> Outcome<Vec<i32>> {
        let mut found: Vec<_> =
            self.consumer.assignment()?.elements().iter().map(|element| element.partition()).collect();
        found.sort_unstable();
        Ok(found)
    }

    fn rebalances(&self) -> usize {
        self.counts.assigned.load(Ordering::Relaxed)
    }

    fn commit(&self, topic: &str, offset: i64) -> Outcome {
        Ok(self.consumer.commit(&first(topic, offset)?, CommitMode::Sync)?)
    }
}

impl Driver for Rdkafka {
    fn create(&self, topic: &str, partitions: usize, config: &[(&str, &str)]) -> Outcome {
        let mut new = NewTopic::new(topic, partitions as i32, TopicReplication::Fixed(1));
        for (key, value) in config {
            new = new.set(key, value);
        }
        all(block_on(self.admin.create_topics(&[new], &options()))?)
    }

    fn already_exists(&self, error: &Failed) -> bool {
        matches!(error.downcast_ref(), Some(Refused(RDKafkaErrorCode::TopicAlreadyExists)))
    }

    fn produce(&self, topic: &str, records: &[Record], codec: &str, idempotent: bool) -> Outcome {
        let mut config = self.config.clone();
        config.set("compression.type", codec).set("enable.idempotence", idempotent.to_string()).set("linger.ms", "20");
        let counts = Counts::default();
        let producer: BaseProducer<Counts> = config.create_with_context(counts.clone())?;
        for record in records {
            let mut send: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(topic).partition(0);
            send.key = record.key.as_deref();
            send.payload = record.value.as_deref();
            send.timestamp = record.timestamp;
            if !record.headers.is_empty() {
                send = send.headers(record.headers.iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
                    headers.insert(Header { key, value: value.as_deref() })
                }));
            }
            producer.send(send).map_err(|(error, _)| error)?;
        }
        producer.flush(WAIT)?;
        expect("acknowledged records", counts.acknowledged.load(Ordering::Relaxed), records.len())
    }

    fn read(&self, topic: &str, count: usize, offset: i64) -> Outcome<Vec<Record>> {
        let reader: BaseConsumer = self.config.clone().set("group.id", "reader").create()?;
        reader.assign(&first(topic, offset)?)?;
        collect(count, |most| poll(&reader, most))
    }

    fn offset_at(&self, topic: &str, time: i64) -> Outcome<Option<i64>> {
        let found = self.asking.offsets_for_times(first(topic, time)?, WAIT)?;
        Ok(found.elements().first().and_then(|element| match element.offset() {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        }))
    }

    fn bounds(&self, topic: &str) -> Outcome<(i64, i64)> {
        Ok(self.asking.fetch_watermarks(topic, 0, WAIT)?)
    }

    fn leaders(&self, topic: &str) -> Outcome<Vec<i32>> {
        let metadata = self.asking.fetch_metadata(Some(topic), WAIT)?;
        Ok(metadata.topics().iter().flat_map(|topic| topic.partitions()).map(|partition| partition.leader()).collect())
    }

    fn delete_records(&self, topic: &str, before: i64) -> Outcome {
        let answer = block_on(self.admin.delete_records(&first(topic, before)?, &options()))?;
        let offsets: Vec<_> = answer.elements().iter().map(|element| element.offset()).collect();
        expect("the answered offset", offsets, vec![Offset::Offset(before)])
    }

    fn delete_topic(&self, topic: &str) -> Outcome {
        all(block_on(self.admin.delete_topics(&[topic], &options()))?)
    }

    fn topics(&self) -> Outcome<Vec<String>> {
        let metadata = self.asking.fetch_metadata(None, WAIT)?;
        Ok(metadata.topics().iter().map(|topic| topic.name().to_owned()).collect())
    }

    fn member(&self, group: &str, topic: &str, instance: Option<&str>) -> Outcome<Box<dyn Member>> {
        let mut config = self.config.clone();
        config.set("group.id", group).set("auto.offset.reset", "earliest").set("enable.auto.commit", "false");
        config.set("heartbeat.interval.ms", "500");
        if let Some(instance) = instance {
            config.set("group.instance.id", instance);
        }
        let counts = Counts::default();
        let consumer: BaseConsumer<Counts> = config.create_with_context(counts.clone())?;
        consumer.subscribe(&[topic])?;
        Ok(Box::new(Joined { consumer, counts }))
    }

    fn configs(&self, topic: &str) -> Outcome<BTreeMap<String, String>> {
        let answers = block_on(self.admin.describe_configs(&[ResourceSpecifier::Topic(topic)], &options()))?;
        let mut found = BTreeMap::new();
        for resource in answers {
            let entries = resource.map_err(Refused)?.entries;
            found.extend(entries.into_iter().map(|entry| (entry.name, entry.value.unwrap_or_default())));
        }
        Ok(found)
    }

    fn set_config(&self, topic: &str, key: &str, value: &str) -> Outcome {
        let change = AlterConfig::new(ResourceSpecifier::Topic(topic)).set(key, value);
        for answer in block_on(self.admin.alter_configs(&[change], &options()))? {
            answer.map_err(|(_, code)| Refused(code))?;
        }
        Ok(())
    }

    fn grow(&self, topic: &str, count: usize) -> Outcome {
        all(block_on(self.admin.create_partitions(&[NewPartitions::new(topic, count)], &options()))?)
    }

    /// A consumer that joined no group commits as the admin client of others does.
    fn store_offset(&self, group: &str, topic: &str, offset: i64) -> Outcome {
        let consumer: BaseConsumer = self.config.clone().set("group.id", group).create()?;
        Ok(consumer.commit(&first(topic, offset)?, CommitMode::Sync)?)
    }

    fn groups(&self) -> Outcome<Vec<String>> {
        Ok(self.asking.fetch_group_list(None, WAIT)?.groups().iter().map(|group| group.name().to_owned()).collect())
    }

    fn describe_group(&self, group: &str) -> Outcome<(String, Vec<String>)> {
        let list = self.asking.fetch_group_list(Some(group), WAIT)?;
        let found = list.groups().first().ok_or("the group is not listed")?;
        Ok((found.state().to_owned(), found.members().iter().map(|member| member.client_id().to_owned()).collect()))
    }

    fn delete_group(&self, group: &str) -> Outcome {
        all(block_on(self.admin.delete_groups(&[group], &options()))?)
    }
}
