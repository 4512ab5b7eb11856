//! Topics that are not there, are others, or are too large.

use std::time::Duration;

use iggy_common::{TopicClient, TopicCreateOptions};
use milena_store::{Store, StoreError};
use milena_wire::kafka_protocol::messages::CreateTopicsRequest;
use milena_wire::kafka_protocol::messages::create_topics_request::CreatableTopic;

use crate::case::{Case, Place, Setup, TOPIC, eventually, named};
use crate::kafka::{LATEST, fetch, fetch_request, list, plain, produce, produce_to, record, topic_name, values_of};

async fn b11_what_is_not_there_is_an_unknown_topic_or_partition(case: Case) {
    let mut client = case.raw().await;
    for (topic, partition) in [(TOPIC, 9), ("nowhere", 0)] {
        assert_eq!(produce_to(&mut client, topic, partition, plain(&[record("x")])).await.error_code, 3, "{topic}");
        let answer = client.request(11, &fetch_request(topic, partition, 0, 0, 1 << 20)).await;
        assert_eq!(answer.responses[0].partitions[0].error_code, 3, "{topic}");
        assert_eq!(list(&mut client, topic, partition, LATEST).await.error_code, 3, "{topic}");
    }
    // The gateway knows the topic from before; the server does not any more.
    case.native().await.delete_topic(&named(&case.stream), &named(TOPIC)).await.unwrap();
    let codes =
        [produce(&mut client, plain(&[record("x")])).await.error_code, fetch(&mut client, 0, 0).await.error_code];
    assert_eq!(codes, [3, 3]);
}
shown!(b11_what_is_not_there_is_an_unknown_topic_or_partition in door, one_node, three_nodes
    with Setup { gateway: |config| config.auto_create_topics = false, ..Setup::default() });

async fn b12_a_topic_that_was_created_again_is_another_also_under_the_same_number(case: Case) {
    let mut client = case.raw().await;
    for value in ["old", "old"] {
        assert_eq!(produce(&mut client, plain(&[record(value)])).await.error_code, 0);
    }
    let before = case.native_topic(TOPIC).await.unwrap();
    let (native, stream) = (case.native().await, named(&case.stream));
    native.delete_topic(&stream, &named(TOPIC)).await.unwrap();
    let options = TopicCreateOptions { partitions_count: Some(1), ..TopicCreateOptions::default() };
    if case.place == Place::Door {
        native.create_topic(&stream, TOPIC, &options).await.unwrap();
    } else {
        // With the options that a server of this generation takes.
        let other = case.store.clone();
        let settings = milena_store::TopicSettings::default();
        other.create_topic(&case.stream, TOPIC, 1, &settings).await.unwrap();
    }
    let after = case.native_topic(TOPIC).await.unwrap();
    assert_ne!(before.created_at, after.created_at);
    if case.place == Place::OneNode {
        assert_eq!(before.id, after.id, "the server gives numbers again");
    }
    eventually("the new one is seen", async || list(&mut client, TOPIC, 0, LATEST).await.offset == 0).await;
    assert_eq!(fetch(&mut client, 1, 0).await.error_code, 1, "that offset belonged to the old one");
    let mut base = -1;
    eventually("the new one is written to", async || {
        base = produce(&mut client, plain(&[record("new")])).await.base_offset;
        base >= 0
    })
    .await;
    assert_eq!(base, 0);
    assert_eq!(values_of(&fetch(&mut client, 0, 500).await), ["new"]);
}
shown!(b12_a_topic_that_was_created_again_is_another_also_under_the_same_number in door, one_node, three_nodes
    with Setup { gateway: |config| config.limits.metadata_refresh = Duration::from_millis(200), ..Setup::default() });

async fn created(case: &Case, topic: &str, partitions: i32) -> i16 {
    let new = CreatableTopic::default()
        .with_name(topic_name(topic))
        .with_num_partitions(partitions)
        .with_replication_factor(1);
    let request = CreateTopicsRequest::default().with_timeout_ms(10_000).with_topics(vec![new]);
    case.raw().await.request(5, &request).await.topics[0].error_code
}

async fn b35_a_count_of_partitions_that_no_topic_can_have_is_refused_before_the_server_hears_of_it(case: Case) {
    for partitions in [0, -2, 1_001] {
        assert_eq!(created(&case, "odd", partitions).await, 37, "{partitions}");
    }
    assert!(case.native_topic("odd").await.is_none());
}
shown!(b35_a_count_of_partitions_that_no_topic_can_have_is_refused_before_the_server_hears_of_it
    in door, one_node, three_nodes);

async fn b36_topics_stop_at_the_partitions_that_the_server_may_have(case: Case) {
    // The topic of the test has one, and Milena's own topics some.
    assert_eq!(created(&case, "fits", 4).await, 0);
    let limit = case.config.partitions_max;
    assert_eq!(created(&case, "large", i32::try_from(limit).unwrap()).await, 44);
    assert!(case.native_topic("large").await.is_none());
    let at = case.store.topic(&case.stream, "fits").await.unwrap().unwrap().topic;
    let grown = case.store.grow_topic(&at, u32::try_from(limit).unwrap()).await;
    assert!(matches!(grown, Err(StoreError::Refused { .. })), "{grown:?}");
}
shown!(b36_topics_stop_at_the_partitions_that_the_server_may_have in door, one_node, three_nodes
    with Setup { iggy: |config| config.partitions_max = 40, ..Setup::default() });
