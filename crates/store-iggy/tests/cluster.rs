//! A cluster: two servers that say that they are one. The second one lags behind with groups and offsets, and each can lack
//! messages.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod common;
#[path = "common/door.rs"]
mod door;

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use common::{RUNTIME, open};
use door::{PASSWORD, TestServer, USER};
use iggy::prelude::{Client, Consumer, ConsumerGroupClient, ConsumerOffsetClient, Identifier, TcpClient};
use iggy_binary_protocol::codec::WireEncode;
use iggy_binary_protocol::codes::{GET_CLUSTER_METADATA_CODE, GET_ME_CODE, POLL_MESSAGES_CODE};
use iggy_binary_protocol::consensus::Operation;
use iggy_binary_protocol::requests::messages::PollMessagesRequest;
use iggy_binary_protocol::responses::system::get_cluster_metadata::{ClusterMetadataResponse, ClusterNodeResponse};
use iggy_binary_protocol::{WireConsumer, WireIdentifier, WirePollingStrategy};
use iggy_common::{AutoLogin, BinaryTransport, Credentials, IggyError, TcpClientConfig};
use milena_iggy_door::OffsetRules;
use milena_iggy_door::faults::{Fault, On};
use milena_store::frame::Frames;
use milena_store::testing::{TestMessage, batch_of};
use milena_store::{Bounds, Entry, OffsetStore, ReadLimit, Store, StoreError, TopicRef, TopicSettings};
use milena_store_iggy::{IggyConfig, IggyStore, SecretString};
use pollster::block_on;

const GROUP: &str = "readers";

/// More than any test asks.
const MANY: usize = 2_000;

/// Two nodes, and two gateways that know of one of them. The second one lags: it has what there was when the test began, which
/// is no group and no offset.
struct Nodes {
    nodes: [TestServer; 2],
    /// A third one, which takes connections and answers nothing.
    silent: Option<TcpListener>,
    store: Arc<IggyStore>,
    other: Arc<IggyStore>,
    topic: TopicRef,
}

impl Nodes {
    /// A topic of two partitions, the first of which has a message.
    fn new() -> Self {
        Self::with(1)
    }

    /// With so many messages in the first partition, which both nodes have.
    fn with(messages: u128) -> Self {
        Self::filled(2, 1, messages)
    }

    /// With so many partitions, of which the first `filled` have so many messages.
    fn filled(partitions: u32, filled: u32, messages: u128) -> Self {
        let first = TestServer::with(OffsetRules::Free);
        // Each question about ends is asked, and what is lost is given up soon.
        let (lost_grace, bounds_max_age) = (Duration::from_millis(200), Duration::ZERO);
        let store = open(IggyConfig { lost_grace, bounds_max_age, ..first.config() });
        let other = open(IggyConfig { instance: 1, ..first.config() });
        let topic =
            block_on(store.create_topic("kafka", "orders", partitions, &TopicSettings::default())).unwrap().topic;
        for (partition, id) in (0..filled).flat_map(|partition| (1..=messages).map(move |id| (partition, id))) {
            block_on(store.append(&topic.partition(partition), batch_of(&[TestMessage::new(id, b"value")]))).unwrap();
        }
        let second = first.replica();
        Self { nodes: [first, second], silent: None, store, other, topic }
    }

    /// What a node answers from now on when it is asked who leads the cluster.
    fn says(&self, node: usize, leader: usize) {
        let silent = self.silent.as_ref().map(|listener| listener.local_addr().unwrap());
        let addresses = self.nodes.iter().map(TestServer::address).chain(silent);
        let nodes = addresses.enumerate().map(|(number, address)| ClusterNodeResponse {
            name: format!("node-{number}"),
            ip: address.ip().to_string(),
            tcp_port: address.port(),
            quic_port: 0,
            http_port: 0,
            websocket_port: 0,
            role: u8::from(number != leader),
            status: 0,
        });
        let mut body = BytesMut::new();
        ClusterMetadataResponse { name: "two".to_owned(), nodes: nodes.collect() }.encode(&mut body);
        let body: &'static [u8] = Box::leak(body.to_vec().into_boxed_slice());
        let door = self.nodes[node].door.lock();
        let faults = door.as_ref().unwrap().faults();
        faults.forget();
        (0..MANY).for_each(|_| faults.plan(On::Code(GET_CLUSTER_METADATA_CODE), Fault::Body(body)));
    }

    fn all_say(&self, leader: usize) {
        (0..2).for_each(|node| self.says(node, leader));
    }

