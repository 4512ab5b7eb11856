//! Produce, fetch, and the way from one to the other, through librdkafka with its defaults, as stock clients have it.
//!
//! librdkafka itself may be the bottleneck: CPU time of the client stands beside that of the server. Its own batching decides
//! how records are put together, so what is compared is what a user of it would see.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message as _;
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer as _, ProducerContext, ThreadedProducer};
use rdkafka::{ClientContext, Offset, TopicPartitionList};

use super::load::Acks;
use super::meter::{Meter, add_memory, add_percentiles};
use crate::Result;
use crate::latency::Latencies;
use crate::report::Measures;
use crate::servers::Target;
use crate::setup::{create_topic, delete_topic};

/// Longest wait for something that goes on by itself.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes in front of a value that say when it was sent.
const STAMP_BYTES: usize = 8;

/// Options of the scenario.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Bytes of the value of a record
    #[arg(long, default_value_t = 1024)]
    pub record_bytes: usize,
    /// Partitions of the topic
    #[arg(long, default_value_t = 1)]
    pub partitions: i32,
    /// When a batch counts as stored
    #[arg(long, value_enum, default_value_t = Acks::All)]
    pub acks: Acks,
    /// Producers number their batches, so that none is stored twice
    #[arg(long)]
    pub idempotent: bool,
    /// Megabytes of values that are produced and fetched
    #[arg(long, default_value_t = 500)]
    pub megabytes: u64,
    /// Single records per second in the last phase
    #[arg(long, default_value_t = 500)]
    pub singles: u32,
    /// Seconds of the last phase
    #[arg(long, default_value_t = 5)]
    pub seconds: u64,
}

#[derive(Debug, Default)]
struct Deliveries {
    stored: AtomicU64,
    failure: Mutex<Option<KafkaError>>,
}

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        match result {
            Ok(_) => {
                self.stored.fetch_add(1, Ordering::Relaxed);
            }
            Err((error, _)) => {
                self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| error.clone());
            }
        }
    }
}

impl Options {
    /// One round.
    ///
    /// # Errors
    /// When a record is not stored, or does not come back.
    pub async fn round(&self, target: &Target, round: usize) -> Result<Measures> {
        let topics = [format!("rd-{}-{round}", self.partitions), format!("rd-singles-{round}")];
        let mut connection = target.connect().await?;
        let [bulk, singles] = &topics;
        create_topic(&mut connection, bulk, self.partitions).await?;
        create_topic(&mut connection, singles, 1).await?;
        let records = (self.megabytes * 1_000_000).div_ceil(self.record_bytes.max(1) as u64);
        let mut measures = Measures::default();
        let meter = Meter::start(target)?;
        self.in_thread(target, bulk, move |run| run.produce(records)).await?;
        meter.stop(target, "produce", records, self.record_bytes, &mut measures)?;
        let meter = Meter::start(target)?;
        self.in_thread(target, bulk, move |run| run.consume(records)).await?;
        meter.stop(target, "fetch", records, self.record_bytes, &mut measures)?;
        add_percentiles(&mut measures, "end to end", self.in_thread(target, singles, |run| run.singles()).await?);
        add_memory(&mut measures, target)?;
        for topic in &topics {
            delete_topic(&mut connection, topic).await?;
        }
        Ok(measures)
    }

    /// librdkafka has threads of its own and calls that block.
    async fn in_thread<T: Send + 'static>(
        &self,
        target: &Target,
        topic: &str,
        work: impl FnOnce(Run) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let run = Run { options: self.clone(), address: target.address.clone(), topic: topic.to_owned() };
        tokio::task::spawn_blocking(move || work(run)).await?
    }
}

struct Run {
    options: Options,
    address: String,
    topic: String,
}

