//! How a client says who it is (KIP-43, KIP-152).

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use milena_auth::scram::ScramClient;
use milena_auth::{Mechanism, plain};
use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::{SaslAuthenticateRequest, SaslHandshakeRequest};
use milena_wire::kafka_protocol::protocol::StrBytes;

use super::connection::Connection;
use super::{ClientError, Result};

/// Characters of a nonce.
const NONCE_CHARACTERS: usize = 24;

/// Part of a session after which the client authenticates again.
const AGAIN_AFTER: f64 = 0.85;

/// Who a client is, and how it proves it.
#[derive(Clone)]
pub struct Login {
    /// The mechanism.
    pub mechanism: Mechanism,
    /// Name of the user.
    pub name: String,
    /// Its password.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("mechanism", &self.mechanism).field("name", &self.name).finish_non_exhaustive()
    }
}

impl Login {
    /// Says who the client is; the time after which it has to do so again, if there is one.
    pub(super) async fn at(&self, connection: &mut Connection) -> Result<Option<Duration>> {
        let failed = |reason: String| ClientError::NotLetIn { name: self.name.clone(), reason };
        if !connection.offers::<SaslHandshakeRequest>() {
            return Err(failed("this address asks nobody for a password; is it that of another listener?".to_owned()));
        }
        let mechanism = StrBytes::from_static_str(self.mechanism.name());
        let shaken = connection.request(&SaslHandshakeRequest::default().with_mechanism(mechanism)).await?;
        if let Some(code) = ResponseError::try_from_code(shaken.error_code) {
            let offered: Vec<&str> = shaken.mechanisms.iter().map(|name| &**name).collect();
            return Err(failed(format!(
                "{} is not among what it offers: {} ({code:?})",
                self.mechanism,
                offered.join(", ")
            )));
        }
        let Some(hash) = self.mechanism.hash() else {
            let token = plain::token(&self.name, &self.password);
            return self.token(connection, token).await.map(|(_, lifetime)| lifetime);
        };
        let (mut scram, first) = ScramClient::new(hash, &self.name, &nonce());
        let (challenge, _) = self.token(connection, first).await?;
        let proof = scram.prove(&challenge, &self.password).map_err(|error| failed(error.to_string()))?;
        let (answer, lifetime) = self.token(connection, proof).await?;
        scram.verify(&answer).map_err(|error| failed(error.to_string()))?;
        Ok(lifetime)
    }

    async fn token(&self, connection: &mut Connection, token: Vec<u8>) -> Result<(Bytes, Option<Duration>)> {
        let answer = connection.request(&SaslAuthenticateRequest::default().with_auth_bytes(token.into())).await?;
        if let Some(code) = ResponseError::try_from_code(answer.error_code) {
            let said = answer.error_message.as_deref().filter(|message| !message.is_empty());
            let reason = said.map_or_else(|| format!("{code:?}"), str::to_owned);
            return Err(ClientError::NotLetIn { name: self.name.clone(), reason });
        }
        let lifetime = u64::try_from(answer.session_lifetime_ms).ok().filter(|millis| *millis > 0);
        Ok((answer.auth_bytes, lifetime.map(|millis| Duration::from_millis(millis).mul_f64(AGAIN_AFTER))))
    }
}

fn nonce() -> String {
    use rand::RngExt as _;
    rand::rng().sample_iter(rand::distr::Alphanumeric).take(NONCE_CHARACTERS).map(char::from).collect()
}
