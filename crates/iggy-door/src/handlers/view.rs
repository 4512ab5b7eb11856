//! Streams and topics as they are described to clients.

use iggy_binary_protocol::responses::streams::get_stream::TopicHeader;
use iggy_binary_protocol::responses::streams::{GetStreamResponse, StreamResponse};
use iggy_binary_protocol::responses::topics::get_topic::{GetTopicResponse, PartitionResponse};
use iggy_binary_protocol::{WireName, WireOptions};
use milena_store::{Bounds, Store, StoreError, TopicInfo};

use super::options;
use crate::codes::{Code, Refusal};
use crate::state::Stream;

/// `none`: messages are stored as they come.
const NO_COMPRESSION: u8 = 1;

/// A topic with its partitions.
pub(super) async fn topic(store: &dyn Store, info: &TopicInfo) -> Result<GetTopicResponse, Refusal> {
    let sizes = store.sizes(&info.topic).await?;
    let mut partitions = Vec::with_capacity(sizes.len());
    for size in sizes {
        let at = info.topic.partition(size.partition);
        let bounds = store.bounds(&at).await?;
        // An engine that does not tell has at least the one that is written to.
        let sealed = store.sealed_segments(&at, usize::MAX).await.map_or(0, |sealed| sealed.len());
        partitions.push(PartitionResponse {
            id: size.partition,
            created_at: info.topic.created_at_micros(),
            segments_count: u32::try_from(sealed + 1).unwrap_or(u32::MAX),
            current_offset: current(bounds),
            size_bytes: size.bytes,
            messages_count: bounds.end.saturating_sub(bounds.start),
        });
    }
    let settings = &info.settings;
    let topic = TopicHeader {
        id: info.topic.topic_id(),
        created_at: info.topic.created_at_micros(),
        partitions_count: u32::try_from(partitions.len()).unwrap_or(u32::MAX),
        message_expiry: options::expiry_of(settings),
        compression_algorithm: NO_COMPRESSION,
        max_topic_size: options::size_of(settings, info.partitions),
        size_bytes: partitions.iter().map(|partition| partition.size_bytes).sum(),
        messages_count: partitions.iter().map(|partition| partition.messages_count).sum(),
        name: name(info.topic.topic())?,
        options: options::explicit(settings, info.partitions),
        derived_options: WireOptions::empty(),
    };
    Ok(GetTopicResponse { topic, partitions })
}

/// Topics with their partitions. One that is deleted meanwhile is left out.
pub(super) async fn all(store: &dyn Store, infos: &[TopicInfo]) -> Result<Vec<GetTopicResponse>, Refusal> {
    let mut all = Vec::with_capacity(infos.len());
    for info in infos {
        match topic(store, info).await {
            Ok(described) => all.push(described),
            Err(Refusal::Rejected(Code::RESOURCE_NOT_FOUND)) => {}
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(all)
}

/// Topics without their partitions.
pub(super) async fn topics(store: &dyn Store, infos: &[TopicInfo]) -> Result<Vec<TopicHeader>, Refusal> {
    Ok(all(store, infos).await?.into_iter().map(|described| described.topic).collect())
}

/// A stream with its topics.
pub(super) async fn stream(
    store: &dyn Store,
    stream: &Stream,
    infos: &[TopicInfo],
) -> Result<GetStreamResponse, Refusal> {
    let topics = topics(store, infos).await?;
    let stream = StreamResponse {
        id: stream.id,
        created_at: stream.created_at_micros,
        topics_count: u32::try_from(topics.len()).unwrap_or(u32::MAX),
        size_bytes: topics.iter().map(|topic| topic.size_bytes).sum(),
        messages_count: topics.iter().map(|topic| topic.messages_count).sum(),
        name: name(&stream.name)?,
        options: WireOptions::empty(),
    };
    Ok(GetStreamResponse { stream, topics })
}

/// Offset of the last message; 0 when there never was one, as the server says it.
pub(super) fn current(bounds: Bounds) -> u64 {
    bounds.end.saturating_sub(1)
}

/// A name of the store's, which has at most 255 bytes there, too.
pub(super) fn name(name: &str) -> Result<WireName, Refusal> {
    WireName::new(name).map_err(|_| Refusal::Rejected(Code::INVALID_IDENTIFIER))
}

/// A partition that is not there is another code than a topic that is not there.
pub(super) fn missing_partition(error: StoreError) -> Refusal {
    match error {
        StoreError::NotFound { .. } => Code::PARTITION_NOT_FOUND.into(),
        other => other.into(),
    }
}
