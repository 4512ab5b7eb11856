//! Fetch without a session.

use milena_records::Codec;
use milena_records::client::build_batch;
use milena_wire::kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ReplicaState};
use milena_wire::kafka_protocol::messages::{BrokerId, FetchRequest};
use uuid::Uuid;

use super::produce::varied;
use super::words::{create, plain, text, topic, write};
use crate::duo::{Duo, versions};
use crate::normal::Memory;

/// First version that names topics by id.
pub(super) const BY_ID: i16 = 13;

/// Everything that was written comes back, in every version.
pub async fn run(duo: &mut Duo) {
    create(duo, "read", 2, &[]).await;
    create(duo, "empty", 1, &[]).await;
    create(duo, "waited-for", 1, &[]).await;
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        write(duo, 9, "read", |memory| build_batch(&varied(memory), codec, None)).await;
    }
    for version in versions::<FetchRequest>() {
        read(duo, version).await;
        positions(duo, version).await;
        limits(duo, version).await;
        unknown(duo, version).await;
        epochs(duo, version).await;
        woken(duo, version).await;
    }
}

/// One partition.
pub(super) fn partition(index: i32, offset: i64) -> FetchPartition {
    FetchPartition::default().with_partition(index).with_fetch_offset(offset).with_partition_max_bytes(1 << 20)
}

/// Partitions of a topic.
pub(super) fn of_topic(memory: &Memory, version: i16, name: &str, partitions: Vec<FetchPartition>) -> FetchTopic {
    let named = FetchTopic::default().with_partitions(partitions);
    if version >= BY_ID { named.with_topic_id(memory.topic_id(name)) } else { named.with_topic(topic(name)) }
}

/// A request that does not wait.
pub(super) fn request(topics: Vec<FetchTopic>) -> FetchRequest {
    let request = FetchRequest::default().with_max_wait_ms(0).with_min_bytes(0).with_max_bytes(50 << 20);
    request.with_session_epoch(-1).with_topics(topics)
}

async fn one(duo: &mut Duo, version: i16, name: &str, wanted: FetchPartition) {
    duo.ask(version, |memory| request(vec![of_topic(memory, version, name, vec![wanted.clone()])])).await;
}

async fn read(duo: &mut Duo, version: i16) {
    for name in ["written", "appended", "compacted", "timely", "read"] {
        duo.step(&format!("all of {name}"));
        one(duo, version, name, partition(0, 0)).await;
    }
    duo.step("several topics");
    duo.ask(version, |memory| {
        let both = vec![partition(0, 20), partition(1, 3)];
        request(vec![
            of_topic(memory, version, "written", both),
            of_topic(memory, version, "empty", vec![partition(0, 0)]),
        ])
    })
    .await;
    duo.step("what is committed");
    duo.ask(version, |memory| {
        request(vec![of_topic(memory, version, "read", vec![partition(0, 0)])]).with_isolation_level(1)
    })
    .await;
    duo.step("no topics");
    duo.ask(version, |_| request(vec![])).await;
    duo.step("no partitions");
    duo.ask(version, |memory| request(vec![of_topic(memory, version, "read", vec![])])).await;
}

async fn positions(duo: &mut Duo, version: i16) {
    for offset in [1, 7, 24] {
        duo.step("from an offset in a batch");
        duo.from_offset(offset);
        one(duo, version, "read", partition(0, offset)).await;
    }
    for (step, offset) in [
        ("at the end", 25),
        ("behind the end", 26),
        ("far behind the end", i64::MAX),
        ("before the start", -1),
        ("far before the start", -9),
    ] {
        duo.step(step);
        one(duo, version, "read", partition(0, offset)).await;
    }
    duo.step("the start of an empty partition");
    one(duo, version, "empty", partition(0, 0)).await;
    duo.step("at the end, with a wait");
    duo.ask(version, |memory| {
        request(vec![of_topic(memory, version, "read", vec![partition(0, 25)])]).with_max_wait_ms(20).with_min_bytes(1)
    })
    .await;
    duo.step("a negative wait");
    duo.ask(version, |memory| {
        request(vec![of_topic(memory, version, "read", vec![partition(0, 25)])]).with_max_wait_ms(-1).with_min_bytes(1)
    })
    .await;
}

