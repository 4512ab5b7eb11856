//! Kafka's topic ids, derived and never stored.
//!
//! Every gateway on one store derives the same id, and a topic that was deleted and created again has another one,
//! even when the engine reuses its numbers: the creation time is part of the hash.

use milena_store::TopicRef;
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_128;

/// First bytes of the hashed text. A change would give every topic another id, and clients would drop what they know.
const DOMAIN: &[u8; 16] = b"milena topic id1";

/// The id of one incarnation of a topic.
#[must_use]
pub fn topic_id(topic: &TopicRef) -> Uuid {
    let mut text = Vec::with_capacity(DOMAIN.len() + 16);
    text.extend_from_slice(DOMAIN);
    text.extend_from_slice(&topic.stream_id().to_be_bytes());
    text.extend_from_slice(&topic.topic_id().to_be_bytes());
    text.extend_from_slice(&topic.created_at_micros().to_be_bytes());
    let mut bytes = xxh3_128(&text).to_be_bytes();
    // Kafka prints ids in URL-safe base64, and its tools take an argument that begins with '-' for an option. The
    // first character is '-' when the upper six bits are 62.
    if let Some(first) = bytes.first_mut()
        && *first >> 2 == 62
    {
        *first &= 0x7f;
    }
    // Version 8 is the one for private schemes (RFC 9562). Its bits also keep the id apart from the zero id, which
    // means "no topic", and from the id one, which Kafka reserves.
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn id(stream_id: u32, topic: u32, created: u64) -> Uuid {
        topic_id(&TopicRef::new("kafka", "t", stream_id, topic, created))
    }

    #[test]
    fn the_id_is_the_same_wherever_it_is_derived() {
        assert_eq!(id(1, 2, 1_700_000_000_000_000), Uuid::from_u128(0x6c0c_9d3f_1595_8373_b443_f05c_fb4e_94ab));
    }

    #[test]
    fn the_names_are_not_part_of_it() {
        let renamed = topic_id(&TopicRef::new("other", "name", 1, 2, 3));
        assert_eq!(renamed, id(1, 2, 3));
    }

    #[test]
    fn a_topic_created_again_under_the_same_numbers_has_another_id() {
        assert_ne!(id(1, 2, 1_000), id(1, 2, 1_001));
    }

    #[test]
    fn ids_are_distinct_and_never_zero_and_never_look_like_an_option() {
        let mut seen = HashSet::new();
        for n in 0..20_000_u32 {
            let id = id(n % 7, n, u64::from(n) * 31);
            assert!(!id.is_nil() && id != Uuid::from_u128(1));
            assert_eq!(id.get_version_num(), 8);
            assert_ne!(id.as_bytes()[0] >> 2, 62);
            assert!(seen.insert(id));
        }
    }
}
