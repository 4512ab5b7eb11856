//! LeaveGroup (13), versions 0-5: members go at once instead of with the end of their session.
//!
//! - v0-2: one member, whose code is that of the answer. v1: throttle time. v3: several members, also static ones by their
//!   instance id (KIP-345), one code each. v4: flexible. v5: reason.
//! - Those who stay are told with their next heartbeat.
//! - Errors: 24 group id, 16 coordinated elsewhere, 14 while offsets are loaded; 25 unknown member and 82 fenced, for each.
//! - The reason is not looked at.

use milena_groups::Leaving;
use milena_wire::kafka_protocol::messages::leave_group_response::MemberResponse;
use milena_wire::kafka_protocol::messages::{ApiKey, LeaveGroupRequest, LeaveGroupResponse};

use crate::codes;
use crate::dispatch::{Api, Context, answer};

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::LeaveGroup,
    name: "LeaveGroup",
    advertised: (0, 5),
    served: (0, 5),
    handle: |request| Box::pin(answer(ApiKey::LeaveGroup, request, leave_group)),
};

/// First version in which several members leave.
const SEVERAL_FROM: i16 = 3;

async fn leave_group(context: Context, request: LeaveGroupRequest) -> Option<LeaveGroupResponse> {
    let groups = &context.broker.groups;
    let response = LeaveGroupResponse::default();
    if context.version < SEVERAL_FROM {
        let one = Leaving { member_id: &request.member_id, instance_id: None };
        let result = groups.leave(&request.group_id, &[one]);
        let result = result.and_then(|results| results.into_iter().next().unwrap_or(Ok(())));
        return Some(response.with_error_code(codes::of_group_result(&result)));
    }
    let leaving: Vec<_> = request
        .members
        .iter()
        .map(|who| Leaving { member_id: &who.member_id, instance_id: who.group_instance_id.as_deref() })
        .collect();
    let results = match groups.leave(&request.group_id, &leaving) {
        Ok(results) => results,
        Err(error) => return Some(response.with_error_code(codes::of_group(&error).code())),
    };
    let members = request.members.into_iter().zip(results).map(|(who, result)| {
        MemberResponse::default()
            .with_member_id(who.member_id)
            .with_group_instance_id(who.group_instance_id)
            .with_error_code(codes::of_group_result(&result))
    });
    Some(response.with_members(members.collect()))
}
