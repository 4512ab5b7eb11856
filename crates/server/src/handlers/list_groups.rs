//! ListGroups (16), versions 0-5: the groups that this server coordinates.
//!
//! - v1: throttle time. v3: flexible. v4: only groups in the states named, and their states (KIP-518). v5: the same with
//!   types (KIP-848); all are of type `classic`. Names are compared without regard to case; an unknown one selects nothing.
//! - While offsets are loaded the answer is 14 and no group: a part of them would be taken for all.
//! - A group of which only offsets are left is listed as `Empty`, without a protocol type.

use milena_groups::{GROUP_TYPE, ListFilter};
use milena_wire::kafka_protocol::messages::list_groups_response::ListedGroup;
use milena_wire::kafka_protocol::messages::{ApiKey, GroupId, ListGroupsRequest, ListGroupsResponse};
use milena_wire::kafka_protocol::protocol::StrBytes;

use super::groups::shared;
use crate::codes;
use crate::dispatch::{Api, Context, answer};

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::ListGroups,
    name: "ListGroups",
    advertised: (0, 5),
    served: (0, 5),
    handle: |request| Box::pin(answer(ApiKey::ListGroups, request, list_groups)),
};

/// First version with states.
const STATES_FROM: i16 = 4;

/// First version with types.
const TYPES_FROM: i16 = 5;

async fn list_groups(context: Context, request: ListGroupsRequest) -> Option<ListGroupsResponse> {
    let states: Vec<&str> = request.states_filter.iter().map(StrBytes::as_str).collect();
    let types: Vec<&str> = request.types_filter.iter().map(StrBytes::as_str).collect();
    let listed = match context.broker.groups.list(&ListFilter::named(&states, &types)).await {
        Ok(listed) => listed,
        Err(error) => return Some(ListGroupsResponse::default().with_error_code(codes::of_group(&error).code())),
    };
    let groups = listed.iter().map(|group| {
        let mut entry = ListedGroup::default()
            .with_group_id(GroupId(shared(&group.group)))
            .with_protocol_type(shared(&group.protocol_type));
        if context.version >= STATES_FROM {
            entry.group_state = StrBytes::from_static_str(group.state.name());
        }
        if context.version >= TYPES_FROM {
            entry.group_type = StrBytes::from_static_str(GROUP_TYPE);
        }
        entry
    });
    Some(ListGroupsResponse::default().with_groups(groups.collect()))
}
