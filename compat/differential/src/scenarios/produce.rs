//! Produce: what is asked around the batches.

use milena_records::Codec;
use milena_records::client::{Record, build_batch};
use milena_wire::kafka_protocol::messages::ProduceRequest;
use milena_wire::kafka_protocol::messages::produce_request::TopicProduceData;
use uuid::Uuid;

use super::words::{PRODUCE_BY_ID, create, plain, produce, record, topic, write};
use crate::duo::{Duo, versions};
use crate::normal::Memory;

/// First version that may bring zstd.
const ZSTD: i16 = 7;

/// Every codec, every version, and requests that are wrong.
pub async fn run(duo: &mut Duo) {
    create(duo, "written", 2, &[]).await;
    create(duo, "written-oddly", 2, &[]).await;
    create(duo, "written-twice", 2, &[]).await;
    create(duo, "appended", 1, &[("message.timestamp.type", Some("LogAppendTime"))]).await;
    for version in versions::<ProduceRequest>() {
        for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            duo.step(if codec == Codec::Zstd && version < ZSTD { "zstd too early" } else { "records in a codec" });
            let to = if codec == Codec::Zstd && version < ZSTD { "written-oddly" } else { "written" };
            write(duo, version, to, |memory| build_batch(&varied(memory), codec, None)).await;
        }
        duo.step("several partitions");
        duo.ask(version, |memory| {
            let records = |text| Some(plain(memory, 5, text));
            produce(memory, version, "written", vec![(0, records("one")), (1, records("two"))])
        })
        .await;
        duo.step("under the time of the append");
        write(duo, version, "appended", |memory| plain(memory, 1, "appended")).await;
        acks(duo, version).await;
        unknown(duo, version).await;
        empty(duo, version).await;
    }
}

/// Records of every shape, with times that are not in order.
pub(super) fn varied(memory: &Memory) -> Vec<Record> {
    let header = |name: &str, value: Option<&str>| (name.to_owned(), value.map(|text| text.as_bytes().to_vec()));
    let mut headers = record(memory.time(30), Some("key"), Some("with headers"));
    headers.headers = vec![header("a", Some("1")), header("a", None), header("b", Some(""))];
    vec![
        record(memory.time(20), Some("key"), Some(&"a value that can be compressed ".repeat(20))),
        headers,
        record(memory.time(10), Some("key"), None),
        record(memory.time(40), Some(""), Some("")),
        record(memory.time(25), None, None),
    ]
}

async fn acks(duo: &mut Duo, version: i16) {
    for acks in [1, 2, -2, i16::MAX] {
        duo.step(&format!("acks {acks}"));
        duo.ask(version, |memory| {
            produce(memory, version, "written-oddly", vec![(0, Some(plain(memory, 5, "acks")))]).with_acks(acks)
        })
        .await;
    }
    duo.step("acks 0");
    duo.tell(version, |memory| {
        produce(memory, version, "written-oddly", vec![(0, Some(plain(memory, 5, "acks 0")))]).with_acks(0)
    })
    .await;
    duo.step("a timeout of 0");
    duo.ask(version, |memory| {
        produce(memory, version, "written-oddly", vec![(0, Some(plain(memory, 5, "soon")))]).with_timeout_ms(0)
    })
    .await;
}

async fn unknown(duo: &mut Duo, version: i16) {
    for (step, partition) in [("an unknown partition", 2), ("a negative partition", -1)] {
        duo.step(step);
        duo.ask(version, |memory| {
            let records = || Some(plain(memory, 5, "beside"));
            produce(memory, version, "written-oddly", vec![(partition, records()), (1, records())])
        })
        .await;
    }
    for (step, name) in [("an unknown topic", "nowhere"), ("a bad name", "a/b"), ("no name", "")] {
        if version >= PRODUCE_BY_ID {
            continue;
        }
        duo.step(step);
        duo.ask(version, |memory| renamed(memory, version, TopicProduceData::default().with_name(topic(name)))).await;
    }
    for (step, id) in [("an unknown id", Uuid::from_u128(7)), ("no id", Uuid::nil())] {
        if version < PRODUCE_BY_ID {
            continue;
        }
        duo.step(step);
        duo.ask(version, |memory| renamed(memory, version, TopicProduceData::default().with_topic_id(id))).await;
    }
}

fn renamed(memory: &Memory, version: i16, mut other: TopicProduceData) -> ProduceRequest {
    let mut request = produce(memory, version, "written-oddly", vec![(0, Some(plain(memory, 5, "nowhere")))]);
    other.partition_data.clone_from(&request.topic_data[0].partition_data);
    request.topic_data = vec![other];
    request
}

async fn empty(duo: &mut Duo, version: i16) {
    duo.step("empty records");
    duo.ask(version, |memory| produce(memory, version, "written-oddly", vec![(0, Some(Vec::new()))])).await;
    if version == PRODUCE_BY_ID {
        // Kafka leaves the client without an answer, so once is enough.
        duo.step("no records");
        duo.ask(version, |memory| produce(memory, version, "written-oddly", vec![(0, None)])).await;
    }
    duo.step("no partitions");
    duo.ask(version, |memory| produce(memory, version, "written-oddly", vec![])).await;
    duo.step("no topics");
    duo.ask(version, |memory| produce(memory, version, "written-oddly", vec![]).with_topic_data(vec![])).await;
    duo.step("acks 0 and empty records");
    duo.tell(version, |memory| produce(memory, version, "written-oddly", vec![(0, Some(Vec::new()))]).with_acks(0))
        .await;
    duo.step("a partition twice");
    duo.ask(version, |memory| {
        let records = || Some(plain(memory, 5, "twice"));
        produce(memory, version, "written-twice", vec![(1, records()), (1, records())])
    })
    .await;
}
