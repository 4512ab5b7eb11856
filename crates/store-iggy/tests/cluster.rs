//! Consumer offsets in a cluster: two servers that say that they are one, of which the second lags behind.
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

use std::sync::Arc;

use bytes::BytesMut;
use common::{RUNTIME, open};
use door::{PASSWORD, TestServer, USER};
use iggy::prelude::{Client, Consumer, ConsumerGroupClient, ConsumerOffsetClient, Identifier, TcpClient};
use iggy_binary_protocol::codec::WireEncode;
use iggy_binary_protocol::codes::GET_CLUSTER_METADATA_CODE;
use iggy_binary_protocol::consensus::Operation;
use iggy_binary_protocol::responses::system::get_cluster_metadata::{ClusterMetadataResponse, ClusterNodeResponse};
use iggy_common::{AutoLogin, Credentials, IggyError, TcpClientConfig};
use milena_iggy_door::OffsetRules;
use milena_iggy_door::faults::{Fault, On};
use milena_store::testing::{TestMessage, batch_of};
use milena_store::{OffsetStore, Store, StoreError, TopicRef, TopicSettings};
use milena_store_iggy::{IggyStore, SecretString};
use pollster::block_on;

const GROUP: &str = "readers";

/// More than any test asks.
const MANY: usize = 2_000;

/// Two nodes, and two gateways that know of one of them. The second one lags: it has what there was when the test began, which
/// is no group and no offset.
struct Nodes {
    nodes: [TestServer; 2],
    store: Arc<IggyStore>,
    other: Arc<IggyStore>,
    topic: TopicRef,
}

impl Nodes {
    /// A topic of two partitions, the first of which has a message.
    fn new() -> Self {
        let first = TestServer::with(OffsetRules::Free);
        let store = first.open();
        let other = open(milena_store_iggy::IggyConfig { instance: 1, ..first.config() });
        let topic = block_on(store.create_topic("kafka", "orders", 2, &TopicSettings::default())).unwrap().topic;
        block_on(store.append(&topic.partition(0), batch_of(&[TestMessage::new(1, b"value")]))).unwrap();
        let second = first.replica();
        Self { nodes: [first, second], store, other, topic }
    }

    /// What a node answers from now on when it is asked who leads the cluster.
    fn says(&self, node: usize, leader: usize) {
        let nodes = self.nodes.iter().enumerate().map(|(number, server)| ClusterNodeResponse {
            name: format!("node-{number}"),
            ip: server.address().ip().to_string(),
            tcp_port: server.address().port(),
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