impl Run {
    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.address);
        config
    }

    fn producer(&self, linger_ms: Option<u32>) -> Result<ThreadedProducer<Deliveries>> {
        let mut config = self.config();
        config.set("acks", self.options.acks.code().to_string());
        config.set("enable.idempotence", self.options.idempotent.to_string());
        if let Some(linger_ms) = linger_ms {
            config.set("linger.ms", linger_ms.to_string());
        }
        Ok(config.create_with_context(Deliveries::default())?)
    }

    fn consumer(&self, partitions: i32) -> Result<BaseConsumer> {
        let mut config = self.config();
        config.set("group.id", "bench").set("enable.auto.commit", "false");
        // With the default, a second, a consumer whose queue was once full idles for most of the time, with any server.
        config.set("fetch.queue.backoff.ms", "10");
        let consumer: BaseConsumer = config.create()?;
        let mut list = TopicPartitionList::new();
        for partition in 0..partitions {
            list.add_partition_offset(&self.topic, partition, Offset::Beginning)?;
        }
        consumer.assign(&list)?;
        Ok(consumer)
    }

    fn produce(&self, records: u64) -> Result<()> {
        let producer = self.producer(None)?;
        let value: Vec<u8> = (0..self.options.record_bytes).map(|number| number.to_le_bytes()[0]).collect();
        let partitions = self.options.partitions.max(1);
        for partition in (0..partitions).cycle().take(usize::try_from(records)?) {
            self.send(&producer, partition, &value)?;
        }
        self.flush(&producer, records)
    }

    fn send(&self, producer: &ThreadedProducer<Deliveries>, partition: i32, value: &[u8]) -> Result<()> {
        let mut record = BaseRecord::<(), [u8]>::to(&self.topic).partition(partition).payload(value);
        loop {
            match producer.send(record) {
                Ok(()) => return Ok(()),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), unsent)) => {
                    record = unsent;
                    std::thread::sleep(Duration::from_micros(200));
                }
                Err((error, _)) => return Err(error.into()),
            }
        }
    }

    fn flush(&self, producer: &ThreadedProducer<Deliveries>, records: u64) -> Result<()> {
        producer.flush(PATIENCE)?;
        let deliveries = producer.context();
        if let Some(error) = deliveries.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(error.into());
        }
        let stored = deliveries.stored.load(Ordering::Relaxed);
        if stored == records { Ok(()) } else { Err(format!("{stored} of {records} records are stored").into()) }
    }

    fn consume(&self, records: u64) -> Result<()> {
        let consumer = self.consumer(self.options.partitions.max(1))?;
        for read in 0..records {
            consumer.poll(PATIENCE).ok_or_else(|| format!("only {read} of {records} records come"))??;
        }
        Ok(())
    }

    /// The time from sending a record to having it, for single records at a fixed rate.
    fn singles(&self) -> Result<Latencies> {
        let zero = Instant::now();
        // Those of the first second do not count: the client is still connecting.
        let warm_up = u64::from(self.options.singles);
        let count = warm_up + warm_up * self.options.seconds;
        let interval = Duration::from_secs(1) / self.options.singles.max(1);
        let value_bytes = self.options.record_bytes.max(STAMP_BYTES);
        let consumer = self.consumer(1)?;
        let reading = std::thread::spawn(move || -> Result<Latencies> {
            let mut latencies = Latencies::default();
            for number in 0..count {
                let message = consumer.poll(PATIENCE).ok_or("a record does not come")??;
                let stamp = message.payload().and_then(|value| value.first_chunk()).ok_or("another record")?;
                let sent = Duration::from_nanos(u64::from_le_bytes(*stamp));
                if number >= warm_up {
                    latencies.add(zero.elapsed().saturating_sub(sent));
                }
            }
            Ok(latencies)
        });
        let producer = self.producer(Some(0))?;
        let mut due = Instant::now();
        for _ in 0..count {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            due += interval;
            let mut value = vec![0; value_bytes];
            let stamp = u64::try_from(zero.elapsed().as_nanos())?.to_le_bytes();
            if let Some(place) = value.first_chunk_mut() {
                *place = stamp;
            }
            self.send(&producer, 0, &value)?;
        }
        self.flush(&producer, count)?;
        reading.join().map_err(|_| "the consumer ended")?
    }
}
