//! The one user, and the tokens that stand for it.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use milena_server::answered;
use milena_store::StoreError;
use rand::RngExt as _;
use sha2::{Digest, Sha256};

use crate::config::{DoorConfig, Secret};
use crate::state::{Record, State, Table};

/// Number of the root user, as on the server.
pub(crate) const ROOT_ID: u32 = 0;

/// Characters of a token; 62 to the 40th is beyond guessing.
const TOKEN_CHARACTERS: usize = 40;

/// Characters of a password that is made up.
const PASSWORD_CHARACTERS: usize = 20;

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The one user.
pub(crate) struct Root {
    username: String,
    hash: String,
}

impl Root {
    /// The user of the configuration, and the password that was made up if there was none: the only time that it is known.
    pub(crate) async fn open(config: &DoorConfig, state: &State) -> Result<(Self, Option<Secret>), StoreError> {
        let of = |hash: String| Self { username: config.username.clone(), hash };
        if let Some(password) = &config.password {
            return Ok((of(hash_of(password.reveal().as_bytes())), None));
        }
        if let Some(hash) = state.look(|table| table.password().map(str::to_owned)) {
            return Ok((of(hash), None));
        }
        let password = random_text(PASSWORD_CHARACTERS);
        let hash = hash_of(password.as_bytes());
        answered("the password of Iggy clients", state.write(Record::Password { hash: hash.clone() })).await?;
        Ok((of(hash), Some(Secret::new(&password))))
    }

    /// True for the user's name and password. Digests are compared, of which an attacker cannot choose how many characters
    /// are right, so the time that it takes says nothing.
    pub(crate) fn is(&self, username: &[u8], password: &[u8]) -> bool {
        let (name, right) = (username == self.username.as_bytes(), self.hash == hash_of(password));
        name & right
    }
}

/// True for a token that is stored and has not expired.
pub(crate) fn is_token(table: &Table, token: &[u8], now_micros: u64) -> bool {
    let hash = hash_of(token);
    let alive = |expires: Option<u64>| expires.is_none_or(|expires| expires > now_micros);
    table.tokens().values().any(|known| known.hash == hash && alive(known.expires_at_micros))
}

/// The form in which a token is stored: it cannot be read back from the data folder.
pub(crate) fn hash_of(token: &[u8]) -> String {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(token) {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// A new token.
pub(crate) fn new_token() -> String {
    random_text(TOKEN_CHARACTERS)
}

fn random_text(characters: usize) -> String {
    let mut random = rand::rng();
    let one = || ALPHABET.get(random.random_range(0..ALPHABET.len())).map_or('0', |byte| char::from(*byte));
    std::iter::repeat_with(one).take(characters).collect()
}

/// The time in microseconds since the Unix epoch.
pub(crate) fn now_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use milena_store::testing::MemoryStore;

    use super::*;
    use crate::config::OffsetRules;
    use crate::limits::DoorLimits;

    fn config(password: Option<&str>) -> DoorConfig {
        DoorConfig {
            listen: std::net::SocketAddr::from(([127, 0, 0, 1], 0)),
            advertised: None,
            username: "iggy".to_owned(),
            password: password.map(Secret::new),
            offset_rules: OffsetRules::Server,
            instance_id: 0,
            tls: None,
            limits: DoorLimits::default(),
        }
    }

    async fn root(store: &MemoryStore, password: Option<&str>) -> (Root, Option<Secret>) {
        let state = State::open(Arc::new(store.again()), 0).await.unwrap();
        Root::open(&config(password), &state).await.unwrap()
    }

    #[tokio::test]
    async fn only_the_right_name_with_the_right_password_is_root() {
        let (root, made_up) = root(&MemoryStore::new(), Some("secret")).await;
        assert!(root.is(b"iggy", b"secret") && made_up.is_none());
        for (name, password) in [("iggy", "secre"), ("iggy", "secret1"), ("Iggy", "secret"), ("iggy", "")] {
            assert!(!root.is(name.as_bytes(), password.as_bytes()), "{name} {password}");
        }
    }

    #[tokio::test]
    async fn a_password_is_made_up_once_and_stays_until_one_is_configured() {
        let store = MemoryStore::new();
        let made_up = root(&store, None).await.1.unwrap();
        let (again, nothing) = root(&store, None).await;
        assert!(again.is(b"iggy", made_up.reveal().as_bytes()) && nothing.is_none());
        let (configured, _) = root(&store, Some("mine")).await;
        assert!(configured.is(b"iggy", b"mine") && !configured.is(b"iggy", made_up.reveal().as_bytes()));
    }

    #[test]
    fn made_up_secrets_are_long_and_differ() {
        assert_eq!(new_token().len(), TOKEN_CHARACTERS);
        assert_ne!(new_token(), new_token());
    }

    #[test]
    fn a_secret_is_not_printed() {
        assert!(!format!("{:?}", config(Some("hidden"))).contains("hidden"));
    }

    #[test]
    fn the_stored_form_of_a_token_is_its_sha256() {
        assert_eq!(hash_of(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
