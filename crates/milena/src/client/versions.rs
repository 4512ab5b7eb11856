//! Which version of a request both sides speak.

use std::collections::BTreeMap;

use milena_wire::kafka_protocol::messages::{ApiKey, ApiVersionsResponse};
use milena_wire::kafka_protocol::protocol::{Message, Request};

/// Highest version of the requests whose newest versions name topics by id, which this client does not.
fn highest_used(key: ApiKey, highest: i16) -> i16 {
    let by_name = match key {
        ApiKey::Produce => 11,
        ApiKey::Fetch => 12,
        ApiKey::OffsetCommit | ApiKey::OffsetFetch => 9,
        ApiKey::DeleteTopics => 5,
        _ => highest,
    };
    highest.min(by_name)
}

/// Lowest and highest version of each key that a server offers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Offer {
    ranges: BTreeMap<i16, (i16, i16)>,
}

impl Offer {
    pub(crate) fn new(response: &ApiVersionsResponse) -> Self {
        let ranges = response.api_keys.iter().map(|api| (api.api_key, (api.min_version, api.max_version)));
        Self { ranges: ranges.collect() }
    }

    /// The highest version of `Q` that both sides speak.
    pub(crate) fn version_of<Q: Request>(&self) -> Option<i16> {
        let key = ApiKey::try_from(Q::KEY).ok()?;
        let (min, max) = *self.ranges.get(&Q::KEY)?;
        let version = max.min(highest_used(key, Q::VERSIONS.max));
        (version >= min && version >= <Q as Message>::VERSIONS.min).then_some(version)
    }
}

/// Name of a request, as it is said in errors.
pub(crate) fn name_of<Q: Request>() -> &'static str {
    // The last part of `kafka_protocol::messages::metadata_request::MetadataRequest`.
    let path = std::any::type_name::<Q>();
    let name = path.rsplit("::").next().unwrap_or(path);
    name.strip_suffix("Request").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use milena_wire::kafka_protocol::messages::api_versions_response::ApiVersion;
    use milena_wire::kafka_protocol::messages::{FetchRequest, MetadataRequest, ProduceRequest};

    use super::*;

    fn offer(key: ApiKey, min: i16, max: i16) -> Offer {
        let api = ApiVersion::default().with_api_key(key as i16).with_min_version(min).with_max_version(max);
        Offer::new(&ApiVersionsResponse::default().with_api_keys(vec![api]))
    }

    #[test]
    fn the_highest_version_of_both_sides_is_taken() {
        assert_eq!(offer(ApiKey::Metadata, 0, 9).version_of::<MetadataRequest>(), Some(9));
        assert_eq!(offer(ApiKey::Metadata, 0, 99).version_of::<MetadataRequest>(), Some(13));
        assert_eq!(offer(ApiKey::Fetch, 4, 17).version_of::<FetchRequest>(), Some(12));
    }

    #[test]
    fn ranges_that_do_not_meet_have_no_version() {
        assert_eq!(offer(ApiKey::Produce, 0, 2).version_of::<ProduceRequest>(), None);
        assert_eq!(offer(ApiKey::Produce, 12, 13).version_of::<ProduceRequest>(), None);
        assert_eq!(offer(ApiKey::Fetch, 4, 17).version_of::<ProduceRequest>(), None);
    }

    #[test]
    fn a_request_is_named_as_kafka_names_it() {
        assert_eq!(name_of::<MetadataRequest>(), "Metadata");
    }
}
