//! Kafka names to places in the store, and back.
//!
//! Without an override a topic lives in the default stream under its own name. An override sends one Kafka name to
//! any (stream, topic). The reverse direction is built once, so that a listing shows each place under one name only.

use std::collections::{BTreeMap, HashMap};

use milena_store::INTERNAL_STREAM;

use super::names::{self, INTERNAL_PREFIX, NameRefusal};
use crate::config::TopicMapping;

/// Longest stream or topic name that an engine takes, in bytes.
const PLACE_BYTES_MAX: usize = 255;

/// Where a topic lives in the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// Stream.
    pub stream: String,
    /// Topic within it.
    pub topic: String,
}

/// How a place looks from the Kafka side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// A topic of this name.
    As(String),
    /// A topic of Milena's own, under this name.
    Internal(String),
    /// Its name or its stream has no Kafka name; an override can give it one.
    Hidden,
}

/// Why a mapping is refused at start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MappingError {
    /// A Kafka name in the mapping breaks Kafka's rules.
    #[error("topic mapping: '{name}' cannot be a Kafka topic: {reason}")]
    Name {
        /// The name, clipped.
        name: String,
        /// The rule.
        reason: NameRefusal,
    },
    /// A stream or topic name has no bytes or too many, or belongs to Milena itself.
    #[error("topic mapping: '{place}' cannot be the stream or topic of {of}")]
    Place {
        /// The stream or topic name, clipped.
        place: String,
        /// What it was meant for.
        of: String,
    },
    /// Two overrides have one target.
    #[error("topic mapping: '{first}' and '{second}' have the same target")]
    SharedTarget {
        /// One Kafka name.
        first: String,
        /// The other.
        second: String,
    },
    /// An override's target is where another override's topic would live without it.
    #[error("topic mapping: the target of '{name}' is the default place of '{other}', which is mapped elsewhere")]
    TargetOfOther {
        /// The Kafka name whose target it is.
        name: String,
        /// The Kafka name whose default place it is.
        other: String,
    },
}

/// The mapping in both directions.
#[derive(Debug, Clone)]
pub struct Mapping {
    default_stream: String,
    overrides: BTreeMap<String, Place>,
    reverse: HashMap<Place, String>,
}

impl Mapping {
    /// Checks a configured mapping and builds its reverse index.
    ///
    /// # Errors
    /// When two names would share one place, or a name is none.
    pub fn new(config: &TopicMapping) -> Result<Self, MappingError> {
        check_stream(&config.default_stream, "the default stream")?;
        let mut overrides = BTreeMap::new();
        let mut reverse: HashMap<Place, String> = HashMap::new();
        for (name, target) in &config.topics {
            check_kafka_name(name)?;
            check_stream(&target.stream, name)?;
            check_place(&target.topic, name)?;
            let place = Place { stream: target.stream.clone(), topic: target.topic.clone() };
            let displaced = place.stream == config.default_stream && place.topic != *name;
            if displaced && config.topics.contains_key(&place.topic) {
                return Err(MappingError::TargetOfOther { name: name.clone(), other: place.topic });
            }
            if let Some(first) = reverse.insert(place.clone(), name.clone()) {
                return Err(MappingError::SharedTarget { first, second: name.clone() });
            }
            overrides.insert(name.clone(), place);
        }
        Ok(Self { default_stream: config.default_stream.clone(), overrides, reverse })
    }

    /// Where the topic of that Kafka name lives, or would live.
    ///
    /// # Errors
    /// When the name breaks Kafka's rules, is reserved, or its default place is the target of an override: an alias
    /// would give one log two names, with configs and committed offsets apart.
    pub fn place(&self, name: &str) -> Result<Place, NameRefusal> {
        names::check(name)?;
        if name.starts_with(INTERNAL_PREFIX) {
            return Err(NameRefusal::Reserved);
        }
        if let Some(place) = self.overrides.get(name) {
            return Ok(place.clone());
        }
        let place = Place { stream: self.default_stream.clone(), topic: name.to_owned() };
        if self.reverse.contains_key(&place) { Err(NameRefusal::Taken) } else { Ok(place) }
    }

