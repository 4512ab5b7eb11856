//! Why a connection ended.

use std::io;

use milena_wire::WireError;

use crate::metrics::{ConnectionMetrics, Counter};

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum End {
    /// The client closed it between two frames.
    #[error("the client closed the connection")]
    ByClient,
    /// The client closed it within a frame.
    #[error("the client closed the connection within a frame, {missing} bytes before its end")]
    WithinFrame {
        /// Bytes that never came.
        missing: usize,
    },
    /// The server shuts down and nothing was in flight.
    #[error("the server is shutting down")]
    Drained,
    /// The drain time was over.
    #[error("the server is shutting down and requests were still in flight at the end of the drain time")]
    Undrained,
    /// No request came.
    #[error("no request came within the idle timeout")]
    Idle,
    /// A frame stopped arriving.
    #[error("a frame stopped arriving")]
    ReadStalled,
    /// The client does not read its answers.
    #[error("the client does not read its answers")]
    WriteStalled,
    /// The client was not let in, and heard so.
    #[error("the client did not authenticate")]
    Refused,
    /// The client did not say in time who it is.
    #[error("the client did not authenticate within authentication_timeout")]
    AuthenticationLate,
    /// The client asks for something before it is let in.
    #[error(
        "the client asked for {api} before it had authenticated; set security.protocol and sasl.mechanism in the client, \
         or let it use a listener without SASL"
    )]
    Unauthenticated {
        /// Name of the API.
        api: &'static str,
    },
    /// The client should have authenticated again.
    #[error("the session of the client is over, and it did not authenticate again")]
    SessionExpired,
    /// A frame declared more than the bound.
    #[error("a frame of {declared} bytes was declared, the limit ({bound}) is {limit}")]
    FrameTooLarge {
        /// Declared bytes.
        declared: usize,
        /// Name of the bound.
        bound: &'static str,
        /// The bound.
        limit: usize,
    },
    /// The length prefix is negative or too small for a header.
    #[error("{0} is no length of a Kafka request; is the client speaking another protocol?")]
    BadLength(i32),
    /// The client begins with TLS where none is spoken.
    #[error(
        "the client begins with TLS, and this listener speaks plain text; either switch TLS off in the client \
         (security.protocol), or give this listener a tls.certificate_file"
    )]
    TlsClient,
    /// The version is not served.
    #[error("{api} version {version} is not served")]
    Version {
        /// Name of the API.
        api: &'static str,
        /// Version asked for.
        version: i16,
    },
    /// The bytes are no request of ours.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The socket failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl End {
    /// True for what an operator should see without asking: a client that does something wrong.
    pub(crate) fn is_protocol_error(&self) -> bool {
        matches!(
            self,
            Self::FrameTooLarge { .. }
                | Self::BadLength(_)
                | Self::TlsClient
                | Self::Version { .. }
                | Self::AuthenticationLate
                | Self::Unauthenticated { .. }
                | Self::Wire(_)
        )
    }

    /// The counter of this end.
    pub(crate) fn counter<'a>(&self, metrics: &'a ConnectionMetrics) -> &'a Counter {
        match self {
            Self::Idle => &metrics.closed_idle,
            Self::ReadStalled => &metrics.closed_read_stalled,
            Self::WriteStalled => &metrics.closed_write_stalled,
            Self::FrameTooLarge { .. } => &metrics.closed_frame_too_large,
            Self::BadLength(_) | Self::TlsClient | Self::Version { .. } | Self::Wire(_) => &metrics.closed_protocol,
            Self::AuthenticationLate | Self::Unauthenticated { .. } => &metrics.closed_unauthenticated,
            Self::Refused => &metrics.closed_refused,
            Self::SessionExpired => &metrics.closed_expired,
            Self::Undrained => &metrics.closed_undrained,
            Self::Drained => &metrics.closed_drained,
            Self::ByClient => &metrics.closed_by_client,
            Self::WithinFrame { .. } => &metrics.closed_within_frame,
            Self::Io(_) => &metrics.closed_io,
        }
    }
}
