//! Producers.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use milena_records::Codec;
use milena_records::client::{Record, build_batch};
use milena_wire::kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use milena_wire::kafka_protocol::messages::{ProduceRequest, ProduceResponse};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Acks, Plan};
use crate::Result;
use crate::client::{Connection, accepted};
use crate::latency::Latencies;
use crate::pulse::{Beats, Rhythm, pulse};
use crate::setup::topic_name;

/// Version of Produce that names topics, and that Kafka 4 and Milena speak.
pub(in crate::scenarios) const PRODUCE: i16 = 9;

/// Time that a leader is given to store a batch, in milliseconds.
const STORE_MS: i32 = 30_000;

/// Bytes of a record beside its value, about.
pub(in crate::scenarios) const RECORD_OVERHEAD: usize = 8;

/// Requests of a producer at a fixed rate without an answer, at most.
const DEPTH: usize = 100;

/// A batch that is sent again and again: its offsets are the server's to give, so nothing in it has to change.
#[derive(Debug, Clone)]
pub(super) struct Batch {
    pub(super) bytes: Bytes,
    pub(super) records: u32,
}

impl Batch {
    /// Values of `record_bytes` up to `batch_bytes` in all; one at least.
    pub(super) fn new(record_bytes: usize, batch_bytes: usize) -> Result<Self> {
        let records = u32::try_from(batch_bytes / (record_bytes + RECORD_OVERHEAD))?.max(1);
        // Of today, or retention would take the records away at once.
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let timestamp_ms = i64::try_from(now.as_millis())?;
        // Xorshift: values that no file system or network can make smaller.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut byte = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[0]
        };
        let record = |_| Record {
            offset: 0,
            timestamp_ms,
            key: None,
            value: Some((0..record_bytes).map(|_| byte()).collect()),
            headers: Vec::new(),
        };
        let records_of_batch: Vec<Record> = (0..records).map(record).collect();
        Ok(Self { bytes: build_batch(&records_of_batch, Codec::None, None).into(), records })
    }
}

/// What producers did.
#[derive(Debug, Default)]
pub(in crate::scenarios) struct Produced {
    pub(in crate::scenarios) records: u64,
    /// Records of each partition.
    pub(in crate::scenarios) per_partition: BTreeMap<i32, u64>,
    pub(in crate::scenarios) latencies: Latencies,
}

/// Stores the volume that the options name, as fast as the server takes it.
pub(in crate::scenarios) async fn volume(plan: &Plan) -> Result<Produced> {
    let per_batch = u64::from(plan.batch.records) * plan.options.record_bytes.max(1) as u64;
    let producers = plan.options.producers.max(1);
    let batches = (plan.options.megabytes * 1_000_000).div_ceil(per_batch).div_ceil(producers as u64);
    let mut producing = JoinSet::new();
    for number in 0..producers {
        producing.spawn(flood(plan.clone(), number, batches));
    }
    let mut all = Produced::default();
    while let Some(produced) = producing.join_next().await {
        let produced = produced??;
        all.records += produced.records;
        all.latencies.merge(&produced.latencies);
        for (partition, records) in produced.per_partition {
            *all.per_partition.entry(partition).or_default() += records;
        }
    }
    Ok(all)
}

async fn flood(plan: Plan, number: usize, batches: u64) -> Result<Produced> {
    let mut connection = Connection::open(&plan.address).await?;
    let mut produced = Produced::default();
    let mut partitions = plan.partitions_of(number);
    let records = u64::from(plan.batch.records);
    let mut left = batches;
    while left > 0 || connection.in_flight() > 0 {
        if left > 0 && connection.in_flight() < plan.options.depth.max(1) {
            let partition = partitions.next().unwrap_or(0);
            connection.send(PRODUCE, &plan.request(partition, &plan.batch)).await?;
            *produced.per_partition.entry(partition).or_default() += records;
            left -= 1;
            continue;
        }
        let (answer, took) = connection.receive::<ProduceRequest>().await?;
        stored(&answer)?;
        produced.records += records;
        produced.latencies.add(took);
    }
    Ok(produced)
}

/// Produces at the rate that the options name.
pub(super) async fn steady(plan: &Plan) -> Result<Beats> {
    let producers = plan.options.producers.max(1);
    let per_batch = u64::from(plan.batch.records) * plan.options.record_bytes.max(1) as u64;
    let micros = per_batch * producers as u64 / plan.options.rate.max(1);
    let interval = Duration::from_micros(micros.max(1));
    let start = Instant::now();
    let from = start + Duration::from_secs(1);
    let until = from + Duration::from_secs(plan.options.seconds);
    let mut producing = JoinSet::new();
    for number in 0..producers {
        let step = interval / u32::try_from(producers)?;
        let start = start + step * u32::try_from(number)?;
        let rhythm = Rhythm { start, interval: Some(interval), depth: DEPTH, from, until };
        let plan = plan.clone();
        producing.spawn(async move {
            let mut connection = Connection::open(&plan.address).await?;
            let mut partitions = plan.partitions_of(number);
            let ask = || plan.request(partitions.next().unwrap_or(0), &plan.batch);
            pulse(&mut connection, PRODUCE, &rhythm, ask, stored).await
        });
    }
    let mut all = Beats::default();
    while let Some(beats) = producing.join_next().await {
        all.merge(&beats??);
    }
    Ok(all)
}

impl Plan {
    /// The partitions that a producer goes through, for ever: all of them, each beginning with another one.
    fn partitions_of(&self, number: usize) -> impl Iterator<Item = i32> + use<> {
        (0..self.options.partitions.max(1)).cycle().skip(number)
    }

    pub(super) fn request(&self, partition: i32, batch: &Batch) -> ProduceRequest {
        request(&self.topic, self.options.acks, partition, batch)
    }
}

/// A request with one batch.
pub(super) fn request(topic: &str, acks: Acks, partition: i32, batch: &Batch) -> ProduceRequest {
    let data = PartitionProduceData::default().with_index(partition).with_records(Some(batch.bytes.clone()));
    let topic = TopicProduceData::default().with_name(topic_name(topic)).with_partition_data(vec![data]);
    ProduceRequest::default()
        .with_transactional_id(None)
        .with_acks(acks.code())
        .with_timeout_ms(STORE_MS)
        .with_topic_data(vec![topic])
}

/// One, when everything in the request was stored.
pub(super) fn stored(answer: &ProduceResponse) -> Result<u64> {
    for partition in answer.responses.iter().flat_map(|topic| &topic.partition_responses) {
        accepted("Produce", partition.error_code)?;
    }
    Ok(1)
}
