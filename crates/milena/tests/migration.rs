//! The steps from Kafka applications to Iggy ones and back: librdkafka on one side, Iggy's SDK on the other, one topic.
//!
//! Once with a gateway in front of an Iggy server, and once with one process that serves both protocols. The Iggy server is such
//! a process; where `TEST_IGGY=iggy://user:password@host:port` names a real one, that.
#![cfg(feature = "iggy")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use iggy::prelude::{
    Client as _, Consumer as IggyConsumer, ConsumerGroupClient, ConsumerOffsetClient, HeaderKey, HeaderValue,
    Identifier, IggyMessage, MessageClient, Partitioning, PollingStrategy, TcpClient,
};
use iggy_common::{AutoLogin, Credentials, TcpClientConfig};
use milena_store_iggy::url::IggyUrl;
use milena_testkit::{ChildServer, ChosenStore, DoorChild};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::{Header, Headers, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{Message, Offset, TopicPartitionList};

const MILENA: &str = env!("CARGO_BIN_EXE_milena");
const TOPIC: &str = "orders";
const GROUP: &str = "billing";
const PARTITIONS: u32 = 3;
/// Long, because test machines are busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where Kafka clients and Iggy clients meet on a topic.
struct Both {
    /// A gateway in front of the Iggy server; none where one process is both.
    gateway: Option<ChildServer>,
    door: Option<DoorChild>,
    url: String,
    stream: String,
}

impl Both {
    /// A gateway in front of an Iggy server, and one process that is both.
    fn kinds() -> [Self; 2] {
        let door = DoorChild::start(MILENA);
        let one = Self { gateway: None, url: door.url(), stream: "kafka".to_owned(), door: Some(door) };
        let both = [Self::two_processes(), one];
        for both in &both {
            both.command(&["topics", "create", TOPIC, "-p", &PARTITIONS.to_string()]);
        }
        both
    }

    fn two_processes() -> Self {
        let builder = ChildServer::builder(MILENA).args(["--set", "groups.initial_rebalance_delay=0s"]);
        let (builder, url, stream, door) = match ChosenStore::get() {
            ChosenStore::Server(url) => {
                let name = format!("migration-{}", uuid::Uuid::now_v7().simple());
                let mapping = format!("topic_mapping.default_stream={name}");
                let builder = builder.env("MILENA_IGGY_STATE_STREAM", &format!("{name}-state"));
                (builder.over_server(&url).args(["--set", &mapping]), url, name, None)
            }
            ChosenStore::Embedded | ChosenStore::Door => {
                let door = DoorChild::start(MILENA);
                (builder.over(&door), door.url(), "kafka".to_owned(), Some(door))
            }
        };
        Self { gateway: Some(builder.start()), url, stream, door }
    }

    fn kafka(&self) -> &ChildServer {
        self.gateway.as_ref().or(self.door.as_ref().map(DoorChild::child)).unwrap()
    }

    /// A command of Milena's own client.
    fn command(&self, args: &[&str]) {
        let output = self.kafka().run(args, "");
        assert!(output.status.success(), "{args:?}: {output:?}");
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.kafka().bootstrap()).set("broker.address.family", "v4");
        config
    }

    /// Sends records through Kafka, and returns their offsets.
    async fn kafka_send(&self, partition: u32, values: &[&str]) -> Vec<i64> {
        let producer: FutureProducer = self.config().create().unwrap();
        let mut offsets = Vec::new();
        for value in values {
            let headers = OwnedHeaders::new().insert(Header { key: "trace", value: Some("7") });
            let record = FutureRecord::to(TOPIC).partition(i32::try_from(partition).unwrap());
            let record = record.key("customer").payload(*value).headers(headers).timestamp(1_700_000_000_123);
            offsets.push(producer.send(record, PATIENCE).await.unwrap().offset);
        }
        offsets
    }

    /// A member of the Kafka group.
    fn kafka_consumer(&self) -> BaseConsumer {
        let consumer: BaseConsumer = self
            .config()
            .set("group.id", GROUP)
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "earliest")
            .create()
            .unwrap();
        consumer.subscribe(&[TOPIC]).unwrap();
        consumer
    }

    /// What the Kafka group has committed, for each partition; `None` where that is nothing.
    fn committed(&self) -> Vec<Option<i64>> {
        let consumer: BaseConsumer = self.config().set("group.id", GROUP).create().unwrap();
        let mut asked = TopicPartitionList::new();
        asked.add_partition_range(TOPIC, 0, i32::try_from(PARTITIONS).unwrap() - 1);
        let told = consumer.committed_offsets(asked, PATIENCE).unwrap();
        let offset = |offset| if let Offset::Offset(offset) = offset { Some(offset) } else { None };
        told.elements().iter().map(|element| offset(element.offset())).collect()
    }

    async fn iggy(&self) -> Native {
        let url = IggyUrl::parse(&self.url).unwrap();
        let client = TcpClient::create(Arc::new(TcpClientConfig {
            server_address: url.servers[0].clone(),
            auto_login: AutoLogin::Enabled(Credentials::UsernamePassword(url.user.unwrap(), url.password.unwrap())),
            ..TcpClientConfig::default()
        }));
        let client = client.unwrap();
        client.connect().await.unwrap();
        Native { client, stream: named(&self.stream) }
    }
}

