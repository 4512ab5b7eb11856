//! SASL without sockets, clocks or files of its own: bytes of a client in, what to answer out.
//!
//! - [`mechanism`]: the mechanisms, by Kafka's names
//! - [`exchange`]: one authentication of one client, whatever the mechanism
//! - [`plain`]: names and passwords in the clear (RFC 4616)
//! - [`scram`]: SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), the server's side and the client's
//! - [`oauth`]: OAUTHBEARER (RFC 7628) with signed tokens, and the keys they are signed with
//! - [`verifier`]: what is kept of a password: nothing that it can be read back from
//! - [`users`]: the file of users, read and changed as text
//! - [`fuzzing`]: what strangers write, as functions of bytes
//! - `decoys`: what stands for users that do not exist
//! - [`prepare`]: SASLprep of names and passwords (RFC 4013)
//!
//! Random numbers and the time are arguments. No sockets, no async runtime.

mod decoys;
pub mod exchange;
pub mod fuzzing;
pub mod mechanism;
pub mod oauth;
pub mod plain;
pub mod prepare;
pub mod scram;
pub mod users;
pub mod verifier;

pub use exchange::{Accepted, Credentials, Exchange, Refusal, Step};
pub use mechanism::Mechanism;
pub use oauth::TokenRules;
pub use users::Users;
pub use verifier::{Hash, Verifier};
