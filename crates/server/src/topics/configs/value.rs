//! Values of configs, read and checked as Kafka reads and checks them.

use super::keys::{ConfigKey, Kind};
use crate::topics::names::clipped;

/// What values of a config are valid, beyond their type.
#[derive(Debug, Clone, Copy)]
pub enum Check {
    /// Every value of the type.
    Any,
    /// Numbers from this one up.
    AtLeast(i64),
    /// Numbers from the first to the second, both valid.
    Between(i64, i64),
    /// -1, or 1 to 9.
    GzipLevel,
    /// 0 to 1.
    Ratio,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Some, all or none of these words.
    SubsetOf(&'static [&'static str]),
    /// `*`, or pairs of partition and broker (`0:101,1:102`).
    ThrottledReplicas,
    /// `false`; the text says why.
    NotTrue(&'static str),
}

/// Longest value in bytes. DescribeConfigs below v4 cannot carry more.
pub const VALUE_BYTES_MAX: usize = i16::MAX as usize;

/// Why a value was refused, without the value.
type Reason = String;

/// Reads a value, and writes it the way it is kept and shown: trimmed, numbers and words in their plain form.
///
/// # Errors
/// What is wrong, in a short sentence that names the config and repeats at most the start of the value.
pub fn parse(key: &ConfigKey, value: &str) -> Result<String, String> {
    let fits = |shown: &String| shown.len() <= VALUE_BYTES_MAX;
    read(key, value.trim())
        .and_then(|shown| if fits(&shown) { Ok(shown) } else { Err("it is too long".to_owned()) })
        .map_err(|reason| format!("Invalid value {} for configuration {}: {reason}", clipped(value), key.name))
}

fn read(key: &ConfigKey, value: &str) -> Result<String, Reason> {
    match key.kind {
        Kind::Boolean => boolean(key.check, value),
        Kind::Int => whole(key.check, value, i64::from(i32::MIN), i64::from(i32::MAX), "INT"),
        Kind::Long => whole(key.check, value, i64::MIN, i64::MAX, "LONG"),
        Kind::Double => fraction(key.check, value),
        Kind::String => word(key.check, value),
        Kind::List => list(key.check, value),
    }
}

fn boolean(check: Check, value: &str) -> Result<String, Reason> {
    let truth = if value.eq_ignore_ascii_case("true") {
        true
    } else if value.eq_ignore_ascii_case("false") {
        false
    } else {
        return Err("it must be true or false".to_owned());
    };
    match check {
        Check::NotTrue(reason) if truth => Err(reason.to_owned()),
        _ => Ok(truth.to_string()),
    }
}

fn whole(check: Check, value: &str, min: i64, max: i64, kind: &str) -> Result<String, Reason> {
    let number = value.parse::<i64>().ok().filter(|number| (min..=max).contains(number));
    let Some(number) = number else {
        return Err(format!("Not a number of type {kind}"));
    };
    match check {
        Check::AtLeast(least) if number < least => Err(format!("Value must be at least {least}")),
        Check::Between(least, most) if !(least..=most).contains(&number) => {
            Err(format!("it must be between {least} and {most}"))
        }
        Check::GzipLevel if number != -1 && !(1..=9).contains(&number) => {
            Err("it must be between 1 and 9, or -1".to_owned())
        }
        _ => Ok(number.to_string()),
    }
}

fn fraction(check: Check, value: &str) -> Result<String, Reason> {
    let Some(number) = value.parse::<f64>().ok().filter(|number| number.is_finite()) else {
        return Err("Not a number of type DOUBLE".to_owned());
    };
    match check {
        Check::Ratio if !(0.0..=1.0).contains(&number) => Err("it must be between 0 and 1".to_owned()),
        // Debug writes 1 as "1.0", which is how Kafka shows a double.
        _ => Ok(format!("{number:?}")),
    }
}

fn word(check: Check, value: &str) -> Result<String, Reason> {
    match check {
        Check::OneOf(words) if !words.contains(&value) => Err(format!("String must be one of: {}", words.join(", "))),
        _ => Ok(value.to_owned()),
    }
}

/// The words of a list value.
pub(super) fn words(value: &str) -> impl Iterator<Item = &str> {
    let value = value.trim();
    value.split(',').map(str::trim).filter(move |_| !value.is_empty())
}

fn list(check: Check, value: &str) -> Result<String, Reason> {
    let mut seen: Vec<&str> = Vec::new();
    for word in words(value) {
        match check {
            Check::SubsetOf(allowed) if !allowed.contains(&word) => {
                return Err(format!("String must be one of: {}", allowed.join(", ")));
            }
            Check::SubsetOf(_) if seen.contains(&word) => {}
            _ => seen.push(word),
        }
    }
    if matches!(check, Check::ThrottledReplicas) && seen != ["*"] && !seen.iter().all(|pair| is_replica(pair)) {
        return Err("it must be '*', or a list like 0:101,1:102".to_owned());
    }
    Ok(seen.join(","))
}

