//! DescribeAcls (29), versions 1-3: who may do what.
//!
//! - v1: base. v2: flexible. v3: user resources.
//! - There is no authorization: 54, with the words of Apache Kafka. Tools and mirrors take that as "no ACLs here".
//! - kafka-go's request carries one byte too many from v2 on, see `second_tags`.

use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::{ApiKey, DescribeAclsRequest, DescribeAclsResponse};
use milena_wire::kafka_protocol::protocol::StrBytes;

use super::second_tags;
use crate::dispatch::{Api, Context, answer};

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::DescribeAcls,
    name: "DescribeAcls",
    advertised: (1, 3),
    served: (1, 3),
    handle: |mut request| {
        request.body = second_tags::without::<DescribeAclsRequest>(request.body, request.version);
        Box::pin(answer(ApiKey::DescribeAcls, request, describe_acls))
    },
};

/// What Apache Kafka says here when it has no authorizer.
const NO_AUTHORIZER_ON_BROKER: &str = "No Authorizer is configured on the broker";

/// What it says to changes then.
pub(super) const NO_AUTHORIZER: &str = "No Authorizer is configured.";

async fn describe_acls(_context: Context, _request: DescribeAclsRequest) -> Option<DescribeAclsResponse> {
    let response = DescribeAclsResponse::default()
        .with_error_code(ResponseError::SecurityDisabled.code())
        .with_error_message(Some(StrBytes::from_static_str(NO_AUTHORIZER_ON_BROKER)));
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::testing::Bench;

    #[tokio::test]
    async fn every_version_says_that_security_is_disabled() {
        let bench = Bench::new().await;
        for version in 1..=3 {
            // Any resource, any principal, any operation: what tools ask for.
            let asked = DescribeAclsRequest::default()
                .with_resource_type_filter(1)
                .with_resource_name_filter(None)
                .with_pattern_type_filter(1)
                .with_principal_filter(None)
                .with_host_filter(None)
                .with_operation(1)
                .with_permission_type(1);
            let response = bench.ask(version, &asked).await;
            assert_eq!((response.error_code, response.resources.len()), (54, 0), "version {version}");
            assert_eq!(response.error_message.as_deref(), Some(NO_AUTHORIZER_ON_BROKER));
        }
    }
}
