use std::sync::atomic::AtomicUsize;

use iggy_common::{IggyExpiry, MaxTopicSize};

use super::*;

/// Counts warnings.
#[derive(Default, Clone)]
struct Warnings(Arc<AtomicUsize>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// Warnings that there were, and topics that were counted, after a gateway of that durability saw each of these topics
/// three times: whether it persists, as far as the server says.
fn after_three_looks(durability: AckDurability, topics: &[Option<bool>]) -> (usize, u64) {
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let config = IggyConfig { durability, ..IggyConfig::new("127.0.0.1:1", "user", "password".to_owned().into()) };
    let inner = Inner::new(Arc::new(Dialer::new(config)), Keys::default());
    for _ in 0..3 {
        for (id, &persists) in (1..).zip(topics) {
            let (expiry, max_size) = (IggyExpiry::NeverExpire, MaxTopicSize::Unlimited);
            let facts = Facts { expiry, max_size, partitions: 1, segment_bytes: None, persists };
            inner.put(&TopicRef::new("kafka", &format!("topic-{id}"), 1, id, u64::from(id)), facts);
        }
    }
    (warnings.0.load(Ordering::Relaxed), inner.metrics.undurable_topics.get())
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
