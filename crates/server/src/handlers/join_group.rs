//! JoinGroup (11), versions 0-9: a client wants to be in the next generation of a group.
//!
//! - v1: rebalance timeout; before it the session timeout serves. v2: throttle time. v4: a member without an id is told one
//!   with 79 and joins again (KIP-394). v5: static members (KIP-345). v6: flexible. v7: protocol type in the answer. v8:
//!   reason. v9: a static leader that returns is told to compute no assignment (KIP-814).
//! - The request waits until the group is complete. What is kept of it is copied, so that its bytes are not held for as
//!   long. It ends with its connection, and at shutdown with 15, upon which clients look for the coordinator again.
//! - Errors: 24 group id, 26 session timeout, 23 protocols, 25 unknown member, 82 fenced, 79 join with this id, 81 full,
//!   42 too much to keep, 16 coordinated elsewhere, also while it waits, 14 while offsets are loaded.
//! - The reason is not looked at.

use std::time::Instant;

use milena_groups::{Answer, JoinRequest, Joined};
use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use milena_wire::kafka_protocol::messages::{ApiKey, JoinGroupRequest, JoinGroupResponse};
use milena_wire::kafka_protocol::protocol::StrBytes;

use super::groups::{blob, shared, shared_option};
use crate::broker::Broker;
use crate::codes;
use crate::dispatch::{Api, Context, answer};
use crate::groups::Pending;

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::JoinGroup,
    name: "JoinGroup",
    advertised: (0, 9),
    served: (0, 9),
    handle: |request| Box::pin(answer(ApiKey::JoinGroup, request, join_group)),
};

/// First version with a rebalance timeout.
const REBALANCE_TIMEOUT_FROM: i16 = 1;

/// First version that knows static members.
const INSTANCE_FROM: i16 = 5;

/// First version in which the name of the protocol may be null, and its type is sent.
const PROTOCOL_TYPE_FROM: i16 = 7;

/// First version that can tell the leader to compute nothing.
const SKIP_ASSIGNMENT_FROM: i16 = 9;

async fn join_group(context: Context, request: JoinGroupRequest) -> Option<JoinGroupResponse> {
    let Context { broker, connection, client_id, version } = context;
    let host = format!("/{}", connection.peer.ip());
    let pending = ask(&broker, version, client_id.as_deref().unwrap_or_default(), &host, &request);
    // The wait may be as long as a rebalance, and the members that it waits for need room for their requests.
    drop((request, client_id));
    connection.release();
    let parked = Instant::now();
    let answered = pending.unless(connection.ending()).await;
    connection.was_parked(parked.elapsed());
    Some(match answered {
        Some(Answer::Join(Ok(joined))) => accepted(version, &joined),
        Some(Answer::Join(Err(refused))) => {
            self::refused(version, codes::of_group(&refused.error), shared(&refused.member_id))
        }
        _ => refused(version, ResponseError::CoordinatorNotAvailable, StrBytes::default()),
    })
}

fn ask(broker: &Broker, version: i16, client_id: &str, client_host: &str, request: &JoinGroupRequest) -> Pending {
    let protocols: Vec<_> =
        request.protocols.iter().map(|protocol| (protocol.name.as_str(), protocol.metadata.as_ref())).collect();
    let fresh = uuid::Builder::from_random_bytes(rand::random()).into_uuid().to_string();
    broker.groups.join(&JoinRequest {
        version,
        group: &request.group_id,
        member_id: &request.member_id,
        instance_id: request.group_instance_id.as_deref(),
        client_id,
        client_host,
        session_timeout_ms: request.session_timeout_ms,
        rebalance_timeout_ms: (version >= REBALANCE_TIMEOUT_FROM).then_some(request.rebalance_timeout_ms),
        protocol_type: &request.protocol_type,
        protocols: &protocols,
        fresh: &fresh,
    })
}

fn accepted(version: i16, joined: &Joined) -> JoinGroupResponse {
    let members = joined.members.iter().map(|member| {
        let instance = member.instance_id.as_ref().filter(|_| version >= INSTANCE_FROM);
        JoinGroupResponseMember::default()
            .with_member_id(shared(&member.member_id))
            .with_group_instance_id(instance.map(shared))
            .with_metadata(blob(&member.metadata))
    });
    let response = JoinGroupResponse::default()
        .with_generation_id(joined.generation.0)
        .with_protocol_name(Some(shared_option(joined.protocol.as_ref())))
        .with_leader(shared(&joined.leader))
        .with_member_id(shared(&joined.member_id))
        .with_members(members.collect())
        .with_skip_assignment(version >= SKIP_ASSIGNMENT_FROM && joined.skip_assignment);
    if version >= PROTOCOL_TYPE_FROM {
        response.with_protocol_type(joined.protocol_type.as_ref().map(shared))
    } else {
        response
    }
}

fn refused(version: i16, error: ResponseError, member_id: StrBytes) -> JoinGroupResponse {
    JoinGroupResponse::default()
        .with_error_code(error.code())
        .with_generation_id(-1)
        .with_protocol_name((version < PROTOCOL_TYPE_FROM).then(StrBytes::default))
        .with_member_id(member_id)
}
