//! DescribeTopicPartitions (75), version 0: topics and their partitions, page by page (KIP-966).
//!
//! - Topics come sorted by name, each once; no names at all are all topics. Admin clients use this in place of Metadata.
//! - A page holds at most as many partitions as the client asks for, and at most 2,000, as in Kafka. The cursor behind it
//!   names the next partition; a client sends it back to go on. A cursor onto a topic that is gone goes on with the next,
//!   when all topics were asked for.
//! - Unknown name 3, bad name 17; a cursor below 0, or onto none of the topics that are named, is 42 for each of them.
//! - Leaders are those that Metadata names, each the only replica. There are no eligible leaders beside them.

use std::collections::BTreeSet;

use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::describe_topic_partitions_request::TopicRequest;
use milena_wire::kafka_protocol::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use milena_wire::kafka_protocol::messages::{
    ApiKey, BrokerId, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, TopicName,
};
use milena_wire::kafka_protocol::protocol::StrBytes;

use super::admin::TOPIC_OPERATIONS;
use super::brokers;
use super::leaders::Leaders;
use crate::broker::Broker;
use crate::codes;
use crate::dispatch::{Api, Context, answer};
use crate::fetch::leader_epoch::kafka_epoch;
use crate::topics::Topic;

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::DescribeTopicPartitions,
    name: "DescribeTopicPartitions",
    advertised: (0, 0),
    served: (0, 0),
    handle: |request| Box::pin(answer(ApiKey::DescribeTopicPartitions, request, describe_topic_partitions)),
};

/// Partitions of one answer, whatever the client asks for.
const PAGE_MAX: u32 = 2_000;

async fn describe_topic_partitions(
    context: Context,
    request: DescribeTopicPartitionsRequest,
) -> Option<DescribeTopicPartitionsResponse> {
    let cursor = request.cursor.map(|cursor| (cursor.topic_name, cursor.partition_index));
    let (from, first) = match cursor {
        None => (None, 0),
        Some((topic, partition)) => match u32::try_from(partition) {
            Ok(partition) => (Some(topic), partition),
            Err(_) => return Some(refused(request.topics)),
        },
    };
    if let Some(from) = &from
        && !request.topics.is_empty()
        && request.topics.iter().all(|topic| topic.name != *from)
    {
        return Some(refused(request.topics));
    }
    context.broker.topics.seek_names(request.topics.iter().map(|topic| topic.name.as_str())).await;
    let limit = u32::try_from(request.response_partition_limit).unwrap_or(0).clamp(1, PAGE_MAX);
    let leaders = Leaders::new(&brokers::known(&context));
    let mut page = Page { broker: &context.broker, leaders, left: limit, topics: Vec::new(), next: None };
    let names: BTreeSet<StrBytes> = if request.topics.is_empty() {
        let listed = context.broker.topics.list();
        listed.iter().map(|topic| StrBytes::from_string(topic.name.to_string())).collect()
    } else {
        request.topics.into_iter().map(|topic| topic.name.0).collect()
    };
    for name in names {
        let begins = match &from {
            Some(from) if name < from.0 => continue,
            Some(from) if name == from.0 => first,
            _ => 0,
        };
        if !page.add(name, begins) {
            break;
        }
    }
    Some(DescribeTopicPartitionsResponse::default().with_topics(page.topics).with_next_cursor(page.next))
}

fn refused(topics: Vec<TopicRequest>) -> DescribeTopicPartitionsResponse {
    let topics = topics.into_iter().map(|topic| failed(topic.name, ResponseError::InvalidRequest));
    DescribeTopicPartitionsResponse::default().with_topics(topics.collect())
}

fn failed(name: TopicName, error: ResponseError) -> DescribeTopicPartitionsResponseTopic {
    DescribeTopicPartitionsResponseTopic::default().with_error_code(error.code()).with_name(Some(name))
}

/// An answer under way.
struct Page<'a> {
    broker: &'a Broker,
    leaders: Leaders,
    left: u32,
    topics: Vec<DescribeTopicPartitionsResponseTopic>,
    next: Option<Cursor>,
}

