//! The table of APIs, and the shape of a handler.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use milena_wire::kafka_protocol::messages::ApiKey;
use milena_wire::kafka_protocol::protocol::{Encodable, Request as KafkaRequest, StrBytes};
use milena_wire::{RequestFrame, WireError, decode_request, encode_response, parse_request};

use crate::authentication;
use crate::authentication::session::{Admission, Gate};
use crate::broker::Broker;
use crate::connection::End;
use crate::fetch::room::Held;
use crate::handlers;
use crate::metrics::ErrorCodes;
pub use crate::peer::Connection;

/// The dispatch table, which is also the ApiVersions answer and the table in the docs.
pub const APIS: &[Api] = &[
    handlers::produce::API,
    handlers::fetch::API,
    handlers::list_offsets::API,
    handlers::metadata::API,
    handlers::offset_commit::API,
    handlers::offset_fetch::API,
    handlers::find_coordinator::API,
    handlers::join_group::API,
    handlers::heartbeat::API,
    handlers::leave_group::API,
    handlers::sync_group::API,
    handlers::describe_groups::API,
    handlers::list_groups::API,
    handlers::sasl_handshake::API,
    handlers::api_versions::API,
    handlers::create_topics::API,
    handlers::delete_topics::API,
    handlers::delete_records::API,
    handlers::init_producer_id::API,
    handlers::offset_for_leader_epoch::API,
    handlers::describe_acls::API,
    handlers::create_acls::API,
    handlers::delete_acls::API,
    handlers::describe_configs::API,
    handlers::alter_configs::API,
    handlers::describe_log_dirs::API,
    handlers::sasl_authenticate::API,
    handlers::create_partitions::API,
    handlers::delete_groups::API,
    handlers::elect_leaders::API,
    handlers::incremental_alter_configs::API,
    handlers::alter_partition_reassignments::API,
    handlers::list_partition_reassignments::API,
    handlers::offset_delete::API,
    handlers::describe_client_quotas::API,
    handlers::describe_user_scram_credentials::API,
    handlers::alter_user_scram_credentials::API,
    handlers::describe_cluster::API,
    handlers::describe_producers::API,
    handlers::describe_transactions::API,
    handlers::list_transactions::API,
    handlers::list_config_resources::API,
    handlers::describe_topic_partitions::API,
];

/// One API key: what is advertised, what is served, and who serves it.
#[derive(Clone, Copy)]
pub struct Api {
    /// Its key.
    pub key: ApiKey,
    /// Its name, as Kafka spells it.
    pub name: &'static str,
    /// Lowest and highest version in the ApiVersions answer.
    pub advertised: (i16, i16),
    /// Lowest and highest version that is served; any other closes the connection.
    pub served: (i16, i16),
    /// Decodes, asks, encodes.
    pub handle: fn(Request) -> OutcomeFuture,
}

/// Future of a handler. Boxed once per request.
pub type OutcomeFuture = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// A request on its way to a handler.
pub struct Request {
    /// Shared state.
    pub context: Context,
    /// Correlation id.
    pub correlation_id: i32,
    /// Version, within `Api::served`.
    pub version: i16,
    /// Bytes behind the header.
    pub body: Bytes,
}

/// What a handler knows beside the request's fields.
#[derive(Clone)]
pub struct Context {
    /// Shared state.
    pub broker: Arc<Broker>,
    /// The connection.
    pub connection: Arc<Connection>,
    /// Client id of the request.
    pub client_id: Option<StrBytes>,
    /// Version of the request.
    pub version: i16,
}

/// What becomes of a request.
#[derive(Debug)]
pub enum Outcome {
    /// A whole response frame, length prefix included.
    Reply(Bytes),
    /// A response frame in pieces.
    Pieces(Pieces),
    /// A last response frame, if there is one; then the connection is closed. The client was not let in.
    Last(Option<Bytes>),
    /// No answer (Produce with acks 0).
    Silent,
    /// The connection is closed; the reason is for the log.
    Close(WireError),
}

/// A whole response frame, length prefix included, that lies in several places. It is written from there.
#[derive(Debug)]
pub struct Pieces {
    /// What is written, one behind the other.
    pub bytes: Vec<Bytes>,
    /// Room that they take until they are written.
    pub held: Held,
}

/// Decodes the request, calls `serve`, encodes its answer; `None` is silence.
pub async fn answer<Q, R, F>(key: ApiKey, request: Request, serve: impl FnOnce(Context, Q) -> F) -> Outcome
where
    Q: KafkaRequest,
    R: Encodable + ErrorCodes,
    F: Future<Output = Option<R>>,
{
    let decoded = match decode(&request.context.broker, request.body, request.version).await {
        Ok(decoded) => decoded,
        Err(error) => return Outcome::Close(error),
    };
    let broker = Arc::clone(&request.context.broker);
    let Some(response) = serve(request.context, decoded).await else {
        return Outcome::Silent;
    };
    broker.metrics.requests.note_errors(key as i16, &response);
    match encode_response(key, request.version, request.correlation_id, &response) {
        Ok(frame) => Outcome::Reply(frame),
        Err(error) => Outcome::Close(error),
    }
}

