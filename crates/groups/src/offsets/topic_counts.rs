//! How many there are of something for each topic.

use std::collections::HashMap;

use super::table::TopicKey;

/// Counts by topic; one that is zero takes no place.
#[derive(Debug, Default)]
pub(crate) struct TopicCounts(HashMap<TopicKey, usize>);

impl TopicCounts {
    pub(crate) fn of(&self, topic: &TopicKey) -> usize {
        self.0.get(topic).copied().unwrap_or(0)
    }

    pub(crate) fn add(&mut self, topic: &TopicKey) {
        *self.0.entry(topic.clone()).or_default() += 1;
    }

    pub(crate) fn remove(&mut self, topic: &TopicKey) {
        if let Some(count) = self.0.get_mut(topic) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(topic);
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
