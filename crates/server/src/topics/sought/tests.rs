//! Looks for topics that another gateway created, over a store that counts them.

use std::sync::atomic::AtomicUsize;

use milena_records::Codec;
use milena_records::client::{Record, build_batch};
use milena_store::testing::{Layer, Layered, MemoryStore, OffsetRules};
use milena_store::{Capabilities, Store, StoreFuture, TopicInfo, TopicSettings};
use milena_wire::kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use milena_wire::kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use milena_wire::kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use milena_wire::kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use milena_wire::kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use milena_wire::kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use milena_wire::kafka_protocol::messages::{
    GroupId, ListOffsetsRequest, OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest,
    OffsetForLeaderEpochRequest, ProduceRequest,
};
use milena_wire::kafka_protocol::protocol::StrBytes;

use super::*;
use crate::config::ServerConfig;
use crate::groups::OffsetStorage;
use crate::handlers::testing::{Bench, name};

/// A store that counts how often its topics are listed, and can take its time for it.
#[derive(Clone)]
struct Listed {
    memory: MemoryStore,
    foreign: bool,
    lists: Arc<AtomicUsize>,
    takes: Arc<parking_lot::Mutex<Duration>>,
}

impl Listed {
    fn new(foreign: bool) -> Self {
        Self { memory: MemoryStore::new(), foreign, lists: Arc::default(), takes: Arc::default() }
    }

    async fn open(&self) -> TopicDirectory {
        let directory = TopicDirectory::open(Arc::new(Layered(self.clone())), &ServerConfig::default()).await.unwrap();
        self.lists.store(0, Ordering::Relaxed);
        directory
    }

    async fn create(&self, topic: &str) {
        self.memory.create_topic("kafka", topic, 1, &TopicSettings::default()).await.unwrap();
    }

    fn lists(&self) -> usize {
        self.lists.load(Ordering::Relaxed)
    }
}

impl Layer for Listed {
    fn below(&self) -> &dyn Store {
        &self.memory
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { foreign_writers: self.foreign, ..self.memory.capabilities() }
    }

