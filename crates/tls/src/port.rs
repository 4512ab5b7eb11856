//! The certificate of a port, which is read again while it runs, and its handshakes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::{Mutex, RwLock};
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsAcceptor;

use crate::certificate::Validity;
use crate::connection::TlsConnection;
use crate::failure::{Failure, Reason};
use crate::files::{Contents, TlsError, TlsFiles, Warning, date};

/// First byte of a connection that begins with TLS: a handshake record (RFC 8446, 5.1).
const HANDSHAKE: u8 = 0x16;

/// Time between two looks at the files of a port.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Message of a handshake that a client begins with (RFC 8446, 4).
const CLIENT_HELLO: u8 = 1;

/// True when bytes begin with a record of a handshake, in a version of SSL 3 or TLS: as TLS does, and little else.
#[must_use]
pub fn begins_with_tls(bytes: &[u8]) -> bool {
    bytes.starts_with(&[HANDSHAKE, 3])
}

/// True when bytes begin as a client of TLS does: with a record that holds one `ClientHello`. Random bytes do so once in
/// 2^60 times.
#[must_use]
pub fn is_client_hello(bytes: &[u8]) -> bool {
    let Some(&[HANDSHAKE, 3, _, high, low, CLIENT_HELLO, 0, body_high, body_low]) = bytes.first_chunk::<9>() else {
        return false;
    };
    // The message has a head of four bytes.
    u16::from_be_bytes([high, low]).checked_sub(4) == Some(u16::from_be_bytes([body_high, body_low]))
}

/// A port whose connections begin with TLS.
pub struct TlsPort {
    files: TlsFiles,
    config: RwLock<Arc<ServerConfig>>,
    state: Mutex<State>,
    counts: HandshakeCounts,
}

struct State {
    validity: Validity,
    /// Of what was looked at last, good or bad.
    digest: [u8; 32],
}

/// Handshakes and renewals of a port.
#[derive(Debug, Default)]
pub struct HandshakeCounts {
    completed: AtomicU64,
    failed: [AtomicU64; Reason::ALL.len()],
    renewed: AtomicU64,
    not_renewed: AtomicU64,
}

impl HandshakeCounts {
    /// Handshakes that succeeded.
    #[must_use]
    pub fn completed(&self) -> u64 {
        self.completed.load(Ordering::Relaxed)
    }

    /// Handshakes that failed for that reason.
    #[must_use]
    pub fn failed(&self, reason: Reason) -> u64 {
        self.failed.get(reason.index()).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Times that changed files took the place of the old ones.
    #[must_use]
    pub fn renewed(&self) -> u64 {
        self.renewed.load(Ordering::Relaxed)
    }

    /// Times that changed files could not be used.
    #[must_use]
    pub fn not_renewed(&self) -> u64 {
        self.not_renewed.load(Ordering::Relaxed)
    }

    fn count(&self, outcome: Result<(), Reason>) {
        match outcome {
            Ok(()) => Some(&self.completed),
            Err(reason) => self.failed.get(reason.index()),
        }
        .map(|count| count.fetch_add(1, Ordering::Relaxed));
    }
}

/// What a look at the files of a port led to.
#[derive(Debug)]
pub enum Renewal {
    /// They are as they were at the last look.
    Unchanged,
    /// New connections get what is in them now.
    Renewed(Validity, Vec<Warning>),
    /// They changed, and cannot be used: what was in them before stays in force. Told once for each content.
    Refused(TlsError),
}

impl TlsPort {
    /// Reads the files. Blocks.
    ///
    /// # Errors
    /// As [`crate::load`].
    pub fn open(files: TlsFiles) -> Result<(Self, Vec<Warning>), TlsError> {
        let contents = Contents::read(&files);
        let digest = contents.digest();
        let loaded = contents.loaded(&files, SystemTime::now())?;
        let state = Mutex::new(State { validity: loaded.validity, digest });
        let port = Self { files, config: RwLock::new(loaded.config), state, counts: HandshakeCounts::default() };
        Ok((port, loaded.warnings))
    }

