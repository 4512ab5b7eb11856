//! SaslAuthenticate (36), versions 0-2: a token of the exchange that SaslHandshake began (KIP-152). Only on listeners with SASL.
//!
//! - v1: how long the session may last (KIP-368). v2: flexible.
//! - 58 with Kafka's words when the client is not let in; the answer comes late, and then the connection is closed. The
//!   words do not tell a wrong name from a wrong password.
//! - Without an exchange it is 34 for a client that is let in, and closes the connection before that.

use std::time::Duration;

use bytes::Bytes;
use milena_wire::encode_response;
use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::{ApiKey, SaslAuthenticateRequest, SaslAuthenticateResponse};
use milena_wire::kafka_protocol::protocol::StrBytes;

use crate::authentication::{self, TOKEN_BYTES_MAX, Verdict};
use crate::dispatch::{Api, Outcome, Request, decode};

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::SaslAuthenticate,
    name: "SaslAuthenticate",
    advertised: (0, 2),
    served: (0, 2),
    handle: |request| Box::pin(sasl_authenticate(request)),
};

const NO_EXCHANGE: &str = "SaslAuthenticate request received after successful authentication";

async fn sasl_authenticate(request: Request) -> Outcome {
    let Request { context, correlation_id, version, body } = request;
    let (broker, connection) = (&context.broker, &context.connection);
    let asked: SaslAuthenticateRequest = match decode(broker, body, version).await {
        Ok(asked) => asked,
        Err(error) => return Outcome::Close(error),
    };
    let session = connection.session().filter(|session| session.expects_token());
    let (response, last) = match session {
        None => (failed(ResponseError::IllegalSaslState, NO_EXCHANGE.to_owned()), false),
        Some(_) if asked.auth_bytes.len() > TOKEN_BYTES_MAX => return Outcome::Last(None),
        Some(session) => match authentication::check(broker, connection, session, asked.auth_bytes).await {
            Verdict::Challenge(token) => {
                (SaslAuthenticateResponse::default().with_auth_bytes(Bytes::from(token)), false)
            }
            Verdict::Accepted { token, lifetime } => {
                let accepted = SaslAuthenticateResponse::default()
                    .with_auth_bytes(Bytes::from(token))
                    .with_session_lifetime_ms(if version >= 1 { millis(lifetime) } else { 0 });
                (accepted, false)
            }
            Verdict::Refused { message } => (failed(ResponseError::SaslAuthenticationFailed, message), true),
        },
    };
    broker.metrics.requests.note_errors(ApiKey::SaslAuthenticate as i16, &response);
    match encode_response(ApiKey::SaslAuthenticate, version, correlation_id, &response) {
        Ok(frame) if last => Outcome::Last(Some(frame)),
        Ok(frame) => Outcome::Reply(frame),
        Err(error) => Outcome::Close(error),
    }
}

fn failed(code: ResponseError, message: String) -> SaslAuthenticateResponse {
    SaslAuthenticateResponse::default()
        .with_error_code(code.code())
        .with_error_message(Some(StrBytes::from_string(message)))
}

/// Milliseconds of a session; 0 is one without an end.
fn millis(lifetime: Option<Duration>) -> i64 {
    lifetime.map_or(0, |time| i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
}
