//! Who is who: SASL on listeners that ask for it.
//!
//! - [`Authentication`]: what clients are checked against, shared by all connections
//! - `session`: how far one connection is
//! - [`change_users_file`]: how that of users is changed
//! - `files`: files of users and of keys, which are read again when they change
//!
//! There are no ACLs: whoever is let in may do everything.

mod change;
mod files;
pub(crate) mod session;
mod settings;
mod turns;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::{BufMut, Bytes, BytesMut};
use milena_auth::exchange::Refusal;
use milena_auth::oauth::keys::Keys;
use milena_auth::{Credentials, Exchange, Mechanism, Step, TokenRules, Users};
use milena_wire::WireError;
use rand::RngExt as _;
use rand::distr::Alphanumeric;

use crate::broker::Broker;
use crate::dispatch::Outcome;
use crate::lifecycle::Phase;
use crate::metrics::AuthenticationMetrics;
use crate::peer::Connection;
use crate::quiet::QuietLog;
pub use change::change_users_file;
pub use files::{FileError, Problem};
use files::{Keep, Watched};
pub use session::Principal;
use session::{Completed, Session};
pub use settings::{SaslSettings, TokenSettings};
use turns::{Turns, Waits};

/// Largest frame before a client is let in, and largest token after, in bytes (Kafka: `sasl.server.max.receive.size`, 512 KiB,
/// which is for Kerberos). Passed: the connection is closed.
pub const TOKEN_BYTES_MAX: usize = 64 << 10;

/// Longest session of a token: adding it to any instant is safe.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Characters of a nonce: some 140 bits.
const NONCE_CHARACTERS: usize = 24;

/// What clients are checked against.
#[derive(Debug)]
pub struct Authentication {
    users: Watched<Users>,
    tokens: Option<Watched<TokenRules>>,
    /// Passwords that are checked at a time: each takes a processor for milliseconds, before it is known who asks.
    turns: Turns,
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
    /// When a file cannot be used.
    pub(crate) fn open(settings: &SaslSettings) -> Result<Self, FileError> {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Ok(Self {
            users: users_of(settings)?,
            tokens: settings.tokens.as_ref().map(tokens_of).transpose()?,
            turns: Turns::new(turns(processors)),
            quiet: QuietLog::default(),
        })
    }

    /// The users as they are now.
    #[must_use]
    pub fn users(&self) -> Arc<Users> {
        self.users.current()
    }

    /// The file of users, where there is one.
    #[must_use]
    pub fn users_file(&self) -> Option<&Path> {
        self.users.file()
    }

    /// Looks whether the files have changed.
    pub(crate) fn refresh(&self) {
        self.users.refresh();
        if let Some(tokens) = &self.tokens {
            tokens.refresh();
        }
    }

    async fn step(&self, mut exchange: Exchange, token: Bytes, who: Waits) -> (Exchange, Step) {
        let exchange_is_slow = exchange.is_slow(&token);
        // What waits for a turn does not hold the frame that it came in.
        let token = if exchange_is_slow { Bytes::copy_from_slice(&token) } else { token };
        let (users, nonce) = (self.users(), nonce());
        let tokens = self.tokens.as_ref().map(Watched::current);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let check = move || {
            let credentials = Credentials { users: &users, tokens: tokens.as_deref(), now, nonce: &nonce };
            let step = exchange.step(&token, credentials);
            (exchange, step)
        };
        if !exchange_is_slow {
            return check();
        }
        let turn = self.turns.take(who).await;
        // Work that has begun is not given up when the connection is: the turn ends with it.
        let in_turn = move || {
            let _turn = turn;
            check()
        };
        match tokio::task::spawn_blocking(in_turn).await {
            Ok(done) => done,
            // The runtime ends, and with it the connection.
            Err(_) => std::future::pending().await,
        }
    }
}

/// Passwords that so many processors check at a time; the rest of them serve those who are let in.
fn turns(processors: usize) -> usize {
    (processors / 2).max(1)
}