    /// Who uses the SDK, and stays at the node where it came in.
    fn native<T>(&self, node: usize, use_it: impl AsyncFnOnce(TcpClient) -> T) -> T {
        self.nodes[node].door.lock().as_ref().unwrap().faults().forget();
        let credentials = Credentials::UsernamePassword(USER.to_owned(), SecretString::from(PASSWORD.to_owned()));
        let config = TcpClientConfig {
            server_address: self.nodes[node].address().to_string(),
            auto_login: AutoLogin::Enabled(credentials),
            ..TcpClientConfig::default()
        };
        let client = TcpClient::create(Arc::new(config)).unwrap();
        RUNTIME.block_on(async {
            client.connect().await.unwrap();
            use_it(client).await
        })
    }

    /// The reply to a poll of the first partition from that offset on.
    fn polled(&self, from: u64) -> &'static [u8] {
        self.polled_some(from, 100)
    }

    /// As [`Self::polled`], for so many messages.
    fn polled_some(&self, from: u64, count: u32) -> &'static [u8] {
        let request = PollMessagesRequest {
            consumer: WireConsumer::consumer(WireIdentifier::numeric(0)),
            stream_id: WireIdentifier::named("kafka").unwrap(),
            topic_id: WireIdentifier::named("orders").unwrap(),
            partition_id: Some(0),
            strategy: WirePollingStrategy::offset(from),
            count,
            auto_commit: false,
        };
        let body = self.native(0, async |client| client.send_poll_with_response(&request).await.unwrap());
        Box::leak(body.to_vec().into_boxed_slice())
    }

    /// A third node that takes connections and answers nothing.
    fn with_a_silent_one(self) -> Self {
        Self { silent: Some(TcpListener::bind("127.0.0.1:0").unwrap()), ..self }
    }

    /// A node removes the messages below that offset from a partition.
    fn trim(&self, node: usize, partition: u32, before: u64) {
        let memory = &self.nodes[node].memory;
        let topic = block_on(memory.topic("kafka", "orders")).unwrap().unwrap().topic;
        block_on(memory.trim(&topic.partition(partition), before)).unwrap();
    }

    /// A node answers so many requests of that kind with this.
    fn answers(&self, node: usize, code: u32, body: &'static [u8], times: usize) {
        let door = self.nodes[node].door.lock();
        let faults = door.as_ref().unwrap().faults();
        (0..times).for_each(|_| faults.plan(On::Code(code), Fault::Body(body)));
    }

    /// Offsets and message ids in the first partition from that offset on.
    fn read(&self, from: u64) -> Result<Vec<(u64, u128)>, StoreError> {
        let limit = ReadLimit { bytes: 1 << 20, at_least_one: true };
        let entries = block_on(self.store.read(&self.topic.partition(0), from, limit))?;
        let messages = |entry: &Entry| {
            let ids: Vec<u128> = Frames::new(&entry.frames).map(|frame| frame.id).collect();
            (entry.base_offset..).zip(ids).collect::<Vec<_>>()
        };
        Ok(entries.iter().flat_map(messages).collect())
    }

    /// Groups that a node has.
    fn groups(&self, node: usize) -> Vec<String> {
        let groups = self
            .native(node, async |client| client.get_consumer_groups(&named("kafka"), &named("orders")).await.unwrap());
        groups.into_iter().map(|group| group.name).collect()
    }

    /// The first node leads the first partition, and has offset 5 of it for the group.
    fn commit(&self) {
        let (stream, topic, group) = (named("kafka"), named("orders"), Consumer::group(named(GROUP)));
        self.native(0, async |client| {
            client.create_consumer_group(&stream, &topic, GROUP).await.unwrap();
            client.store_consumer_offset(&group, &stream, &topic, Some(0), 5).await.unwrap();
        });
    }
}

fn named(name: &str) -> Identifier {
    Identifier::named(name).unwrap()
}

#[test]
fn an_offset_is_read_where_the_partition_is_led_whoever_leads_the_cluster() {
    let nodes = Nodes::new();
    let at = nodes.topic.partition(0);
    nodes.commit();
    nodes.all_say(0);
    assert_eq!(block_on(nodes.store.has_group(&nodes.topic, GROUP)), Ok(true));
    assert_eq!(block_on(nodes.store.load(&at, GROUP)), Ok(Some(5)));
    nodes.all_say(1);
    assert_eq!(
        block_on(nodes.store.has_group(&nodes.topic, GROUP)),
        Ok(false),
        "the one that lags leads the cluster now"
    );
    assert_eq!(block_on(nodes.store.load(&at, GROUP)), Ok(Some(5)));
}

