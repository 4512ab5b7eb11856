//! Heartbeat (12), versions 0-4: a member is still there, and learns where its group stands.
//!
//! - v1: throttle time. v3: static members (KIP-345). v4: flexible.
//! - Answered from memory, without waiting for anything.
//! - While offsets are loaded no member is known yet, and every heartbeat is good, as in Apache Kafka.
//! - Errors: 24 group id, 16 coordinated elsewhere, 25 unknown member, 22 generation, 82 fenced, 27 join again.

use milena_groups::{Generation, Sender};
use milena_wire::kafka_protocol::messages::{ApiKey, HeartbeatRequest, HeartbeatResponse};

use crate::codes;
use crate::dispatch::{Api, Context, answer};

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::Heartbeat,
    name: "Heartbeat",
    advertised: (0, 4),
    served: (0, 4),
    handle: |request| Box::pin(answer(ApiKey::Heartbeat, request, heartbeat)),
};

async fn heartbeat(context: Context, request: HeartbeatRequest) -> Option<HeartbeatResponse> {
    let result = context.broker.groups.heartbeat(&Sender {
        group: &request.group_id,
        member_id: &request.member_id,
        instance_id: request.group_instance_id.as_deref(),
        generation: Generation(request.generation_id),
    });
    Some(HeartbeatResponse::default().with_error_code(codes::of_group_result(&result)))
}
