//! One authentication of one client, whatever the mechanism.

use std::borrow::Cow;

use crate::mechanism::Mechanism;
use crate::oauth::{TokenRules, Untrusted, message};
use crate::plain;
use crate::prepare::prepared;
use crate::scram::{Answer, ScramServer};
use crate::users::Users;
use crate::verifier::Hash;

/// What a client is told when name or password are wrong, as Kafka says it.
const WRONG: &str = "Authentication failed: Invalid username or password";

/// What a client is told that wants to act for somebody else, as Kafka says it.
const OTHER: &str = "Authentication failed: Client requested an authorization id that is different from username";

/// What a client is told whose token is not taken, as Kafka says it.
const INVALID_TOKEN: &str = "{\"status\":\"invalid_token\"}";

/// What a client is checked against.
#[derive(Debug, Clone, Copy)]
pub struct Credentials<'a> {
    /// Users and what is kept of their passwords.
    pub users: &'a Users,
    /// Which tokens are taken; `None` takes none.
    pub tokens: Option<&'a TokenRules>,
    /// Seconds since the Unix epoch.
    pub now: u64,
    /// Random, printable, without a comma, used once.
    pub nonce: &'a str,
}

/// An exchange that has begun.
#[derive(Debug)]
pub struct Exchange {
    mechanism: Mechanism,
    state: State,
}

#[derive(Debug)]
enum State {
    Plain,
    Scram(ScramServer),
    /// With why the token was not taken, once the client has been told.
    Bearer(Option<String>),
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
    /// When what it showed ends, in seconds since the Unix epoch; a password never does.
    pub expires_at: Option<u64>,
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
        let state = match mechanism {
            Mechanism::Plain => State::Plain,
            Mechanism::ScramSha256 => State::Scram(ScramServer::new(Hash::Sha256)),
            Mechanism::ScramSha512 => State::Scram(ScramServer::new(Hash::Sha512)),
            Mechanism::OauthBearer => State::Bearer(None),
        };
        Self { mechanism, state }
    }

    /// Its mechanism.
    #[must_use]
    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// True when this token takes milliseconds to check, so that it should not be done where others wait.
    #[must_use]
    pub fn is_slow(&self, token: &[u8]) -> bool {
        self.mechanism == Mechanism::Plain && plain::parse(token).is_ok()
    }

    /// Takes a token of the client.
    #[must_use]
    pub fn step(&mut self, token: &[u8], credentials: Credentials<'_>) -> Step {
        let scram = match &mut self.state {
            State::Plain => return plain(token, credentials.users),
            State::Bearer(told) => return bearer(told, token, credentials),
            State::Scram(scram) => scram,
        };
        match scram.step(token, credentials.users, credentials.nonce) {
            Ok(Answer::Challenge(token)) => Step::Challenge(token),
            Ok(Answer::Accepted { token, name }) => Step::Accepted(Accepted { token, name, expires_at: None }),
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
        Some(name) if known => Step::Accepted(Accepted { token: Vec::new(), name, expires_at: None }),
        _ => refused(Some(WRONG), "wrong name or password"),
    }
}