impl Page<'_> {
    /// Adds a topic from a partition on; false when the page is full.
    fn add(&mut self, name: StrBytes, first: u32) -> bool {
        let Some(topic) = self.broker.topics.by_name(&name) else {
            let error = match self.broker.topics.check_name(&name) {
                Ok(()) => ResponseError::UnknownTopicOrPartition,
                Err(error) => codes::of_topic(&error),
            };
            let topic = failed(TopicName(name), error).with_topic_authorized_operations(TOPIC_OPERATIONS);
            self.topics.push(topic);
            return true;
        };
        if self.left == 0 {
            self.next = Some(cursor(name, first));
            return false;
        }
        let end = topic.partitions.min(first.saturating_add(self.left));
        let shown = (first..end).map(|partition| self.partition(&topic, partition));
        let described = DescribeTopicPartitionsResponseTopic::default()
            .with_name(Some(TopicName(name.clone())))
            .with_topic_id(topic.id)
            .with_is_internal(topic.internal)
            .with_topic_authorized_operations(TOPIC_OPERATIONS)
            .with_partitions(shown.collect());
        self.topics.push(described);
        self.left -= end.saturating_sub(first);
        if end < topic.partitions {
            self.next = Some(cursor(name, end));
        }
        self.next.is_none()
    }

    fn partition(&self, topic: &Topic, partition: u32) -> DescribeTopicPartitionsResponsePartition {
        let node = BrokerId(self.leaders.of(topic.id, partition));
        let epoch = self.broker.store.epochs(&topic.store.partition(partition)).current();
        DescribeTopicPartitionsResponsePartition::default()
            .with_partition_index(i32::try_from(partition).unwrap_or(i32::MAX))
            .with_leader_id(node)
            .with_leader_epoch(kafka_epoch(epoch))
            .with_replica_nodes(vec![node])
            .with_isr_nodes(vec![node])
            .with_eligible_leader_replicas(Some(Vec::new()))
            .with_last_known_elr(Some(Vec::new()))
    }
}

fn cursor(topic: StrBytes, partition: u32) -> Cursor {
    let partition = i32::try_from(partition).unwrap_or(i32::MAX);
    Cursor::default().with_topic_name(TopicName(topic)).with_partition_index(partition)
}

#[cfg(test)]
mod tests {
    use milena_wire::kafka_protocol::messages::describe_topic_partitions_request::Cursor as Asked;

    use super::*;
    use crate::config::ServerConfig;
    use crate::handlers::testing::{Bench, name};

    fn request(topics: &[&str], limit: i32, from: Option<(&str, i32)>) -> DescribeTopicPartitionsRequest {
        let topics = topics.iter().map(|topic| TopicRequest::default().with_name(name(topic)));
        let cursor = from
            .map(|(topic, partition)| Asked::default().with_topic_name(name(topic)).with_partition_index(partition));
        DescribeTopicPartitionsRequest::default()
            .with_topics(topics.collect())
            .with_response_partition_limit(limit)
            .with_cursor(cursor)
    }

    async fn with_topics() -> Bench {
        let bench = Bench::with(ServerConfig { instance_id: 3, ..ServerConfig::default() }).await;
        for (topic, partitions) in [("b", 3), ("a", 2), ("c", 1)] {
            bench.topic(topic, partitions).await;
        }
        bench
    }

    /// Topics with their partitions, and where to go on.
    type Shown = (Vec<(String, Vec<i32>)>, Option<(String, i32)>);

    async fn page(bench: &Bench, asked: &DescribeTopicPartitionsRequest) -> Shown {
        let response = bench.ask(0, asked).await;
        let topics = response.topics.iter().map(|topic| {
            let name = topic.name.as_ref().unwrap().to_string();
            (name, topic.partitions.iter().map(|partition| partition.partition_index).collect())
        });
        let next = response.next_cursor.map(|cursor| (cursor.topic_name.to_string(), cursor.partition_index));
        (topics.collect(), next)
    }

    #[tokio::test]
    async fn a_topic_is_described_with_its_id_and_this_server_as_leader_and_only_replica() {
        let bench = with_topics().await;
        let topic = bench.ask(0, &request(&["a"], 2_000, None)).await.topics.remove(0);
        assert_eq!((topic.error_code, topic.topic_id), (0, bench.broker.topics.by_name("a").unwrap().id));
        assert_eq!((topic.is_internal, topic.topic_authorized_operations), (false, TOPIC_OPERATIONS));
        let last = &topic.partitions[1];
        let me = vec![BrokerId(3)];
        assert_eq!((last.partition_index, last.leader_id, last.leader_epoch), (1, BrokerId(3), 0));
        assert_eq!((&last.replica_nodes, &last.isr_nodes, last.offline_replicas.len()), (&me, &me, 0));
    }

