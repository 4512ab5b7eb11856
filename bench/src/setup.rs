//! What has to be there before a load begins.

use std::time::Duration;

use milena_wire::kafka_protocol::messages::create_topics_request::CreatableTopic;
use milena_wire::kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use milena_wire::kafka_protocol::messages::{
    BrokerId, CreateTopicsRequest, DeleteTopicsRequest, FindCoordinatorRequest, GroupId, ListOffsetsRequest, TopicName,
};
use milena_wire::kafka_protocol::protocol::StrBytes;
use tokio::time::{Instant, sleep};

use crate::Result;
use crate::client::{Connection, accepted, refused};

/// Topic already exists.
const EXISTS: i16 = 36;

/// The end of a partition, where ListOffsets takes a time.
const LATEST: i64 = -1;

/// Longest wait for a broker that is just making its internal topics, or thousands of partitions.
const PATIENCE: Duration = Duration::from_secs(180);

/// A text of a request.
#[must_use]
pub fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// A group id of a request.
#[must_use]
pub fn group_id(name: &str) -> GroupId {
    GroupId(text(name))
}

/// A topic of a request.
#[must_use]
pub fn topic_name(name: &str) -> TopicName {
    TopicName(text(name))
}

/// Creates a topic if it is not there, and waits until every partition is served.
///
/// # Errors
/// When the server refuses it, or does not get ready.
pub async fn create_topic(connection: &mut Connection, name: &str, partitions: i32) -> Result<()> {
    let topic = CreatableTopic::default().with_name(topic_name(name)).with_num_partitions(partitions);
    let request = CreateTopicsRequest::default()
        .with_topics(vec![topic.with_replication_factor(-1)])
        .with_timeout_ms(i32::try_from(PATIENCE.as_millis()).unwrap_or(i32::MAX));
    let answer = connection.call(5, &request).await?;
    let code = answer.topics.first().map_or(0, |topic| topic.error_code);
    if code != EXISTS {
        accepted("CreateTopics", code)?;
    }
    let start = Instant::now();
    while !serves_all(connection, name, partitions).await? {
        if start.elapsed() > PATIENCE {
            return Err(format!("topic {name} has no {partitions} partitions that are served").into());
        }
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// True when the end of every partition is told. That there is a leader is known earlier than the leader does.
async fn serves_all(connection: &mut Connection, name: &str, partitions: i32) -> Result<bool> {
    let partition = |number| ListOffsetsPartition::default().with_partition_index(number).with_timestamp(LATEST);
    let topic = ListOffsetsTopic::default()
        .with_name(topic_name(name))
        .with_partitions((0..partitions).map(partition).collect());
    let request = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic]);
    let answer = connection.call(5, &request).await?;
    let served = answer.topics.iter().flat_map(|topic| &topic.partitions).filter(|partition| partition.error_code == 0);
    Ok(served.count() == usize::try_from(partitions)?)
}

/// Deletes a topic.
///
/// # Errors
/// When the server refuses it.
pub async fn delete_topic(connection: &mut Connection, name: &str) -> Result<()> {
    let request = DeleteTopicsRequest::default().with_topic_names(vec![topic_name(name)]).with_timeout_ms(30_000);
    let answer = connection.call(4, &request).await?;
    accepted("DeleteTopics", answer.responses.first().map_or(0, |topic| topic.error_code))
}

/// Asks who coordinates a group until somebody does.
///
/// # Errors
/// When nobody does in the end.
pub async fn find_coordinator(connection: &mut Connection, group: &str) -> Result<()> {
    let request = FindCoordinatorRequest::default().with_key(text(group));
    let start = Instant::now();
    loop {
        let answer = connection.call(3, &request).await?;
        match answer.error_code {
            0 => return Ok(()),
            code if start.elapsed() > PATIENCE => return Err(refused("FindCoordinator", code)),
            _ => sleep(Duration::from_millis(100)).await,
        }
    }
}