    /// The Kafka name of a place in the store.
    #[must_use]
    pub fn seen(&self, stream: &str, topic: &str) -> Seen {
        if stream == INTERNAL_STREAM {
            let name = format!("{INTERNAL_PREFIX}{topic}");
            return if names::check(&name).is_ok() { Seen::Internal(name) } else { Seen::Hidden };
        }
        let place = Place { stream: stream.to_owned(), topic: topic.to_owned() };
        if let Some(name) = self.reverse.get(&place) {
            return Seen::As(name.clone());
        }
        // A topic that lies where an overridden name would live by default has no name of its own: that name means
        // the override's target.
        let shadowed = self.overrides.contains_key(topic) || topic.starts_with(INTERNAL_PREFIX);
        if stream == self.default_stream && !shadowed && names::check(topic).is_ok() {
            Seen::As(topic.to_owned())
        } else {
            Seen::Hidden
        }
    }
}

fn check_kafka_name(name: &str) -> Result<(), MappingError> {
    let checked = if name.starts_with(INTERNAL_PREFIX) { Err(NameRefusal::Reserved) } else { names::check(name) };
    checked.map_err(|reason| MappingError::Name { name: names::clipped(name).to_string(), reason })
}

fn check_stream(stream: &str, of: &str) -> Result<(), MappingError> {
    if stream == INTERNAL_STREAM {
        return Err(MappingError::Place { place: stream.to_owned(), of: of.to_owned() });
    }
    check_place(stream, of)
}

