//! OffsetDelete (47), version 0: offsets of topics that the group does not read go (KIP-496).
//!
//! - Errors for all: 24 group id, 69 no such group, 68 has members that are not consumers, 16 coordinated elsewhere,
//!   28 too many partitions for one record, 14 the store was too slow or offsets are loaded. For
//!   each: 86 a member subscribes to the topic. An offset that is not there counts as deleted.

use std::sync::Arc;

use milena_groups::{DeletePartitions, DeleteRequest, GroupError};
use milena_wire::kafka_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use milena_wire::kafka_protocol::messages::{ApiKey, OffsetDeleteRequest, OffsetDeleteResponse};

use crate::codes;
use crate::dispatch::{Api, Context, answer};
use crate::topics::Sought;

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::OffsetDelete,
    name: "OffsetDelete",
    advertised: (0, 0),
    served: (0, 0),
    handle: |request| Box::pin(answer(ApiKey::OffsetDelete, request, offset_delete)),
};

async fn offset_delete(context: Context, request: OffsetDeleteRequest) -> Option<OffsetDeleteResponse> {
    let broker = &context.broker;
    if broker.groups.is_external() {
        // The offset of a partition that another gateway knows would be said to be deleted, and stay in the store.
        let sought = request.topics.iter().map(|topic| {
            Sought::partitions(&topic.name, topic.partitions.iter().map(|partition| partition.partition_index))
        });
        broker.topics.seek(sought).await;
    }
    let topics = request.topics.iter().map(|topic| DeletePartitions {
        name: Arc::from(topic.name.as_str()),
        partitions: topic.partitions.iter().map(|partition| partition.partition_index).collect(),
    });
    let delete = DeleteRequest { group: Arc::from(request.group_id.as_str()), topics: topics.collect() };
    let results = broker.groups.delete_offsets(&delete).await;
    let mut results = match results.unwrap_or(Err(GroupError::StoreFailed)) {
        Ok(results) => results.into_iter(),
        Err(error) => return Some(OffsetDeleteResponse::default().with_error_code(codes::of_group(&error).code())),
    };
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            // There are as many results as partitions.
            let result = results.next().unwrap_or(Ok(()));
            OffsetDeleteResponsePartition::default()
                .with_partition_index(partition.partition_index)
                .with_error_code(codes::of_group_result(&result))
        });
        let partitions = partitions.collect();
        OffsetDeleteResponseTopic::default().with_name(topic.name).with_partitions(partitions)
    });
    Some(OffsetDeleteResponse::default().with_topics(topics.collect()))
}
