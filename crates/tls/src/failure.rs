//! Why a handshake failed.

use std::fmt;
use std::io;

/// Why a handshake failed, for counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The client does not speak TLS.
    PlainText,
    /// It took too long.
    TimedOut,
    /// The client went away.
    Closed,
    /// The client showed no certificate, or one that is not good here.
    ClientCertificate,
    /// The client says that it does not take what the server showed; mostly it does not trust the certificate.
    RefusedByClient,
    /// There is no version or cipher that both speak.
    Incompatible,
    /// The client sent what is not TLS, or not as TLS wants it.
    Malformed,
    /// The server shut down meanwhile.
    Stopped,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::PlainText,
        Self::TimedOut,
        Self::Closed,
        Self::ClientCertificate,
        Self::RefusedByClient,
        Self::Incompatible,
        Self::Malformed,
        Self::Stopped,
    ];

    /// Its name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::PlainText => "plain_text",
            Self::TimedOut => "timed_out",
            Self::Closed => "closed",
            Self::ClientCertificate => "client_certificate",
            Self::RefusedByClient => "refused_by_client",
            Self::Incompatible => "incompatible",
            Self::Malformed => "malformed",
            Self::Stopped => "stopped",
        }
    }

    /// True for what an operator should see without asking. Whoever only looks whether the port is open, as load balancers
    /// do, is not among it.
    #[must_use]
    pub fn is_worth_a_line(self) -> bool {
        !matches!(self, Self::Closed | Self::Stopped)
    }

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

/// A handshake that failed; displays as a sentence.
#[derive(Debug)]
pub struct Failure {
    /// What it is counted as.
    pub reason: Reason,
    /// What rustls or the system said.
    detail: String,
}

impl Failure {
    pub(crate) fn of(reason: Reason) -> Self {
        Self { reason, detail: String::new() }
    }

    /// What went wrong within rustls, or below it.
    pub(crate) fn from_io(error: &io::Error) -> Self {
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let reason = match tls {
            None => Reason::Closed,
            Some(rustls::Error::NoCertificatesPresented | rustls::Error::InvalidCertificate(_)) => {
                Reason::ClientCertificate
            }
            Some(rustls::Error::AlertReceived(_)) => Reason::RefusedByClient,
            Some(rustls::Error::PeerIncompatible(_)) => Reason::Incompatible,
            Some(_) => Reason::Malformed,
        };
        // Their words can repeat what the client sent.
        let detail = tls.map_or_else(|| error.to_string(), ToString::to_string).chars().take(200).collect();
        Self { reason, detail }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.reason {
            Reason::PlainText => {
                "the client does not begin with TLS, which this port asks for; a client that speaks plain text needs another \
                 port, or TLS switched on (security.protocol)"
            }
            Reason::TimedOut => "the TLS handshake took too long",
            Reason::Closed => "the client went away within the TLS handshake",
            Reason::ClientCertificate => "the client showed no certificate, or one that is not good here",
            Reason::RefusedByClient => {
                "the client broke the TLS handshake off; mostly it does not trust the certificate of this port, or knows it \
                 under another name"
            }
            Reason::Incompatible => "the client and this port have no version or cipher of TLS in common",
            Reason::Malformed => "the client sent what is not TLS",
            Reason::Stopped => "the server shut down within the TLS handshake",
        })?;
        if self.detail.is_empty() { Ok(()) } else { write!(f, " ({})", self.detail) }
    }
}
