//! DeleteAcls (31), versions 1-3: takes grants and denies back.
//!
//! - v1: base. v2: flexible. v3: user resources.
//! - There is no authorization: 54 for each filter.

use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::delete_acls_response::DeleteAclsFilterResult;
use milena_wire::kafka_protocol::messages::{ApiKey, DeleteAclsRequest, DeleteAclsResponse};
use milena_wire::kafka_protocol::protocol::StrBytes;

use super::describe_acls::NO_AUTHORIZER;
use crate::dispatch::{Api, Context, answer};

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::DeleteAcls,
    name: "DeleteAcls",
    advertised: (1, 3),
    served: (1, 3),
    handle: |request| Box::pin(answer(ApiKey::DeleteAcls, request, delete_acls)),
};

async fn delete_acls(_context: Context, request: DeleteAclsRequest) -> Option<DeleteAclsResponse> {
    let results = request.filters.iter().map(|_| {
        DeleteAclsFilterResult::default()
            .with_error_code(ResponseError::SecurityDisabled.code())
            .with_error_message(Some(StrBytes::from_static_str(NO_AUTHORIZER)))
    });
    Some(DeleteAclsResponse::default().with_filter_results(results.collect()))
}

#[cfg(test)]
mod tests {
    use milena_wire::kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;

    use super::*;
    use crate::handlers::testing::Bench;

    #[tokio::test]
    async fn every_version_refuses_each_filter() {
        let bench = Bench::new().await;
        let filter = DeleteAclsFilter::default()
            .with_resource_type_filter(1)
            .with_resource_name_filter(None)
            .with_pattern_type_filter(1)
            .with_principal_filter(None)
            .with_host_filter(None)
            .with_operation(1)
            .with_permission_type(1);
        for version in 1..=3 {
            let asked = DeleteAclsRequest::default().with_filters(vec![filter.clone(), filter.clone()]);
            let response = bench.ask(version, &asked).await;
            let results = response.filter_results.iter();
            let shown: Vec<_> = results.map(|result| (result.error_code, result.matching_acls.len())).collect();
            assert_eq!(shown, [(54, 0), (54, 0)], "version {version}");
        }
    }
}
