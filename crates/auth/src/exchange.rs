//! One authentication of one client, whatever the mechanism.

use std::borrow::Cow;

use crate::mechanism::Mechanism;
use crate::plain;
use crate::prepare::prepared;
use crate::scram::{Answer, ScramServer};
use crate::users::Users;

/// What a client is told when name or password are wrong, as Kafka says it.
const WRONG: &str = "Authentication failed: Invalid username or password";

/// What a client is told that wants to act for somebody else, as Kafka says it.
const OTHER: &str = "Authentication failed: Client requested an authorization id that is different from username";

/// What a client is checked against.
#[derive(Debug, Clone, Copy)]
pub struct Credentials<'a> {
    /// Users and what is kept of their passwords.
    pub users: &'a Users,
    /// Random, printable, without a comma, used once.
    pub nonce: &'a str,
}

/// An exchange that has begun.
#[derive(Debug)]
pub struct Exchange {
    mechanism: Mechanism,
    scram: Option<ScramServer>,
}

/// What comes of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// These bytes go to the client, and another token is expected.
    Challenge(Vec<u8>),
    /// The client is who it says.
    Accepted(Accepted),
    /// The client is not let in.
    Refused(Refusal),
}

/// A client that is let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// These bytes go to the client.
    pub token: Vec<u8>,
    /// Its name.
    pub name: String,
}

/// A client that is not let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What it is told. Where that is nothing, Kafka's general words for this mechanism.
    pub told: Option<Cow<'static, str>>,
    /// Why, for the log.
    pub reason: String,
}

impl Exchange {
    /// A new exchange.
    #[must_use]
    pub fn new(mechanism: Mechanism) -> Self {
        Self { mechanism, scram: mechanism.hash().map(ScramServer::new) }
    }

    /// Its mechanism.
    #[must_use]
    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// True when the next token takes milliseconds to check, so that it should not be done where others wait.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        self.mechanism == Mechanism::Plain
    }

    /// Takes a token of the client.
    #[must_use]
    pub fn step(&mut self, token: &[u8], credentials: Credentials<'_>) -> Step {
        let Some(scram) = &mut self.scram else { return plain(token, credentials.users) };
        match scram.step(token, credentials.users, credentials.nonce) {
            Ok(Answer::Challenge(token)) => Step::Challenge(token),
            Ok(Answer::Accepted { token, name }) => Step::Accepted(Accepted { token, name }),
            Err(denied) => Step::Refused(Refusal { told: None, reason: denied.to_string() }),
        }
    }
}

fn plain(token: &[u8], users: &Users) -> Step {
    let refused = |told: Option<&'static str>, reason: &str| {
        Step::Refused(Refusal { told: told.map(Cow::Borrowed), reason: reason.to_owned() })
    };
    let login = match plain::parse(token) {
        Ok(login) => login,
        Err(malformed) => return refused(None, &malformed.to_string()),
    };
    // Text without a prepared form is nobody's, and takes as long.
    let (name, password) = (prepared(login.name), prepared(login.password));
    let known = users.is(name.as_deref().unwrap_or_default(), password.as_deref().unwrap_or_default());
    match name {
        Some(_) if known && !login.authorization_id.is_empty() && login.authorization_id != login.name => {
            refused(Some(OTHER), "the client wants to act for another user than itself")
        }
        Some(name) if known => Step::Accepted(Accepted { token: Vec::new(), name }),
        _ => refused(Some(WRONG), "wrong name or password"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verifier::{Hash, Verifier};

    fn step(token: &[u8]) -> Step {
        let of = |hash| Verifier::derive(hash, "secret", b"0123456789abcdef", 4_096).unwrap();
        let users = Users::single("alice", Hash::ALL.map(of));
        Exchange::new(Mechanism::Plain).step(token, Credentials { users: &users, nonce: "n" })
    }

    fn told(step: Step) -> Option<String> {
        let Step::Refused(refusal) = step else { panic!("{step:?}") };
        refusal.told.map(Cow::into_owned)
    }

    #[test]
    fn name_and_password_in_the_clear_are_checked() {
        for token in [b"\0alice\0secret".as_slice(), b"alice\0alice\0secret"] {
            assert_eq!(step(token), Step::Accepted(Accepted { token: Vec::new(), name: "alice".to_owned() }));
        }
    }

    #[test]
    fn a_refusal_says_what_kafka_says_and_not_which_part_is_wrong() {
        assert_eq!(told(step(b"\0alice\0wrong")).as_deref(), Some(WRONG));
        assert_eq!(told(step(b"\0nobody\0secret")).as_deref(), Some(WRONG));
        assert_eq!(told(step(b"\0alice\0line\nbreak")).as_deref(), Some(WRONG));
        assert_eq!(told(step(b"bob\0alice\0secret")).as_deref(), Some(OTHER));
        // Who does not know the password does not learn that either.
        assert_eq!(told(step(b"bob\0alice\0wrong")).as_deref(), Some(WRONG));
        assert_eq!(told(step(b"nothing")), None);
    }
}