fn check_place(place: &str, of: &str) -> Result<(), MappingError> {
    if place.is_empty() || place.len() > PLACE_BYTES_MAX {
        return Err(MappingError::Place { place: names::clipped(place).to_string(), of: of.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::MappedTopic;

    fn config(overrides: &[(&str, &str, &str)]) -> TopicMapping {
        let topics = overrides.iter().map(|&(name, stream, topic)| {
            (name.to_owned(), MappedTopic { stream: stream.to_owned(), topic: topic.to_owned() })
        });
        TopicMapping { default_stream: "kafka".to_owned(), topics: topics.collect() }
    }

    fn place(stream: &str, topic: &str) -> Place {
        Place { stream: stream.to_owned(), topic: topic.to_owned() }
    }

    #[test]
    fn a_topic_without_override_lives_in_the_default_stream_under_its_own_name() {
        let mapping = Mapping::new(&config(&[])).unwrap();
        assert_eq!(mapping.place("orders"), Ok(place("kafka", "orders")));
        assert_eq!(mapping.seen("kafka", "orders"), Seen::As("orders".to_owned()));
    }

    #[test]
    fn an_override_sends_a_name_to_its_target_and_back() {
        let mapping = Mapping::new(&config(&[("org.example.orders", "billing", "orders_v2")])).unwrap();
        assert_eq!(mapping.place("org.example.orders"), Ok(place("billing", "orders_v2")));
        assert_eq!(mapping.seen("billing", "orders_v2"), Seen::As("org.example.orders".to_owned()));
    }

    #[test]
    fn overrides_that_share_a_target_are_refused() {
        let error = Mapping::new(&config(&[("a", "s", "t"), ("b", "s", "t")])).unwrap_err();
        assert_eq!(error, MappingError::SharedTarget { first: "a".to_owned(), second: "b".to_owned() });
    }

    #[test]
    fn a_target_that_is_the_default_place_of_another_override_is_refused() {
        let error = Mapping::new(&config(&[("a", "kafka", "b"), ("b", "s", "t")])).unwrap_err();
        assert_eq!(error, MappingError::TargetOfOther { name: "a".to_owned(), other: "b".to_owned() });
    }

    #[test]
    fn two_overrides_that_swap_their_places_are_refused() {
        assert!(Mapping::new(&config(&[("a", "kafka", "b"), ("b", "kafka", "a")])).is_err());
    }

    #[test]
    fn an_override_to_its_own_default_place_is_accepted() {
        let mapping = Mapping::new(&config(&[("a", "kafka", "a")])).unwrap();
        assert_eq!(mapping.place("a"), Ok(place("kafka", "a")));
        assert_eq!(mapping.seen("kafka", "a"), Seen::As("a".to_owned()));
    }

    #[test]
    fn a_name_that_collides_with_a_target_in_the_default_stream_is_refused() {
        let mapping = Mapping::new(&config(&[("a", "kafka", "physical")])).unwrap();
        assert_eq!(mapping.place("physical"), Err(NameRefusal::Taken));
        assert_eq!(mapping.seen("kafka", "physical"), Seen::As("a".to_owned()));
    }

    #[test]
    fn a_topic_under_the_default_place_of_an_override_is_hidden() {
        let mapping = Mapping::new(&config(&[("a", "s", "t")])).unwrap();
        assert_eq!(mapping.seen("kafka", "a"), Seen::Hidden);
    }

    #[test]
    fn topics_of_other_streams_and_names_kafka_cannot_carry_are_hidden() {
        let mapping = Mapping::new(&config(&[])).unwrap();
        assert_eq!(mapping.seen("elsewhere", "t"), Seen::Hidden);
        assert_eq!(mapping.seen("kafka", "with space"), Seen::Hidden);
        assert_eq!(mapping.seen("kafka", "__milena.x"), Seen::Hidden);
    }

    #[test]
    fn a_name_kafka_cannot_carry_is_reachable_by_an_override() {
        let mapping = Mapping::new(&config(&[("spaced", "kafka", "with space")])).unwrap();
        assert_eq!(mapping.seen("kafka", "with space"), Seen::As("spaced".to_owned()));
    }

    #[test]
    fn internal_topics_have_a_reserved_name() {
        let mapping = Mapping::new(&config(&[])).unwrap();
        assert_eq!(mapping.seen(INTERNAL_STREAM, "configs"), Seen::Internal("__milena.configs".to_owned()));
        assert_eq!(mapping.place("__milena.configs"), Err(NameRefusal::Reserved));
    }

    #[test]
    fn the_internal_stream_cannot_be_mapped() {
        assert!(Mapping::new(&config(&[("a", INTERNAL_STREAM, "configs")])).is_err());
        let internal = TopicMapping { default_stream: INTERNAL_STREAM.to_owned(), topics: BTreeMap::new() };
        assert!(Mapping::new(&internal).is_err());
    }

    #[test]
    fn empty_and_overlong_places_and_bad_names_are_refused() {
        let long = "x".repeat(256);
        for (name, stream, topic) in
            [("a", "", "t"), ("a", "s", ""), ("a", &long, "t"), ("a", "s", &long), ("a b", "s", "t")]
        {
            assert!(Mapping::new(&config(&[(name, stream, topic)])).is_err(), "{name} {stream} {topic}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn a_name_that_has_a_place_is_what_that_place_is_seen_as(
            entries in proptest::collection::btree_map("[ab]{1,2}", ("(kafka|s)", "[ab]{1,2}"), 0..4),
            name in "[ab]{1,2}",
        ) {
            let topics = entries.into_iter()
                .map(|(name, (stream, topic))| (name, MappedTopic { stream, topic })).collect();
            let Ok(mapping) = Mapping::new(&TopicMapping { default_stream: "kafka".to_owned(), topics }) else {
                return Ok(());
            };
            if let Ok(place) = mapping.place(&name) {
                prop_assert_eq!(mapping.seen(&place.stream, &place.topic), Seen::As(name));
            }
        }

        #[test]
        fn what_a_place_is_seen_as_leads_back_to_it(
            entries in proptest::collection::btree_map("[ab]{1,2}", ("(kafka|s)", "[ab]{1,2}"), 0..4),
            stream in "(kafka|s)",
            topic in "[ab]{1,2}",
        ) {
            let topics = entries.into_iter()
                .map(|(name, (stream, topic))| (name, MappedTopic { stream, topic })).collect();
            let Ok(mapping) = Mapping::new(&TopicMapping { default_stream: "kafka".to_owned(), topics }) else {
                return Ok(());
            };
            if let Seen::As(name) = mapping.seen(&stream, &topic) {
                prop_assert_eq!(mapping.place(&name), Ok(Place { stream, topic }));
            }
        }
    }
}
