use iggy_common::{IggyExpiry, MaxTopicSize};
use milena_testkit::Logged;

use super::*;

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
