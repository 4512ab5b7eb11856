//! DeleteGroups (42), versions 0-2: groups without members go, with all their offsets.
//!
//! - v1: same form. v2: flexible.
//! - Each group succeeds or fails by itself: 24 group id, 68 has members, 69 no such group, 16 coordinated
//!   elsewhere, 14 the store was too slow or offsets are loaded.

use milena_wire::kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use milena_wire::kafka_protocol::messages::{ApiKey, DeleteGroupsRequest, DeleteGroupsResponse};

use crate::codes;
use crate::dispatch::{Api, Context, answer};

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::DeleteGroups,
    name: "DeleteGroups",
    advertised: (0, 2),
    served: (0, 2),
    handle: |request| Box::pin(answer(ApiKey::DeleteGroups, request, delete_groups)),
};

async fn delete_groups(context: Context, request: DeleteGroupsRequest) -> Option<DeleteGroupsResponse> {
    let groups: Vec<&str> = request.groups_names.iter().map(|group| group.as_str()).collect();
    let results = context.broker.groups.delete_groups(&groups).await;
    let results = request.groups_names.iter().zip(results).map(|(group, result)| {
        DeletableGroupResult::default().with_group_id(group.clone()).with_error_code(codes::of_group_result(&result))
    });
    Some(DeleteGroupsResponse::default().with_results(results.collect()))
}