/// Users of the configuration, and of the file if there is one.
fn users_of(settings: &SaslSettings) -> Result<Watched<Users>, FileError> {
    let named = settings.users.clone();
    let Some(file) = &settings.users_file else { return Ok(Watched::fixed(named)) };
    let parse = move |text: &str| match Users::parse(text) {
        Ok(users) => Ok(named.clone().or(users)),
        Err(error) => Err(error.to_string()),
    };
    Watched::open("users file", Keep::Secret, file, parse)
}

fn tokens_of(settings: &TokenSettings) -> Result<Watched<TokenRules>, FileError> {
    let TokenSettings { jwks_file, issuer, audiences, clock_skew, subject_claim } = settings.clone();
    if audiences.is_empty() {
        tracing::warn!(
            "tokens are taken whomever they were made for; set sasl.oauthbearer.audience, or one that was made for another \
             service lets its bearer in here"
        );
    }
    let parse = move |text: &str| {
        let keys = Keys::parse(text).map_err(|error| error.to_string())?;
        let clock_skew = clock_skew.as_secs();
        let (issuer, audiences, subject_claim) = (issuer.clone(), audiences.clone(), subject_claim.clone());
        Ok(TokenRules { keys, issuer, audiences, clock_skew, subject_claim })
    };
    Watched::open("file of keys", Keep::Unchanged, &jwks_file, parse)
}

/// Looks at the files every now and then, until the server drains.
pub(crate) async fn keep_current(broker: Arc<Broker>) {
    if broker.authentication.users.file().is_none() && broker.authentication.tokens.is_none() {
        return;
    }
    loop {
        tokio::select! {
            () = tokio::time::sleep(broker.config.sasl.reload_interval) => {}
            () = broker.lifecycle.reached(Phase::Draining) => return,
        }
        let looking = Arc::clone(&broker);
        match tokio::task::spawn_blocking(move || looking.authentication.refresh()).await {
            Err(error) if error.is_panic() => tracing::error!(%error, "files of users or keys were not looked at"),
            // The runtime ends.
            Err(_) => return,
            Ok(()) => {}
        }
    }
}

fn nonce() -> String {
    rand::rng().sample_iter(Alphanumeric).take(NONCE_CHARACTERS).map(char::from).collect()
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
    let who = if session.is_authenticated() { Waits::Again } else { Waits::stranger(connection.peer.ip()) };
    let (exchange, step) = broker.authentication.step(exchange, token, who).await;
    match step {
        Step::Challenge(token) => {
            session.put_back(session::Running { exchange: Some(exchange), ..running });
            Verdict::Challenge(token)
        }
        Step::Accepted(accepted) => {
            let lifetime = lifetime(broker.config.sasl.max_reauth, accepted.expires_at);
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

/// How long a session may last (KIP-368): as long as is configured, and as what the client showed.
fn lifetime(configured: Duration, expires_at: Option<u64>) -> Option<Duration> {
    // What is left of a token within the clock skew: nothing would be taken for a session without an end.
    const SHORTEST: Duration = Duration::from_millis(1);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let of_token =
        expires_at.map(|expires_at| Duration::from_secs(expires_at).saturating_sub(now).clamp(SHORTEST, LONGEST));
    let configured = Some(configured).filter(|time| !time.is_zero());
    of_token.into_iter().chain(configured).min()
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
    // It may have been read when it was not known that it is one.
    if token.len() > TOKEN_BYTES_MAX {
        return Outcome::Last(None);
    }
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

/// Names of the mechanisms by which secrets travel in the clear beyond this machine.
fn shown_to_others(address: SocketAddr, mechanisms: &[Mechanism]) -> Vec<&'static str> {
    let shows = |one: &&Mechanism| one.shows_secret() && !address.ip().is_loopback();
    mechanisms.iter().filter(shows).map(|one| one.name()).collect()
}

/// Says at the start what an operator should know of listeners on which secrets travel in the clear.
pub(crate) fn warn_of_clear_text(listener: &str, address: SocketAddr, mechanisms: &[Mechanism]) {
    let shown = shown_to_others(address, mechanisms);
    if !shown.is_empty() {
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

#[cfg(test)]
mod tests;
