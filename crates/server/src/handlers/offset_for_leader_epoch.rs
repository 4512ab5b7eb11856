//! OffsetForLeaderEpoch (23), versions 2-4: where what a consumer read in an epoch ends (KIP-320).
//!
//! - v3: replica id, which changes nothing. v4: flexible.
//! - A consumer that was fenced, or that begins at a committed offset with its epoch, asks with the epoch of the last record
//!   that it read. The answer is the largest epoch up to that one, and the offset behind its last record: the start of the
//!   next epoch, or the end of the log. A position behind it is of records that are gone.
//! - The current epoch of the request: an older one is 74, one from the future 75. An epoch that has not begun is answered
//!   with epoch -1 and offset -1, and so is none (-1).
//! - An unknown topic or partition is 3.

use std::sync::Arc;

use milena_store::Store;
use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use milena_wire::kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use milena_wire::kafka_protocol::messages::{ApiKey, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};

use crate::codes;
use crate::dispatch::{Api, Context, answer};
use crate::fetch::leader_epoch;
use crate::fetch::reader::{Target, Topics, target};
use crate::fetch::want::{PartitionKey, TopicKey};

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::OffsetForLeaderEpoch,
    name: "OffsetForLeaderEpoch",
    advertised: (2, 4),
    served: (2, 4),
    handle: |request| Box::pin(answer(ApiKey::OffsetForLeaderEpoch, request, handle)),
};

/// Partitions answered before other tasks get a turn.
const PARTITIONS_PER_TURN: usize = 512;

async fn handle(context: Context, request: OffsetForLeaderEpochRequest) -> Option<OffsetForLeaderEpochResponse> {
    let broker = &context.broker;
    let (mut answered, mut unknown) = (0_usize, false);
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let key = TopicKey::Name(Arc::from(topic.topic.as_str()));
        let known = broker.topics.topic(&key);
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in &topic.partitions {
            answered += 1;
            if answered.is_multiple_of(PARTITIONS_PER_TURN) {
                tokio::task::yield_now().await;
            }
            let place = PartitionKey { topic: key.clone(), partition: asked.partition };
            let found = match target(&place, known.clone()) {
                Ok(target) => end_of(broker.store.as_ref(), &target, asked).await,
                Err(error) => {
                    unknown = true;
                    Err(error)
                }
            };
            partitions.push(response(asked.partition, found));
        }
        topics.push(OffsetForLeaderTopicResult::default().with_topic(topic.topic).with_partitions(partitions));
    }
    if unknown {
        broker.topics.look_soon();
    }
    Some(OffsetForLeaderEpochResponse::default().with_topics(topics))
}

/// Epoch and end offset, if there are any.
type Found = Option<(i32, i64)>;

async fn end_of(store: &dyn Store, target: &Target, asked: &OffsetForLeaderPartition) -> Result<Found, ResponseError> {
    // The bounds first: the epochs are then those of these bounds, or later ones.
    let bounds = store.bounds(&target.at).await.map_err(|error| codes::of_store(&error))?;
    let epochs = store.epochs(&target.at);
    leader_epoch::check(asked.current_leader_epoch, &epochs)?;
    Ok(leader_epoch::end_of(asked.leader_epoch, &epochs, bounds.end))
}

fn response(partition: i32, found: Result<Found, ResponseError>) -> EpochEndOffset {
    let response = EpochEndOffset::default().with_partition(partition);
    match found {
        Err(error) => response.with_error_code(error.code()),
        Ok(None) => response,
        Ok(Some((epoch, end))) => response.with_leader_epoch(epoch).with_end_offset(end),
    }
}

#[cfg(test)]
#[path = "offset_for_leader_epoch_tests.rs"]
mod tests;
