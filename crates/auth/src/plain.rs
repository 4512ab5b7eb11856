//! PLAIN (RFC 4616): an authorization id, a name and a password, with zeros between.

/// Longest token, in bytes: room for three parts of the longest text. Passed: it is refused before any work is done for it.
pub const TOKEN_BYTES_MAX: usize = 4 << 10;

/// What a client says. Not printed: a password is in it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Login<'a> {
    /// Whom it wants to act for; empty is itself.
    pub authorization_id: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its password.
    pub password: &'a str,
}

/// Why a token is no PLAIN message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It is longer than any name and password.
    #[error("the PLAIN message has more than {TOKEN_BYTES_MAX} bytes")]
    Long,
    /// The bytes are not UTF-8.
    #[error("the PLAIN message is not UTF-8")]
    NotText,
    /// There are not three parts.
    #[error("the PLAIN message does not have three parts")]
    Parts,
    /// The name or the password is empty.
    #[error("the PLAIN message has no name or no password")]
    Empty,
}

/// Reads a token.
///
/// # Errors
/// When it is too long, is not three parts of UTF-8, or name or password are empty. A zero in the password is a fourth part: the RFC
/// allows none.
pub fn parse(token: &[u8]) -> Result<Login<'_>, Malformed> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(Malformed::Long);
    }
    let text = std::str::from_utf8(token).map_err(|_| Malformed::NotText)?;
    let mut parts = text.split('\0');
    let (Some(authorization_id), Some(name), Some(password), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(Malformed::Parts);
    };
    if name.is_empty() || password.is_empty() {
        return Err(Malformed::Empty);
    }
    Ok(Login { authorization_id, name, password })
}

/// The token that logs in as `name`. Neither part may hold a zero.
#[must_use]
pub fn token(name: &str, password: &str) -> Vec<u8> {
    ["\0", name, "\0", password].concat().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_rfc_are_read() {
        let login = parse(b"\0tim\0tanstaaftanstaaf").unwrap();
        assert_eq!((login.authorization_id, login.name, login.password), ("", "tim", "tanstaaftanstaaf"));
        let login = parse(b"Ursel\0Kurt\0xipj3plmq").unwrap();
        assert_eq!((login.authorization_id, login.name, login.password), ("Ursel", "Kurt", "xipj3plmq"));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let bad: [(&[u8], Malformed); 8] = [
            (b"", Malformed::Parts),
            (b"tim", Malformed::Parts),
            (b"\0tim", Malformed::Parts),
            (b"\0tim\0pass\0more", Malformed::Parts),
            (b"\0\0pass", Malformed::Empty),
            (b"\0tim\0", Malformed::Empty),
            (b"\0\0", Malformed::Empty),
            (b"\0tim\0\xff", Malformed::NotText),
        ];
        for (token, why) in bad {
            assert_eq!(parse(token).err(), Some(why), "{token:?}");
        }
    }

    #[test]
    fn the_longest_texts_are_read_and_nothing_beyond() {
        let text = "x".repeat(crate::prepare::TEXT_BYTES_MAX);
        let longest = format!("{text}\0{text}\0{text}");
        assert!(parse(longest.as_bytes()).is_ok());
        let of = |bytes: usize| format!("\0u\0{}", "x".repeat(bytes - 3));
        assert!(parse(of(TOKEN_BYTES_MAX).as_bytes()).is_ok());
        assert_eq!(parse(of(TOKEN_BYTES_MAX + 1).as_bytes()).err(), Some(Malformed::Long));
    }

    #[test]
    fn a_token_that_is_made_here_is_read_here() {
        let token = token("alice", "päss word");
        let login = parse(&token).unwrap();
        assert_eq!((login.authorization_id, login.name, login.password), ("", "alice", "päss word"));
    }
}
