use iggy_common::HeaderKind;

use super::*;

fn keys(names: &[&str]) -> Keys {
    let spec = |key: &&str| OptionSpec {
        key: (*key).to_owned(),
        kind: HeaderKind::String,
        default_value: Vec::new(),
        description: String::new(),
    };
    Keys::new(&names.iter().map(spec).collect::<Vec<_>>())
}

/// A server of this generation, and one of the next.
const OLDER: &[&str] =
    &["message_expiry", "max_topic_size", "segment_size", "messages_required_to_save", "enforce_fsync"];
const NEWER: &[&str] = &["message_expiry", "max_topic_size", "segment_size", "messages_required_to_save", "durability"];

/// What is sent, as text.
fn sent(settings: &TopicSettings, default: AckDurability, names: &[&str]) -> BTreeMap<String, String> {
    sent_in("kafka", settings, default, names)
}

fn sent_in(stream: &str, settings: &TopicSettings, default: AckDurability, names: &[&str]) -> BTreeMap<String, String> {
    let options = creation(stream, 3, settings, default, &keys(names)).unwrap();
    let options = iggy_common::wire_conversions::resource_options_from_wire(&options, true).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    options.iter().map(|(key, option)| (text(key.as_bytes()), option.value.to_string_value())).collect()
}

fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn topics_are_durable_per_acknowledgement_by_default_on_either_generation() {
    let default = TopicSettings::default();
    assert_eq!(sent(&default, AckDurability::Persisted, OLDER), map(&[("messages_required_to_save", "1")]));
    assert_eq!(sent(&default, AckDurability::Persisted, NEWER), map(&[("durability", "persisted")]));
    assert_eq!(sent(&default, AckDurability::Fast, OLDER), map(&[]));
    assert_eq!(sent(&default, AckDurability::Fast, NEWER), map(&[]));
}

#[test]
fn state_of_our_own_survives_the_server_where_records_need_not() {
    let sent = |names| sent_in(INTERNAL_STREAM, &TopicSettings::default(), AckDurability::Fast, names);
    assert_eq!(sent(OLDER).get("messages_required_to_save").map(String::as_str), Some("1"));
    assert_eq!(sent(NEWER).get("durability").map(String::as_str), Some("persisted"));
}

#[test]
fn flushing_asks_for_a_flush_where_the_server_can_be_asked() {
    let flushed = TopicSettings { durability: Some(Durability::Always), ..TopicSettings::default() };
    let older = map(&[("messages_required_to_save", "1"), ("enforce_fsync", "true")]);
    assert_eq!(sent(&flushed, AckDurability::Fast, OLDER), older);
    assert_eq!(sent(&flushed, AckDurability::Fast, NEWER), map(&[("durability", "persisted")]));
}

#[test]
fn a_key_that_the_server_does_not_know_is_not_sent() {
    let settings = TopicSettings {
        retention: Some(Some(Duration::from_secs(60))),
        retention_bytes: Some(Some(1 << 30)),
        segment_bytes: Some(8 << 20),
        ..TopicSettings::default()
    };
    assert_eq!(sent(&settings, AckDurability::Persisted, &[]), map(&[]));
    let all = sent(&settings, AckDurability::Persisted, OLDER);
    assert_eq!(all.get("message_expiry").map(String::as_str), Some("60000000"));
    assert_eq!(all.get("max_topic_size"), Some(&(3u64 << 30).to_string()));
    assert_eq!(all.get("segment_size"), Some(&(8u64 << 20).to_string()));
}

#[test]
fn sizes_that_the_server_would_refuse_are_brought_into_its_range() {
    let settings =
        TopicSettings { retention_bytes: Some(Some(1)), segment_bytes: Some(1_000), ..TopicSettings::default() };
    let all = sent(&settings, AckDurability::Fast, OLDER);
    assert_eq!(all.get("segment_size"), Some(&limits::SEGMENT_BYTES_MIN.to_string()));
    assert_eq!(all.get("max_topic_size"), Some(&(3 * limits::SEGMENT_BYTES_MIN).to_string()));
    let odd = TopicSettings { segment_bytes: Some((2 << 20) + 5), ..TopicSettings::default() };
    assert_eq!(sent(&odd, AckDurability::Fast, OLDER).get("segment_size"), Some(&(2u64 << 20).to_string()));
}

fn facts(expiry: IggyExpiry, max_size: MaxTopicSize) -> Facts {
    Facts { expiry, max_size, partitions: 2, segment_bytes: Some(1 << 20), persists: None }
}

#[test]
fn a_topic_that_somebody_else_created_has_the_settings_that_the_server_says() {
    let age = IggyDuration::from(Duration::from_secs(5));
    let said = facts(IggyExpiry::ExpireDuration(age), MaxTopicSize::Custom(IggyByteSize::from(10 << 20)));
    let settings = said.settings(None);
    assert_eq!(settings.retention, Some(Some(Duration::from_secs(5))));
    assert_eq!(settings.retention_bytes, Some(Some(5 << 20)));
    assert_eq!(settings.segment_bytes, Some(1 << 20));
}

#[test]
fn what_was_asked_for_is_shown_as_long_as_the_server_has_what_follows_from_it() {
    let recorded = TopicSettings {
        retention: Some(Some(Duration::from_secs(5))),
        segment_bytes: Some(7),
        flush_messages: Some(9),
        ..TopicSettings::default()
    };
    let seconds = |seconds| IggyExpiry::ExpireDuration(IggyDuration::from(Duration::from_secs(seconds)));
    assert_eq!(facts(seconds(5), MaxTopicSize::Unlimited).settings(Some(&recorded)), recorded);
    let changed = facts(seconds(9), MaxTopicSize::Unlimited).settings(Some(&recorded));
    assert_eq!(changed.retention, Some(Some(Duration::from_secs(9))));
    assert_eq!(changed.flush_messages, Some(9));
}

#[test]
fn whether_acknowledged_messages_are_kept_is_read_from_either_generation() {
    let of = |key: &str, value: iggy_common::HeaderValue| {
        let option = iggy_common::OptionValue::derived(value);
        let options = ResourceOptions::from([(key.parse::<HeaderKey>().unwrap(), option)]);
        Facts::new(IggyExpiry::NeverExpire, MaxTopicSize::Unlimited, 1, &options).persists
    };
    assert_eq!(of("messages_required_to_save", 1u32.into()), Some(true));
    assert_eq!(of("messages_required_to_save", 1_024u32.into()), Some(false));
    assert_eq!(of("durability", "persisted".try_into().unwrap()), Some(true));
    assert_eq!(of("durability", "replicated".try_into().unwrap()), Some(false));
    assert_eq!(of("segment_size", 1_024u64.into()), None);
}
