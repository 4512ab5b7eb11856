//! Kafka clients and Iggy clients on one store, in one process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod both_kit;
mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use both_kit::{Both, fetch, name, records};
use bytes::Bytes;
use common::id;
use iggy::prelude::*;
use milena_records::client::Record;
use milena_wire::kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use milena_wire::kafka_protocol::messages::{DeleteTopicsRequest, FetchRequest};

fn raw(text: &str) -> (HeaderKey, HeaderValue) {
    let (key, value) = text.split_once('=').unwrap();
    (HeaderKey::try_from(key).unwrap(), HeaderValue::try_from(value.as_bytes()).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_of_a_kafka_producer_is_an_iggy_message_with_its_key_headers_and_time() {
    let mut both = Both::start().await;
    both.create_by_kafka("t").await;
    let record = Record {
        timestamp_ms: 1_700_000_000_123,
        key: Some(b"k".to_vec()),
        value: Some(b"v".to_vec()),
        headers: vec![("h".to_owned(), Some(b"x".to_vec()))],
        ..Record::default()
    };
    let plain = Record { timestamp_ms: 1_700_000_000_124, value: Some(b"plain".to_vec()), ..Record::default() };
    assert_eq!(both.produce("t", &[record, plain]).await, 0);
    let messages = both.poll("t").await;
    assert_eq!(messages.iter().map(|message| message.header.offset).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(messages[0].payload[..], b"v"[..]);
    assert_eq!(messages[0].header.origin_timestamp, 1_700_000_000_123_000);
    let expected: BTreeMap<_, _> = [raw("kafka.key=k"), raw("kafka.h.h=x"), raw("kafka.v=\u{1}")].into();
    assert_eq!(messages[0].user_headers_map().unwrap(), Some(expected));
    assert_eq!((&messages[1].payload[..], messages[1].user_headers_map().unwrap()), (&b"plain"[..], None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_of_an_iggy_producer_is_a_kafka_record_and_offsets_go_on_across_protocols() {
    let mut both = Both::start().await;
    both.create_by_iggy("kafka", "t", 1).await;
    let headers = BTreeMap::from([raw("kafka.key=k"), raw("own=x")]);
    let mut message = IggyMessage::builder().payload(Bytes::from_static(b"v")).user_headers(headers).build().unwrap();
    message.header.origin_timestamp = 1_700_000_000_123_456;
    assert_eq!(both.send("t", message).await, 0);
    let second = Record { timestamp_ms: 1, value: Some(b"second".to_vec()), ..Record::default() };
    assert_eq!(both.produce("t", &[second]).await, 1);
    assert_eq!(both.send("t", IggyMessage::from("third")).await, 2);
    let records = both.fetch("t", 0).await;
    let values: Vec<_> = records.iter().map(|record| record.value.clone().unwrap()).collect();
    assert_eq!(values, [&b"v"[..], b"second", b"third"]);
    assert_eq!((records[0].key.as_deref(), records[0].timestamp_ms), (Some(&b"k"[..]), 1_700_000_000_123));
    assert_eq!(records[0].headers, [("own".to_owned(), Some(b"x".to_vec()))]);
    assert_eq!(both.poll("t").await.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_fetch_of_a_kafka_consumer_is_woken_by_an_iggy_send() {
    let mut both = Both::start().await;
    both.create_by_iggy("kafka", "t", 1).await;
    both.kafka.send(12, &fetch("t", 0, 60_000)).await;
    assert!(both.kafka.is_quiet_for(Duration::from_millis(200)).await, "the fetch waits");
    both.send("t", IggyMessage::from("wake up")).await;
    // Testkit gives an answer 30 seconds, half of what the fetch would wait.
    let answer = both.kafka.receive::<FetchRequest>().await;
    assert_eq!(records(&answer)[0].value.as_deref(), Some(&b"wake up"[..]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_come_grow_and_go_on_both_sides_at_once() {
    let mut both = Both::start().await;
    both.create_by_iggy("kafka", "by-iggy", 1).await;
    both.create_by_kafka("by-kafka").await;
    let both_of = |partitions| vec![("by-iggy".to_owned(), partitions), ("by-kafka".to_owned(), 2)];
    assert_eq!(both.kafka_topics().await, both_of(1));
    let listed = both.iggy.get_topics(&id("kafka")).await.unwrap();
    let mut names: Vec<_> = listed.iter().map(|topic| (topic.name.clone(), topic.partitions_count as usize)).collect();
    names.sort_unstable();
    assert_eq!(names, both_of(1));
    both.iggy.create_partitions(&id("kafka"), &id("by-iggy"), 2).await.unwrap();
    assert_eq!(both.kafka_topics().await, both_of(3));
    both.iggy.delete_topic(&id("kafka"), &id("by-kafka")).await.unwrap();
    assert_eq!(both.kafka_topics().await, [("by-iggy".to_owned(), 3)]);
    let topic = DeleteTopicState::default().with_name(Some(name("by-iggy")));
    let request = DeleteTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(10_000);
    assert_eq!(both.kafka.request(6, &request).await.responses[0].error_code, 0);
    assert!(both.iggy.get_topics(&id("kafka")).await.unwrap().is_empty());
    assert!(both.iggy.get_stream(&id("kafka")).await.unwrap().is_some(), "a stream stays until it is deleted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_that_an_iggy_client_deletes_are_unknown_to_kafka_clients_and_come_back_behind_their_offsets() {
    let mut both = Both::start().await;
    both.create_by_iggy("kafka", "t", 2).await;
    let second = |offset, wait| {
        let mut request = fetch("t", offset, wait);
        request.topics[0].partitions[0].partition = 1;
        request
    };
    let send = async |both: &Both, text: &str| {
        let (to, mut message) = (Partitioning::partition_id(1), [IggyMessage::from(text)]);
        let sent = both.iggy.send_messages(&id("kafka"), &id("t"), &to, &mut message).await.unwrap();
        sent.confirmations[0].base_offset
    };
    assert_eq!(send(&both, "gone").await, 0);
    both.kafka.send(12, &second(1, 60_000)).await;
    assert!(both.kafka.is_quiet_for(Duration::from_millis(200)).await, "the fetch waits");
    both.iggy.delete_partitions(&id("kafka"), &id("t"), 1).await.unwrap();
    let answer = both.kafka.receive::<FetchRequest>().await;
    assert_eq!(answer.responses[0].partitions[0].error_code, 3);
    assert_eq!(both.kafka_topics().await, [("t".to_owned(), 1)]);
    both.iggy.create_partitions(&id("kafka"), &id("t"), 1).await.unwrap();
    let mut both = Box::pin(both.restart()).await;
    assert_eq!(send(&both, "new").await, 1);
    let below = both.kafka.request(12, &second(0, 0)).await.responses[0].partitions[0].clone();
    assert_eq!((below.error_code, below.log_start_offset), (1, 1), "what was committed is never another record");
    let answer = both.kafka.request(12, &second(1, 0)).await;
    assert_eq!(records(&answer)[0].value.as_deref(), Some(&b"new"[..]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn to_kafka_clients_a_renamed_topic_is_gone_and_there_under_the_new_name_with_its_records() {
    let mut both = Both::start().await;
    both.create_by_kafka("old").await;
    let record = Record { timestamp_ms: 1, value: Some(b"v".to_vec()), ..Record::default() };
    both.produce("old", &[record]).await;
    both.iggy.update_topic(&id("kafka"), &id("old"), "new", &TopicUpdateOptions::default()).await.unwrap();
    let answer = both.kafka.request(12, &fetch("old", 0, 0)).await;
    assert_eq!(answer.responses[0].partitions[0].error_code, 3);
    let mut both = Box::pin(both.restart()).await;
    assert_eq!(both.kafka_topics().await, [("new".to_owned(), 2)]);
    assert_eq!(both.fetch("new", 0).await[0].value.as_deref(), Some(&b"v"[..]));
    // Out of sight, and back.
    both.iggy.update_stream(&id("kafka"), "aside", &StreamUpdateOptions::default()).await.unwrap();
    assert!(both.kafka_topics().await.is_empty());
    both.iggy.update_stream(&id("aside"), "kafka", &StreamUpdateOptions::default()).await.unwrap();
    assert_eq!(both.fetch("new", 0).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_kafka_group_committed_under_the_old_name_is_gone_after_a_rename_and_stays_gone_after_one_back() {
    let mut both = Both::start().await;
    both.create_by_kafka("old").await;
    both.commit("old", 5).await;
    assert_eq!(both.committed("old").await, 5);
    let rename = async |both: &Both, from: &str, to: &str| {
        both.iggy.update_topic(&id("kafka"), &id(from), to, &TopicUpdateOptions::default()).await.unwrap();
    };
    rename(&both, "old", "new").await;
    assert_eq!((both.committed("old").await, both.committed("new").await), (-1, -1));
    both.commit("new", 6).await;
    let mut both = Box::pin(both.restart()).await;
    assert_eq!(both.committed("new").await, 6);
    rename(&both, "new", "old").await;
    assert_eq!((both.committed("old").await, both.committed("new").await), (-1, -1));
    // The same for a stream.
    both.commit("old", 7).await;
    both.iggy.update_stream(&id("kafka"), "aside", &StreamUpdateOptions::default()).await.unwrap();
    both.iggy.update_stream(&id("aside"), "kafka", &StreamUpdateOptions::default()).await.unwrap();
    assert_eq!(both.committed("old").await, -1);
    let mut both = Box::pin(both.restart()).await;
    assert_eq!(both.committed("old").await, -1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_stream_of_kafka_topics_is_seen_by_kafka_clients_and_the_internal_one_by_nobody() {
    let mut both = Both::start().await;
    both.create_by_iggy("elsewhere", "t", 1).await;
    both.create_by_iggy("kafka", "with space", 1).await;
    assert!(both.kafka_topics().await.is_empty());
    let streams = both.iggy.get_streams().await.unwrap();
    let names: Vec<_> = streams.iter().map(|stream| stream.name.as_str()).collect();
    assert_eq!(names, ["elsewhere", "kafka"]);
    assert!(both.iggy.get_stream(&id("__milena")).await.unwrap().is_none());
    assert_eq!(both.iggy.create_stream("__milena").await.unwrap_err().as_code(), 1013);
    let mut message = [IggyMessage::from("x")];
    let to = Partitioning::partition_id(0);
    let sent = both.iggy.send_messages(&id("__milena"), &id("offsets"), &to, &mut message).await;
    assert_eq!(sent.unwrap_err().as_code(), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_topics_options_and_offsets_survive_a_restart_of_the_process() {
    let both = Both::start().await;
    let raw = BTreeMap::from([("message_expiry".to_owned(), "1h".to_owned())]);
    both.iggy.create_stream("kafka").await.unwrap();
    let options = TopicCreateOptions { partitions_count: Some(1), raw, ..TopicCreateOptions::default() };
    both.iggy.create_topic(&id("kafka"), "t", &options).await.unwrap();
    both.send("t", IggyMessage::from("kept")).await;
    let consumer = Consumer::new(id("c"));
    both.iggy.store_consumer_offset(&consumer, &id("kafka"), &id("t"), Some(0), 0).await.unwrap();
    let mut both = Box::pin(both.restart()).await;
    assert_eq!(both.fetch("t", 0).await[0].value.as_deref(), Some(&b"kept"[..]));
    let topic = both.iggy.get_topic(&id("kafka"), &id("t")).await.unwrap().unwrap();
    assert_eq!(topic.message_expiry, IggyExpiry::ExpireDuration(IggyDuration::from(3_600_000_000)));
    let offset = both.iggy.get_consumer_offset(&consumer, &id("kafka"), &id("t"), Some(0)).await.unwrap();
    assert_eq!(offset.unwrap().stored_offset, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn segments_of_the_embedded_store_are_counted_and_the_oldest_are_deleted() {
    let both = Both::start().await;
    let raw = BTreeMap::from([("segment_size".to_owned(), "1 MiB".to_owned())]);
    both.iggy.create_stream("kafka").await.unwrap();
    let options = TopicCreateOptions { partitions_count: Some(1), raw, ..TopicCreateOptions::default() };
    both.iggy.create_topic(&id("kafka"), "t", &options).await.unwrap();
    for _ in 0..6 {
        let payload = Bytes::from(vec![1; 600 << 10]);
        both.send("t", IggyMessage::builder().payload(payload).build().unwrap()).await;
    }
    let segments = async || {
        let topic = both.iggy.get_topic(&id("kafka"), &id("t")).await.unwrap().unwrap();
        (topic.partitions[0].segments_count, topic.messages_count)
    };
    let before = segments().await;
    assert!(before.0 > 2, "{before:?}");
    both.iggy.delete_segments(&id("kafka"), &id("t"), 0, 1).await.unwrap();
    let after = segments().await;
    assert_eq!(after.0, before.0 - 1);
    assert!(after.1 < before.1 && after.1 > 0, "{after:?}");
    both.iggy.delete_segments(&id("kafka"), &id("t"), 0, 1_000).await.unwrap();
    assert!(segments().await.1 > 0, "the segment that is written to stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_kafka_deleted_and_created_again_has_no_old_iggy_offsets_and_groups() {
    let mut both = Both::start().await;
    both.create_by_kafka("t").await;
    both.send("t", IggyMessage::from("x")).await;
    let consumer = Consumer::new(id("c"));
    both.iggy.store_consumer_offset(&consumer, &id("kafka"), &id("t"), Some(0), 0).await.unwrap();
    both.iggy.create_consumer_group(&id("kafka"), &id("t"), "g").await.unwrap();
    let topic = DeleteTopicState::default().with_name(Some(name("t")));
    let request = DeleteTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(10_000);
    assert_eq!(both.kafka.request(6, &request).await.responses[0].error_code, 0);
    both.create_by_kafka("t").await;
    let offset = both.iggy.get_consumer_offset(&consumer, &id("kafka"), &id("t"), Some(0)).await.unwrap();
    assert!(offset.is_none());
    assert!(both.iggy.get_consumer_groups(&id("kafka"), &id("t")).await.unwrap().is_empty());
}
