//! Versions, keys, malformed bodies.

use milena_server::dispatch::APIS;
use milena_wire::kafka_protocol::messages::{ApiKey, ApiVersionsRequest};

use super::words::text;
use crate::duo::{Duo, versions};

/// ApiVersions and what is refused without a look at its meaning.
pub async fn run(duo: &mut Duo) {
    for version in versions::<ApiVersionsRequest>() {
        duo.step("what is served");
        duo.ask(version, |_| software(version, "client", "1.0")).await;
        for (step, name, number) in [
            ("a name with a space", "a client", "1.0"),
            ("no name", "", "1.0"),
            ("no version", "client", ""),
            ("a name that ends in a dash", "client-", "1.0"),
        ] {
            duo.step(step);
            if version >= 3 {
                duo.ask(version, |_| software(version, name, number)).await;
            }
        }
    }
    duo.step("a version of the future");
    for version in [99, i16::MAX] {
        duo.raw(ApiKey::ApiVersions as i16, version, &[0, 2, b'c', 2, b'1', 0]).await;
    }
    duo.step("a negative version");
    duo.raw(ApiKey::ApiVersions as i16, -1, &[]).await;
    duo.step("a key that nobody knows");
    for key in [-1, 999, i16::MAX] {
        duo.raw(key, 0, &[0]).await;
    }
    for api in APIS.iter().filter(|api| api.key != ApiKey::ApiVersions) {
        duo.step("a version that nobody knows");
        duo.raw(api.key as i16, 99, &[0]).await;
        duo.raw(api.key as i16, -1, &[0]).await;
        if api.served.0 > 0 {
            duo.step("a version that is not served any more");
            duo.raw(api.key as i16, api.served.0 - 1, &[0; 64]).await;
        }
        // ListGroups was without a body once.
        if api.key != ApiKey::ListGroups {
            duo.step("a body that ends too early");
            duo.raw(api.key as i16, api.served.0, &[]).await;
        }
    }
    duo.step("bytes behind the body");
    duo.raw(ApiKey::Heartbeat as i16, 0, &[0, 1, b'g', 0, 0, 0, 1, 0, 1, b'm', 7]).await;
}

fn software(version: i16, name: &str, number: &str) -> ApiVersionsRequest {
    match version {
        0..=2 => ApiVersionsRequest::default(),
        _ => ApiVersionsRequest::default()
            .with_client_software_name(text(name))
            .with_client_software_version(text(number)),
    }
}
