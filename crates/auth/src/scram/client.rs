//! The client's side.

use std::num::NonZeroU32;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::message::escaped;
use crate::verifier::Hash;

/// Most iterations that a server may ask for. More would keep a client busy for seconds.
const ITERATIONS_MAX: u32 = 1_000_000;

/// Header of the first message: no channel binding, nobody else to act for.
const GS2_HEADER: &str = "n,,";

/// Why an exchange cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The challenge has another form, or is not the answer to what was said.
    #[error("the challenge of the server is not one of SCRAM")]
    Challenge,
    /// It would take too long.
    #[error("the server asks for {0} iterations, which is more than {ITERATIONS_MAX}")]
    Iterations(u32),
    /// The other side does not know the password.
    #[error("the server does not prove that it knows the user; something else may be listening there")]
    Server,
}

/// One exchange with one server.
#[derive(Debug)]
pub struct ScramClient {
    hash: Hash,
    nonce: String,
    bare: String,
    expected: Option<Vec<u8>>,
}

impl ScramClient {
    /// A new exchange, and its first message. `nonce` is random, printable and has no comma; it is used once.
    #[must_use]
    pub fn new(hash: Hash, name: &str, nonce: &str) -> (Self, Vec<u8>) {
        let bare = format!("n={},r={nonce}", escaped(name));
        let first = format!("{GS2_HEADER}{bare}").into_bytes();
        (Self { hash, nonce: nonce.to_owned(), bare, expected: None }, first)
    }

    /// The last message, which proves that this side knows the password.
    ///
    /// # Errors
    /// When the challenge is none, or asks for too much.
    pub fn prove(&mut self, challenge: &[u8], password: &str) -> Result<Vec<u8>, ClientError> {
        let challenge = std::str::from_utf8(challenge).map_err(|_| ClientError::Challenge)?;
        let mut attributes = challenge.split(',');
        let mut attribute = |begin| attributes.next().and_then(|text: &str| text.strip_prefix(begin));
        let (Some(nonce), Some(salt), Some(iterations)) = (attribute("r="), attribute("s="), attribute("i=")) else {
            return Err(ClientError::Challenge);
        };
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err(ClientError::Challenge);
        }
        let salt = BASE64.decode(salt).map_err(|_| ClientError::Challenge)?;
        let iterations: NonZeroU32 = iterations.parse().map_err(|_| ClientError::Challenge)?;
        if iterations.get() > ITERATIONS_MAX {
            return Err(ClientError::Iterations(iterations.get()));
        }
        let salted = self.hash.salted(password, &salt, iterations);
        let client_key = self.hash.hmac(&salted, b"Client Key");
        let without_proof = format!("c={},r={nonce}", BASE64.encode(GS2_HEADER));
        let exchange = format!("{},{challenge},{without_proof}", self.bare);
        let signature = self.hash.hmac(&self.hash.digest(&client_key), exchange.as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(&signature).map(|(key, signature)| key ^ signature).collect();
        self.expected = Some(self.hash.hmac(&self.hash.hmac(&salted, b"Server Key"), exchange.as_bytes()));
        Ok(format!("{without_proof},p={}", BASE64.encode(proof)).into_bytes())
    }

    /// Checks the server's answer to the last message.
    ///
    /// # Errors
    /// When the server does not know the password.
    pub fn verify(&self, answer: &[u8]) -> Result<(), ClientError> {
        let signature = answer.strip_prefix(b"v=").and_then(|text| BASE64.decode(text).ok());
        match (signature, &self.expected) {
            (Some(signature), Some(expected)) if verify_slices_are_equal(&signature, expected).is_ok() => Ok(()),
            _ => Err(ClientError::Server),
        }
    }
}
