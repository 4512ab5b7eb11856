//! Who is who: SASL on listeners that ask for it.
//!
//! - [`Authentication`]: what clients are checked against, shared by all connections
//! - [`session`]: how far one connection is
//! - `users`: the file of users, which is read again when it changes
//!
//! There are no ACLs: whoever is let in may do everything.

pub(crate) mod session;
mod users;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use milena_auth::exchange::Refusal;
use milena_auth::{Credentials, Exchange, Mechanism, Step, Users};
use milena_wire::WireError;
use rand::RngExt as _;
use tokio::sync::Semaphore;

use crate::broker::Broker;
use crate::dispatch::Outcome;
use crate::metrics::AuthenticationMetrics;
use crate::peer::Connection;
use crate::quiet::QuietLog;
pub use session::Principal;
use session::{Completed, Session};
use users::UserStore;
pub(crate) use users::keep_current;
pub use users::{Problem, UsersFileError};

/// Largest frame before a client is let in, and largest token after, in bytes (Kafka: `sasl.server.max.receive.size`).
/// Passed: the connection is closed.
pub const TOKEN_BYTES_MAX: usize = 512 << 10;

/// Characters of a nonce: some 140 bits.
const NONCE_CHARACTERS: usize = 24;

const NONCE_ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

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
    /// Time between two looks at the file of users.
    pub reload_interval: Duration,
}

impl Default for SaslSettings {
    fn default() -> Self {
        Self {
            users: Users::default(),
            users_file: None,
            max_reauth: Duration::ZERO,
            failure_delay: Duration::from_millis(100),
            reload_interval: Duration::from_secs(5),
        }
    }
}

/// What clients are checked against.
#[derive(Debug)]
pub struct Authentication {
    users: Arc<UserStore>,
    /// Passwords that are checked at a time: each takes a processor for milliseconds, before it is known who asks.
    turns: Semaphore,
    quiet: QuietLog,
}

/// The answer to a token.
pub(crate) enum Verdict {
    /// These bytes go to the client; another token is expected.
    Challenge(Vec<u8>),
    /// The client is let in, for that long; `None` is for as long as it likes.
    Accepted { token: Vec<u8>, lifetime: Option<Duration> },
    /// The client hears this and is gone.
    Refused { message: String },
}

impl Authentication {
    /// Reads what is configured.
    ///
    /// # Errors
    /// When the file of users cannot be read.
    pub(crate) fn open(settings: &SaslSettings) -> Result<Self, UsersFileError> {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Ok(Self {
            users: Arc::new(UserStore::open(settings)?),
            turns: Semaphore::new(processors.div_ceil(2)),
            quiet: QuietLog::default(),
        })
    }

    /// The users as they are now.
    #[must_use]
    pub fn users(&self) -> Arc<Users> {
        self.users.current()
    }

    pub(crate) fn store(&self) -> &Arc<UserStore> {
        &self.users
    }

    async fn step(&self, mut exchange: Exchange, token: Bytes) -> (Exchange, Step) {
        let (users, nonce) = (self.users(), nonce());
        let check = move || {
            let step = exchange.step(&token, Credentials { users: &users, nonce: &nonce });
            (exchange, step)
        };
        let _turn = self.turns.acquire().await;
        match tokio::task::spawn_blocking(check).await {
            Ok(done) => done,
            // The runtime ends, and with it the connection.
            Err(_) => std::future::pending().await,
        }
    }
}

fn nonce() -> String {
    let mut random = rand::rng();
    let one = || NONCE_ALPHABET.get(random.random_range(0..NONCE_ALPHABET.len())).map_or('0', |byte| char::from(*byte));
    std::iter::repeat_with(one).take(NONCE_CHARACTERS).collect()
}

