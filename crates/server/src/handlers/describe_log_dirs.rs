//! DescribeLogDirs (35), versions 1-4: bytes on disk of each partition.
//!
//! - v1: base. v2: flexible. v3: an error code of the whole answer. v4: size of the volume, which is not told: -1.
//! - There is one folder, named after the engine: where it lies on the machine is nobody's business on this side.
//! - No list of topics is all of them; topics and partitions that do not exist are left out, as in Kafka.
//! - A store that does not tell sizes is an error of the folder, never an empty answer.
//! - With several gateways each answers for all partitions, as each leads them all.

use std::collections::HashSet;
use std::sync::Arc;

use milena_store::{PartitionSize, StoreError};
use milena_wire::kafka_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use milena_wire::kafka_protocol::messages::{ApiKey, DescribeLogDirsRequest, DescribeLogDirsResponse, TopicName};
use milena_wire::kafka_protocol::protocol::StrBytes;

use crate::broker::Broker;
use crate::codes;
use crate::dispatch::{Api, Context, answer};
use crate::topics::Topic;

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::DescribeLogDirs,
    name: "DescribeLogDirs",
    advertised: (1, 4),
    served: (1, 4),
    handle: |request| Box::pin(answer(ApiKey::DescribeLogDirs, request, describe_log_dirs)),
};

/// A topic, and the partitions that are asked for; `None` is all.
type Wanted = (Arc<Topic>, Option<HashSet<i32>>);

async fn describe_log_dirs(context: Context, request: DescribeLogDirsRequest) -> Option<DescribeLogDirsResponse> {
    let broker = &context.broker;
    let wanted: Vec<Wanted> = match request.topics {
        None => broker.topics.list().into_iter().map(|topic| (topic, None)).collect(),
        Some(named) => {
            let known = named.into_iter().filter_map(|asked| {
                let topic = broker.topics.by_name(&asked.topic)?;
                Some((topic, Some(asked.partitions.into_iter().collect())))
            });
            known.collect()
        }
    };
    let engine = broker.store.metrics().map_or("store", |metrics| metrics.engine);
    let mut folder = DescribeLogDirsResult::default().with_log_dir(StrBytes::from_static_str(engine));
    match sizes(broker, wanted).await {
        Ok(topics) => folder.topics = topics,
        Err(error) => folder.error_code = codes::of_store(&error).code(),
    }
    Some(DescribeLogDirsResponse::default().with_results(vec![folder]))
}

async fn sizes(broker: &Broker, wanted: Vec<Wanted>) -> Result<Vec<DescribeLogDirsTopic>, StoreError> {
    let mut topics = Vec::with_capacity(wanted.len());
    for (topic, partitions) in wanted {
        let sizes = match broker.store.sizes(&topic.store).await {
            Ok(sizes) => sizes,
            // It was deleted meanwhile.
            Err(StoreError::NotFound { .. }) => continue,
            Err(error) => return Err(error),
        };
        let shown = sizes.into_iter().filter_map(|PartitionSize { partition, bytes }| {
            let index = i32::try_from(partition).ok()?;
            let asked = partitions.as_ref().is_none_or(|partitions| partitions.contains(&index));
            let size = i64::try_from(bytes).unwrap_or(i64::MAX);
            asked.then(|| DescribeLogDirsPartition::default().with_partition_index(index).with_partition_size(size))
        });
        let name = TopicName(StrBytes::from_string(topic.name.to_string()));
        topics.push(DescribeLogDirsTopic::default().with_name(name).with_partitions(shown.collect()));
    }
    Ok(topics)
}

#[cfg(test)]
mod tests {
    use milena_store::testing::{Layer, Layered, MemoryStore, TestMessage, batch_of};
    use milena_store::{Store, StoreFuture, TopicRef};
    use milena_wire::kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;

    use super::*;
    use crate::config::ServerConfig;
    use crate::handlers::testing::{Bench, name};

    fn all() -> DescribeLogDirsRequest {
        DescribeLogDirsRequest::default().with_topics(None)
    }

    fn only(topics: &[(&str, &[i32])]) -> DescribeLogDirsRequest {
        let topics = topics.iter().map(|(topic, partitions)| {
            DescribableLogDirTopic::default().with_topic(name(topic)).with_partitions(partitions.to_vec())
        });
        DescribeLogDirsRequest::default().with_topics(Some(topics.collect()))
    }

    async fn with_topics() -> Bench {
        let bench = Bench::new().await;
        let topic = bench.topic("t", 2).await;
        bench.topic("u", 1).await;
        let message = TestMessage::new(1, &[7; 1_000]);
        bench.broker.store.append(&topic.store.partition(1), batch_of(&[message])).await.unwrap();
        bench
    }

    /// Topic, partition and whether it has bytes.
    async fn shown(bench: &Bench, version: i16, request: &DescribeLogDirsRequest) -> Vec<(String, i32, bool)> {
        let response = bench.ask(version, request).await;
        assert_eq!((response.error_code, response.results.len(), response.results[0].error_code), (0, 1, 0));
        assert!(!response.results[0].log_dir.is_empty());
        let partitions = |topic: &DescribeLogDirsTopic| {
            let name = topic.name.to_string();
            let sizes = topic.partitions.iter().map(|partition| {
                assert!(!partition.is_future_key && partition.offset_lag == 0);
                (name.clone(), partition.partition_index, partition.partition_size >= 1_000)
            });
            sizes.collect::<Vec<_>>()
        };
        response.results[0].topics.iter().flat_map(partitions).collect()
    }

    #[tokio::test]
    async fn every_version_shows_the_bytes_of_every_partition() {
        let bench = with_topics().await;
        let expected = [("t".to_owned(), 0, false), ("t".to_owned(), 1, true), ("u".to_owned(), 0, false)];
        for version in 1..=4 {
            assert_eq!(shown(&bench, version, &all()).await, expected, "version {version}");
        }
    }

    #[tokio::test]
    async fn topics_and_partitions_that_were_not_asked_for_or_do_not_exist_are_left_out() {
        let bench = with_topics().await;
        let asked = only(&[("t", &[1, 7, -1]), ("nowhere", &[0])]);
        assert_eq!(shown(&bench, 4, &asked).await, [("t".to_owned(), 1, true)]);
        assert_eq!(shown(&bench, 4, &only(&[])).await, []);
    }

    /// A store that does not tell sizes.
    struct Mute(MemoryStore);

    impl Layer for Mute {
        fn below(&self) -> &dyn Store {
            &self.0
        }

        fn sizes<'a>(&'a self, _topic: &'a TopicRef) -> StoreFuture<'a, Vec<PartitionSize>> {
            Box::pin(async { Err(StoreError::Broken { context: "planned".to_owned() }) })
        }
    }

    #[tokio::test]
    async fn sizes_that_are_not_known_are_an_error_of_the_folder() {
        let bench = Bench::over(ServerConfig::default(), Arc::new(Layered(Mute(MemoryStore::new())))).await;
        bench.topic("t", 1).await;
        let response = bench.ask(4, &all()).await;
        assert_eq!((response.results[0].error_code, response.results[0].topics.len()), (56, 0));
    }
}
