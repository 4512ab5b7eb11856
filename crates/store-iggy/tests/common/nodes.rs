//! A cluster: two servers that say that they are one. The second one lags behind with groups and offsets, and each can lack
//! messages.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use iggy::prelude::{Consumer, ConsumerGroupClient, ConsumerOffsetClient, Identifier, TcpClient};
use iggy_binary_protocol::codec::WireEncode;
use iggy_binary_protocol::codes::GET_CLUSTER_METADATA_CODE;
use iggy_binary_protocol::requests::messages::PollMessagesRequest;
use iggy_binary_protocol::responses::system::get_cluster_metadata::{ClusterMetadataResponse, ClusterNodeResponse};
use iggy_binary_protocol::{WireConsumer, WireIdentifier, WirePollingStrategy};
use iggy_common::BinaryTransport;
use milena_iggy_door::OffsetRules;
use milena_iggy_door::faults::{Fault, On};
use milena_store::frame::Frames;
use milena_store::testing::{TestMessage, batch_of};
use milena_store::{Appended, Entry, OffsetStore, PartitionRef, ReadLimit, Store, StoreError, TopicRef, TopicSettings};
use milena_store_iggy::{IggyConfig, IggyStore};
use pollster::block_on;

use crate::common::{RUNTIME, open};
use crate::door::TestServer;

/// The group of these tests.
pub const GROUP: &str = "readers";

/// More than any test asks.
pub const MANY: usize = 2_000;

/// Two nodes, and two gateways that know of one of them. The second one lags: it has what there was when the test began, which
/// is no group and no offset.
pub struct Nodes {
    pub nodes: [TestServer; 2],
    /// A third one, which takes connections and answers nothing.
    pub silent: Option<TcpListener>,
    pub store: Arc<IggyStore>,
    pub other: Arc<IggyStore>,
    pub topic: TopicRef,
}

impl Nodes {
    /// A topic of two partitions, the first of which has a message.
    pub fn new() -> Self {
        Self::with(1)
    }

    /// With so many messages in the first partition, which both nodes have.
    pub fn with(messages: u128) -> Self {
        Self::filled(2, 1, messages)
    }

    /// With so many partitions, of which the first `filled` have so many messages.
    pub fn filled(partitions: u32, filled: u32, messages: u128) -> Self {
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
    pub fn says(&self, node: usize, leader: usize) {
        let silent = self.silent.as_ref().map(|listener| listener.local_addr().unwrap());
        let addresses: Vec<_> = self.nodes.iter().map(TestServer::address).chain(silent).collect();
        self.says_of(node, &addresses, leader);
    }

    /// As [`Self::says`], of a cluster with nodes at these addresses.
    pub fn says_of(&self, node: usize, addresses: &[SocketAddr], leader: usize) {
        says(&self.nodes[node], addresses, leader);
    }

    /// The second node leads the first partition, and the first node the second partition, which is answered. The nodes have two
    /// messages of what they lead, and one of the other partition.
    pub fn led_apart(&self) -> PartitionRef {
        for (leader, partition) in [(1, 0), (0, 1)] {
            self.all_say(leader);
            // With this the gateway hears of it.
            assert_eq!(block_on(self.store.has_group(&self.topic, GROUP)), Ok(false));
            assert_eq!(self.append(&self.topic.partition(partition), 2).unwrap().base_offset, Some(1));
        }
        self.topic.partition(1)
    }

    pub fn append(&self, at: &PartitionRef, id: u128) -> Result<Appended, StoreError> {
        block_on(self.store.append(at, batch_of(&[TestMessage::new(id, b"value")])))
    }

    /// That partition as a node's own store knows it.
    pub fn on(&self, node: usize, partition: u32) -> PartitionRef {
        let memory = &self.nodes[node].memory;
        block_on(memory.topic("kafka", "orders")).unwrap().unwrap().topic.partition(partition)
    }

    /// A node has one more message of a partition, whatever its leader has.
    pub fn stores(&self, node: usize, partition: u32, id: u128) {
        let batch = batch_of(&[TestMessage::new(id, b"value")]);
        block_on(self.nodes[node].memory.append(&self.on(node, partition), batch)).unwrap();
    }

    /// Plans a fault of a node.
    pub fn fault(&self, node: usize, on: On, fault: Fault) {
        self.nodes[node].door.lock().as_ref().unwrap().faults().plan(on, fault);
    }

    pub fn all_say(&self, leader: usize) {
        (0..2).for_each(|node| self.says(node, leader));
    }

    /// Who uses the SDK, and stays at the node where it came in.
    pub fn native<T>(&self, node: usize, use_it: impl AsyncFnOnce(TcpClient) -> T) -> T {
        self.nodes[node].door.lock().as_ref().unwrap().faults().forget();
        let client = self.nodes[node].native();
        RUNTIME.block_on(use_it(client))
    }

    /// The reply to a poll of the first partition from that offset on.
    pub fn polled(&self, from: u64) -> &'static [u8] {
        self.polled_some(from, 100)
    }

