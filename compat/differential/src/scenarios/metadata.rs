//! Metadata and DescribeTopicPartitions.

use milena_wire::kafka_protocol::messages::describe_topic_partitions_request::{Cursor, TopicRequest};
use milena_wire::kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use milena_wire::kafka_protocol::messages::{DescribeTopicPartitionsRequest, MetadataRequest};
use uuid::Uuid;

use super::words::{create, text, topic};
use crate::duo::{Duo, versions};

/// What is known about topics.
pub async fn run(duo: &mut Duo) {
    create(duo, "known", 3, &[]).await;
    for version in versions::<MetadataRequest>() {
        named(duo, version).await;
        if version >= 10 {
            by_id(duo, version).await;
        }
        auto_creation(duo, version).await;
    }
    partitions(duo).await;
}

fn names(version: i16, names: &[&str]) -> MetadataRequest {
    let named = |name: &&str| MetadataRequestTopic::default().with_name(Some(topic(name)));
    let request = MetadataRequest::default().with_topics(Some(names.iter().map(named).collect()));
    // Before version 4 the field is not there, and topics may always be created.
    request.with_allow_auto_topic_creation(version < 4)
}

async fn named(duo: &mut Duo, version: i16) {
    duo.step("a topic");
    duo.ask(version, |_| names(version, &["known"])).await;
    duo.step("a topic twice");
    duo.ask(version, |_| names(version, &["known", "known"])).await;
    duo.step("topics with bad names");
    duo.ask(version, |_| names(version, &["a/b", "", ".."])).await;
    duo.step("an empty list");
    duo.ask_until_same(version, |_| names(version, &[])).await;
    if version >= 1 {
        duo.step("all topics");
        duo.ask_until_same(version, |_| names(version, &[]).with_topics(None)).await;
    }
    if version >= 4 {
        duo.step("an unknown topic");
        duo.ask(version, |_| names(version, &["nowhere", "known"])).await;
    }
    if version >= 8 {
        duo.step("operations on topics");
        duo.ask(version, |_| names(version, &["known", "nowhere"]).with_include_topic_authorized_operations(true))
            .await;
    }
    if (8..=10).contains(&version) {
        duo.step("operations on the cluster");
        duo.ask(version, |_| names(version, &[]).with_include_cluster_authorized_operations(true)).await;
    }
}

async fn by_id(duo: &mut Duo, version: i16) {
    let request = |name: Option<&str>, id: Uuid| {
        let topic = MetadataRequestTopic::default().with_name(name.map(topic)).with_topic_id(id);
        MetadataRequest::default().with_topics(Some(vec![topic])).with_allow_auto_topic_creation(false)
    };
    duo.step("an id");
    duo.ask(version, |memory| request(None, memory.topic_id("known"))).await;
    duo.step("an unknown id");
    duo.ask(version, |_| request(None, Uuid::from_u128(7))).await;
    duo.step("name and id");
    duo.ask(version, |memory| request(Some("known"), memory.topic_id("known"))).await;
    duo.step("neither name nor id");
    duo.ask(version, |_| request(None, Uuid::nil())).await;
}

async fn auto_creation(duo: &mut Duo, version: i16) {
    let name = format!("made-by-metadata-v{version}");
    duo.step("a topic that is to be created");
    duo.ask(version, |_| names(version, &[&name]).with_allow_auto_topic_creation(true)).await;
    duo.settled(&name, 1).await;
    duo.step("a topic that was created");
    duo.ask(version, |_| names(version, &[&name]).with_allow_auto_topic_creation(true)).await;
    duo.step("a bad name is not created");
    duo.ask(version, |_| names(version, &["a/b"]).with_allow_auto_topic_creation(true)).await;
}

async fn partitions(duo: &mut Duo) {
    let request = |names: &[&str], limit: i32| {
        let named = |name: &&str| TopicRequest::default().with_name(topic(name));
        DescribeTopicPartitionsRequest::default()
            .with_topics(names.iter().map(named).collect())
            .with_response_partition_limit(limit)
    };
    for (step, names, limit) in [
        ("a topic", &["known"][..], 2000),
        ("an unknown topic", &["nowhere", "known"], 2000),
        ("a bad name", &["a/b"], 2000),
        ("an empty name", &[""], 2000),
        ("all topics", &[], 2000),
        ("a topic twice", &["known", "known"], 2000),
        ("a page", &["known", "created-v7"], 4),
        ("a page of one partition", &["known"], 1),
        ("a page of none", &["known"], 0),
        ("a page of fewer than none", &["known"], -1),
        ("a page above the bound", &["known"], i32::MAX),
    ] {
        duo.step(step);
        duo.ask(0, |_| request(names, limit)).await;
    }
    for (step, name, partition) in [
        ("a cursor", "known", 1),
        ("a cursor behind the last partition", "known", 3),
        ("a cursor far behind the last partition", "known", 99),
        ("a cursor at a negative partition", "known", -1),
        ("a cursor at a topic that is gone", "kkk", 0),
        ("a cursor behind all topics", "zzz", 0),
    ] {
        duo.step(step);
        let cursor = Cursor::default().with_topic_name(text(name).into()).with_partition_index(partition);
        duo.ask(0, |_| request(&["created-v7", "known"], 2000).with_cursor(Some(cursor.clone()))).await;
    }
}