/// Decodes a request when it is its turn: the largest ones, which grow most, are decoded one at a time.
///
/// # Errors
/// When the body is not the message it should be.
pub async fn decode<Q: KafkaRequest>(broker: &Broker, body: Bytes, version: i16) -> Result<Q, WireError> {
    let _turn = broker.memory.decode_turn(body.len()).await;
    decode_request(body, version)
}

/// Looks an API up by its number.
#[must_use]
pub fn find(apis: &'static [Api], key: i16) -> Option<&'static Api> {
    apis.iter().find(|api| api.key as i16 == key)
}

/// Whether ApiVersions names an API on this connection. Where clients are not asked who they are, there is no SASL: those
/// that are set up for it are told so by their own library then.
pub(crate) fn is_offered(api: &Api, broker: &Broker, connection: &Connection) -> bool {
    match api.key {
        ApiKey::SaslHandshake | ApiKey::SaslAuthenticate => connection.session().is_some(),
        ApiKey::AlterUserScramCredentials => {
            connection.session().is_some() && broker.authentication.users_file().is_some()
        }
        _ => true,
    }
}

/// Hands a frame to its handler.
///
/// An unknown key or a version out of range ends the connection, as Apache Kafka does: no layout is known in which an
/// error could be written. That holds for Produce below version 3 too, which ApiVersions names only because some clients
/// turn compression off without it. ApiVersions is the exception, since a client asks it to learn the versions.
pub(crate) async fn serve(broker: &Arc<Broker>, connection: &Arc<Connection>, frame: Bytes) -> Result<Outcome, End> {
    if let Some(session) = connection.session().filter(|session| session.gate() == Gate::BareToken) {
        return Ok(authentication::bare_token(broker, connection, session, frame).await);
    }
    let RequestFrame { api_key, api_version, correlation_id, client_id, body } = parse_request(frame)?;
    connection.introduce(client_id.as_deref());
    let known = find(broker.apis, api_key);
    if let Some(session) = connection.session() {
        let name = known.map_or("an unknown API", |api| api.name);
        match session.admits(known.map(|api| api.key), Instant::now()) {
            Admission::Served => {}
            Admission::Illegal => return illegal(broker, connection, api_key, api_version, correlation_id).await,
            Admission::Unauthenticated => return Err(End::Unauthenticated { api: name }),
            Admission::Expired => return Err(End::SessionExpired),
        }
    }
    let Some(api) = known else {
        return Err(WireError::UnknownApi(api_key).into());
    };
    let metrics = broker.metrics.requests.of(api_key);
    if let Some(metrics) = metrics {
        metrics.requests.add(1);
    }
    if api_version < api.served.0 || api_version > api.served.1 {
        if api.key == ApiKey::ApiVersions {
            return Ok(handlers::api_versions::unsupported(correlation_id));
        }
        return Err(End::Version { api: api.name, version: api_version });
    }
    tracing::trace!(connection = connection.id, api = api.name, api_version, correlation_id, "request");
    let context =
        Context { broker: Arc::clone(broker), connection: Arc::clone(connection), client_id, version: api_version };
    let begun = Instant::now();
    let outcome = (api.handle)(Request { context, correlation_id, version: api_version, body }).await;
    let took = begun.elapsed().saturating_sub(connection.take_parked());
    if let Some(metrics) = metrics {
        metrics.latency.observe_time(took);
    }
    let slow = broker.config.slow_request;
    if !slow.is_zero() && took >= slow {
        note_slow(broker, connection, api, took);
    }
    Ok(outcome)
}

/// What is out of turn within an exchange of tokens hears so, and the connection ends, as with Kafka.
#[cold]
async fn illegal(
    broker: &Broker,
    connection: &Connection,
    api_key: i16,
    version: i16,
    correlation_id: i32,
) -> Result<Outcome, End> {
    authentication::delay(broker, connection).await;
    Ok(if api_key == ApiKey::ApiVersions as i16 {
        handlers::api_versions::illegal(version.clamp(0, 4), correlation_id)
    } else {
        handlers::sasl_handshake::illegal(version.clamp(0, 1), correlation_id)
    })
}

/// One line per API and minute: when a disk stalls, everything is slow.
#[cold]
fn note_slow(broker: &Broker, connection: &Connection, api: &Api, took: Duration) {
    if let Some(suppressed) = broker.quiet_slow.admit(api.key as i16, Instant::now()) {
        tracing::warn!(
            connection = connection.id,
            peer = %connection.peer,
            client = %connection.client(),
            api = api.name,
            milliseconds = took.as_millis(),
            suppressed,
            "slow request"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::API_KEYS;

    #[test]
    fn the_table_is_sorted_and_no_key_is_in_it_twice() {
        assert!(APIS.is_sorted_by(|one, next| (one.key as i16) < next.key as i16));
    }

    #[test]
    fn every_key_has_a_counter() {
        for api in APIS {
            assert!((api.key as usize) < API_KEYS, "{}", api.name);
        }
    }

    #[test]
    fn what_is_served_lies_within_what_is_advertised() {
        for api in APIS {
            assert!(api.advertised.0 <= api.served.0 && api.served.1 == api.advertised.1, "{}", api.name);
            assert!(api.served.0 <= api.served.1, "{}", api.name);
        }
    }
}
