//! Commits through librdkafka, as applications make them: by hand and by the client's timer, with and without waiting.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

use std::time::{Duration, Instant};

use milena_testkit::ChildServer;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::{Message, Offset, TopicPartitionList};

/// Long, because test machines are busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server with a topic `orders` of two partitions, with that many records each.
fn server(records: usize) -> ChildServer {
    let builder = ChildServer::builder(env!("CARGO_BIN_EXE_milena"));
    let server = builder.args(["--set", "groups.initial_rebalance_delay=0s"]).start();
    assert!(server.run(&["topics", "create", "orders", "-p", "2"], "").status.success());
    for partition in ["0", "1"] {
        assert!(server.run(&["produce", "orders", "-p", partition], &"x\n".repeat(records)).status.success());
    }
    server
}

/// A consumer of group `app`. Its own timer does not come before a test ends.
fn consumer(server: &ChildServer, auto_commit: bool) -> BaseConsumer {
    ClientConfig::new()
        .set("bootstrap.servers", server.bootstrap())
        .set("broker.address.family", "v4")
        .set("group.id", "app")
        .set("enable.auto.commit", auto_commit.to_string())
        .set("auto.commit.interval.ms", "3600000")
        .set("auto.offset.reset", "earliest")
        .create()
        .unwrap()
}

/// As `consumer`, a member of the group that has got that many records; the next offset of each partition.
fn member(server: &ChildServer, auto_commit: bool, records: usize) -> (BaseConsumer, [i64; 2]) {
    let consumer = consumer(server, auto_commit);
    consumer.subscribe(&["orders"]).unwrap();
    let next = read(&consumer, records);
    (consumer, next)
}

/// The offset behind the last record of each partition, or -1.
fn read(consumer: &BaseConsumer, records: usize) -> [i64; 2] {
    let (start, mut next) = (Instant::now(), [-1; 2]);
    for got in 0..records {
        let message = loop {
            assert!(start.elapsed() < PATIENCE, "only {got} records arrived");
            if let Some(message) = consumer.poll(Duration::from_millis(200)) {
                break message.unwrap();
            }
        };
        next[usize::try_from(message.partition()).unwrap()] = message.offset() + 1;
    }
    next
}

fn named(offsets: &[(i32, i64, &str)]) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for (partition, offset, metadata) in offsets {
        let mut element = list.add_partition("orders", *partition);
        element.set_offset(Offset::Offset(*offset)).unwrap();
        element.set_metadata(*metadata);
    }
    list
}

/// What the group has: offset and metadata of both partitions, as a client asks that is no member.
fn committed(server: &ChildServer) -> [(Offset, String); 2] {
    let mut list = TopicPartitionList::new();
    list.add_partition_range("orders", 0, 1);
    let list = consumer(server, false).committed_offsets(list, PATIENCE).unwrap();
    let elements: Vec<_> = list.elements().iter().map(|e| (e.offset(), e.metadata().to_owned())).collect();
    elements.try_into().unwrap()
}

fn offsets(server: &ChildServer) -> [Offset; 2] {
    committed(server).map(|(offset, _)| offset)
}

#[test]
fn a_consumer_that_commits_by_itself_has_committed_all_that_it_got_when_it_is_closed() {
    let server = server(5);
    let (consumer, next) = member(&server, true, 10);
    assert_eq!((next, offsets(&server)), ([5, 5], [Offset::Invalid; 2]));
    drop(consumer);
    assert_eq!(offsets(&server), [Offset::Offset(5); 2]);
}

#[test]
fn a_consumer_that_commits_by_itself_has_committed_all_that_it_got_when_it_subscribes_to_something_else() {
    let server = server(5);
    let (consumer, _) = member(&server, true, 10);
    assert!(server.run(&["topics", "create", "others"], "").status.success());
    assert!(server.run(&["produce", "others"], "x\n").status.success());
    consumer.subscribe(&["others"]).unwrap();
    read(&consumer, 1);
    assert_eq!(offsets(&server), [Offset::Offset(5); 2]);
}

#[test]
fn a_consumer_that_is_not_told_to_commit_does_not() {
    let server = server(5);
    let (consumer, _) = member(&server, false, 10);
    drop(consumer);
    assert_eq!(offsets(&server), [Offset::Invalid; 2]);
    // So the next one follows its reset policy.
    assert_eq!(member(&server, false, 10).1, [5, 5]);
}

#[test]
fn metadata_comes_back_with_the_offset_that_it_was_committed_with() {
    let server = server(0);
    let tool = consumer(&server, false);
    for (offset, metadata) in [(5, "metadata of five"), (7, "\u{fc}ber \u{1f600}"), (8, "")] {
        tool.commit(&named(&[(0, offset, metadata)]), CommitMode::Sync).unwrap();
        assert_eq!(committed(&server)[0], (Offset::Offset(offset), metadata.to_owned()));
    }
    assert_eq!(committed(&server)[1], (Offset::Invalid, String::new()));
}

#[test]
fn commits_that_are_not_waited_for_are_stored_in_the_order_in_which_they_were_made() {
    let server = server(1);
    let (consumer, _) = member(&server, false, 2);
    for offset in (0..200).rev() {
        consumer.commit(&named(&[(0, offset, "not waited for")]), CommitMode::Async).unwrap();
    }
    // One that is waited for comes behind them.
    consumer.commit(&named(&[(1, 1, "")]), CommitMode::Sync).unwrap();
    assert_eq!(offsets(&server), [Offset::Offset(0), Offset::Offset(1)]);
    // And so does the end of the consumer.
    for offset in 0..200 {
        consumer.commit(&named(&[(0, offset, "not waited for")]), CommitMode::Async).unwrap();
    }
    drop(consumer);
    assert_eq!(offsets(&server)[0], Offset::Offset(199));
}

#[test]
fn named_offsets_are_stored_as_they_are_and_others_stay() {
    let server = server(3);
    let (consumer, _) = member(&server, false, 6);
    for (list, expected) in [
        (named(&[(0, 3, ""), (1, 2, "")]), [3, 2]),
        (named(&[(0, 7, "")]), [7, 2]),
        (named(&[(1, 0, "")]), [7, 0]),
        // Nothing is committed by an empty list.
        (TopicPartitionList::new(), [7, 0]),
    ] {
        let done = consumer.commit(&list, CommitMode::Sync);
        assert_eq!((done.is_ok(), offsets(&server)), (list.count() > 0, expected.map(Offset::Offset)));
    }
}

#[test]
fn position_and_commit_are_two_things() {
    let server = server(10);
    let (consumer, next) = member(&server, false, 7);
    consumer.commit_consumer_state(CommitMode::Sync).unwrap();
    let stored = next.map(|next| if next < 0 { Offset::Invalid } else { Offset::Offset(next) });
    assert_eq!(offsets(&server), stored);
    // Neither reading on nor seeking back changes what is committed.
    read(&consumer, 5);
    assert_eq!(offsets(&server), stored);
    let first = usize::from(next[0] < 0);
    consumer.seek("orders", i32::try_from(first).unwrap(), Offset::Offset(0), PATIENCE).unwrap();
    assert_eq!(offsets(&server), stored);
    drop(consumer);
    // The next member goes on from what is committed.
    let (consumer, next) = member(&server, false, 20 - 7);
    assert_eq!(next, [10, 10]);
    consumer.commit_consumer_state(CommitMode::Sync).unwrap();
    assert_eq!(offsets(&server), [Offset::Offset(10); 2]);
}
