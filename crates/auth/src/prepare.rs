//! SASLprep (RFC 4013): names and passwords that look alike become alike.

/// Why text cannot be a name or a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// Empty, or nothing is left of it.
    #[error("it is empty")]
    Empty,
    /// Longer than a client should have to send.
    #[error("it is longer than {TEXT_BYTES_MAX} bytes")]
    Long,
    /// It holds what SASLprep forbids: control characters, unassigned ones, mixed directions.
    #[error("it holds characters that no name or password may have (RFC 4013)")]
    Forbidden,
    /// SASLprep changes it, and clients that do not prepare it would send something else.
    #[error(
        "it holds characters that some clients send in another form than others (RFC 4013: compatibility forms, special \
         spaces); choose plain ones"
    )]
    Ambiguous,
}

/// Longest name or password, in bytes. RFC 4616 asks for 255 at least.
pub const TEXT_BYTES_MAX: usize = 1_024;

/// The prepared form of what a client sent; `None` when there is none. What was stored is its own prepared form, so text
/// that has none matches nothing.
#[must_use]
pub fn prepared(text: &str) -> Option<String> {
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    stringprep::saslprep(text).ok().map(std::borrow::Cow::into_owned).filter(|text| !text.is_empty())
}

/// Checks a name or password that is to be stored. Most Kafka clients send passwords as they were typed and some prepare
/// them, so only text is taken for which that makes no difference.
///
/// # Errors
/// When it cannot be used, or not with every client.
pub fn check(text: &str) -> Result<(), Unusable> {
    if text.is_empty() {
        return Err(Unusable::Empty);
    }
    if text.len() > TEXT_BYTES_MAX {
        return Err(Unusable::Long);
    }
    match stringprep::saslprep(text) {
        Ok(same) if same == text => Ok(()),
        Ok(_) => Err(Unusable::Ambiguous),
        Err(_) => Err(Unusable::Forbidden),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_rfc_are_prepared() {
        assert_eq!(prepared("I\u{ad}X").as_deref(), Some("IX"));
        assert_eq!(prepared("user").as_deref(), Some("user"));
        assert_eq!(prepared("USER").as_deref(), Some("USER"));
        assert_eq!(prepared("\u{aa}").as_deref(), Some("a"));
        assert_eq!(prepared("\u{2168}").as_deref(), Some("IX"));
        assert_eq!(prepared("\u{7}"), None);
        assert_eq!(prepared("\u{627}\u{31}"), None);
    }

    #[test]
    fn only_text_that_every_client_sends_alike_is_stored() {
        for good in ["a", "päss wörd", "密码", &"x".repeat(TEXT_BYTES_MAX)] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        let bad = [
            ("", Unusable::Empty),
            ("a\u{a0}b", Unusable::Ambiguous),
            ("\u{fb01}x", Unusable::Ambiguous),
            ("line\nbreak", Unusable::Forbidden),
            (&"x".repeat(TEXT_BYTES_MAX + 1), Unusable::Long),
        ];
        for (text, why) in bad {
            assert_eq!(check(text), Err(why), "{text:?}");
        }
    }

    #[test]
    fn text_that_is_too_long_or_empty_has_no_prepared_form() {
        assert_eq!(prepared(""), None);
        assert_eq!(prepared("\u{ad}"), None);
        assert!(prepared(&"x".repeat(TEXT_BYTES_MAX)).is_some());
        assert_eq!(prepared(&"x".repeat(TEXT_BYTES_MAX + 1)), None);
    }
}