    /// As [`Self::polled`], for so many messages.
    pub fn polled_some(&self, from: u64, count: u32) -> &'static [u8] {
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
    pub fn with_a_silent_one(self) -> Self {
        Self { silent: Some(TcpListener::bind("127.0.0.1:0").unwrap()), ..self }
    }

    /// A node removes the messages below that offset from a partition.
    pub fn trim(&self, node: usize, partition: u32, before: u64) {
        block_on(self.nodes[node].memory.trim(&self.on(node, partition), before)).unwrap();
    }

    /// A node answers so many requests of that kind with this.
    pub fn answers(&self, node: usize, code: u32, body: &'static [u8], times: usize) {
        let door = self.nodes[node].door.lock();
        let faults = door.as_ref().unwrap().faults();
        (0..times).for_each(|_| faults.plan(On::Code(code), Fault::Body(body)));
    }

    /// Offsets and message ids in the first partition from that offset on.
    pub fn read(&self, from: u64) -> Result<Vec<(u64, u128)>, StoreError> {
        let limit = ReadLimit { bytes: 1 << 20, at_least_one: true };
        let entries = block_on(self.store.read(&self.topic.partition(0), from, limit))?;
        let messages = |entry: &Entry| {
            let ids: Vec<u128> = Frames::new(&entry.frames).map(|frame| frame.id).collect();
            (entry.base_offset..).zip(ids).collect::<Vec<_>>()
        };
        Ok(entries.iter().flat_map(messages).collect())
    }

    /// Groups that a node has.
    pub fn groups(&self, node: usize) -> Vec<String> {
        let groups = self
            .native(node, async |client| client.get_consumer_groups(&named("kafka"), &named("orders")).await.unwrap());
        groups.into_iter().map(|group| group.name).collect()
    }

    /// The first node leads the first partition, and has offset 5 of it for the group.
    pub fn commit(&self) {
        let (stream, topic, group) = (named("kafka"), named("orders"), Consumer::group(named(GROUP)));
        self.native(0, async |client| {
            client.create_consumer_group(&stream, &topic, GROUP).await.unwrap();
            client.store_consumer_offset(&group, &stream, &topic, Some(0), 5).await.unwrap();
        });
    }
}

/// What a server answers from now on when it is asked who leads the cluster, which has nodes at these addresses.
pub fn says(server: &TestServer, addresses: &[SocketAddr], leader: usize) {
    let nodes = addresses.iter().enumerate().map(|(number, address)| ClusterNodeResponse {
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
    let door = server.door.lock();
    let faults = door.as_ref().unwrap().faults();
    faults.forget();
    (0..MANY).for_each(|_| faults.plan(On::Code(GET_CLUSTER_METADATA_CODE), Fault::Body(body)));
}

pub fn named(name: &str) -> Identifier {
    Identifier::named(name).unwrap()
}