/// A token is shown once. A client whose token is not taken is told why in JSON, and answers that before it is refused
/// (RFC 7628, section 3.2.3).
fn bearer(told: &mut Option<String>, message: &[u8], credentials: Credentials<'_>) -> Step {
    if let Some(reason) = told.take() {
        // Kafka's clients hear the same words once more, whatever they answered.
        return Step::Refused(Refusal { told: Some(Cow::Borrowed(INVALID_TOKEN)), reason });
    }
    let refused = |told, reason: String| Step::Refused(Refusal { told, reason });
    let said = match message::parse(message) {
        Ok(said) => said,
        Err(malformed) => return refused(None, malformed.to_string()),
    };
    let checked = match credentials.tokens {
        Some(rules) => rules.check(said.token, credentials.now),
        None => Err(Untrusted::Key),
    };
    match checked {
        Ok(bearer) if said.authorization_id.is_empty() || said.authorization_id == bearer.name => {
            Step::Accepted(Accepted { token: Vec::new(), name: bearer.name, expires_at: Some(bearer.expires_at) })
        }
        Ok(_) => refused(Some(Cow::Borrowed(OTHER)), "the client wants to act for another user than itself".to_owned()),
        Err(untrusted) => {
            *told = Some(untrusted.to_string());
            Step::Challenge(INVALID_TOKEN.as_bytes().to_vec())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::oauth::tests::{Signer, claims_at, rules};
    use crate::verifier::Verifier;

    fn step(token: &[u8]) -> Step {
        let of = |hash| Verifier::derive(hash, "secret", b"0123456789abcdef", 4_096).unwrap();
        let users = Users::single("alice", Hash::ALL.map(of));
        Exchange::new(Mechanism::Plain).step(token, credentials(&users, None))
    }

    fn credentials<'a>(users: &'a Users, tokens: Option<&'a TokenRules>) -> Credentials<'a> {
        Credentials { users, tokens, now: 1_000_000, nonce: "n" }
    }

    fn accepted(name: &str, expires_at: Option<u64>) -> Step {
        Step::Accepted(Accepted { token: Vec::new(), name: name.to_owned(), expires_at })
    }

    fn told(step: Step) -> Option<String> {
        let Step::Refused(refusal) = step else { panic!("{step:?}") };
        refusal.told.map(Cow::into_owned)
    }

    #[test]
    fn name_and_password_in_the_clear_are_checked() {
        for token in [b"\0alice\0secret".as_slice(), b"alice\0alice\0secret"] {
            assert_eq!(step(token), accepted("alice", None));
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

    #[test]
    fn only_what_may_be_a_password_takes_long() {
        let plain = Exchange::new(Mechanism::Plain);
        let long = format!("\0alice\0{}", "x".repeat(plain::TOKEN_BYTES_MAX));
        assert!(plain.is_slow(b"\0alice\0wrong"));
        assert!(!plain.is_slow(b"nothing") && !plain.is_slow(long.as_bytes()));
        assert!(!Exchange::new(Mechanism::ScramSha256).is_slow(b"\0alice\0wrong"));
    }

    #[test]
    fn a_token_is_shown_and_one_that_is_not_taken_is_refused_behind_an_answer() {
        let (users, signer) = (Users::default(), Signer::ec());
        let rules = rules(signer.keys());
        let with = |name: &str, claims: serde_json::Value| {
            let token = signer.token(&json!({ "alg": "ES256" }), &claims);
            format!("n,{name},\u{1}auth=Bearer {token}\u{1}\u{1}").into_bytes()
        };
        let good = || claims_at(1_000_000, &json!({}));
        let exchange = || Exchange::new(Mechanism::OauthBearer);
        let known = credentials(&users, Some(&rules));
        assert_eq!(exchange().step(&with("", good()), known), accepted("alice", Some(1_003_600)));
        assert_eq!(exchange().step(&with("a=alice", good()), known), accepted("alice", Some(1_003_600)));
        assert_eq!(told(exchange().step(&with("a=bob", good()), known)).as_deref(), Some(OTHER));
        assert_eq!(told(exchange().step(b"", known)), None);
        let old = with("", claims_at(1_000_000, &json!({ "exp": 5 })));
        for (message, credentials) in [(&old, known), (&with("", good()), credentials(&users, None))] {
            let mut exchange = exchange();
            assert_eq!(exchange.step(message, credentials), Step::Challenge(INVALID_TOKEN.as_bytes().to_vec()));
            assert_eq!(told(exchange.step(message::ACKNOWLEDGED, credentials)).as_deref(), Some(INVALID_TOKEN));
        }
        // A good token behind a bad one does not help.
        let mut exchange = exchange();
        let _ = exchange.step(&old, known);
        assert_eq!(told(exchange.step(&with("", good()), known)).as_deref(), Some(INVALID_TOKEN));
    }
}
