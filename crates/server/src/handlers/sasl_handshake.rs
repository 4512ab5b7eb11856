//! SaslHandshake (17), versions 0-1: which mechanism the tokens to come are of. Only on listeners with SASL.
//!
//! - After version 0 tokens follow behind a length alone, after version 1 in SaslAuthenticate requests (KIP-152).
//!   librdkafka wants to see version 0 offered before it uses SASL at all.
//! - A mechanism that the listener does not have is 33, with the list of those that it has; then the connection is closed.
//! - A client that is let in and whose session ends some time may come again (KIP-368), once a second at most. Any other
//!   handshake of a client that is let in is 34, and changes nothing.
//! - Left out: GSSAPI, and tokens without a handshake as clients before KIP-43 send them.

use milena_auth::Mechanism;
use milena_wire::encode_response;
use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::{ApiKey, SaslHandshakeRequest, SaslHandshakeResponse};
use milena_wire::kafka_protocol::protocol::StrBytes;

use crate::authentication::session::{Begun, Framing};
use crate::authentication::{self, Verdict};
use crate::dispatch::{Api, Outcome, Request, decode};

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::SaslHandshake,
    name: "SaslHandshake",
    advertised: (0, 1),
    served: (0, 1),
    handle: |request| Box::pin(sasl_handshake(request)),
};

async fn sasl_handshake(request: Request) -> Outcome {
    let Request { context, correlation_id, version, body } = request;
    let (broker, connection) = (&context.broker, &context.connection);
    let asked: SaslHandshakeRequest = match decode(broker, body, version).await {
        Ok(asked) => asked,
        Err(error) => return Outcome::Close(error),
    };
    let offered = &connection.listener.sasl;
    let now = std::time::Instant::now();
    let session = connection.session().filter(|session| session.may_begin(now));
    let (code, last) = match (session, Mechanism::of(&asked.mechanism)) {
        (None, _) => (ResponseError::IllegalSaslState.code(), false),
        (Some(session), Some(mechanism)) if offered.contains(&mechanism) => {
            let framing = if version == 0 { Framing::Bare } else { Framing::Requests };
            match session.begin(mechanism, framing, now) {
                Begun::Tokens => (0, false),
                Begun::NotNow => (ResponseError::IllegalSaslState.code(), false),
            }
        }
        (Some(_), _) => {
            broker.metrics.authentication.unsupported.add(1);
            let reason = "the client asks for a mechanism that this listener does not have";
            let _: Verdict = authentication::refuse(broker, connection, "other", reason.to_owned(), None).await;
            (ResponseError::UnsupportedSaslMechanism.code(), true)
        }
    };
    let names = offered.iter().map(|mechanism| StrBytes::from_static_str(mechanism.name()));
    let response = SaslHandshakeResponse::default().with_error_code(code).with_mechanisms(names.collect());
    broker.metrics.requests.note_errors(ApiKey::SaslHandshake as i16, &response);
    match encode_response(ApiKey::SaslHandshake, version, correlation_id, &response) {
        Ok(frame) if last => Outcome::Last(Some(frame)),
        Ok(frame) => Outcome::Reply(frame),
        Err(error) => Outcome::Close(error),
    }
}

/// The answer to a handshake within an exchange.
pub(crate) fn illegal(version: i16, correlation_id: i32) -> Outcome {
    let response = SaslHandshakeResponse::default().with_error_code(ResponseError::IllegalSaslState.code());
    match encode_response(ApiKey::SaslHandshake, version, correlation_id, &response) {
        Ok(frame) => Outcome::Last(Some(frame)),
        Err(error) => Outcome::Close(error),
    }
}
