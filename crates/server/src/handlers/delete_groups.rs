//! DeleteGroups (42), versions 0-2: groups without members go, with all their offsets.
//!
//! - v1: same form. v2: flexible.
//! - Each group succeeds or fails by itself: 24 group id, 68 has members, 69 no such group, 16 coordinated
//!   elsewhere, 14 the store was too slow or offsets are loaded.

use milena_groups::{Answer, GroupError};
use milena_wire::kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use milena_wire::kafka_protocol::messages::{ApiKey, DeleteGroupsRequest, DeleteGroupsResponse};
use tokio::time::Instant;

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
    let groups = &context.broker.groups;
    let deadline = Instant::now() + groups.offset_wait();
    // All under way first, so that they share the waits for the store.
    let pending: Vec<_> = request.groups_names.iter().map(|group| groups.delete_group(group)).collect();
    let mut results = Vec::with_capacity(pending.len());
    for (group, pending) in request.groups_names.into_iter().zip(pending) {
        let left = deadline.saturating_duration_since(Instant::now());
        let result = match pending.within(left).await {
            Some(Answer::DeleteGroup(result)) => result,
            _ => Err(GroupError::StoreFailed),
        };
        let result = DeletableGroupResult::default().with_error_code(codes::of_group_result(&result));
        results.push(result.with_group_id(group));
    }
    Some(DeleteGroupsResponse::default().with_results(results))
}
