//! SyncGroup (14), versions 0-5: the leader files the assignments, and every member learns its own.
//!
//! - v1: throttle time. v3: static members (KIP-345). v4: flexible. v5: protocol type and name, which must be those of the
//!   group (KIP-559), else 23.
//! - A follower waits for the leader; who was left out gets an assignment of no bytes. The request ends with its
//!   connection, and at shutdown with 15.
//! - While offsets are loaded the answer is 27, upon which clients join again: none of them expects 14 here.
//! - Errors: 24 group id, 16 coordinated elsewhere, 25 unknown member, 22 generation, 82 fenced, 27 rebalance, 42 too large an assignment.

use std::time::Instant;

use milena_groups::{Answer, Generation, SyncRequest};
use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::{ApiKey, SyncGroupRequest, SyncGroupResponse};

use super::groups::{blob, shared};
use crate::broker::Broker;
use crate::codes;
use crate::dispatch::{Api, Context, answer};
use crate::groups::Pending;

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::SyncGroup,
    name: "SyncGroup",
    advertised: (0, 5),
    served: (0, 5),
    handle: |request| Box::pin(answer(ApiKey::SyncGroup, request, sync_group)),
};

/// First version that names the protocol.
const PROTOCOL_FROM: i16 = 5;

async fn sync_group(context: Context, request: SyncGroupRequest) -> Option<SyncGroupResponse> {
    let Context { broker, connection, client_id, version } = context;
    let pending = ask(&broker, &request);
    // A follower waits for its leader, whose request needs room.
    drop((request, client_id));
    connection.release();
    let response = SyncGroupResponse::default();
    let parked = Instant::now();
    let answered = pending.unless(connection.ending()).await;
    connection.was_parked(parked.elapsed());
    Some(match answered {
        Some(Answer::Sync(Ok(synced))) => {
            let names = version >= PROTOCOL_FROM;
            response
                .with_protocol_type(synced.protocol_type.as_ref().filter(|_| names).map(shared))
                .with_protocol_name(synced.protocol.as_ref().filter(|_| names).map(shared))
                .with_assignment(blob(&synced.assignment))
        }
        Some(Answer::Sync(Err(error))) => response.with_error_code(codes::of_group(&error).code()),
        _ => response.with_error_code(ResponseError::CoordinatorNotAvailable.code()),
    })
}

fn ask(broker: &Broker, request: &SyncGroupRequest) -> Pending {
    let assignments: Vec<_> =
        request.assignments.iter().map(|to| (to.member_id.as_str(), to.assignment.as_ref())).collect();
    broker.groups.sync(&SyncRequest {
        group: &request.group_id,
        member_id: &request.member_id,
        instance_id: request.group_instance_id.as_deref(),
        generation: Generation(request.generation_id),
        protocol_type: request.protocol_type.as_deref(),
        protocol: request.protocol_name.as_deref(),
        assignments: &assignments,
    })
}
