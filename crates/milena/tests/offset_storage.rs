//! Committed offsets as consumer offsets of an Iggy server, through librdkafka, the command line and Iggy's SDK; and the way
//! there and back. The Iggy server is Iggy's protocol served by another child.
#![cfg(feature = "iggy")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use iggy::prelude::{Client as _, ConsumerGroupClient, ConsumerOffsetClient, Identifier, TcpClient};
use iggy_common::{AutoLogin, Consumer, Credentials, TcpClientConfig};
use milena_store_iggy::SecretString;
use milena_testkit::child::Builder;
use milena_testkit::{ChildServer, DoorChild};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::{Offset, TopicPartitionList};

const MILENA: &str = env!("CARGO_BIN_EXE_milena");
const GROUP: &str = "kafka.cg.app";

/// Long, because test machines are busy.
const PATIENCE: Duration = Duration::from_secs(30);

fn gateway(iggy: &DoorChild, storage: &str) -> Builder {
    let args = ["--set", "groups.initial_rebalance_delay=0s", "--set", &format!("offset_storage={storage}")];
    ChildServer::builder(MILENA).alone().over(iggy).args(args)
}

fn output(server: &ChildServer, args: &[&str]) -> String {
    let output = server.run(args, "");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A topic `orders` of two partitions with ten records each.
fn orders(server: &ChildServer) {
    output(server, &["topics", "create", "orders", "-p", "2"]);
    for partition in ["0", "1"] {
        assert!(server.run(&["produce", "orders", "-p", partition], &"x\n".repeat(10)).status.success());
    }
}

fn consumer(server: &ChildServer) -> BaseConsumer {
    ClientConfig::new()
        .set("bootstrap.servers", server.bootstrap())
        .set("broker.address.family", "v4")
        .set("group.id", "app")
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .create()
        .unwrap()
}

/// A member of the group reads all that there is, commits it, and leaves.
fn read_all(server: &ChildServer, records: usize) {
    let consumer = consumer(server);
    consumer.subscribe(&["orders"]).unwrap();
    let start = Instant::now();
    let mut got = 0;
    while got < records {
        assert!(start.elapsed() < PATIENCE, "only {got} records arrived");
        if let Some(message) = consumer.poll(Duration::from_millis(200)) {
            message.unwrap();
            got += 1;
        }
    }
    consumer.commit_consumer_state(CommitMode::Sync).unwrap();
}

/// Somebody who is no member commits.
fn commit(server: &ChildServer, offsets: &[(i32, i64)]) {
    let mut list = TopicPartitionList::new();
    for (partition, offset) in offsets {
        list.add_partition_offset("orders", *partition, Offset::Offset(*offset)).unwrap();
    }
    consumer(server).commit(&list, CommitMode::Sync).unwrap();
}

/// What the group has of both partitions, -1 for nothing.
fn committed(server: &ChildServer) -> [i64; 2] {
    let mut list = TopicPartitionList::new();
    list.add_partition_range("orders", 0, 1);
    let list = consumer(server).committed_offsets(list, PATIENCE).unwrap();
    let offset = |at: usize| match list.elements()[at].offset() {
        Offset::Offset(offset) => offset,
        _ => -1,
    };
    [offset(0), offset(1)]
}

fn named(name: &str) -> Identifier {
    Identifier::named(name).unwrap()
}

/// Somebody who uses Iggy's SDK and knows nothing of Kafka.
async fn native(iggy: &DoorChild) -> TcpClient {
    let credentials = Credentials::UsernamePassword("iggy".to_owned(), SecretString::from("secret".to_owned()));
    let client = TcpClient::create(Arc::new(TcpClientConfig {
        server_address: iggy.address().to_string(),
        auto_login: AutoLogin::Enabled(credentials),
        ..TcpClientConfig::default()
    }));
    let client = client.unwrap();
    client.connect().await.unwrap();
    client
}

/// Names of the groups of the topic, and what ours has of partition 0, as Iggy's tools see it.
async fn seen_natively(client: &TcpClient) -> (Vec<String>, Option<u64>) {
    let (stream, topic) = (named("kafka"), named("orders"));
    let groups = client.get_consumer_groups(&stream, &topic).await.unwrap();
    let offset = client.get_consumer_offset(&Consumer::group(named(GROUP)), &stream, &topic, Some(0)).await.unwrap();
    (groups.into_iter().map(|group| group.name).collect(), offset.map(|info| info.stored_offset))
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_groups_have_the_consumer_offsets_of_an_iggy_server_that_lets_them() {
    let iggy = DoorChild::with_free_offsets(MILENA);
    let mut server = gateway(&iggy, "consumer-offsets").start();
    orders(&server);
    read_all(&server, 20);
    assert_eq!(committed(&server), [10, 10]);
    let native = native(&iggy).await;
    assert_eq!(seen_natively(&native).await, (vec![GROUP.to_owned()], Some(10)));
    assert!(output(&server, &["groups", "describe", "app"]).contains("orders"));

    server.restart();
    assert_eq!(committed(&server), [10, 10]);
    commit(&server, &[(0, 0)]);
    assert_eq!(seen_natively(&native).await.1, Some(0));
    assert!(output(&server, &["groups", "list"]).contains("app"));

    native.delete_consumer_group(&named("kafka"), &named("orders"), &named(GROUP)).await.unwrap();
    assert_eq!(committed(&server), [-1, -1]);
    let start = Instant::now();
    while seen_natively(&native).await.0.is_empty() {
        assert!(start.elapsed() < PATIENCE, "the group is not created again");
        commit(&server, &[(1, 4)]);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(committed(&server), [-1, 4]);
    output(&server, &["groups", "delete", "app"]);
    assert_eq!((committed(&server), seen_natively(&native).await.0), ([-1, -1], Vec::new()));
}

#[test]
fn where_iggys_server_has_its_rules_the_value_is_a_sentence_and_auto_takes_the_topic() {
    let iggy = DoorChild::start(MILENA);
    let mut refused = gateway(&iggy, "consumer-offsets").spawn();
    assert_eq!(refused.exited().code(), Some(1));
    let said = refused.output();
    assert!(said.contains("no member of the group") && said.contains("set offset_storage to \"topic\""), "{said}");
    let server = gateway(&iggy, "auto").start();
    orders(&server);
    read_all(&server, 20);
    assert_eq!(committed(&server), [10, 10]);
}

fn migrate(iggy: &DoorChild, to: &str) -> Command {
    let mut command = Command::new(MILENA);
    command
        .args(["offsets", "migrate", "--to", to])
        .env("MILENA_IGGY_URL", iggy.url())
        .env("MILENA_IGGY_STATE_STREAM", "gateway")
        .env("MILENA_CLUSTER_GATEWAYS", "one")
        .current_dir(iggy.child().folder())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn migrated(iggy: &DoorChild, to: &str) -> String {
    let Output { status, stdout, stderr } = migrate(iggy, to).output().unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

#[test]
fn offsets_move_there_and_back_also_when_the_command_is_killed_on_the_way() {
    let iggy = DoorChild::with_free_offsets(MILENA);
    let mut server = gateway(&iggy, "topic").start();
    orders(&server);
    commit(&server, &[(0, 0), (1, 7)]);
    assert!(server.stop().success());
    for (from, to) in [("topic", "consumer-offsets"), ("consumer-offsets", "topic")] {
        for round in 1..6 {
            let mut command = migrate(&iggy, to).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(30 * round));
            let _ = command.kill();
            command.wait().unwrap();
        }
        migrated(&iggy, to);
        let said = migrated(&iggy, to);
        assert!(said.contains("nothing was moved"), "{said}");
        let mut elsewhere = gateway(&iggy, from).spawn();
        assert_eq!(elsewhere.exited().code(), Some(1));
        assert!(elsewhere.output().contains("milena offsets migrate"), "{}", elsewhere.output());
        let mut server = gateway(&iggy, to).start();
        assert_eq!(committed(&server), [0, 7], "{to}");
        assert!(server.stop().success());
    }
}
