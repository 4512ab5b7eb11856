//! What an operator can set.

use std::path::PathBuf;
use std::time::Duration;

use milena_auth::Users;

/// How clients are authenticated, on the listeners that ask for it.
#[derive(Debug, Clone)]
pub struct SaslSettings {
    /// Users that the configuration itself names.
    pub users: Users,
    /// File of more users; read again when it changes. Those of `users` are above those of the file.
    pub users_file: Option<PathBuf>,
    /// Longest time after which a client has to authenticate again; zero is never (Kafka: `connections.max.reauth.ms`).
    pub max_reauth: Duration,
    /// Time after which a client that is refused hears so (Kafka: `connection.failed.authentication.delay.ms`).
    pub failure_delay: Duration,
    /// Time between two looks at the files.
    pub reload_interval: Duration,
    /// Which tokens are taken; `None` takes none.
    pub tokens: Option<TokenSettings>,
}

/// Which tokens are taken (OAUTHBEARER).
#[derive(Debug, Clone)]
pub struct TokenSettings {
    /// File of the keys that they are signed with, a JSON Web Key Set; read again when it changes.
    pub jwks_file: PathBuf,
    /// Who must have issued them; `None` is anybody who has one of the keys.
    pub issuer: Option<String>,
    /// For whom they must be: one of these, or anybody where there are none.
    pub audiences: Vec<String>,
    /// By how much clocks may differ.
    pub clock_skew: Duration,
    /// Name of the claim that says who the client is.
    pub subject_claim: String,
}

impl Default for SaslSettings {
    fn default() -> Self {
        Self {
            users: Users::default(),
            users_file: None,
            max_reauth: Duration::ZERO,
            failure_delay: Duration::from_millis(100),
            reload_interval: Duration::from_secs(5),
            tokens: None,
        }
    }
}
