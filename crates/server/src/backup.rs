//! In which order a copy of a store in use has to be taken.

use milena_store::{INTERNAL_STREAM, TopicRef};

use crate::produce::PRODUCERS_TOPIC;

/// The rank of a topic in a copy that is taken topic by topic while a server writes: lower ones first.
///
/// - Committed offsets and the other state go before the records: an offset beyond the end of its partition would make a
///   consumer start over by its reset policy, while one that is a little old makes it read some records again.
/// - Producer ids go last: the marks must lie above every id in the copied records. Otherwise the copy would give such an id
///   to another producer, whose records would then be taken for ones that are stored already.
#[must_use]
pub fn backup_rank(topic: &TopicRef) -> u8 {
    match (topic.stream(), topic.topic()) {
        (INTERNAL_STREAM, PRODUCERS_TOPIC) => 2,
        (INTERNAL_STREAM, _) => 0,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_goes_first_then_records_then_producer_ids() {
        let rank = |stream: &str, topic: &str| backup_rank(&TopicRef::new(stream, topic, 1, 1, 1));
        assert!(rank("__milena", "offsets") < rank("kafka", "producers"));
        assert!(rank("kafka", "producers") < rank("__milena", "producers"));
    }
}
