//! OffsetCommit (8), versions 2-9: stores the next offsets that a group will read.
//!
//! - v2-4: retention of its own, which wins over the configured one. v3: throttle time. v6: leader epoch. v7: static
//!   members (KIP-345). v8: flexible. v9: same form; 848 members would need it.
//! - Answered when the offsets are as durable as acknowledged records, or with 14 for every partition when the store takes
//!   longer than half of the shortest session: the heartbeat of the same connection waits behind it. The commit may still
//!   take effect then, and clients send it again.
//! - Every partition of the request is answered, in its order; a bad one does not fail the others. An offset of -1 takes
//!   the stored one away.
//! - Errors for all: 25 unknown member, 22 generation, 82 fenced, 27 between two generations, 16 coordinated elsewhere, 14. For each: 3 no such
//!   partition (unless foreign offsets are allowed), 12 metadata too long, 1 no offset, 28 no room.
//! - Conditional commit, from v8 on: a partition may carry tag 10000, int64, the offset that must be stored now (-1: none).
//!   If another one is, nothing is stored for it, and it is answered with 95 and tag 10000, int64, the offset that is. A
//!   tag that is no int64 fails the request with 42.
//! - Where the store keeps the offsets, each partition fails by itself, a condition is 35, what the store refuses is -1,
//!   and epoch, metadata and retention are dropped.

use std::sync::Arc;

use bytes::Bytes;
use milena_groups::{CommitPartition, CommitRequest, CommitTopic, Generation, GroupError, Sender};
use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use milena_wire::kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use milena_wire::kafka_protocol::messages::{ApiKey, OffsetCommitRequest, OffsetCommitResponse};

use crate::codes;
use crate::dispatch::{Api, Context, answer};
use crate::groups::topics::incarnation;
use crate::topics::{Sought, TopicDirectory};

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::OffsetCommit,
    name: "OffsetCommit",
    advertised: (2, 9),
    served: (2, 9),
    handle: |request| Box::pin(answer(ApiKey::OffsetCommit, request, offset_commit)),
};

/// The tag of a conditional commit, in the request and in the answer.
pub const EXPECTED_OFFSET_TAG: i32 = 10_000;

async fn offset_commit(context: Context, request: OffsetCommitRequest) -> Option<OffsetCommitResponse> {
    // The member may know a topic or a partition from another gateway, and takes "unknown" for the end.
    let sought = request.topics.iter().map(|topic| {
        Sought::partitions(&topic.name, topic.partitions.iter().map(|partition| partition.partition_index))
    });
    context.broker.topics.seek(sought).await;
    let topics: Option<Vec<_>> = request.topics.iter().map(|topic| asked(&context.broker.topics, topic)).collect();
    let Some(topics) = topics else {
        return Some(respond(request.topics, &mut std::iter::repeat_with(|| failed(ResponseError::InvalidRequest))));
    };
    let sender = Sender {
        group: &request.group_id,
        member_id: &request.member_id,
        instance_id: request.group_instance_id.as_deref(),
        generation: Generation(request.generation_id_or_member_epoch),
    };
    let commit = CommitRequest {
        group: Arc::from(request.group_id.as_str()),
        retention_ms: Some(request.retention_time_ms).filter(|ms| *ms >= 0),
        topics,
    };
    let results = context.broker.groups.commit(&sender, commit).await;
    Some(match results {
        Some(results) => respond(request.topics, &mut results.iter().map(answered)),
        None => {
            respond(request.topics, &mut std::iter::repeat_with(|| failed(ResponseError::CoordinatorLoadInProgress)))
        }
    })
}

/// A topic of the request in our terms; `None` when a tag of it is malformed.
fn asked(directory: &TopicDirectory, topic: &OffsetCommitRequestTopic) -> Option<CommitTopic> {
    let found = directory.by_name(&topic.name);
    let count = found.as_ref().map_or(0, |found| found.partitions);
    let partitions = topic.partitions.iter().map(|partition| {
        let exists = u32::try_from(partition.partition_index).is_ok_and(|index| index < count);
        Some(CommitPartition {
            partition: partition.partition_index,
            exists,
            offset: partition.committed_offset,
            leader_epoch: partition.committed_leader_epoch,
            metadata: partition.committed_metadata.as_deref().map(Box::from),
            expected: expected(partition)?,
        })
    });
    Some(CommitTopic {
        partitions: partitions.collect::<Option<_>>()?,
        name: found.as_ref().map_or_else(|| Arc::from(topic.name.as_str()), |found| Arc::clone(&found.name)),
        id: found.as_deref().map(incarnation),
    })
}

/// The condition of a partition; `None` when it is malformed.
#[expect(clippy::option_option, reason = "no condition, and a condition that cannot be read, are two things")]
fn expected(partition: &OffsetCommitRequestPartition) -> Option<Option<i64>> {
    let Some(tag) = partition.unknown_tagged_fields.get(&EXPECTED_OFFSET_TAG) else { return Some(None) };
    let bytes: [u8; 8] = tag.as_ref().try_into().ok()?;
    Some(Some(i64::from_be_bytes(bytes)))
}

/// The answer, with one result per partition.
fn respond(
    topics: Vec<OffsetCommitRequestTopic>,
    results: &mut dyn Iterator<Item = OffsetCommitResponsePartition>,
) -> OffsetCommitResponse {
    let topics = topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            // There are as many results as partitions.
            let result = results.next().unwrap_or_else(|| failed(ResponseError::UnknownServerError));
            result.with_partition_index(partition.partition_index)
        });
        let partitions = partitions.collect();
        OffsetCommitResponseTopic::default().with_name(topic.name).with_partitions(partitions)
    });
    OffsetCommitResponse::default().with_topics(topics.collect())
}

fn answered(result: &Result<(), GroupError>) -> OffsetCommitResponsePartition {
    let mut answer = OffsetCommitResponsePartition::default().with_error_code(codes::of_group_result(result));
    if let Err(GroupError::OffsetMismatch { stored }) = result {
        let stored = Bytes::copy_from_slice(&stored.to_be_bytes());
        answer.unknown_tagged_fields.insert(EXPECTED_OFFSET_TAG, stored);
    }
    answer
}

fn failed(error: ResponseError) -> OffsetCommitResponsePartition {
    OffsetCommitResponsePartition::default().with_error_code(error.code())
}