    /// Reads the files again, and takes what is in them for the connections to come if it changed and is good. Blocks.
    pub fn renew(&self) -> Renewal {
        let contents = Contents::read(&self.files);
        let mut state = self.state.lock();
        let digest = contents.digest();
        if state.digest == digest {
            return Renewal::Unchanged;
        }
        state.digest = digest;
        match contents.loaded(&self.files, SystemTime::now()) {
            Ok(loaded) => {
                state.validity = loaded.validity;
                *self.config.write() = loaded.config;
                self.counts.renewed.fetch_add(1, Ordering::Relaxed);
                Renewal::Renewed(loaded.validity, loaded.warnings)
            }
            Err(error) => {
                self.counts.not_renewed.fetch_add(1, Ordering::Relaxed);
                Renewal::Refused(error)
            }
        }
    }

    /// Looks at the files every now and then until `stopped`, and logs what that leads to under the name of the port. A
    /// renewal needs no signal then, which containers and secret stores do not send.
    pub async fn keep_fresh(self: Arc<Self>, name: String, every: Duration, stopped: impl Future<Output = ()>) {
        tokio::pin!(stopped);
        loop {
            tokio::select! {
                () = &mut stopped => return,
                () = tokio::time::sleep(every) => {}
            }
            let port = Arc::clone(&self);
            match tokio::task::spawn_blocking(move || port.renew()).await {
                Ok(Renewal::Renewed(validity, warnings)) => {
                    tracing::info!(port = name, until = date(validity.not_after), "the TLS certificate was renewed");
                    warn_of(&name, &warnings);
                }
                Ok(Renewal::Refused(error)) => {
                    tracing::error!(port = name, %error, "the changed TLS files cannot be used, the old ones stay in force");
                }
                // A look that panicked changed nothing, and the next one may do better.
                Ok(Renewal::Unchanged) | Err(_) => {}
            }
        }
    }

    /// When the certificate that clients are shown is good.
    #[must_use]
    pub fn validity(&self) -> Validity {
        self.state.lock().validity
    }

    /// Handshakes and renewals until now.
    #[must_use]
    pub fn counts(&self) -> &HandshakeCounts {
        &self.counts
    }

    /// Does the handshake of a connection until `deadline`, and counts it.
    ///
    /// # Errors
    /// Why it failed; with the socket, unless it took too long, so that what the client still sends can be read before the
    /// socket is closed: a reset could overtake the alert.
    pub async fn accept(
        &self,
        stream: TcpStream,
        deadline: Instant,
    ) -> Result<TlsConnection, (Failure, Option<TcpStream>)> {
        let accepted = timeout_at(deadline, self.handshake(stream)).await;
        let accepted = accepted.unwrap_or_else(|_| Err((Failure::of(Reason::TimedOut), None)));
        self.counts.count(accepted.as_ref().map(|_| ()).map_err(|(failure, _)| failure.reason));
        accepted
    }

    /// Counts a handshake that nobody waited for the end of, as the server shuts down.
    pub fn count_stopped(&self) {
        self.counts.count(Err(Reason::Stopped));
    }

    async fn handshake(&self, stream: TcpStream) -> Result<TlsConnection, (Failure, Option<TcpStream>)> {
        // Nothing is kept for a client that says nothing, and plain text is told from broken TLS.
        let mut first = [0];
        match stream.peek(&mut first).await {
            Ok(1) if first == [HANDSHAKE] => {}
            Ok(1) => return Err((Failure::of(Reason::PlainText), Some(stream))),
            Ok(_) => return Err((Failure::of(Reason::Closed), None)),
            Err(error) => return Err((Failure::from_io(&error), None)),
        }
        let config = Arc::clone(&self.config.read());
        match TlsAcceptor::from(config).accept(stream).into_fallible().await {
            Ok(stream) => Ok(TlsConnection::new(stream)),
            Err((error, stream)) => Err((Failure::from_io(&error), Some(stream))),
        }
    }
}

/// Logs what should not stay so at the port of that name.
pub fn warn_of(name: &str, warnings: &[Warning]) {
    for warning in warnings {
        tracing::warn!(port = name, %warning, "TLS is not in order");
    }
}

impl std::fmt::Debug for TlsPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsPort").field("files", &self.files).field("counts", &self.counts).finish_non_exhaustive()
    }
}
