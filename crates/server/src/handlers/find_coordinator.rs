//! FindCoordinator (10), versions 0-6: which broker coordinates a group or a transaction.
//!
//! - v0: one group. v1: key type, error message, throttle time. v3: flexible. v4: several keys, one entry per key
//!   (KIP-699). v6: share groups (KIP-932).
//! - Group keys: this node under the address of the listener on which the client came in, or the node that coordinates
//!   the group, under the address of its listener of that name. While nobody is known: `COORDINATOR_NOT_AVAILABLE`, upon
//!   which every client asks again.
//! - Transaction keys: `TRANSACTIONAL_ID_AUTHORIZATION_FAILED` at once. Any retriable code makes librdkafka ask twice a
//!   second for ever, and `UNSUPPORTED_VERSION` does too, while this one ends `initTransactions` in every client.
//! - Share keys and unknown types: `INVALID_REQUEST`.

use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::find_coordinator_response::Coordinator as Entry;
use milena_wire::kafka_protocol::messages::{ApiKey, BrokerId, FindCoordinatorRequest, FindCoordinatorResponse};
use milena_wire::kafka_protocol::protocol::StrBytes;

use crate::dispatch::{Api, Context, answer};
use crate::groups::Coordinator;

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

/// What Kafka says where nothing is wrong, before there were several keys.
const NO_ERROR: &str = "NONE";

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;

async fn find_coordinator(context: Context, request: FindCoordinatorRequest) -> Option<FindCoordinatorResponse> {
    if context.version < SEVERAL_KEYS_FROM {
        let mut one = locate(&context, request.key_type, &request.key).entry(request.key, true);
        if one.error_code == 0 {
            one.error_message = Some(StrBytes::from_static_str(NO_ERROR));
        }
        let response = FindCoordinatorResponse::default()
            .with_error_code(one.error_code)
            .with_error_message(one.error_message)
            .with_node_id(one.node_id)
            .with_host(one.host)
            .with_port(one.port);
        return Some(response);
    }
    let coordinators = request.coordinator_keys.into_iter().enumerate().map(|(index, key)| {
        let found = locate(&context, request.key_type, &key);
        found.entry(key, index < MESSAGES_MAX)
    });
    Some(FindCoordinatorResponse::default().with_coordinators(coordinators.collect()))
}

/// Where the coordinator of a key is.
enum Found {
    At { node: i32, host: StrBytes, port: u16 },
    Nowhere { error: ResponseError, message: &'static str },
}

fn locate(context: &Context, key_type: i8, key: &str) -> Found {
    let (error, message) = match key_type {
        GROUP if !context.broker.groups.is_group_id(key) => {
            (ResponseError::InvalidGroupId, "the group id is too long for where this server keeps offsets")
        }
        GROUP => match group(context, key) {
            Some(found) => return found,
            None => (ResponseError::CoordinatorNotAvailable, "no coordinator of consumer groups is known now"),
        },
        TRANSACTION => (ResponseError::TransactionalIdAuthorizationFailed, "this server does not serve transactions"),
        _ => (ResponseError::InvalidRequest, "this server coordinates consumer groups only"),
    };
    Found::Nowhere { error, message }
}

fn group(context: &Context, key: &str) -> Option<Found> {
    let listener = &context.connection.listener;
    let at = |node, host: &str, port| Found::At { node, host: StrBytes::from_string(host.to_owned()), port };
    match context.broker.groups.coordinator_of(key) {
        Coordinator::Here => Some(at(context.broker.node_id(), &listener.advertised_host, listener.advertised_port)),
        Coordinator::At(node) => {
            node.endpoint(&listener.name).map(|endpoint| at(node.id, &endpoint.host, endpoint.port))
        }
        Coordinator::Unknown => None,
    }
}

impl Found {
    fn entry(self, key: StrBytes, with_message: bool) -> Entry {
        let entry = Entry::default().with_key(key);
        match self {
            Self::At { node, host, port } => {
                // Kafka has the empty text here, and not null.
                let entry = entry.with_error_message(Some(StrBytes::default()));
                entry.with_node_id(BrokerId(node)).with_host(host).with_port(i32::from(port))
            }
            Self::Nowhere { error, message } => entry
                .with_node_id(BrokerId(-1))
                .with_port(-1)
                .with_error_code(error.code())
                .with_error_message(with_message.then(|| StrBytes::from_static_str(message))),
        }
    }
}
