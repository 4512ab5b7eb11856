//! What a client sends (RFC 7628, section 3.1): a header, then pairs of keys and values with a control character before each.

/// What is before each pair, and behind the last.
const SEPARATOR: char = '\u{1}';

/// What a client answers to the reason why its token is not taken.
pub const ACKNOWLEDGED: &[u8] = b"\x01";

/// What a client says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Bearing<'a> {
    /// Whom it wants to act for, as it is written; empty is itself.
    pub authorization_id: &'a str,
    /// Its token. Not printed.
    pub token: &'a str,
}

/// The bytes are no such message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the OAUTHBEARER message is malformed")]
pub struct Malformed;

/// Reads the first message of a client. Pairs that are not known, such as Kafka's extensions (KIP-342), are passed over.
///
/// # Errors
/// When it has another form.
pub fn parse(message: &[u8]) -> Result<Bearing<'_>, Malformed> {
    let text = std::str::from_utf8(message).map_err(|_| Malformed)?;
    let (header, pairs) = text.split_once(SEPARATOR).ok_or(Malformed)?;
    let id = header.strip_prefix("n,").or_else(|| header.strip_prefix("y,")).and_then(|rest| rest.strip_suffix(','));
    let id = id.ok_or(Malformed)?;
    let authorization_id = if id.is_empty() { "" } else { id.strip_prefix("a=").ok_or(Malformed)? };
    let pairs = pairs.strip_suffix(SEPARATOR).and_then(|pairs| pairs.strip_suffix(SEPARATOR)).ok_or(Malformed)?;
    let mut token = None;
    for pair in pairs.split(SEPARATOR) {
        let (key, value) = pair.split_once('=').ok_or(Malformed)?;
        if key == "auth" && token.replace(bearer(value)?).is_some() {
            return Err(Malformed);
        }
    }
    Ok(Bearing { authorization_id, token: token.ok_or(Malformed)? })
}

/// The token behind the word, which is spelled in any way.
fn bearer(value: &str) -> Result<&str, Malformed> {
    let (scheme, token) = value.split_once(' ').ok_or(Malformed)?;
    let token = token.trim_start_matches(' ');
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let fits = scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.bytes().all(is_token);
    if fits { Ok(token) } else { Err(Malformed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_kafkas_clients_are_read() {
        let of = |message: &'static str| parse(message.as_bytes()).map(|said| (said.authorization_id, said.token));
        assert_eq!(of("n,,\u{1}auth=Bearer a.b.c\u{1}\u{1}"), Ok(("", "a.b.c")));
        assert_eq!(of("n,a=alice,\u{1}auth=bearer  a-b_c\u{1}traceId=1=2\u{1}\u{1}"), Ok(("alice", "a-b_c")));
        assert_eq!(of("n,,\u{1}host=h\u{1}port=9092\u{1}auth=BEARER t\u{1}\u{1}"), Ok(("", "t")));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let bad = [
            "",
            "\u{1}",
            "n,,",
            "n,,\u{1}\u{1}",
            "n,,\u{1}\u{1}\u{1}",
            "n,,\u{1}auth=Bearer t\u{1}",
            "n,,auth=Bearer t\u{1}\u{1}",
            "p=x,,\u{1}auth=Bearer t\u{1}\u{1}",
            "n,alice,\u{1}auth=Bearer t\u{1}\u{1}",
            "n,,\u{1}auth=Basic t\u{1}\u{1}",
            "n,,\u{1}auth=Bearer \u{1}\u{1}",
            "n,,\u{1}auth=Bearer a b\u{1}\u{1}",
            "n,,\u{1}auth=Bearer t\u{1}auth=Bearer u\u{1}\u{1}",
            "n,,\u{1}auth\u{1}\u{1}",
            "n,,\u{1}x=1\u{1}\u{1}",
        ];
        for message in bad {
            assert!(parse(message.as_bytes()).is_err(), "{message:?}");
        }
        assert!(parse(b"n,,\x01auth=Bearer \xff\x01\x01").is_err());
    }
}