/// An Iggy application.
struct Native {
    client: TcpClient,
    stream: Identifier,
}

impl Native {
    async fn send(&self, partition: u32, mut messages: Vec<IggyMessage>) -> u64 {
        let to = Partitioning::partition_id(partition);
        let sent = self.client.send_messages(&self.stream, &named(TOPIC), &to, &mut messages).await.unwrap();
        sent.confirmations[0].base_offset
    }

    /// Becomes the one member of the group of that name, which it creates.
    async fn join(&self) {
        self.client.create_consumer_group(&self.stream, &named(TOPIC), GROUP).await.unwrap();
        self.client.join_consumer_group(&self.stream, &named(TOPIC), &named(GROUP)).await.unwrap();
    }

    /// Takes over from a Kafka group: what Kafka would read next is one behind what Iggy has processed last.
    async fn take_over(&self, committed: &[Option<i64>]) {
        for (partition, next) in (0..).zip(committed) {
            // Without a stored offset a group begins at the first message, as one does that committed 0.
            let Some(last) = next.and_then(|next| u64::try_from(next - 1).ok()) else { continue };
            let group = IggyConsumer::group(named(GROUP));
            let stored =
                self.client.store_consumer_offset(&group, &self.stream, &named(TOPIC), Some(partition), last).await;
            stored.unwrap();
        }
    }

    /// The next messages of the group in a partition, which are stored as processed.
    async fn next(&self, partition: u32) -> Vec<IggyMessage> {
        let (group, next) = (IggyConsumer::group(named(GROUP)), PollingStrategy::next());
        let polled =
            self.client.poll_messages(&self.stream, &named(TOPIC), Some(partition), &group, &next, 100, true).await;
        polled.unwrap().messages
    }

    /// What the group has processed last in a partition.
    async fn stored(&self, partition: u32) -> Option<u64> {
        let group = IggyConsumer::group(named(GROUP));
        let info = self.client.get_consumer_offset(&group, &self.stream, &named(TOPIC), Some(partition)).await.unwrap();
        info.map(|info| info.stored_offset)
    }
}

fn named(name: &str) -> Identifier {
    Identifier::named(name).unwrap()
}

/// A message as an Iggy producer makes it that means to be read by Kafka consumers.
fn message(payload: &str, headers: &[(&str, &[u8])]) -> IggyMessage {
    let header =
        |(name, value): &(&str, &[u8])| (HeaderKey::from_str(name).unwrap(), HeaderValue::try_from(*value).unwrap());
    let headers: BTreeMap<_, _> = headers.iter().map(header).collect();
    IggyMessage::builder().payload(payload.to_owned().into()).user_headers(headers).build().unwrap()
}

fn header(message: &IggyMessage, name: &str) -> Option<Vec<u8>> {
    let headers = message.user_headers_map().unwrap().unwrap_or_default();
    headers.get(&HeaderKey::from_str(name).unwrap()).map(|value| value.value().to_vec())
}

fn offsets(messages: &[IggyMessage]) -> Vec<u64> {
    messages.iter().map(|message| message.header.offset).collect()
}

/// What a Kafka consumer got: partition, offset, key, value, headers.
type Got = (i32, i64, Option<String>, Option<String>, Vec<(String, String)>);

fn read(consumer: &BaseConsumer, count: usize) -> Vec<Got> {
    let text = |bytes: Option<&[u8]>| bytes.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap());
    let (start, mut got) = (Instant::now(), Vec::new());
    while got.len() < count {
        assert!(start.elapsed() < PATIENCE, "only {got:?}");
        let Some(message) = consumer.poll(Duration::from_millis(100)) else { continue };
        let message = message.unwrap();
        let headers = message.headers().map_or_else(Vec::new, |headers| {
            headers.iter().map(|header| (header.key.to_owned(), text(header.value).unwrap_or_default())).collect()
        });
        got.push((message.partition(), message.offset(), text(message.key()), text(message.payload()), headers));
    }
    got
}

