//! ListOffsets, OffsetForLeaderEpoch and DeleteRecords: where a log begins and ends.

use milena_wire::kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use milena_wire::kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use milena_wire::kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use milena_wire::kafka_protocol::messages::{
    BrokerId, DeleteRecordsRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest,
};

use super::words::{create, plain, topic, write};
use crate::duo::{Duo, versions};
use crate::normal::Memory;

/// The special times of ListOffsets.
const SPECIAL: [(&str, i64); 7] = [
    ("the end", -1),
    ("the start", -2),
    ("the largest time", -3),
    ("the local start", -4),
    ("the end of what is remote", -5),
    ("a time that nobody knows", -7),
    ("the smallest number", i64::MIN),
];

/// Ends of every kind.
pub async fn run(duo: &mut Duo) {
    for version in versions::<ListOffsetsRequest>() {
        for name in ["read", "empty", "appended"] {
            for (step, time) in SPECIAL {
                duo.step(&format!("{step} of {name}"));
                listed(duo, version, name, 0, |_| time).await;
            }
        }
        for ms in [0, 10, 11, 20, 25, 40] {
            duo.step("a time");
            listed(duo, version, "read", 0, |memory| memory.time(ms)).await;
        }
        duo.step("a time behind all records");
        listed(duo, version, "read", 0, |memory| memory.time(41)).await;
        duo.step("time 0");
        listed(duo, version, "read", 0, |_| 0).await;
        refused(duo, version).await;
    }
    for version in versions::<OffsetForLeaderEpochRequest>() {
        epochs(duo, version).await;
    }
    for version in versions::<DeleteRecordsRequest>() {
        deletion(duo, version).await;
    }
}

fn list(topics: Vec<ListOffsetsTopic>) -> ListOffsetsRequest {
    ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(topics)
}

fn wanted(name: &str, partitions: &[(i32, i64)]) -> ListOffsetsTopic {
    let partition =
        |(index, time): &(i32, i64)| ListOffsetsPartition::default().with_partition_index(*index).with_timestamp(*time);
    ListOffsetsTopic::default().with_name(topic(name)).with_partitions(partitions.iter().map(partition).collect())
}

async fn listed(duo: &mut Duo, version: i16, name: &str, index: i32, time: impl Fn(&Memory) -> i64) {
    duo.ask(version, |memory| list(vec![wanted(name, &[(index, time(memory))])])).await;
}

async fn refused(duo: &mut Duo, version: i16) {
    for (step, name, partitions) in [
        ("an unknown topic", "nowhere", &[(0, -1)][..]),
        ("a bad name", "a/b", &[(0, -1)]),
        ("an unknown partition", "read", &[(7, -1), (0, -1)]),
        ("a negative partition", "read", &[(-1, -1)]),
        ("a partition twice", "read", &[(0, -1), (0, -2)]),
        ("no partitions", "read", &[]),
    ] {
        duo.step(step);
        duo.ask(version, |_| list(vec![wanted(name, partitions)])).await;
    }
    duo.step("no topics");
    duo.ask(version, |_| list(vec![])).await;
    duo.step("of a replica");
    duo.ask(version, |_| list(vec![wanted("read", &[(0, -1)])]).with_replica_id(BrokerId(9))).await;
    for (step, epoch) in [("the epoch that is", 0), ("an epoch of the future", 5)] {
        if version >= 4 {
            duo.step(step);
            duo.ask(version, |_| {
                let mut topic = wanted("read", &[(0, -1)]);
                topic.partitions[0].current_leader_epoch = epoch;
                list(vec![topic])
            })
            .await;
        }
    }
    for level in [1, 9] {
        if version >= 2 {
            duo.step(&format!("isolation level {level}"));
            duo.ask(version, |_| list(vec![wanted("read", &[(0, -1)])]).with_isolation_level(level)).await;
        }
    }
}

async fn epochs(duo: &mut Duo, version: i16) {
    for (step, name, index, current, epoch) in [
        ("the epoch that is", "read", 0, -1, 0),
        ("the epoch that is, known to be", "read", 0, 0, 0),
        ("an epoch of the future", "read", 0, -1, 5),
        ("no epoch", "read", 0, -1, -1),
        ("a negative epoch", "read", 0, -1, -2),
        ("a current epoch of the future", "read", 0, 5, 0),
        ("a negative current epoch", "read", 0, -2, 0),
        ("an empty partition", "watched-too", 0, -1, 0),
        ("an unknown partition", "read", 7, -1, 0),
        ("a negative partition", "read", -1, -1, 0),
        ("an unknown topic", "nowhere", 0, -1, 0),
        ("a bad name", "a/b", 0, -1, 0),
    ] {
        duo.step(step);
        duo.ask(version, |_| {
            let partition = OffsetForLeaderPartition::default()
                .with_partition(index)
                .with_current_leader_epoch(current)
                .with_leader_epoch(epoch);
            let topic = OffsetForLeaderTopic::default().with_topic(topic(name)).with_partitions(vec![partition]);
            OffsetForLeaderEpochRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic])
        })
        .await;
    }
    duo.step("no topics");
    duo.ask(version, |_| OffsetForLeaderEpochRequest::default().with_replica_id(BrokerId(-1))).await;
}

async fn deletion(duo: &mut Duo, version: i16) {
    let name = format!("cut-v{version}");
    create(duo, &name, 1, &[]).await;
    for ms in 0..5 {
        write(duo, 9, &name, |memory| plain(memory, ms, "cut")).await;
    }
    for (step, name, index, offset) in [
        ("at the start", &*name, 0, 0),
        ("in the middle", &name, 0, 2),
        ("before the start", &name, 0, 1),
        ("behind the end", &name, 0, 6),
        ("a negative offset", &name, 0, -2),
        ("an unknown partition", &name, 7, 0),
        ("a negative partition", &name, -1, 0),
        ("an unknown topic", "nowhere", 0, 0),
        ("a bad name", "a/b", 0, 0),
        ("a compacted topic", "compacted", 0, 0),
        ("the end", &name, 0, -1),
        ("at the end", &name, 0, 5),
    ] {
        duo.step(step);
        duo.ask(version, |_| cut(name, &[(index, offset)])).await;
        duo.step(&format!("after a deletion, {step}"));
        listed(duo, 7, name, 0, |_| -2).await;
    }
    duo.step("one of two partitions");
    duo.ask(version, |_| cut(&name, &[(0, -1), (7, 0)])).await;
    duo.step("no topics");
    duo.ask(version, |_| DeleteRecordsRequest::default().with_timeout_ms(30_000)).await;
    duo.step("no partitions");
    duo.ask(version, |_| cut(&name, &[])).await;
    duo.step("a partition twice");
    duo.ask(version, |_| cut(&name, &[(0, -1), (0, -1)])).await;
}

fn cut(name: &str, partitions: &[(i32, i64)]) -> DeleteRecordsRequest {
    let partition = |(index, offset): &(i32, i64)| {
        DeleteRecordsPartition::default().with_partition_index(*index).with_offset(*offset)
    };
    let topic = DeleteRecordsTopic::default()
        .with_name(topic(name))
        .with_partitions(partitions.iter().map(partition).collect());
    DeleteRecordsRequest::default().with_timeout_ms(30_000).with_topics(vec![topic])
}
