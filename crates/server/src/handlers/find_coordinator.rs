//! FindCoordinator (10), versions 0-6: which broker coordinates a group or a transaction.
//!
//! - v0: one group. v1: key type, error message, throttle time. v3: flexible. v4: several keys, one entry per key
//!   (KIP-699). v6: share groups (KIP-932).
//! - Group keys: as long as the table has no JoinGroup, `COORDINATOR_NOT_AVAILABLE`. To name this node would be a lie
//!   that clients act on: they connect, send what is not served and fail in the middle of joining. The code is
//!   retriable, so a consumer that only assigns partitions goes on undisturbed, and one that subscribes keeps waiting
//!   instead of giving up on a cluster that may serve groups after an upgrade.
//! - Transaction keys: `TRANSACTIONAL_ID_AUTHORIZATION_FAILED` at once. Any retriable code makes librdkafka ask twice a
//!   second for ever, and `UNSUPPORTED_VERSION` does too, while this one ends `initTransactions` in every client.
//! - Share keys and unknown types: `INVALID_REQUEST`.

use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::find_coordinator_response::Coordinator;
use milena_wire::kafka_protocol::messages::{ApiKey, BrokerId, FindCoordinatorRequest, FindCoordinatorResponse};
use milena_wire::kafka_protocol::protocol::StrBytes;

use crate::dispatch::{Api, Context, answer, find};

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::FindCoordinator,
    name: "FindCoordinator",
    advertised: (0, 6),
    served: (0, 6),
    handle: |request| Box::pin(answer(ApiKey::FindCoordinator, request, find_coordinator)),
};

/// First version with several keys.
const SEVERAL_KEYS_FROM: i16 = 4;

/// Entries of one answer that carry a message. A key may be one byte, so a message for each would let a small request
/// make a large answer.
const MESSAGES_MAX: usize = 100;

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;

async fn find_coordinator(context: Context, request: FindCoordinatorRequest) -> Option<FindCoordinatorResponse> {
    let found = locate(&context, request.key_type);
    if context.version < SEVERAL_KEYS_FROM {
        let one = found.entry(request.key, true);
        let response = FindCoordinatorResponse::default()
            .with_error_code(one.error_code)
            .with_error_message(one.error_message)
            .with_node_id(one.node_id)
            .with_host(one.host)
            .with_port(one.port);
        return Some(response);
    }
    let keys = request.coordinator_keys.into_iter().enumerate();
    let coordinators = keys.map(|(index, key)| found.entry(key, index < MESSAGES_MAX)).collect();
    Some(FindCoordinatorResponse::default().with_coordinators(coordinators))
}

/// Where the coordinator of all keys of one type is.
enum Found {
    Here { node: i32, host: StrBytes, port: u16 },
    Nowhere { error: ResponseError, message: &'static str },
}

fn locate(context: &Context, key_type: i8) -> Found {
    let (error, message) = match key_type {
        GROUP if find(context.broker.apis, ApiKey::JoinGroup as i16).is_some() => {
            return Found::Here {
                node: context.broker.node_id(),
                host: StrBytes::from_string(context.connection.advertised_host.clone()),
                port: context.connection.advertised_port,
            };
        }
        GROUP => (ResponseError::CoordinatorNotAvailable, "this server does not serve consumer groups"),
        TRANSACTION => (ResponseError::TransactionalIdAuthorizationFailed, "this server does not serve transactions"),
        _ => (ResponseError::InvalidRequest, "this server coordinates consumer groups only"),
    };
    Found::Nowhere { error, message }
}

impl Found {
    fn entry(&self, key: StrBytes, with_message: bool) -> Coordinator {
        let entry = Coordinator::default().with_key(key);
        match self {
            Self::Here { node, host, port } => entry
                .with_node_id(BrokerId(*node))
                .with_host(host.clone())
                .with_port(i32::from(*port))
                .with_error_message(None),
            Self::Nowhere { error, message } => entry
                .with_node_id(BrokerId(-1))
                .with_port(-1)
                .with_error_code(error.code())
                .with_error_message(with_message.then(|| StrBytes::from_static_str(message))),
        }
    }
}
