//! What strangers and operators write, as functions of bytes: for fuzz targets, and for tests that run them over a corpus.

use std::sync::LazyLock;

use crate::exchange::{Credentials, Exchange, Step};
use crate::mechanism::Mechanism;
use crate::oauth::TokenRules;
use crate::oauth::keys::Keys;
use crate::oauth::message;
use crate::prepare;
use crate::scram::ScramClient;
use crate::users::{self, Users};
use crate::verifier::{Hash, Verifier};

/// A function that takes any bytes and must not panic.
pub type Target = fn(&[u8]);

/// All of them, by name.
pub const TARGETS: [(&str, Target); 6] = [
    ("scram", scram),
    ("challenge", challenge),
    ("bearer", bearer),
    ("key_set", key_set),
    ("users_file", users_file),
    ("text", text),
];

/// The user of RFC 7677's example.
const USERS: &str = "user:SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:\
                     wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

/// A public key, which nothing is signed with.
const KEYS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
"y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}]}"#;

/// Most iterations that a challenge may ask for here: more is slow, and nothing else.
const ITERATIONS_FUZZED: u32 = 16;

static KNOWN: LazyLock<Users> = LazyLock::new(|| Users::parse(USERS).unwrap_or_default());

static RULES: LazyLock<TokenRules> = LazyLock::new(|| TokenRules {
    keys: Keys::parse(KEYS).unwrap_or_default(),
    issuer: Some("issuer".to_owned()),
    audiences: vec!["milena".to_owned()],
    clock_skew: 30,
    subject_claim: "sub".to_owned(),
});

fn credentials(nonce: &str) -> Credentials<'_> {
    Credentials { users: &KNOWN, tokens: Some(&RULES), now: 1_800_000_000, nonce }
}

/// Tokens of an exchange, with a zero between them. Nobody is let in who does not know the password of the example; that one
/// proof is possible, since the nonces are those of the example too.
pub fn scram(data: &[u8]) {
    let mut exchange = Exchange::new(Mechanism::ScramSha256);
    for token in data.split(|byte| *byte == 0) {
        if let Step::Accepted(accepted) = exchange.step(token, credentials("%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")) {
            assert_eq!(accepted.name, "user");
        }
    }
}

/// A server's challenge and its last answer, with a zero between, as a client reads them.
pub fn challenge(data: &[u8]) {
    let (challenge, answer) = split(data);
    let asked = String::from_utf8_lossy(challenge);
    let iterations = asked.rsplit("i=").next().map(|text| text.split(',').next().unwrap_or_default().parse::<u32>());
    if let Some(Ok(iterations)) = iterations
        && iterations > ITERATIONS_FUZZED
    {
        return;
    }
    let (mut client, _) = ScramClient::new(Hash::Sha256, "user", "nonce");
    let _ = client.prove(challenge, "pencil");
    let _ = client.verify(answer);
}

/// A message with a token. None is signed with the one key, so nobody is let in.
pub fn bearer(data: &[u8]) {
    let mut exchange = Exchange::new(Mechanism::OauthBearer);
    for message in [data, message::ACKNOWLEDGED] {
        assert!(!matches!(exchange.step(message, credentials("n")), Step::Accepted(_)), "let in without a signature");
    }
    if let Ok(token) = std::str::from_utf8(data) {
        assert!(RULES.check(token, 1).is_err(), "a token without a signature is taken");
    }
}

/// A set of keys.
pub fn key_set(data: &[u8]) {
    if let Ok(keys) = Keys::parse(&String::from_utf8_lossy(data)) {
        assert!(!keys.is_empty());
    }
}

/// A file of users: one that is read is read again after each change, with what was changed and nothing else.
pub fn users_file(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(before) = Users::parse(&text) else { return };
    let Some(verifier) = KNOWN.get("user").and_then(|user| user.verifier(Hash::Sha256)).cloned() else { return };
    let with = Users::parse(&users::with(&text, "new", std::slice::from_ref(&verifier)));
    let with = with.unwrap_or_default();
    assert_eq!(with.get("new").and_then(|user| user.verifier(Hash::Sha256)), Some(&verifier));
    assert_eq!(with.len(), before.len() + usize::from(before.get("new").is_none()));
    for (name, user) in before.iter() {
        let without = Users::parse(&users::without(&text, name, None)).unwrap_or_default();
        assert_eq!(without.len(), before.len() - 1);
        for verifier in Hash::ALL.into_iter().filter_map(|hash| user.verifier(hash)) {
            assert_eq!(verifier.to_string().parse::<Verifier>().as_ref(), Ok(verifier));
        }
    }
}

/// A name or a password, and a PLAIN message of it.
pub fn text(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if prepare::check(&text).is_ok() {
        assert_eq!(prepare::prepared(&text).as_deref(), Some(&*text), "what is stored is its own prepared form");
    }
    if let Ok(login) = crate::plain::parse(data) {
        assert!(!login.name.is_empty() && !login.password.contains('\0'));
    }
}

fn split(data: &[u8]) -> (&[u8], &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == 0);
    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
}
