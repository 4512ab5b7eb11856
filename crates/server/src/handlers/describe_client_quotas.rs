//! DescribeClientQuotas (48), versions 0-1: quotas of users, client ids and addresses. There are none.
//!
//! - v0: base. v1: flexible.
//! - A filter that Kafka refuses is refused here: an entity without a type, a type named twice or an unknown kind of match
//!   42, a type that does not exist 35.
//! - Left out: AlterClientQuotas (49). A quota that was taken and not enforced would be no quota.

use std::collections::HashSet;

use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::describe_client_quotas_request::ComponentData;
use milena_wire::kafka_protocol::messages::{ApiKey, DescribeClientQuotasRequest, DescribeClientQuotasResponse};
use milena_wire::kafka_protocol::protocol::StrBytes;

use crate::dispatch::{Api, Context, answer};

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::DescribeClientQuotas,
    name: "DescribeClientQuotas",
    advertised: (0, 1),
    served: (0, 1),
    handle: |request| Box::pin(answer(ApiKey::DescribeClientQuotas, request, describe_client_quotas)),
};

/// Entities that can have quotas.
const ENTITIES: [&str; 3] = ["user", "client-id", "ip"];

/// Matches: this name, the default, any.
const MATCHES: std::ops::RangeInclusive<i8> = 0..=2;

async fn describe_client_quotas(
    _context: Context,
    request: DescribeClientQuotasRequest,
) -> Option<DescribeClientQuotasResponse> {
    let response = DescribeClientQuotasResponse::default();
    Some(match check(&request.components) {
        // The empty text and not null, as Kafka has it.
        Ok(()) => response.with_error_message(Some(StrBytes::default())).with_entries(Some(Vec::new())),
        Err((error, text)) => response
            .with_error_code(error.code())
            .with_error_message(Some(StrBytes::from_static_str(text)))
            .with_entries(None),
    })
}

fn check(components: &[ComponentData]) -> Result<(), (ResponseError, &'static str)> {
    let mut seen = HashSet::new();
    for ComponentData { entity_type, match_type, .. } in components {
        if entity_type.is_empty() {
            return Err((ResponseError::InvalidRequest, "an entity without a type"));
        }
        if !seen.insert(entity_type) {
            return Err((ResponseError::InvalidRequest, "a type of entity is named more than once"));
        }
        if !ENTITIES.contains(&entity_type.as_str()) {
            return Err((ResponseError::UnsupportedVersion, "a type of entity that does not exist"));
        }
        if !MATCHES.contains(match_type) {
            return Err((ResponseError::InvalidRequest, "a kind of match that does not exist"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::testing::{Bench, text};

    fn request(components: &[(&str, i8)]) -> DescribeClientQuotasRequest {
        let components = components.iter().map(|(entity, match_type)| {
            ComponentData::default().with_entity_type(text(entity)).with_match_type(*match_type).with_match(None)
        });
        DescribeClientQuotasRequest::default().with_components(components.collect())
    }

    #[tokio::test]
    async fn every_version_knows_of_no_quotas() {
        let bench = Bench::new().await;
        for version in 0..=1 {
            for components in [&[][..], &[("user", 2)], &[("user", 1), ("client-id", 2)], &[("ip", 0)]] {
                let response = bench.ask(version, &request(components)).await;
                assert_eq!((response.error_code, response.entries), (0, Some(Vec::new())), "version {version}");
            }
        }
    }

    #[tokio::test]
    async fn filters_that_kafka_refuses_are_refused() {
        let bench = Bench::new().await;
        let bad =
            [(&[("", 2)][..], 42), (&[("user", 1), ("user", 2)], 42), (&[("user", 3)], 42), (&[("group", 2)], 35)];
        for (components, code) in bad {
            let response = bench.ask(1, &request(components)).await;
            assert_eq!((response.error_code, response.entries), (code, None), "{components:?}");
            assert!(response.error_message.is_some());
        }
    }
}
