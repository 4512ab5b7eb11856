use std::time::Duration;

use iggy_common::{
    CompressionAlgorithm, IggyByteSize, IggyExpiry, IggyTimestamp, MaxTopicSize, Partition, ResourceOptions,
};
use milena_testkit::Logged;

use super::*;
use crate::look::Told;

/// Warnings that there were, and topics that were counted, after a gateway of that durability saw each of these topics
/// three times: whether it persists, as far as the server says.
fn after_three_looks(durability: AckDurability, topics: &[Option<bool>]) -> (usize, u64) {
    let warnings = Logged::at(tracing::Level::WARN);
    let config = IggyConfig { durability, ..IggyConfig::new("127.0.0.1:1", "user", "password".to_owned().into()) };
    let inner = Inner::new(Arc::new(Dialer::new(config)), Keys::default());
    for _ in 0..3 {
        for (id, &persists) in (1..).zip(topics) {
            let (expiry, max_size) = (IggyExpiry::NeverExpire, MaxTopicSize::Unlimited);
            let facts = Facts { expiry, max_size, partitions: 1, segment_bytes: None, persists };
            inner.put(&TopicRef::new("kafka", &format!("topic-{id}"), 1, id, u64::from(id)), facts);
        }
    }
    (warnings.count(), inner.metrics.undurable_topics.get())
}

#[test]
fn each_topic_that_can_lose_acknowledged_messages_is_counted_and_warned_of_once() {
    let topics = [Some(false), Some(true), None, Some(false)];
    assert_eq!(after_three_looks(AckDurability::Persisted, &topics), (2, 2));
}

#[test]
fn who_chose_to_lose_messages_is_not_warned_of_each_topic() {
    assert_eq!(after_three_looks(AckDurability::Fast, &[Some(false), Some(false)]), (0, 2));
}

/// What the server says of a topic of one partition whose messages end there.
fn told(topic: &TopicRef, end: u64, is_heard: bool) -> Told {
    let (created_at, size) = (IggyTimestamp::from(topic.created_at_micros()), IggyByteSize::from(0));
    let (current_offset, messages_count) = (end.saturating_sub(1), end);
    let partition = Partition { id: 0, created_at, segments_count: 1, current_offset, size, messages_count };
    let details = TopicDetails {
        id: topic.topic_id(),
        created_at,
        name: topic.topic().to_owned(),
        size,
        message_expiry: IggyExpiry::NeverExpire,
        compression_algorithm: CompressionAlgorithm::None,
        max_topic_size: MaxTopicSize::Unlimited,
        messages_count,
        partitions_count: 1,
        partitions: vec![partition],
        options: ResourceOptions::default(),
    };
    Told { details, unheard: (!is_heard).then_some(0).into_iter().collect() }
}

/// Ends as they are known after each answer: to a question that was asked at a second, of the node that leads or of another.
async fn ends_after(inner: &Inner, state: &TopicState, start: Instant, answers: &[(u64, u64, bool)]) -> Vec<u64> {
    let partition = state.partition(0).unwrap();
    let mut ends = Vec::new();
    for (second, end, is_heard) in answers {
        let floors = floors(state);
        inner.take_in(state, told(&state.topic, *end, *is_heard), &floors, start + Duration::from_secs(*second)).await;
        ends.push(partition.lock().bounds().end);
    }
    ends
}

fn one_topic() -> (Inner, Arc<TopicState>, PartitionRef) {
    let config = IggyConfig::new("127.0.0.1:1", "user", "password".to_owned().into());
    let inner = Inner::new(Arc::new(Dialer::new(config)), Keys::default());
    let topic = TopicRef::new("kafka", "orders", 1, 2, 3);
    let state = inner.put(&topic, facts_of_details(&told(&topic, 0, true).details));
    (inner, state, topic.partition(0))
}

#[tokio::test]
async fn an_answer_of_before_a_doubt_was_over_moves_no_end_and_is_not_a_recent_one() {
    let ((inner, state, at), start) = (one_topic(), Instant::now());
    let second = |count| start + Duration::from_secs(count);
    assert_eq!(ends_after(&inner, &state, start, &[(0, 5, true)]).await, [5]);
    inner.dialer.roster.suspect(&at, second(1));
    assert_eq!(ends_after(&inner, &state, start, &[(2, 6, true)]).await, [5], "in doubt");
    inner.dialer.roster.settled(&at, second(1), second(4));
    assert_eq!(ends_after(&inner, &state, start, &[(3, 6, true)]).await, [5], "it was asked while it was in doubt");
    assert_eq!(state.recent_bounds(0, second(3), Duration::from_secs(1)), None, "what is known may be older");
    assert_eq!(ends_after(&inner, &state, start, &[(5, 6, true)]).await, [6]);
    assert!(state.recent_bounds(0, second(5), Duration::from_secs(1)).is_some());
}

#[tokio::test]
async fn where_the_leader_is_not_heard_another_nodes_higher_end_is_a_doubt_and_no_end() {
    let ((inner, state, at), start) = (one_topic(), Instant::now());
    assert_eq!(ends_after(&inner, &state, start, &[(0, 5, true), (1, 5, false)]).await, [5, 5]);
    assert!(inner.dialer.roster.doubted(&at, Instant::now()).is_none());
    assert_eq!(ends_after(&inner, &state, start, &[(2, 6, false)]).await, [5]);
    assert!(inner.dialer.roster.doubted(&at, Instant::now()).is_some());
}
