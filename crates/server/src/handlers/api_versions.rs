//! ApiVersions (18), versions 0-4: which keys and versions this server answers.
//!
//! - v0: error code and keys. v1: throttle time. v3: flexible body, client software name and version. v4: as v3.
//! - A version above ours gets a v0 body with error 35 and the one entry of key 18; the connection stays open, and the
//!   client asks again with what it learned (KIP-511).
//! - The response header is always v0, also in flexible versions: the client does not know the version yet.
//! - No tagged fields at all: librdkafka before 2.2 misreads them. So no supported or finalized features.
//! - The client's software name and version are kept for logs and counted. Apache Kafka answers 42 when they have odd characters;
//!   here they are made printable instead, since nothing else depends on them.

use milena_wire::encode_response;
use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::api_versions_response::ApiVersion;
use milena_wire::kafka_protocol::messages::{ApiKey, ApiVersionsRequest, ApiVersionsResponse};

use crate::dispatch::{Api, Context, Outcome, answer, is_offered};

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::ApiVersions,
    name: "ApiVersions",
    advertised: (0, 4),
    served: (0, 4),
    handle: |request| Box::pin(answer(ApiKey::ApiVersions, request, api_versions)),
};

async fn api_versions(context: Context, request: ApiVersionsRequest) -> Option<ApiVersionsResponse> {
    context.connection.name_software(
        &context.broker.metrics.clients,
        &request.client_software_name,
        &request.client_software_version,
    );
    let offered = context.broker.apis.iter().filter(|api| is_offered(api, &context.broker, &context.connection));
    Some(ApiVersionsResponse::default().with_api_keys(offered.map(entry).collect()))
}

/// The answer to one that comes within an exchange of tokens.
pub(crate) fn illegal(version: i16, correlation_id: i32) -> Outcome {
    let response = ApiVersionsResponse::default().with_error_code(ResponseError::IllegalSaslState.code());
    match encode_response(ApiKey::ApiVersions, version, correlation_id, &response) {
        Ok(frame) => Outcome::Last(Some(frame)),
        Err(error) => Outcome::Close(error),
    }
}

/// The answer to a version that is not served.
pub(crate) fn unsupported(correlation_id: i32) -> Outcome {
    let response = ApiVersionsResponse::default()
        .with_error_code(ResponseError::UnsupportedVersion.code())
        .with_api_keys(vec![entry(&API)]);
    match encode_response(ApiKey::ApiVersions, 0, correlation_id, &response) {
        Ok(frame) => Outcome::Reply(frame),
        Err(error) => Outcome::Close(error),
    }
}

fn entry(api: &Api) -> ApiVersion {
    ApiVersion::default()
        .with_api_key(api.key as i16)
        .with_min_version(api.advertised.0)
        .with_max_version(api.advertised.1)
}
