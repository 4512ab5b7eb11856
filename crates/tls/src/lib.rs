//! TLS on Milena's own ports, and in the client of its commands.
//!
//! - [`TlsFiles`], [`load`]: what is configured of a port, read and checked, with errors that name the key and the file
//! - [`TlsPort`]: the certificate of a port, which is read again while it runs, and its handshakes, counted
//! - [`TlsConnection`]: a connection after its handshake, for a reading and a writing half
//! - [`Sink`], [`push`]: the writing half, also of plain TCP, which keeps nothing back
//! - [`Failure`], [`Reason`]: why a handshake failed, in words for an operator
//! - [`Connector`]: the other side, which always verifies
//!
//! TLS 1.2 and 1.3 by rustls, with its own choice of ciphers. There is no renegotiation, no compression, no early data. It
//! is no certificate authority, fetches nothing and has no revocation lists.

mod certificate;
mod client;
mod connection;
mod failure;
mod files;
mod port;
mod sink;

pub use certificate::Validity;
pub use client::{Connector, ConnectorError};
pub use connection::TlsConnection;
pub use failure::{Failure, Reason};
pub use files::{ClientAuth, Loaded, TlsError, TlsFiles, Warning, load};
pub use port::{CHECK_INTERVAL, HandshakeCounts, Renewal, TlsPort, begins_with_tls, is_client_hello, warn_of};
pub use sink::{Sink, push};
