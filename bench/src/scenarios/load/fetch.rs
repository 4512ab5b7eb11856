//! Consumers.

use std::collections::BTreeMap;

use milena_wire::kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use milena_wire::kafka_protocol::messages::{BrokerId, FetchRequest, FetchResponse};
use tokio::task::JoinSet;

use super::Plan;
use crate::Result;
use crate::client::{Connection, accepted};
use crate::latency::Latencies;
use crate::setup::topic_name;

/// Version of Fetch that names topics, and that Kafka 4 and Milena speak.
pub(super) const FETCH: i16 = 12;

/// What stock consumers ask for: bytes in an answer and of a partition in it, and how long an answer may wait.
const ANSWER_BYTES: i32 = 50 << 20;
const PARTITION_BYTES: i32 = 1 << 20;
const WAIT_MS: i32 = 500;

/// Bytes of a batch before its length ends, and the places of what is read of its head.
const LENGTH_END: usize = 12;
const LENGTH: usize = 8;
const LAST_OFFSET_DELTA: usize = 23;

/// Where a consumer goes on, and where it ends, by partition.
pub(super) type Positions = BTreeMap<i32, (i64, i64)>;

/// What consumers did.
#[derive(Debug, Default)]
pub(in crate::scenarios) struct Fetched {
    pub(in crate::scenarios) records: u64,
    pub(in crate::scenarios) latencies: Latencies,
}

impl Fetched {
    pub(in crate::scenarios) fn merge(&mut self, other: &Self) {
        self.records += other.records;
        self.latencies.merge(&other.latencies);
    }
}

/// Reads so many records of each partition.
pub(in crate::scenarios) async fn all(plan: &Plan, per_partition: &BTreeMap<i32, u64>) -> Result<Fetched> {
    let consumers = plan.options.consumers.max(1);
    let mut fetching = JoinSet::new();
    for number in 0..consumers {
        let share = per_partition.iter().skip(number).step_by(consumers);
        let positions: Result<Positions> =
            share.map(|(at, records)| Ok((*at, (0, i64::try_from(*records)?)))).collect();
        fetching.spawn(read(plan.clone(), positions?));
    }
    let mut all = Fetched { records: per_partition.values().sum(), ..Fetched::default() };
    while let Some(latencies) = fetching.join_next().await {
        all.latencies.merge(&latencies??);
    }
    Ok(all)
}

async fn read(plan: Plan, mut positions: Positions) -> Result<Latencies> {
    let mut connection = Connection::open(&plan.address).await?;
    let mut latencies = Latencies::default();
    while !positions.is_empty() {
        connection.send(FETCH, &request(&plan.topic, &positions, WAIT_MS)).await?;
        let (answer, took) = connection.receive::<FetchRequest>().await?;
        latencies.add(took);
        advance(&answer, &mut positions)?;
        positions.retain(|_, (next, end)| next < end);
    }
    Ok(latencies)
}

/// A fetch of all those partitions.
pub(super) fn request(topic: &str, positions: &Positions, wait_ms: i32) -> FetchRequest {
    let partitions = positions.iter().map(|(partition, (next, _))| {
        FetchPartition::default()
            .with_partition(*partition)
            .with_fetch_offset(*next)
            .with_partition_max_bytes(PARTITION_BYTES)
    });
    let topic = FetchTopic::default().with_topic(topic_name(topic)).with_partitions(partitions.collect());
    FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(wait_ms)
        .with_min_bytes(1)
        .with_max_bytes(ANSWER_BYTES)
        .with_topics(vec![topic])
}

/// Goes behind the last whole batch of each partition.
pub(super) fn advance(answer: &FetchResponse, positions: &mut Positions) -> Result<()> {
    accepted("Fetch", answer.error_code)?;
    for partition in answer.responses.iter().flat_map(|topic| &topic.partitions) {
        accepted("Fetch", partition.error_code)?;
        let records = partition.records.as_deref().unwrap_or_default();
        let Some((next, _)) = positions.get_mut(&partition.partition_index) else { continue };
        *next = (*next).max(end_of(records).unwrap_or(0));
    }
    Ok(())
}

/// The offset behind the last whole batch.
fn end_of(mut records: &[u8]) -> Option<i64> {
    let mut end = None;
    loop {
        let Some((base, delta, rest)) = batch(records) else { return end };
        end = Some(base + i64::from(delta) + 1);
        records = rest;
    }
}

/// Base offset and last offset delta of the first batch, and what follows it. Only the head of a batch is looked at: what
/// a client does with records is the same with every server.
fn batch(records: &[u8]) -> Option<(i64, i32, &[u8])> {
    let base = i64::from_be_bytes(*records.first_chunk()?);
    let length = i32::from_be_bytes(*records.get(LENGTH..)?.first_chunk()?);
    let delta = i32::from_be_bytes(*records.get(LAST_OFFSET_DELTA..)?.first_chunk()?);
    let rest = records.get(LENGTH_END + usize::try_from(length).ok()?..)?;
    Some((base, delta, rest))
}

#[cfg(test)]
mod tests {
    use super::super::produce::Batch;
    use super::*;

    #[test]
    fn a_batch_that_is_cut_off_is_fetched_again() {
        let batch = Batch::new(100, 2_000).unwrap();
        let mut second = batch.bytes.to_vec();
        second[..8].copy_from_slice(&i64::from(batch.records).to_be_bytes());
        let both = [&batch.bytes[..], &second].concat();
        let records = i64::from(batch.records);
        assert_eq!(end_of(&both), Some(2 * records));
        assert_eq!(end_of(&both[..both.len() - 1]), Some(records));
        assert_eq!(end_of(&[]), None);
    }
}
