//! SCRAM (RFC 5802): both sides prove that they know the password, and none shows it.
//!
//! - `message`: the messages as text
//! - `server`, `client`: the two sides
//!
//! There is no channel binding, as in Kafka, and no `tokenauth` extension: there are no delegation tokens (KIP-48).

mod client;
mod message;
mod server;
#[cfg(test)]
mod tests;

pub use client::{ClientError, ScramClient};
pub use server::{Answer, ScramServer};

/// Why a client is not let in. For the log alone: a client is told nothing that helps it to guess.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Denied {
    /// A message has another form.
    #[error("the {0} is malformed")]
    Malformed(&'static str),
    /// The client wants channel binding, which is not offered.
    #[error("the client wants channel binding, which is not offered")]
    ChannelBinding,
    /// The client has a delegation token, of which there are none here.
    #[error("the client logs in with a delegation token, of which there are none here")]
    TokenAuth,
    /// The client wants to act for somebody else.
    #[error("the client wants to act for another user than itself")]
    AuthorizationId,
    /// The last message does not belong to the first.
    #[error("the last message does not belong to the first")]
    Nonce,
    /// The name or the password is wrong.
    #[error("wrong name or password")]
    Credentials,
    /// The exchange is over.
    #[error("a message behind the end of the exchange")]
    Over,
}
