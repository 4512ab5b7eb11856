//! Kafka's rules for topic names.

use std::fmt;

/// Longest topic name in bytes, as in Kafka: it becomes part of a file name there.
pub const NAME_BYTES_MAX: usize = 249;

/// Prefix under which the topics of the internal stream carry a Kafka name.
pub const INTERNAL_PREFIX: &str = "__milena.";

/// Why a name cannot be a topic's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameRefusal {
    /// No characters at all.
    #[error("a topic name must not be empty")]
    Empty,
    /// More bytes than [`NAME_BYTES_MAX`].
    #[error("the topic name has {0} bytes, the limit is 249")]
    TooLong(usize),
    /// `.` and `..` are folders.
    #[error("a topic name must not be '.' or '..'")]
    Dots,
    /// A character outside of `[a-zA-Z0-9._-]`.
    #[error("a topic name holds only letters, digits, '.', '_' and '-'")]
    Character,
    /// The name's place in the store belongs to a topic that is mapped under another name.
    #[error("this name's place in the store is mapped under another topic name")]
    Taken,
    /// The name belongs to Milena's own topics.
    #[error("topic names that begin with '__milena.' are reserved")]
    Reserved,
}

/// Checks a name against Kafka's rules: 1 to 249 characters of `[a-zA-Z0-9._-]`, neither `.` nor `..`.
///
/// # Errors
/// The first rule that is broken. The error never repeats the name, which may be as long as a request.
pub fn check(name: &str) -> Result<(), NameRefusal> {
    if name.is_empty() {
        return Err(NameRefusal::Empty);
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(NameRefusal::TooLong(name.len()));
    }
    if name == "." || name == ".." {
        return Err(NameRefusal::Dots);
    }
    if name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')) {
        Ok(())
    } else {
        Err(NameRefusal::Character)
    }
}

/// Text of foreign origin for an error message or the log: never more than 64 characters of it.
#[must_use]
pub fn clipped(text: &str) -> Clipped<'_> {
    Clipped(text)
}

/// See [`clipped`].
#[derive(Debug, Clone, Copy)]
pub struct Clipped<'a>(&'a str);

impl fmt::Display for Clipped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(64) {
            Some((end, _)) => write!(f, "{}...", self.0.get(..end).unwrap_or_default()),
            None => f.write_str(self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_kafka_allows_is_allowed() {
        assert_eq!(check("abc.XYZ_019-"), Ok(()));
    }

    #[test]
    fn a_name_of_digits_only_is_a_name() {
        assert_eq!(check("12345"), Ok(()));
    }

    #[test]
    fn the_longest_name_has_249_bytes() {
        assert_eq!(check(&"a".repeat(249)), Ok(()));
        assert_eq!(check(&"a".repeat(250)), Err(NameRefusal::TooLong(250)));
    }

    #[test]
    fn empty_and_dots_and_odd_characters_are_refused() {
        assert_eq!(check(""), Err(NameRefusal::Empty));
        assert_eq!(check("."), Err(NameRefusal::Dots));
        assert_eq!(check(".."), Err(NameRefusal::Dots));
        for name in ["a b", "a/b", "a:b", "ä", "a\0", "a\n"] {
            assert_eq!(check(name), Err(NameRefusal::Character), "{name:?}");
        }
    }

    #[test]
    fn three_dots_are_a_name_as_in_kafka() {
        assert_eq!(check("..."), Ok(()));
    }

    #[test]
    fn a_refusal_never_repeats_the_name() {
        let text = check(&"q".repeat(60_000)).unwrap_err().to_string();
        assert!(text.len() < 100 && !text.contains("qq"), "{text}");
    }

    #[test]
    fn clipped_text_is_cut_at_a_character() {
        let text = clipped(&"ä".repeat(100)).to_string();
        assert_eq!(text, format!("{}...", "ä".repeat(64)));
        assert_eq!(clipped("short").to_string(), "short");
    }
}