    #[tokio::test]
    async fn no_names_are_all_topics_sorted_and_a_name_given_twice_is_answered_once() {
        let bench = with_topics().await;
        let named = |name: &str, count| (name.to_owned(), (0..count).collect());
        assert_eq!(
            page(&bench, &request(&[], 2_000, None)).await,
            (vec![named("a", 2), named("b", 3), named("c", 1)], None)
        );
        assert_eq!(page(&bench, &request(&["c", "a", "c"], 9, None)).await, (vec![named("a", 2), named("c", 1)], None));
    }

    #[tokio::test]
    async fn pages_of_any_size_come_to_every_partition_once() {
        let bench = with_topics().await;
        for limit in [-1, 0, 1, 2, 3, 4, 5, 6, 7] {
            let (mut seen, mut from, mut pages) = (Vec::new(), None, 0);
            loop {
                let cursor = from.as_ref().map(|(topic, partition): &(String, i32)| (topic.as_str(), *partition));
                let (topics, next) = page(&bench, &request(&[], limit, cursor)).await;
                for (topic, partitions) in topics {
                    assert!(partitions.len() <= usize::try_from(limit).unwrap_or(1).max(1));
                    seen.extend(partitions.into_iter().map(|partition| (topic.clone(), partition)));
                }
                pages += 1;
                assert!(pages < 10, "limit {limit}");
                match next {
                    Some(next) => from = Some(next),
                    None => break,
                }
            }
            let expected = [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)];
            let expected: Vec<_> =
                expected.iter().map(|(topic, partition)| ((*topic).to_owned(), *partition)).collect();
            assert_eq!(seen, expected, "limit {limit}");
        }
    }

    #[tokio::test]
    async fn a_page_holds_at_most_2000_partitions() {
        let bench = Bench::new().await;
        bench.topic("t", 2_001).await;
        let (topics, next) = page(&bench, &request(&[], i32::MAX, None)).await;
        assert_eq!((topics[0].1.len(), next), (2_000, Some(("t".to_owned(), 2_000))));
        let (topics, next) = page(&bench, &request(&[], i32::MAX, Some(("t", 2_000)))).await;
        assert_eq!((topics[0].1.clone(), next), (vec![2_000], None));
    }

    #[tokio::test]
    async fn a_cursor_onto_a_topic_that_is_gone_goes_on_with_the_next() {
        let bench = with_topics().await;
        let (topics, next) = page(&bench, &request(&[], 9, Some(("bb", 7)))).await;
        assert_eq!((topics, next), (vec![("c".to_owned(), vec![0])], None));
    }

    #[tokio::test]
    async fn unknown_and_impossible_names_have_their_codes_and_a_bad_cursor_is_42() {
        let bench = with_topics().await;
        let response = bench.ask(0, &request(&["nowhere", "no/where", "a"], 9, None)).await;
        let codes: Vec<_> = response.topics.iter().map(|topic| topic.error_code).collect();
        assert_eq!(codes, [0, 17, 3]);
        let response = bench.ask(0, &request(&["a"], 9, Some(("a", -1)))).await;
        assert_eq!((response.topics.len(), response.topics[0].error_code), (1, 42));
        let response = bench.ask(0, &request(&["a", "c"], 9, Some(("b", 0)))).await;
        assert!(response.topics.iter().all(|topic| topic.error_code == 42) && response.topics.len() == 2);
    }

    #[tokio::test]
    async fn what_may_be_done_is_told_of_a_topic_that_does_not_exist_too() {
        let bench = with_topics().await;
        let response = bench.ask(0, &request(&["nowhere", "no/where"], 9, None)).await;
        let operations: Vec<_> = response.topics.iter().map(|topic| topic.topic_authorized_operations).collect();
        assert_eq!(operations, [TOPIC_OPERATIONS; 2]);
    }
}
