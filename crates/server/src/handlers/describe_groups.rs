//! DescribeGroups (15), versions 0-6: state and members of groups.
//!
//! - v1: throttle time. v3: authorized operations. v4: static members. v5: flexible. v6: a group that does not exist is 69
//!   with a message (KIP-1043); before, it is in state `Dead` without an error.
//! - Metadata and assignments are the members' own bytes, there only while the group is stable. A group of which only offsets
//!   are left is `Empty`.
//! - Each group succeeds or fails by itself: 24 group id, 16 coordinated elsewhere, 14 while offsets are loaded. An answer
//!   that would be larger than a request may be fails the groups that pass the bound with 42.
//! - Authorized operations are `INT32_MIN` unless asked for.

use milena_groups::{DescribedMember, Description, GroupState};
use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use milena_wire::kafka_protocol::messages::{ApiKey, DescribeGroupsRequest, DescribeGroupsResponse, GroupId};
use milena_wire::kafka_protocol::protocol::StrBytes;

use super::groups::{Room, blob, shared};
use crate::codes;
use crate::dispatch::{Api, Context, answer};
use crate::groups::Held;

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::DescribeGroups,
    name: "DescribeGroups",
    advertised: (0, 6),
    served: (0, 6),
    handle: |request| Box::pin(answer(ApiKey::DescribeGroups, request, describe_groups)),
};

/// First version with static members.
const INSTANCE_FROM: i16 = 4;

/// First version in which a group that does not exist is an error.
const NOT_FOUND_FROM: i16 = 6;

/// Read, delete, describe, and describe and alter configs, as bits.
const GROUP_OPERATIONS: i32 = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11;

/// Bytes of a group or a member in an answer, without its texts.
const FIXED_BYTES: usize = 40;

async fn describe_groups(context: Context, request: DescribeGroupsRequest) -> Option<DescribeGroupsResponse> {
    let mut room = Room::new(&context.broker.config.limits);
    let operations = if request.include_authorized_operations { GROUP_OPERATIONS } else { i32::MIN };
    let held = context.broker.groups.held(request.groups.iter().map(|group| group.as_str())).await;
    let groups = request.groups.into_iter().map(|group| {
        let described = describe(&context, &held, &mut room, &group);
        described.with_group_id(group).with_authorized_operations(operations)
    });
    Some(DescribeGroupsResponse::default().with_groups(groups.collect()))
}

fn describe(context: &Context, held: &Held, room: &mut Room, group: &GroupId) -> DescribedGroup {
    let version = context.version;
    let dead = DescribedGroup::default().with_group_state(StrBytes::from_static_str(GroupState::Dead.name()));
    // Once the answer is full, groups are not even looked at: a request may name a large one a million times.
    if !room.take(FIXED_BYTES) {
        return dead.with_error_code(ResponseError::InvalidRequest.code());
    }
    let description = match context.broker.groups.describe(group, held) {
        Ok(description) => description,
        Err(error) => return dead.with_error_code(codes::of_group(&error).code()),
    };
    if !room.take(bytes(&description)) {
        return dead.with_error_code(ResponseError::InvalidRequest.code());
    }
    if description.state == GroupState::Dead && version >= NOT_FOUND_FROM {
        return dead
            .with_error_code(ResponseError::GroupIdNotFound.code())
            .with_error_message(Some(StrBytes::from_static_str("there is no such group")));
    }
    DescribedGroup::default()
        .with_group_state(StrBytes::from_static_str(description.state.name()))
        .with_protocol_type(shared(&description.protocol_type))
        .with_protocol_data(shared(&description.protocol))
        .with_members(description.members.iter().map(|member| described(version, member)).collect())
}

fn described(version: i16, member: &DescribedMember) -> DescribedGroupMember {
    DescribedGroupMember::default()
        .with_member_id(shared(&member.member_id))
        .with_group_instance_id(member.instance_id.as_ref().filter(|_| version >= INSTANCE_FROM).map(shared))
        .with_client_id(shared(&member.client_id))
        .with_client_host(shared(&member.client_host))
        .with_member_metadata(blob(&member.metadata))
        .with_member_assignment(blob(&member.assignment))
}

fn bytes(description: &Description) -> usize {
    let members = description.members.iter().map(|member| {
        let texts = member.member_id.len() + member.client_id.len() + member.client_host.len();
        let texts = texts + member.instance_id.as_ref().map_or(0, |instance| instance.len());
        FIXED_BYTES + texts + member.metadata.len() + member.assignment.len()
    });
    members.sum()
}
