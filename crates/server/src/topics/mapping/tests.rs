//! The mapping in both directions.

use proptest::prelude::*;

use super::*;
use crate::config::{MappedPrefix, MappedTopic};

fn config(overrides: &[(&str, &str, &str)]) -> TopicMapping {
    let topics = overrides.iter().map(|&(name, stream, topic)| {
        (name.to_owned(), MappedTopic { stream: stream.to_owned(), topic: topic.to_owned() })
    });
    TopicMapping { topics: topics.collect(), ..TopicMapping::default() }
}

/// With rules: beginning of the name, stream, beginning of the topic.
fn with_rules(overrides: &[(&str, &str, &str)], rules: &[(&str, &str, &str)]) -> TopicMapping {
    let prefixes = rules.iter().map(|&(name, stream, topic)| {
        (name.to_owned(), MappedPrefix { stream: stream.to_owned(), topic_prefix: topic.to_owned() })
    });
    TopicMapping { prefixes: prefixes.collect(), ..config(overrides) }
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
    let internal = TopicMapping { default_stream: INTERNAL_STREAM.to_owned(), ..TopicMapping::default() };
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

#[test]
fn a_rule_sends_names_that_begin_alike_to_its_stream_and_back() {
    let mapping = Mapping::new(&with_rules(&[], &[("billing.", "billing", "")])).unwrap();
    assert_eq!(mapping.place("billing.invoices"), Ok(place("billing", "invoices")));
    assert_eq!(mapping.seen("billing", "invoices"), Seen::As("billing.invoices".to_owned()));
    assert_eq!(mapping.place("billings"), Ok(place("kafka", "billings")));
    assert_eq!(mapping.place("billing."), Ok(place("kafka", "billing.")), "nothing is left of it");
}

#[test]
fn of_two_rules_the_one_with_more_of_the_name_counts() {
    let rules = [("a.", "one", "a."), ("a.b.", "two", "")];
    let mapping = Mapping::new(&with_rules(&[], &rules)).unwrap();
    assert_eq!(mapping.place("a.b.c"), Ok(place("two", "c")));
    assert_eq!(mapping.place("a.c"), Ok(place("one", "a.c")));
    assert_eq!(mapping.seen("one", "a.b.c"), Seen::Hidden, "its name means another place");
}

#[test]
fn an_override_is_above_a_rule_in_both_directions() {
    let mapping = Mapping::new(&with_rules(&[("a.x", "else", "where"), ("y", "s", "z")], &[("a.", "s", "")])).unwrap();
    assert_eq!(mapping.place("a.x"), Ok(place("else", "where")));
    assert_eq!(mapping.seen("s", "x"), Seen::Hidden);
    assert_eq!(mapping.seen("s", "z"), Seen::As("y".to_owned()));
    assert_eq!(mapping.place("a.z"), Err(NameRefusal::Taken));
}

#[test]
fn an_override_onto_the_place_of_another_one_by_a_rule_is_refused() {
    let error =
        Mapping::new(&with_rules(&[("a.x", "else", "where"), ("y", "s", "x")], &[("a.", "s", "")])).unwrap_err();
    assert_eq!(error, MappingError::TargetOfOther { name: "y".to_owned(), other: "a.x".to_owned() });
}

#[test]
fn rules_that_give_one_place_two_names_are_refused() {
    for rules in
        [[("a.", "s", ""), ("b.", "s", "")], [("a.", "s", ""), ("b.", "s", "x")], [("a.", "s", "a"), ("b.", "s", "ab")]]
    {
        let error = Mapping::new(&with_rules(&[], &rules)).unwrap_err();
        assert_eq!(
            error,
            MappingError::SharedTarget { first: "a.*".to_owned(), second: "b.*".to_owned() },
            "{rules:?}"
        );
    }
    for rules in [
        [("a.", "s", "a."), ("b.", "s", "b.")],
        [("a.", "s", "a."), ("a.b.", "s", "a.b.")],
        [("a.", "s", ""), ("b.", "t", "")],
    ] {
        assert!(Mapping::new(&with_rules(&[], &rules)).is_ok(), "{rules:?}");
    }
}

#[test]
fn a_name_that_collides_with_a_rule_in_the_default_stream_is_refused() {
    let mapping = Mapping::new(&with_rules(&[], &[("new.", "kafka", "old.")])).unwrap();
    assert_eq!(mapping.place("new.t"), Ok(place("kafka", "old.t")));
    assert_eq!(mapping.place("old.t"), Err(NameRefusal::Taken));
    assert_eq!(mapping.seen("kafka", "new.t"), Seen::Hidden);
}

#[test]
fn rules_that_are_none_are_refused() {
    let long = "x".repeat(9);
    for (name, stream, topic) in [
        ("", "s", ""),
        ("a b", "s", ""),
        ("__milena.", "s", ""),
        ("a.", "", ""),
        ("a.", INTERNAL_STREAM, ""),
        ("a.", "kafka", ""),
        ("a.", "s", &long),
    ] {
        assert!(Mapping::new(&with_rules(&[], &[(name, stream, topic)])).is_err(), "{name} {stream} {topic}");
    }
}

#[test]
fn the_longest_name_under_a_rule_has_a_place_that_an_engine_takes() {
    let mapping = Mapping::new(&with_rules(&[], &[("a.", "s", "12345678")])).unwrap();
    let longest = format!("a.{}", "x".repeat(names::NAME_BYTES_MAX - 2));
    assert_eq!(mapping.place(&longest).unwrap().topic.len(), PLACE_BYTES_MAX);
}

/// Any mapping over a few short names, if it contradicts itself or not.
fn any_mapping() -> impl Strategy<Value = TopicMapping> {
    let overrides = proptest::collection::btree_map("[ab]{1,2}", ("(kafka|s)", "[ab]{1,2}"), 0..4);
    let rules = proptest::collection::btree_map("[ab]{1,2}", ("(kafka|s)", "[ab]{0,2}"), 0..3);
    (overrides, rules).prop_map(|(overrides, rules)| TopicMapping {
        topics: overrides.into_iter().map(|(name, (stream, topic))| (name, MappedTopic { stream, topic })).collect(),
        prefixes: rules
            .into_iter()
            .map(|(name, (stream, topic_prefix))| (name, MappedPrefix { stream, topic_prefix }))
            .collect(),
        ..TopicMapping::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_name_that_has_a_place_is_what_that_place_is_seen_as(config in any_mapping(), name in "[ab]{1,4}") {
        let Ok(mapping) = Mapping::new(&config) else { return Ok(()) };
        if let Ok(place) = mapping.place(&name) {
            prop_assert_eq!(mapping.seen(&place.stream, &place.topic), Seen::As(name));
        }
    }

    #[test]
    fn what_a_place_is_seen_as_leads_back_to_it(config in any_mapping(), stream in "(kafka|s)", topic in "[ab]{1,4}") {
        let Ok(mapping) = Mapping::new(&config) else { return Ok(()) };
        if let Seen::As(name) = mapping.seen(&stream, &topic) {
            prop_assert_eq!(mapping.place(&name), Ok(Place { stream, topic }));
        }
    }

    #[test]
    fn what_is_configured_explicitly_always_has_its_place(config in any_mapping()) {
        let Ok(mapping) = Mapping::new(&config) else { return Ok(()) };
        for (name, target) in &config.topics {
            prop_assert_eq!(mapping.place(name), Ok(place(&target.stream, &target.topic)));
        }
    }
}
