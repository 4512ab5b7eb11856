//! ListOffsets (2), versions 1-10: offsets by time, and the ends of a partition.
//!
//! - v2: isolation level. v4: leader epochs. v6: flexible. v7: -3. v8: -4. v9: -5. v10: timeout of remote reads.
//! - -1 is the end, -2 and -4 (all of the log is local) the start, -3 the record with the largest timestamp, -5 (the end
//!   of what was moved to remote storage) is never there: offset -1. Any other negative time, or one that its version
//!   does not know yet, is 35 for its partition.
//! - A time t: the first offset whose record timestamp is at or behind t, exact per record, also when timestamps are out
//!   of order; none is offset -1 and timestamp -1. Under `LogAppendTime` the timestamp is the append time.
//! - A partition that the request names twice is 42 each time. A stale leader epoch is 74, one from the future 75. The answer
//!   names the epoch of the record at that offset, for an end the current one.
//! - The isolation level changes nothing: without transactions everything is committed.
//! - Left out: a record whose `kafka.ts` header names a later time than its stored origin timestamp (only writers other
//!   than Milena make those, or a store that limits the span of timestamps) is found by its stored time.

use std::collections::HashMap;
use std::sync::Arc;

use milena_store::Store;
use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use milena_wire::kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use milena_wire::kafka_protocol::messages::{ApiKey, ListOffsetsRequest, ListOffsetsResponse, TopicName};

use crate::codes;
use crate::dispatch::{Api, Context, answer};
use crate::fetch::by_time::{self, Timed};
use crate::fetch::leader_epoch::{self, kafka_epoch};
use crate::fetch::reader::{Target, Topics, kafka_offset, target};
use crate::fetch::want::{PartitionKey, TopicKey};
use crate::topics::Sought;

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::ListOffsets,
    name: "ListOffsets",
    advertised: (1, 10),
    served: (1, 10),
    handle: |request| Box::pin(answer(ApiKey::ListOffsets, request, handle)),
};

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;

/// First version with leader epochs.
const LEADER_EPOCHS: i16 = 4;

/// Partitions answered before other tasks get a turn.
const PARTITIONS_PER_TURN: usize = 512;

async fn handle(context: Context, request: ListOffsetsRequest) -> Option<ListOffsetsResponse> {
    let broker = &context.broker;
    // Tools take "unknown" for the end, and some consumers for a reason to begin elsewhere.
    let sought = request.topics.iter().map(|topic| {
        Sought::partitions(&topic.name, topic.partitions.iter().map(|partition| partition.partition_index))
    });
    broker.topics.seek(sought).await;
    Some(list_offsets(broker.store.as_ref(), &broker.topics, context.version, &request).await)
}

async fn list_offsets(
    store: &dyn Store,
    topics: &impl Topics,
    version: i16,
    request: &ListOffsetsRequest,
) -> ListOffsetsResponse {
    let named = count_names(request);
    let mut answered = 0_usize;
    let mut responses = Vec::with_capacity(request.topics.len());
    for topic in &request.topics {
        let key = TopicKey::Name(Arc::from(topic.name.as_str()));
        let known = topics.topic(&key);
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in &topic.partitions {
            answered += 1;
            if answered.is_multiple_of(PARTITIONS_PER_TURN) {
                tokio::task::yield_now().await;
            }
            let twice = named.get(&(&topic.name, asked.partition_index)).is_some_and(|count| *count > 1);
            let place = PartitionKey { topic: key.clone(), partition: asked.partition_index };
            let found = if twice {
                Err(ResponseError::InvalidRequest)
            } else {
                match target(&place, known.clone()) {
                    Ok(target) => offset_of(store, &target, version, asked).await,
                    Err(error) => Err(error),
                }
            };
            partitions.push(response(version, asked.partition_index, found));
        }
        responses.push(topic_response(topic, partitions));
    }
    ListOffsetsResponse::default().with_topics(responses)
}

fn count_names(request: &ListOffsetsRequest) -> HashMap<(&TopicName, i32), u32> {
    let mut named = HashMap::new();
    for topic in &request.topics {
        for partition in &topic.partitions {
            *named.entry((&topic.name, partition.partition_index)).or_insert(0) += 1;
        }
    }
    named
}

/// Offset and timestamp of an answer, and the epoch there; `None` is "there is no such record".
type Found = Option<(Timed, i32)>;

async fn offset_of(
    store: &dyn Store,
    target: &Target,
    version: i16,
    asked: &ListOffsetsPartition,
) -> Result<Found, ResponseError> {
    check_time(version, asked.timestamp)?;
    // The bounds first: the epochs are then those of these bounds, or later ones.
    let bounds = store.bounds(&target.at).await.map_err(|error| codes::of_store(&error))?;
    let epochs = store.epochs(&target.at);
    leader_epoch::check(asked.current_leader_epoch, &epochs)?;
    let with_epoch = |timed: Timed| (timed, kafka_epoch(epochs.at(timed.offset.unsigned_abs()).0));
    let untimed = |offset: u64| Ok(Some(with_epoch(Timed { offset: kafka_offset(offset), timestamp_ms: -1 })));
    let timestamp_type = target.topic.config.timestamp_type;
    let found = match asked.timestamp {
        LATEST => return untimed(bounds.end),
        EARLIEST | EARLIEST_LOCAL => return untimed(bounds.start),
        LATEST_TIERED => return Ok(None),
        MAX_TIMESTAMP => by_time::newest(store, &target.at, timestamp_type).await,
        time => by_time::first_at_or_behind(store, &target.at, timestamp_type, bounds, time).await,
    };
    found.map(|found| found.map(with_epoch)).map_err(|error| codes::of_store(&error))
}

/// Special times came one by one; an older version gets the answer that its brokers gave.
fn check_time(version: i16, time: i64) -> Result<(), ResponseError> {
    let known_from = match time {
        0.. | LATEST | EARLIEST => 1,
        MAX_TIMESTAMP => 7,
        EARLIEST_LOCAL => 8,
        LATEST_TIERED => 9,
        _ => i16::MAX,
    };
    if version >= known_from { Ok(()) } else { Err(ResponseError::UnsupportedVersion) }
}

fn response(version: i16, partition: i32, found: Result<Found, ResponseError>) -> ListOffsetsPartitionResponse {
    let response = ListOffsetsPartitionResponse::default().with_partition_index(partition);
    match found {
        Err(error) => response.with_error_code(error.code()),
        Ok(None) => response,
        Ok(Some((timed, epoch))) => {
            let response = response.with_offset(timed.offset).with_timestamp(timed.timestamp_ms);
            if version >= LEADER_EPOCHS { response.with_leader_epoch(epoch) } else { response }
        }
    }
}

fn topic_response(topic: &ListOffsetsTopic, partitions: Vec<ListOffsetsPartitionResponse>) -> ListOffsetsTopicResponse {
    ListOffsetsTopicResponse::default().with_name(topic.name.clone()).with_partitions(partitions)
}

#[cfg(test)]
#[path = "list_offsets_tests.rs"]
mod tests;
