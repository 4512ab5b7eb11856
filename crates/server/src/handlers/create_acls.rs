//! CreateAcls (30), versions 1-3: grants and denies.
//!
//! - v1: base. v2: flexible. v3: user resources.
//! - There is no authorization: 54 for each. An ACL that was taken and not enforced would be a lie about safety.

use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::create_acls_response::AclCreationResult;
use milena_wire::kafka_protocol::messages::{ApiKey, CreateAclsRequest, CreateAclsResponse};
use milena_wire::kafka_protocol::protocol::StrBytes;

use super::describe_acls::NO_AUTHORIZER;
use crate::dispatch::{Api, Context, answer};

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::CreateAcls,
    name: "CreateAcls",
    advertised: (1, 3),
    served: (1, 3),
    handle: |request| Box::pin(answer(ApiKey::CreateAcls, request, create_acls)),
};

async fn create_acls(_context: Context, request: CreateAclsRequest) -> Option<CreateAclsResponse> {
    let results = request.creations.iter().map(|_| {
        AclCreationResult::default()
            .with_error_code(ResponseError::SecurityDisabled.code())
            .with_error_message(Some(StrBytes::from_static_str(NO_AUTHORIZER)))
    });
    Some(CreateAclsResponse::default().with_results(results.collect()))
}

#[cfg(test)]
mod tests {
    use milena_wire::kafka_protocol::messages::create_acls_request::AclCreation;

    use super::*;
    use crate::handlers::testing::{Bench, text};

    #[tokio::test]
    async fn every_version_refuses_each_creation() {
        let bench = Bench::new().await;
        let creation = AclCreation::default()
            .with_resource_type(2)
            .with_resource_name(text("t"))
            .with_resource_pattern_type(3)
            .with_principal(text("User:alice"))
            .with_host(text("*"))
            .with_operation(3)
            .with_permission_type(3);
        for version in 1..=3 {
            let asked = CreateAclsRequest::default().with_creations(vec![creation.clone(), creation.clone()]);
            let response = bench.ask(version, &asked).await;
            let codes: Vec<_> = response.results.iter().map(|result| result.error_code).collect();
            assert_eq!(codes, [54, 54], "version {version}");
        }
    }
}
