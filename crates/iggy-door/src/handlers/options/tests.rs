use iggy_common::{CompressionAlgorithm, IggyByteSize, IggyExpiry, MaxTopicSize, TopicCreateOptions};

use super::*;

fn raw(key: &str, value: &str) -> WireOptions {
    let mut block = BytesMut::new();
    put(&mut block, STRING, key.as_bytes());
    put(&mut block, STRING, value.as_bytes());
    WireOptions::from_bytes(block.freeze()).unwrap()
}

#[test]
fn what_the_sdk_sends_for_a_typed_topic_is_taken() {
    let options = TopicCreateOptions {
        compression_algorithm: Some(CompressionAlgorithm::None),
        message_expiry: Some(IggyExpiry::NeverExpire),
        max_topic_size: Some(MaxTopicSize::Custom(IggyByteSize::from(3_000_000_001u64))),
        segment_size: Some(IggyByteSize::from(1u64 << 20)),
        ..TopicCreateOptions::default()
    };
    let taken = settings(&options.to_wire().unwrap(), 3).unwrap();
    let expected = TopicSettings {
        retention: Some(None),
        retention_bytes: Some(Some(1_000_000_001)),
        segment_bytes: Some(1 << 20),
        ..TopicSettings::default()
    };
    assert_eq!(taken, expected);
}

#[test]
fn what_is_shown_of_a_topic_makes_a_topic_like_it() {
    let original = TopicSettings {
        retention: Some(Some(Duration::from_secs(3))),
        retention_bytes: Some(Some(1 << 30)),
        segment_bytes: Some(1 << 20),
        durability: Some(Durability::Always),
        ..TopicSettings::default()
    };
    let shown = explicit(&original, 4);
    assert!(WireOptions::from_slice(shown.as_bytes()).is_ok());
    assert_eq!(settings(&shown, 4), Ok(original));
    assert_eq!(explicit(&TopicSettings::default(), 1), WireOptions::empty());
}

#[test]
fn text_is_as_good_as_a_typed_value() {
    let cases = [
        (EXPIRY, "3s", TopicSettings { retention: Some(Some(Duration::from_secs(3))), ..TopicSettings::default() }),
        (EXPIRY, "server_default", TopicSettings::default()),
        (SIZE, "1 GiB", TopicSettings { retention_bytes: Some(Some(1 << 30)), ..TopicSettings::default() }),
        (SIZE, "unlimited", TopicSettings { retention_bytes: Some(None), ..TopicSettings::default() }),
        (DURABILITY, "Persisted", TopicSettings { durability: Some(Durability::Always), ..TopicSettings::default() }),
        (FSYNC, "true", TopicSettings { durability: Some(Durability::Always), ..TopicSettings::default() }),
        (SAVE_MESSAGES, "1", TopicSettings::default()),
    ];
    for (key, value, expected) in cases {
        assert_eq!(settings(&raw(key, value), 1), Ok(expected), "{key}={value}");
    }
}

#[test]
fn values_that_cannot_be_and_keys_that_are_not_known_are_refused() {
    let bad = [
        (COMPRESSION, "gzip"),
        (EXPIRY, "soon"),
        (SIZE, "-1"),
        (SEGMENT, "1048577"),
        (SEGMENT, "1023 KiB"),
        (SEGMENT, "2 GiB"),
        (DURABILITY, "maybe"),
        (FSYNC, "yes"),
        (SAVE_MESSAGES, "0"),
    ];
    for (key, value) in bad {
        assert_eq!(settings(&raw(key, value), 1), Err(Code::INVALID_OPTION), "{key}={value}");
    }
    assert_eq!(settings(&raw("colour", "red"), 1), Err(Code::UNSUPPORTED_OPTION));
    assert_eq!(settings(&raw(SIZE, "1048575"), 1), Err(Code::INVALID_TOPIC_SIZE), "less than a segment");
    assert!(settings(&raw(SIZE, "1 MiB"), 1).is_ok());
}

#[test]
fn only_some_options_can_change() {
    let before = TopicSettings { segment_bytes: Some(1 << 20), ..TopicSettings::default() };
    let after = changed(&before, &raw(EXPIRY, "1h"), 1).unwrap();
    assert_eq!(after, TopicSettings { retention: Some(Some(Duration::from_secs(3_600))), ..before.clone() });
    assert_eq!(changed(&before, &raw(SEGMENT, "2 MiB"), 1), Err(Code::UNSUPPORTED_OPTION));
}

#[test]
fn every_key_that_the_sdk_knows_is_in_the_catalog() {
    use iggy_common::topic_option_keys as keys;
    let known = [
        keys::COMPRESSION_ALGORITHM,
        keys::MESSAGE_EXPIRY,
        keys::MAX_TOPIC_SIZE,
        keys::SEGMENT_SIZE,
        keys::DURABILITY,
        keys::CONSUMER_OFFSET_DURABILITY,
        keys::MESSAGES_REQUIRED_TO_SAVE,
        keys::SIZE_OF_MESSAGES_REQUIRED_TO_SAVE,
        keys::PREALLOCATE_SEGMENTS,
    ];
    for key in known {
        assert!(CATALOG.iter().any(|(name, ..)| *name == key), "{key}");
    }
}
