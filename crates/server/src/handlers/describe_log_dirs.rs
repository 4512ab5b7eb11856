//! DescribeLogDirs (35), versions 1-4: bytes on disk of each partition.
//!
//! - v1: base. v2: flexible. v3: an error code of the whole answer. v4: size of the volume and what is free of it, where the
//!   engine knows them; -1 where it does not or they cannot be had.
//! - There is one folder, named after the engine: where it lies on the machine is nobody's business on this side.
//! - No list of topics is all of them; topics and partitions that do not exist are left out, as in Kafka.
//! - A store that does not tell sizes is an error of the folder, never an empty answer.
//! - With several gateways each answers for the partitions that it is named the leader of: tools add up what all of them say.
//! - Topics that are named more than once are one. What the store does not answer in time is 7.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use milena_store::{PartitionSize, StoreError};
use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;
use milena_wire::kafka_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use milena_wire::kafka_protocol::messages::{ApiKey, DescribeLogDirsRequest, DescribeLogDirsResponse, TopicName};
use milena_wire::kafka_protocol::protocol::StrBytes;

use super::admin::Deadline;
use super::brokers;
use super::leaders::Leaders;
use crate::broker::Broker;
use crate::codes;
use crate::dispatch::{Api, Context, answer};
use crate::topics::{Sought, Topic};

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::DescribeLogDirs,
    name: "DescribeLogDirs",
    advertised: (1, 4),
    served: (1, 4),
    handle: |request| Box::pin(answer(ApiKey::DescribeLogDirs, request, describe_log_dirs)),
};

/// First version with the size of the volume.
const VOLUME: i16 = 4;

/// A topic, and the partitions that are asked for; `None` is all.
type Wanted = (Arc<Topic>, Option<HashSet<i32>>);

async fn describe_log_dirs(context: Context, request: DescribeLogDirsRequest) -> Option<DescribeLogDirsResponse> {
    let broker = &context.broker;
    let wanted: Vec<Wanted> = match request.topics {
        None => broker.topics.list().into_iter().map(|topic| (topic, None)).collect(),
        Some(named) => {
            let sought = named.iter().map(|asked| Sought::partitions(&asked.topic, asked.partitions.iter().copied()));
            broker.topics.seek(sought).await;
            merged(broker, named)
        }
    };
    let leaders = Leaders::new(&brokers::known(&context));
    let engine = broker.store.metrics().map_or("store", |metrics| metrics.engine);
    let mut folder = DescribeLogDirsResult::default().with_log_dir(StrBytes::from_static_str(engine));
    // The request has no timeout of its own.
    let deadline = Deadline::new(i32::MAX, &broker.config.limits);
    match deadline.limit(sizes(broker, &leaders, wanted)).await {
        Some(Ok(topics)) => folder.topics = topics,
        Some(Err(error)) => folder.error_code = codes::of_store(&error).code(),
        None => folder.error_code = ResponseError::RequestTimedOut.code(),
    }
    // Nobody is refused the sizes of partitions because the volume does not tell its own.
    if context.version >= VOLUME
        && let Some(Ok(Some(volume))) = deadline.limit(broker.store.volume()).await
    {
        let shown = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX);
        folder.total_bytes = shown(volume.total_bytes);
        folder.usable_bytes = shown(volume.usable_bytes);
    }
    Some(DescribeLogDirsResponse::default().with_results(vec![folder]))
}

/// Each topic once, so that the store is asked once for it, in the order in which they were named first.
fn merged(broker: &Broker, named: Vec<DescribableLogDirTopic>) -> Vec<Wanted> {
    let mut wanted: Vec<(Arc<Topic>, HashSet<i32>)> = Vec::new();
    let mut places = HashMap::new();
    for asked in named {
        let Some(topic) = broker.topics.by_name(&asked.topic) else { continue };
        let place = *places.entry(topic.id).or_insert(wanted.len());
        match wanted.get_mut(place) {
            Some((_, partitions)) => partitions.extend(asked.partitions),
            None => wanted.push((topic, asked.partitions.into_iter().collect())),
        }
    }
    wanted.into_iter().map(|(topic, partitions)| (topic, Some(partitions))).collect()
}