#[test]
fn who_does_not_know_yet_where_a_partition_is_led_finds_out_before_it_reads_an_offset() {
    let nodes = Nodes::new();
    let at = nodes.topic.partition(0);
    nodes.commit();
    nodes.all_say(1);
    assert_eq!(block_on(nodes.other.has_group(&nodes.topic, GROUP)), Ok(false), "it has heard of the node that lags");
    nodes.all_say(0);
    {
        let door = nodes.nodes[1].door.lock();
        let refusal = Fault::Answer(IggyError::TransientNotAccepted.as_code());
        let barrier = On::Operation(Operation::StoreConsumerOffset);
        (0..MANY).for_each(|_| door.as_ref().unwrap().faults().plan(barrier, refusal));
    }
    assert_eq!(block_on(nodes.other.load(&at, GROUP)), Ok(Some(5)));
}

#[test]
fn groups_are_created_and_listed_at_the_node_that_says_that_it_leads() {
    let nodes = Nodes::new();
    nodes.all_say(1);
    // The connections go where they hear that the leader is, and stay there.
    let unread = nodes.topic.partition(1);
    assert_eq!(block_on(nodes.store.load(&unread, GROUP)), Ok(None));
    block_on(nodes.store.bounds(&unread)).unwrap();
    nodes.all_say(0);
    block_on(nodes.store.create_group(&nodes.topic, GROUP)).unwrap();
    assert_eq!(block_on(nodes.store.groups(&nodes.topic)).unwrap(), [GROUP]);
    assert_eq!(block_on(nodes.store.has_group(&nodes.topic, GROUP)), Ok(true));
    assert_eq!((nodes.groups(0), nodes.groups(1)), (vec![GROUP.to_owned()], Vec::new()));
}

#[test]
fn while_each_node_says_that_the_other_one_leads_no_group_is_said_to_be_missing() {
    let nodes = Nodes::new();
    block_on(nodes.store.create_group(&nodes.topic, GROUP)).unwrap();
    nodes.says(0, 1);
    nodes.says(1, 0);
    let has = block_on(nodes.other.has_group(&nodes.topic, GROUP));
    assert!(matches!(has, Err(StoreError::Busy { .. })), "{has:?}");
    let listed = block_on(nodes.other.groups(&nodes.topic));
    assert!(matches!(listed, Err(StoreError::Busy { .. })), "{listed:?}");
}

#[test]
fn messages_that_the_leading_node_lacks_are_read_from_another_one() {
    let nodes = Nodes::with(10);
    let behind = nodes.polled(8);
    nodes.all_say(0);
    nodes.answers(0, POLL_MESSAGES_CODE, behind, MANY);
    let found = nodes.read(5).unwrap();
    assert_eq!(found, (5..10).map(|offset| (offset, u128::from(offset) + 1)).collect::<Vec<_>>());
    assert_eq!(nodes.store.metrics().unwrap().gap_reads.get(), 1, "what the leading node has is read there");
    assert_eq!(block_on(nodes.store.bounds(&nodes.topic.partition(0))), Ok(Bounds { start: 0, end: 10 }));
}

#[test]
fn messages_that_no_node_delivers_for_now_are_waited_for() {
    let nodes = Nodes::with(10);
    let behind = nodes.polled(8);
    nodes.all_say(0);
    // The leading node is read first, and then asked once more as all others are.
    nodes.answers(0, POLL_MESSAGES_CODE, behind, 2);
    nodes.answers(1, POLL_MESSAGES_CODE, behind, 1);
    assert!(matches!(nodes.read(5), Err(StoreError::Busy { .. })));
    assert_eq!(nodes.store.metrics().unwrap().lost_messages.get(), 0);
    assert_eq!(nodes.read(5).unwrap().first(), Some(&(5, 6)), "they are back");
}

