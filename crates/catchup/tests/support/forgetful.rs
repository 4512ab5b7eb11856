//! A broker which does not give the metadata of committed offsets back.

use std::sync::Arc;

use milena_testkit::TestServer;
use milena_wire::RequestFrame;
use milena_wire::kafka_protocol::messages::{ApiKey, OffsetFetchRequest};
use milena_wire::kafka_protocol::protocol::StrBytes;

use super::rewriting::{self, changed};

/// A server that clients reach through the proxy only.
pub(crate) async fn server() -> (TestServer, String) {
    rewriting::server(Arc::new(without_metadata)).await
}

fn without_metadata(request: &RequestFrame, frame: &[u8]) -> Option<Vec<u8>> {
    if request.api_key != ApiKey::OffsetFetch as i16 {
        return None;
    }
    let nothing = Some(StrBytes::from_static_str(""));
    let without = changed::<OffsetFetchRequest>(request, frame, |answer| {
        for topic in &mut answer.topics {
            for partition in &mut topic.partitions {
                partition.metadata = nothing.clone();
            }
        }
        for topic in answer.groups.iter_mut().flat_map(|group| &mut group.topics) {
            for partition in &mut topic.partitions {
                partition.metadata = nothing.clone();
            }
        }
    });
    Some(without)
}