/// Checks the next token of a connection. The session must expect one.
pub(crate) async fn check(broker: &Broker, connection: &Connection, session: &Session, token: Bytes) -> Verdict {
    let Some(running) = session.take() else {
        return refuse(broker, connection, "none", "a token that nothing was said before".to_owned(), None).await;
    };
    let mechanism = running.mechanism;
    let Some(exchange) = running.exchange else {
        let message = running.wrong_mechanism();
        return refuse(broker, connection, mechanism.name(), message.clone(), Some(message)).await;
    };
    let metrics = &broker.metrics.authentication;
    let (exchange, step) = broker.authentication.step(exchange, token).await;
    match step {
        Step::Challenge(token) => {
            session.put_back(session::Running { exchange: Some(exchange), ..running });
            Verdict::Challenge(token)
        }
        Step::Accepted(accepted) => {
            let lifetime = Some(broker.config.sasl.max_reauth).filter(|time| !time.is_zero());
            match session.accept(mechanism, &accepted.name, lifetime, Instant::now()) {
                Completed::LetIn { again } => {
                    metrics.note(mechanism, true);
                    tracing::debug!(
                        connection = connection.id,
                        peer = %connection.peer,
                        client = %connection.client(),
                        %mechanism,
                        again,
                        "client authenticated"
                    );
                    Verdict::Accepted { token: accepted.token, lifetime }
                }
                Completed::OtherUser { message } => {
                    metrics.note(mechanism, false);
                    refuse(broker, connection, mechanism.name(), message.clone(), Some(message)).await
                }
            }
        }
        Step::Refused(Refusal { told, reason }) => {
            metrics.note(mechanism, false);
            refuse(broker, connection, mechanism.name(), reason, Some(told_of(told, mechanism, session))).await
        }
    }
}

/// What a client hears, in Kafka's words.
fn told_of(told: Option<std::borrow::Cow<'static, str>>, mechanism: Mechanism, session: &Session) -> String {
    let during = if session.is_authenticated() { "re-authentication" } else { "authentication" };
    told.map_or_else(
        || format!("Authentication failed during {during} due to invalid credentials with SASL mechanism {mechanism}"),
        std::borrow::Cow::into_owned,
    )
}

/// Says why a client is not let in, and waits: whoever guesses should not be fast.
pub(crate) async fn refuse(
    broker: &Broker,
    connection: &Connection,
    mechanism: &str,
    reason: String,
    message: Option<String>,
) -> Verdict {
    if let Some(suppressed) = broker.authentication.quiet.admit(connection.peer.ip(), Instant::now()) {
        tracing::warn!(
            connection = connection.id,
            peer = %connection.peer,
            client = %connection.client(),
            listener = connection.listener.name,
            mechanism,
            reason,
            suppressed,
            "client not authenticated"
        );
    }
    delay(broker, connection).await;
    Verdict::Refused { message: message.unwrap_or(reason) }
}

/// Waits as a client that failed has to; not longer than the connection lasts.
pub(crate) async fn delay(broker: &Broker, connection: &Connection) {
    let delay = broker.config.sasl.failure_delay;
    connection.release();
    tokio::select! {
        () = tokio::time::sleep(delay) => connection.was_parked(delay),
        () = connection.ending() => {}
    }
}

/// A token without a header, as it follows version 0 of SaslHandshake: the answer has none either.
pub(crate) async fn bare_token(broker: &Broker, connection: &Connection, session: &Session, token: Bytes) -> Outcome {
    match check(broker, connection, session, token).await {
        Verdict::Challenge(token) | Verdict::Accepted { token, .. } => match bare(&token) {
            Ok(frame) => Outcome::Reply(frame),
            Err(error) => Outcome::Close(error),
        },
        // There is no place for an error.
        Verdict::Refused { .. } => Outcome::Last(None),
    }
}

fn bare(token: &[u8]) -> Result<Bytes, WireError> {
    let len = i32::try_from(token.len()).map_err(|_| WireError::FrameLength { bytes: -1, max: TOKEN_BYTES_MAX })?;
    let mut frame = BytesMut::with_capacity(4 + token.len());
    frame.put_i32(len);
    frame.put_slice(token);
    Ok(frame.freeze())
}

/// Says at the start what an operator should know of listeners on which secrets travel in the clear.
pub(crate) fn warn_of_clear_text(listener: &str, address: SocketAddr, mechanisms: &[Mechanism]) {
    let shown: Vec<&str> = mechanisms.iter().filter(|one| one.shows_secret()).map(|one| one.name()).collect();
    if !shown.is_empty() && !address.ip().is_loopback() {
        tracing::warn!(
            listener,
            %address,
            mechanisms = shown.join(","),
            "passwords or tokens travel in the clear on this listener; give it TLS, or take these mechanisms away"
        );
    }
}

impl AuthenticationMetrics {
    fn note(&self, mechanism: Mechanism, accepted: bool) {
        if let Some(counter) = self.of(mechanism, accepted) {
            counter.add(1);
        }
    }
}