#[test]
fn a_call_whose_connection_answers_with_something_else_is_not_believed() {
    let nodes = Nodes::new();
    let at = nodes.topic.partition(0);
    nodes.all_say(0);
    let append = |id| block_on(nodes.store.append(&at, batch_of(&[TestMessage::new(id, b"value")])));
    // With this it hears that there are nodes, and takes a connection to one from then on.
    assert_eq!(nodes.read(0).unwrap(), [(0, 1)]);
    assert_eq!(append(2).unwrap().base_offset, Some(1));
    nodes.answers(0, GET_ME_CODE, b"the reply to another request", 1);
    assert!(matches!(append(3), Err(StoreError::InDoubt { .. })));
    assert_eq!(nodes.store.metrics().unwrap().stray_replies.get(), 1);
    assert_eq!(append(4).unwrap().base_offset, Some(3), "over another connection");
    assert_eq!(nodes.read(1).unwrap(), [(1, 2), (2, 3), (3, 4)], "what was in doubt was stored");
}

#[test]
fn a_connection_that_breaks_behind_a_reply_leaves_it_in_doubt_and_is_no_stray_reply() {
    let nodes = Nodes::new();
    let at = nodes.topic.partition(0);
    nodes.all_say(0);
    let append = |id| block_on(nodes.store.append(&at, batch_of(&[TestMessage::new(id, b"value")])));
    assert_eq!(nodes.read(0).unwrap(), [(0, 1)]);
    assert_eq!(append(2).unwrap().base_offset, Some(1));
    nodes.nodes[0].door.lock().as_ref().unwrap().faults().plan(On::Code(GET_ME_CODE), Fault::CutBeforeApply);
    assert!(matches!(append(3), Err(StoreError::InDoubt { .. })));
    assert_eq!(nodes.store.metrics().unwrap().stray_replies.get(), 0);
    assert_eq!(append(4).unwrap().base_offset, Some(3), "over another connection");
}

#[test]
fn messages_that_no_node_has_for_long_are_lost_and_a_reader_goes_on_behind_them() {
    let nodes = Nodes::with(10);
    let (before, behind) = (nodes.polled_some(3, 2), nodes.polled(8));
    let give_up = Instant::now() + Duration::from_secs(60);
    let read = loop {
        nodes.all_say(0);
        // The leading node is read first, and then asked once more as all others are; then for the first that they have.
        nodes.answers(0, POLL_MESSAGES_CODE, behind, 2);
        nodes.answers(1, POLL_MESSAGES_CODE, behind, 1);
        match nodes.read(5) {
            Err(StoreError::Busy { .. }) => assert!(Instant::now() < give_up, "they are waited for without end"),
            read => break read,
        }
    };
    assert_eq!(read.unwrap(), [(8, 9), (9, 10)]);
    assert_eq!(nodes.store.metrics().unwrap().lost_messages.get(), 3);
    nodes.all_say(0);
    nodes.answers(0, POLL_MESSAGES_CODE, before, 1);
    assert_eq!(nodes.read(3).unwrap(), [(3, 4), (4, 5), (8, 9), (9, 10)], "one read goes across");
    assert_eq!(nodes.store.metrics().unwrap().lost_messages.get(), 3, "they are counted once");
}

#[test]
fn a_node_that_answers_nothing_holds_up_the_look_at_a_topic_once_and_not_for_each_partition() {
    let nodes = Nodes::filled(12, 12, 4).with_a_silent_one();
    nodes.all_say(0);
    assert!(block_on(nodes.store.bounds(&nodes.topic.partition(0))).is_ok());
    for (node, partition) in (0..2).flat_map(|node| (0..12).map(move |partition| (node, partition))) {
        nodes.trim(node, partition, 3);
    }
    let began = Instant::now();
    for partition in 0..12 {
        let bounds = block_on(nodes.store.bounds(&nodes.topic.partition(partition)));
        assert_eq!(bounds, Ok(Bounds { start: 3, end: 4 }), "partition {partition}");
    }
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
}

#[test]
fn a_node_that_answers_nothing_holds_up_one_read_of_a_gap_and_not_each() {
    let nodes = Nodes::with(10).with_a_silent_one();
    let behind = nodes.polled(8);
    nodes.all_say(0);
    nodes.answers(0, POLL_MESSAGES_CODE, behind, MANY);
    let began = Instant::now();
    for _ in 0..8 {
        assert_eq!(nodes.read(5).unwrap().first(), Some(&(5, 6)));
    }
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
}

#[test]
fn a_partition_begins_where_the_node_begins_that_has_most_of_it() {
    let nodes = Nodes::with(10);
    nodes.all_say(0);
    assert_eq!(nodes.read(0).unwrap().len(), 10);
    nodes.trim(0, 0, 5);
    nodes.trim(1, 0, 3);
    assert_eq!(block_on(nodes.store.bounds(&nodes.topic.partition(0))), Ok(Bounds { start: 3, end: 10 }));
}