fn is_replica(pair: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    pair.split_once(':').is_some_and(|(partition, broker)| digits(partition) && digits(broker))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::keys::{TOPIC_KEYS, find};
    use super::*;

    fn read(name: &str, value: &str) -> Result<String, String> {
        parse(find(name).unwrap(), value)
    }

    fn accepted(name: &str, values: &[(&str, &str)]) {
        for (value, shown) in values {
            assert_eq!(read(name, value).as_deref(), Ok(*shown), "{name}={value}");
        }
    }

    fn refused(name: &str, values: &[&str]) {
        for value in values {
            assert!(read(name, value).is_err(), "{name}={value}");
        }
    }

    #[test]
    fn booleans_are_read_in_any_case() {
        accepted("preallocate", &[("true", "true"), ("FALSE", "false"), (" True ", "true")]);
        refused("preallocate", &["", "yes", "1", "tru"]);
    }

    #[test]
    fn ints_end_at_32_bits() {
        accepted("segment.bytes", &[("2147483647", "2147483647"), (" 1048576 ", "1048576"), ("+2000000", "2000000")]);
        refused("segment.bytes", &["2147483648", "1048575", "-1", "", "1e7", "16MB", "1048576.0"]);
    }

    #[test]
    fn longs_end_at_64_bits() {
        accepted("retention.ms", &[("-1", "-1"), ("0", "0"), ("9223372036854775807", "9223372036854775807")]);
        refused("retention.ms", &["-2", "9223372036854775808", "seven days"]);
    }

    #[test]
    fn any_negative_retention_in_bytes_is_taken_as_kafka_does() {
        accepted("retention.bytes", &[("-1", "-1"), ("-7", "-7"), ("0", "0")]);
    }

    #[test]
    fn a_ratio_lies_between_0_and_1() {
        accepted("min.cleanable.dirty.ratio", &[("0", "0.0"), ("1", "1.0"), ("0.25", "0.25"), ("5e-1", "0.5")]);
        refused("min.cleanable.dirty.ratio", &["-0.1", "1.01", "NaN", "inf", "half"]);
    }

    #[test]
    fn words_are_case_sensitive_as_in_kafka() {
        accepted("message.timestamp.type", &[("LogAppendTime", "LogAppendTime")]);
        refused("message.timestamp.type", &["logappendtime", "", "CreateTime,LogAppendTime"]);
        accepted("compression.type", &[("zstd", "zstd"), ("producer", "producer"), ("uncompressed", "uncompressed")]);
        refused("compression.type", &["none", "ZSTD", "brotli"]);
    }

    #[test]
    fn the_cleanup_policy_is_a_set_of_words() {
        let shown =
            [("compact", "compact"), ("compact, delete", "compact,delete"), ("delete,delete", "delete"), ("", "")];
        accepted("cleanup.policy", &shown);
        refused("cleanup.policy", &["keep", "delete,keep", "delete,", ","]);
    }

    #[test]
    fn levels_of_compression_have_their_codecs_range() {
        accepted("compression.gzip.level", &[("-1", "-1"), ("1", "1"), ("9", "9")]);
        refused("compression.gzip.level", &["0", "10", "-2"]);
        accepted("compression.lz4.level", &[("1", "1"), ("17", "17")]);
        refused("compression.lz4.level", &["0", "18"]);
        accepted("compression.zstd.level", &[("-131072", "-131072"), ("22", "22")]);
        refused("compression.zstd.level", &["-131073", "23"]);
    }

    #[test]
    fn throttled_replicas_are_a_star_or_pairs() {
        accepted("leader.replication.throttled.replicas", &[("", ""), ("*", "*"), ("0:1, 1:2", "0:1,1:2")]);
        refused("leader.replication.throttled.replicas", &["0", "0:", ":1", "a:b", "*,0:1", "0:1,"]);
    }

    #[test]
    fn remote_storage_cannot_be_switched_on() {
        accepted("remote.storage.enable", &[("false", "false")]);
        refused("remote.storage.enable", &["true"]);
    }

    #[test]
    fn a_refusal_does_not_repeat_a_long_value() {
        let text = read("retention.ms", &"9".repeat(100_000)).unwrap_err();
        assert!(text.len() < 200, "{} bytes", text.len());
        assert!(text.contains("retention.ms"));
    }

    #[test]
    fn a_refusal_is_in_the_words_of_kafka() {
        let text = |name, value| read(name, value).unwrap_err();
        assert_eq!(
            text("retention.ms", "soon"),
            "Invalid value soon for configuration retention.ms: Not a number of type LONG"
        );
        assert_eq!(
            text("cleanup.policy", "shred"),
            "Invalid value shred for configuration cleanup.policy: String must be one of: compact, delete"
        );
    }

    #[test]
    fn a_value_that_no_answer_could_carry_is_refused() {
        let replicas = |count: usize| vec!["0:1"; count].join(",");
        assert!(read("leader.replication.throttled.replicas", &replicas(8_192)).is_ok());
        assert!(read("leader.replication.throttled.replicas", &replicas(8_193)).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn what_is_shown_reads_back_as_itself(at in 0..TOPIC_KEYS.len(), value in "[-+0-9a-zA-Z:,.* ]{0,12}") {
            let key = &TOPIC_KEYS[at];
            if let Ok(shown) = parse(key, &value) {
                prop_assert_eq!(parse(key, &shown), Ok(shown));
            }
        }
    }
}