async fn sizes(
    broker: &Broker,
    leaders: &Leaders,
    wanted: Vec<Wanted>,
) -> Result<Vec<DescribeLogDirsTopic>, StoreError> {
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
            let asked = partitions.as_ref().is_none_or(|partitions| partitions.contains(&index))
                && leaders.of(topic.id, partition) == broker.node_id();
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
    use milena_store::{Store, StoreFuture, TopicRef, Volume};
    use tokio::sync::watch;

    use super::*;
    use crate::config::ServerConfig;
    use crate::groups::{Coordinator, Coordinators, Endpoint, Node};
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

    /// One gateway beside another one of that number.
    #[derive(Debug)]
    struct Beside(i32);

    impl Coordinators for Beside {
        fn coordinator_of(&self, _group: &str) -> Coordinator {
            Coordinator::Here
        }

        fn mandate(&self) -> watch::Receiver<bool> {
            watch::channel(true).1
        }

        fn others(&self) -> Vec<Arc<Node>> {
            let endpoint = Endpoint { listener: "test".to_owned(), host: "kafka.example".to_owned(), port: 9_092 };
            vec![Arc::new(Node { id: self.0, endpoints: vec![endpoint] })]
        }
    }

    #[tokio::test]
    async fn of_several_gateways_each_shows_the_partitions_that_it_leads() {
        let store = MemoryStore::new();
        let beside = |instance_id, other| ServerConfig {
            instance_id,
            coordinators: Arc::new(Beside(other)),
            ..ServerConfig::default()
        };
        let one = Bench::over(beside(1, 2), Arc::new(store.clone())).await;
        one.topic("t", 20).await;
        let two = Bench::over(beside(2, 1), Arc::new(store)).await;
        let (mut all, theirs) = (shown(&one, 4, &all()).await, shown(&two, 4, &all()).await);
        assert!((1..20).contains(&all.len()));
        all.extend(theirs);
        all.sort_unstable();
        assert_eq!(all, (0..20).map(|index| ("t".to_owned(), index, false)).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_topic_that_is_named_twice_is_shown_once() {
        let bench = with_topics().await;
        let asked = only(&[("t", &[1]), ("u", &[0]), ("t", &[0, 1])]);
        let expected = [("t".to_owned(), 0, false), ("t".to_owned(), 1, true), ("u".to_owned(), 0, false)];
        assert_eq!(shown(&bench, 4, &asked).await, expected);
        assert_eq!(bench.ask(4, &asked).await.results[0].topics.len(), 2);
    }

    /// A store that tells of its volume what it is told to.
    struct OnVolume(MemoryStore, fn() -> Result<Option<Volume>, StoreError>);

    impl Layer for OnVolume {
        fn below(&self) -> &dyn Store {
            &self.0
        }

        fn volume(&self) -> StoreFuture<'_, Option<Volume>> {
            Box::pin(std::future::ready(self.1()))
        }
    }

    #[tokio::test]
    async fn version_4_shows_the_size_of_the_volume_where_it_is_known() {
        let known = || Ok(Some(Volume { total_bytes: 1 << 40, usable_bytes: u64::MAX }));
        let unknown = || Ok(None);
        let broken = || Err(StoreError::Broken { context: "planned".to_owned() });
        let cases: [(fn() -> _, _); 3] = [(known, (1 << 40, i64::MAX)), (unknown, (-1, -1)), (broken, (-1, -1))];
        for (told, expected) in cases {
            let store = Arc::new(Layered(OnVolume(MemoryStore::new(), told)));
            let bench = Bench::over(ServerConfig::default(), store).await;
            bench.topic("t", 1).await;
            for version in 1..=4 {
                let response = bench.ask(version, &all()).await;
                let folder = &response.results[0];
                assert_eq!((folder.error_code, folder.topics.len()), (0, 1));
                let shown = (folder.total_bytes, folder.usable_bytes);
                assert_eq!(shown, if version < 4 { (-1, -1) } else { expected }, "version {version}");
            }
        }
    }

    /// A store that never answers.
    struct Silent(MemoryStore);

    impl Layer for Silent {
        fn below(&self) -> &dyn Store {
            &self.0
        }

        fn sizes<'a>(&'a self, _topic: &'a TopicRef) -> StoreFuture<'a, Vec<PartitionSize>> {
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_never_answers_is_an_error_of_the_folder() {
        let bench = Bench::over(ServerConfig::default(), Arc::new(Layered(Silent(MemoryStore::new())))).await;
        bench.topic("t", 1).await;
        let response = bench.ask(4, &all()).await;
        assert_eq!((response.results[0].error_code, response.results[0].topics.len()), (7, 0));
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