    fn topics(&self) -> StoreFuture<'_, Vec<TopicInfo>> {
        Box::pin(async {
            self.lists.fetch_add(1, Ordering::Relaxed);
            let takes = *self.takes.lock();
            tokio::time::sleep(takes).await;
            self.memory.topics().await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_others_just_created_is_found_by_the_question_for_it() {
    let store = Listed::new(true);
    let directory = store.open().await;
    for topic in ["a", "b", "c"] {
        store.create(topic).await;
        assert!(directory.by_name(topic).is_none());
        directory.seek_names([topic]).await;
        assert!(directory.by_name(topic).is_some(), "{topic} was created before the question");
    }
    let id = directory.by_name("a").unwrap().id;
    let again = store.open().await;
    store.create("d").await;
    again.seek([Sought::Id(Uuid::nil()), Sought::Id(id)]).await;
    assert!(again.by_name("d").is_none(), "all that was asked for is known");
}

#[tokio::test(start_paused = true)]
async fn a_topic_is_found_by_its_id() {
    let store = Listed::new(true);
    let (one, two) = (store.open().await, store.open().await);
    store.create("t").await;
    one.seek_names(["t"]).await;
    let id = one.by_name("t").unwrap().id;
    two.seek([Sought::Id(id)]).await;
    assert!(two.by_id(id).is_some());
}

#[tokio::test(start_paused = true)]
async fn names_of_nothing_cost_the_store_five_looks_in_a_second_whoever_asks() {
    let store = Listed::new(true);
    let directory = store.open().await;
    let begun = Instant::now();
    let clients = (0..20).map(|client| {
        let directory = directory.clone();
        tokio::spawn(async move {
            while begun.elapsed() < Duration::from_secs(1) {
                directory.seek_names([format!("nothing-{client}").as_str()]).await;
                assert!(begun.elapsed() < Duration::from_secs(2), "an answer waits for two looks at most");
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
    assert!((5..=8).contains(&store.lists()), "{} looks", store.lists());
}

#[tokio::test(start_paused = true)]
async fn known_topics_and_names_that_no_topic_can_have_are_not_looked_for() {
    let store = Listed::new(true);
    let directory = store.open().await;
    directory.create("known", 1, std::collections::BTreeMap::new()).await.unwrap();
    let before = store.lists();
    directory.seek_names(["known", "no name", "", "."]).await;
    assert_eq!(store.lists(), before);
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_alone_changes_its_store_never_looks() {
    let store = Listed::new(false);
    let directory = store.open().await;
    directory.seek_names(["nothing"]).await;
    directory.seek([Sought::Id(Uuid::from_u128(1)), Sought::Partitions("known", 9)]).await;
    directory.look_soon();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(store.lists(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_does_not_wait_longer_than_two_seconds_for_a_store_that_is_slow() {
    let store = Listed::new(true);
    let directory = store.open().await;
    *store.takes.lock() = Duration::from_secs(60);
    let begun = Instant::now();
    let (one, two) = (directory.clone(), directory.clone());
    tokio::join!(one.seek_names(["a"]), two.seek_names(["b"]));
    assert_eq!(begun.elapsed(), PATIENCE);
    assert_eq!(store.lists(), 1, "one look at a time");
}

#[tokio::test(start_paused = true)]
async fn a_name_and_an_id_that_are_not_known_are_one_look() {
    let store = Listed::new(true);
    let directory = store.open().await;
    let begun = Instant::now();
    directory.seek([Sought::Name("nothing"), Sought::Id(Uuid::from_u128(1)), Sought::Partitions("none", 0)]).await;
    assert_eq!((store.lists(), begun.elapsed()), (1, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_others_just_added_is_found_by_the_question_for_it() {
    let store = Listed::new(true);
    store.create("t").await;
    let directory = store.open().await;
    let topic = directory.by_name("t").unwrap().store.clone();
    store.memory.grow_topic(&topic, 4).await.unwrap();
    directory.seek([Sought::partitions("t", [0, -1]), Sought::partitions("t", [])]).await;
    assert_eq!((store.lists(), directory.by_name("t").unwrap().partitions), (0, 1), "all that was asked for is known");
    directory.seek([Sought::partitions("t", [3, 0])]).await;
    assert_eq!((store.lists(), directory.by_name("t").unwrap().partitions), (1, 4));
}

#[tokio::test(start_paused = true)]
async fn who_does_not_wait_finds_it_with_the_next_try_and_costs_the_store_no_more() {
    let store = Listed::new(true);
    let directory = store.open().await;
    store.create("t").await;
    directory.look_soon();
    assert!(directory.by_name("t").is_none(), "nobody has waited");
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(directory.by_name("t").is_some());
    store.lists.store(0, Ordering::Relaxed);
    for _ in 0..1_000 {
        directory.look_soon();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!((4..=6).contains(&store.lists()), "{} looks in a second", store.lists());
    store.create("u").await;
    directory.look_soon();
    tokio::time::sleep(APART).await;
    let before = store.lists();
    tokio::time::sleep(APART * 10).await;
    assert_eq!((store.lists(), directory.by_name("u").is_some()), (before, true), "and none is left over");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_gathers_no_looks() {
    let store = Listed::new(true);
    let directory = store.open().await;
    *store.takes.lock() = Duration::from_secs(60);
    for _ in 0..100 {
        directory.look_soon();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(store.lists(), 1, "one look at a time");
    *store.takes.lock() = Duration::ZERO;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(store.lists(), 2, "and one for all who asked meanwhile");
}

/// A gateway that knows topic `t` with one partition, where another one has grown it to four.
async fn behind() -> (Bench, Listed) {
    behind_with(Listed::new(true), OffsetStorage::default()).await
}

async fn behind_with(store: Listed, offset_storage: OffsetStorage) -> (Bench, Listed) {
    store.create("t").await;
    let config = ServerConfig { offset_storage, ..ServerConfig::default() };
    let bench = Bench::over(config, Arc::new(Layered(store.clone()))).await;
    let topic = bench.broker.topics.by_name("t").unwrap();
    store.memory.grow_topic(&topic.store, 4).await.unwrap();
    store.lists.store(0, Ordering::Relaxed);
    (bench, store)
}

#[tokio::test(start_paused = true)]
async fn who_commits_to_a_partition_that_others_added_is_not_told_that_it_is_unknown() {
    let (bench, store) = behind().await;
    let partitions = [0, 3, 4]
        .map(|index| OffsetCommitRequestPartition::default().with_partition_index(index).with_committed_offset(1));
    let topic = OffsetCommitRequestTopic::default().with_name(name("t")).with_partitions(partitions.to_vec());
    let request = OffsetCommitRequest::default()
        .with_group_id(group("g"))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic]);
    let response = bench.ask(7, &request).await;
    let codes: Vec<_> = response.topics[0].partitions.iter().map(|partition| partition.error_code).collect();
    assert_eq!((codes, store.lists()), (vec![0, 0, 3], 1));
}

#[tokio::test(start_paused = true)]
async fn who_asks_for_the_ends_of_a_partition_that_others_added_is_told_them() {
    let (bench, store) = behind().await;
    let asked = [3, 4].map(|index| ListOffsetsPartition::default().with_partition_index(index).with_timestamp(-1));
    let topic = ListOffsetsTopic::default().with_name(name("t")).with_partitions(asked.to_vec());
    let response = bench.ask(5, &ListOffsetsRequest::default().with_topics(vec![topic])).await;
    let codes: Vec<_> = response.topics[0].partitions.iter().map(|partition| partition.error_code).collect();
    assert_eq!((codes, store.lists()), (vec![0, 3], 1));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_asks_where_an_epoch_ends_is_told_at_once_and_its_next_try_is_answered() {
    let (bench, store) = behind().await;
    let asked =
        OffsetForLeaderPartition::default().with_partition(3).with_current_leader_epoch(-1).with_leader_epoch(0);
    let topic = OffsetForLeaderTopic::default().with_topic(name("t")).with_partitions(vec![asked]);
    let request = OffsetForLeaderEpochRequest::default().with_topics(vec![topic]);
    let code = async || bench.ask(4, &request).await.topics[0].partitions[0].error_code;
    assert_eq!(code().await, 3);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!((code().await, store.lists()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_producer_is_told_at_once_and_its_next_try_is_taken() {
    for by_partition in [true, false] {
        let (bench, store) = behind().await;
        store.create("u").await;
        let (topic, index) = if by_partition { ("t", 3) } else { ("u", 0) };
        let record = Record { timestamp_ms: 1, value: Some(b"v".to_vec()), ..Record::default() };
        let batch = build_batch(&[record], Codec::None, None);
        let data = PartitionProduceData::default().with_index(index).with_records(Some(batch.into()));
        let topic = TopicProduceData::default().with_name(name(topic)).with_partition_data(vec![data]);
        let request = ProduceRequest::default().with_acks(-1).with_timeout_ms(1_000).with_topic_data(vec![topic]);
        let begun = Instant::now();
        let code = async || bench.ask(9, &request).await.responses[0].partition_responses[0].error_code;
        assert_eq!((code().await, begun.elapsed()), (3, Duration::ZERO));
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!((code().await, store.lists()), (0, 1));
    }
}

fn group(id: &str) -> GroupId {
    GroupId(StrBytes::from_string(id.to_owned()))
}

/// As [`behind`], where the store keeps offsets and group `g` has committed 7 to partition 3 by the other gateway, the last one.
async fn behind_a_commit() -> (Bench, Listed, Bench) {
    let memory = MemoryStore::with_offsets(OffsetRules::Free);
    let store = Listed { memory, ..Listed::new(true) };
    let (bench, store) = behind_with(store, OffsetStorage::ConsumerOffsets).await;
    let config = ServerConfig { offset_storage: OffsetStorage::ConsumerOffsets, ..ServerConfig::default() };
    let other = Bench::over(config, Arc::new(Layered(store.clone()))).await;
    let partition = OffsetCommitRequestPartition::default().with_partition_index(3).with_committed_offset(7);
    let topic = OffsetCommitRequestTopic::default().with_name(name("t")).with_partitions(vec![partition]);
    let commit = OffsetCommitRequest::default()
        .with_group_id(group("g"))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic]);
    assert_eq!(other.ask(7, &commit).await.topics[0].partitions[0].error_code, 0);
    store.lists.store(0, Ordering::Relaxed);
    (bench, store, other)
}

/// What `g` has of these partitions.
async fn fetched(bench: &Bench, partitions: &[i32]) -> Vec<(i16, i64)> {
    let asked = OffsetFetchRequestTopic::default().with_name(name("t")).with_partition_indexes(partitions.to_vec());
    let request = OffsetFetchRequest::default().with_group_id(group("g")).with_topics(Some(vec![asked]));
    let response = bench.ask(5, &request).await;
    let found = response.topics[0].partitions.iter();
    found.map(|partition| (partition.error_code, partition.committed_offset)).collect()
}

#[tokio::test(start_paused = true)]
async fn an_offset_that_the_store_keeps_of_a_partition_that_others_added_is_not_said_to_be_missing() {
    let (bench, store, _) = behind_a_commit().await;
    assert_eq!(fetched(&bench, &[0, 3, 4]).await, [(0, -1), (0, 7), (0, -1)]);
    assert_eq!(store.lists(), 1);
}

#[tokio::test(start_paused = true)]
async fn however_many_groups_are_asked_for_there_is_one_look() {
    let (bench, store, _) = behind_a_commit().await;
    let asked = OffsetFetchRequestTopics::default().with_name(name("t")).with_partition_indexes(vec![3, 4]);
    let groups = ["a", "b", "c", "g"]
        .map(|id| OffsetFetchRequestGroup::default().with_group_id(group(id)).with_topics(Some(vec![asked.clone()])));
    let begun = Instant::now();
    let response = bench.ask(8, &OffsetFetchRequest::default().with_groups(groups.to_vec())).await;
    let found: Vec<_> = response.groups.iter().map(|group| group.topics[0].partitions[0].committed_offset).collect();
    assert_eq!((found, store.lists(), begun.elapsed()), (vec![-1, -1, -1, 7], 1, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn an_offset_that_the_store_keeps_of_a_partition_that_others_added_is_not_said_to_be_deleted_and_stays() {
    let (bench, store, other) = behind_a_commit().await;
    let partitions = [3, 4].map(|index| OffsetDeleteRequestPartition::default().with_partition_index(index));
    let topic = OffsetDeleteRequestTopic::default().with_name(name("t")).with_partitions(partitions.to_vec());
    let request = OffsetDeleteRequest::default().with_group_id(group("g")).with_topics(vec![topic]);
    let response = bench.ask(0, &request).await;
    let codes: Vec<_> = response.topics[0].partitions.iter().map(|partition| partition.error_code).collect();
    assert_eq!((response.error_code, codes, store.lists()), (0, vec![0, 0], 1));
    assert_eq!(fetched(&other, &[3]).await, [(0, -1)]);
}