fn commit(consumer: &BaseConsumer, next: &[(i32, i64)]) {
    let mut list = TopicPartitionList::new();
    for (partition, offset) in next {
        list.add_partition_offset(TOPIC, *partition, Offset::Offset(*offset)).unwrap();
    }
    consumer.commit(&list, CommitMode::Sync).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn producers_move_to_iggy_while_a_kafka_group_reads_on() {
    for both in Both::kinds() {
        producers_move(&both).await;
    }
}

async fn producers_move(both: &Both) {
    let native = both.iggy().await;
    let consumer = both.kafka_consumer();
    assert_eq!(both.kafka_send(0, &["one", "two"]).await, [0, 1]);
    assert_eq!(read(&consumer, 2).len(), 2);

    // Both kinds for a while: each sees where the other one is.
    let moved = message("three", &[("kafka.key", b"customer"), ("kafka.h.trace", b"8"), ("source", b"iggy")]);
    assert_eq!(native.send(0, vec![moved]).await, 2);
    assert_eq!(both.kafka_send(0, &["four"]).await, [3]);
    let deletion = message("\0", &[("kafka.key", b"customer"), ("kafka.value", b"null"), ("kafka.v", &[1])]);
    assert_eq!(native.send(0, vec![IggyMessage::from("five"), deletion]).await, 4);

    let row = |offset, key: Option<&str>, value: Option<&str>, headers: &[(&str, &str)]| -> Got {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        (0, offset, key.map(str::to_owned), value.map(str::to_owned), headers)
    };
    let expected = [
        row(2, Some("customer"), Some("three"), &[("trace", "8"), ("source", "iggy")]),
        row(3, Some("customer"), Some("four"), &[("trace", "7")]),
        row(4, None, Some("five"), &[]),
        row(5, Some("customer"), None, &[]),
    ];
    assert_eq!(read(&consumer, 4), expected);
    commit(&consumer, &[(0, 6)]);
    assert_eq!(both.committed(), [Some(6), None, None]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_moves_to_iggy_at_its_committed_offsets_while_kafka_producers_go_on() {
    for both in Both::kinds() {
        a_group_moves(&both).await;
    }
}

async fn a_group_moves(both: &Both) {
    for partition in 0..PARTITIONS {
        both.kafka_send(partition, &["a", "b", "c"]).await;
    }
    {
        let consumer = both.kafka_consumer();
        assert_eq!(read(&consumer, 9).len(), 9);
        // Two of three processed, none of three processed, nothing said.
        commit(&consumer, &[(0, 2), (1, 0)]);
    }
    let committed = both.committed();
    assert_eq!(committed, [Some(2), Some(0), None]);

    let native = both.iggy().await;
    native.join().await;
    native.take_over(&committed).await;
    both.kafka_send(0, &["d"]).await;
    let messages = native.next(0).await;
    assert_eq!(offsets(&messages), [2, 3]);
    assert_eq!(messages[1].payload, "d");
    assert_eq!(header(&messages[1], "kafka.key"), Some(b"customer".to_vec()));
    assert_eq!(header(&messages[1], "kafka.h.trace"), Some(b"7".to_vec()));
    assert_eq!(messages[1].header.origin_timestamp, 1_700_000_000_123_000);
    assert_eq!(offsets(&native.next(1).await), [0, 1, 2]);
    assert_eq!(offsets(&native.next(2).await), [0, 1, 2]);
    assert!(native.next(0).await.is_empty(), "each was read once");
    assert_eq!(both.committed(), committed, "the Kafka group stands where it stood, for a way back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_moves_back_to_kafka_behind_what_iggy_has_processed() {
    for both in Both::kinds() {
        a_group_moves_back(&both).await;
    }
}

async fn a_group_moves_back(both: &Both) {
    let native = both.iggy().await;
    for partition in 0..2 {
        native.send(partition, vec![IggyMessage::from("a"), IggyMessage::from("b"), IggyMessage::from("c")]).await;
    }
    native.join().await;
    native.take_over(&[Some(2)]).await;
    assert_eq!(offsets(&native.next(1).await), [0, 1, 2]);
    native.send(1, vec![IggyMessage::from("d")]).await;

    let mut stored = Vec::new();
    for partition in 0..PARTITIONS {
        stored.push(native.stored(partition).await);
    }
    assert_eq!(stored, [Some(1), Some(2), None]);
    for (partition, last) in (0..PARTITIONS).zip(&stored) {
        let Some(last) = last else { continue };
        let (of, next) = (format!("{TOPIC}:{partition}"), (last + 1).to_string());
        both.command(&["groups", "reset-offsets", GROUP, "-t", &of, "--to-offset", &next, "--execute"]);
    }
    assert_eq!(both.committed(), [Some(2), Some(3), None]);
    let consumer = both.kafka_consumer();
    let mut got: Vec<_> = read(&consumer, 2).into_iter().map(|(partition, offset, ..)| (partition, offset)).collect();
    got.sort_unstable();
    assert_eq!(got, [(0, 2), (1, 3)]);
    assert!(consumer.poll(Duration::from_millis(300)).is_none(), "each was read once");
}