async fn limits(duo: &mut Duo, version: i16) {
    for bytes in [1, 0, -1] {
        duo.step(&format!("{bytes} bytes of a partition whose first batch is one record"));
        one(duo, version, "appended", partition(0, 0).with_partition_max_bytes(bytes)).await;
        duo.step(&format!("{bytes} bytes of an answer, first batch one record"));
        duo.ask(version, |memory| {
            request(vec![of_topic(memory, version, "appended", vec![partition(0, 0)])]).with_max_bytes(bytes)
        })
        .await;
    }
    duo.step("the second partition where the first took all bytes");
    duo.ask(version, |memory| {
        let both = vec![partition(1, 0), partition(0, 0)];
        request(vec![of_topic(memory, version, "written", both)]).with_max_bytes(1)
    })
    .await;
}

async fn unknown(duo: &mut Duo, version: i16) {
    for (step, index) in [("an unknown partition", 7), ("a negative partition", -1)] {
        duo.step(step);
        one(duo, version, "read", partition(index, 0)).await;
    }
    duo.step("an unknown topic beside a known one");
    duo.ask(version, |memory| {
        let unknown = FetchTopic::default().with_partitions(vec![partition(0, 0)]);
        let unknown = if version >= BY_ID {
            unknown.with_topic_id(Uuid::from_u128(7))
        } else {
            unknown.with_topic(topic("nowhere"))
        };
        request(vec![unknown, of_topic(memory, version, "read", vec![partition(0, 25)])])
    })
    .await;
    duo.step("a topic without a name or id");
    duo.ask(version, |_| request(vec![FetchTopic::default().with_partitions(vec![partition(0, 0)])])).await;
    duo.step("a partition twice");
    duo.from_offset(24);
    duo.ask(version, |memory| {
        request(vec![of_topic(memory, version, "read", vec![partition(0, 24), partition(0, 24)])])
    })
    .await;
}

async fn epochs(duo: &mut Duo, version: i16) {
    for (step, epoch) in [("the epoch that is", 0), ("an epoch of the future", 5), ("a negative epoch", -2)] {
        if version >= 9 {
            duo.step(step);
            one(duo, version, "empty", partition(0, 0).with_current_leader_epoch(epoch)).await;
        }
    }
    for (step, epoch) in [("the last epoch that is", 0), ("a last epoch of the future", 5)] {
        if version >= 12 {
            duo.step(step);
            one(duo, version, "read", partition(0, 25).with_last_fetched_epoch(epoch)).await;
        }
    }
    if version >= 11 {
        duo.step("a rack");
        duo.ask(version, |memory| {
            request(vec![of_topic(memory, version, "read", vec![partition(0, 25)])]).with_rack_id(text("rack"))
        })
        .await;
    }
    duo.step("a replica that is not there");
    duo.ask(version, |memory| {
        let request = request(vec![of_topic(memory, version, "read", vec![partition(0, 25)])]);
        match version {
            15.. => request.with_replica_state(ReplicaState::default().with_replica_id(BrokerId(9))),
            _ => request.with_replica_id(BrokerId(9)),
        }
    })
    .await;
    duo.step("a log start of the reader's");
    if version >= 5 {
        one(duo, version, "read", partition(0, 25).with_log_start_offset(3)).await;
    }
    duo.step("an unknown isolation");
    duo.ask(version, |memory| {
        request(vec![of_topic(memory, version, "empty", vec![partition(0, 0)])]).with_isolation_level(9)
    })
    .await;
}

/// The last version by name and the first by id wait for a record; both have the topic to themselves.
async fn woken(duo: &mut Duo, version: i16) {
    let Some(end) = [BY_ID - 1, BY_ID].iter().position(|one| *one == version) else { return };
    let end = i64::try_from(end).expect("a small number");
    duo.step("records that come while it waits");
    duo.from_offset(end);
    let sent = duo
        .send("waits", version, |memory| {
            let topics = vec![of_topic(memory, version, "waited-for", vec![partition(0, end)])];
            request(topics).with_max_wait_ms(20_000).with_min_bytes(1)
        })
        .await;
    write(duo, 9, "waited-for", |memory| plain(memory, 1, "woken")).await;
    duo.receive::<FetchRequest>("waits", version, sent).await;
}
