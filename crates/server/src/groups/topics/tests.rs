use milena_groups::{CommitPartition, CommitRequest, CommitTopic, Committed, Generation, Sender};
use milena_store::TopicSettings;
use milena_store::testing::MemoryStore;

use super::*;
use crate::config::{MappedTopic, ServerConfig, TopicMapping};
use crate::groups::GroupService;

/// Groups on a store that has nobody to tell: what the offsets miss of it is what a crash makes them miss.
async fn open(store: &MemoryStore, topic_mapping: &TopicMapping) -> GroupService {
    let config = ServerConfig { topic_mapping: topic_mapping.clone(), ..ServerConfig::default() };
    let mapping = Mapping::new(topic_mapping).unwrap();
    GroupService::open(&config, Arc::new(store.clone()), mapping, Arc::default(), false).await.unwrap()
}

async fn topic(store: &MemoryStore, name: &str) -> (TopicRef, TopicId) {
    let topic = store.create_topic("kafka", name, 1, &TopicSettings::default()).await.unwrap().topic;
    let id = TopicId(ids::topic_id(&topic).as_u128());
    (topic, id)
}

async fn commit(groups: &GroupService, name: &str, id: TopicId, offset: i64) {
    let partition =
        CommitPartition { partition: 0, exists: true, offset, leader_epoch: -1, metadata: None, expected: None };
    let topic = CommitTopic { name: name.into(), id: Some(id), partitions: vec![partition] };
    let request = CommitRequest { group: "g".into(), retention_ms: None, topics: vec![topic] };
    let sender = Sender { group: "g", member_id: "", instance_id: None, generation: Generation::NONE };
    assert_eq!(groups.commit(&sender, request).await, Some(vec![Ok(())]));
}

fn committed(groups: &GroupService, name: &str, id: TopicId) -> Option<i64> {
    groups.offsets("g", |view| view.get(name, id, 0).map(Committed::offset)).unwrap()
}

fn with_override(name: &str, stream: &str, topic: &str) -> TopicMapping {
    let target = MappedTopic { stream: stream.to_owned(), topic: topic.to_owned() };
    TopicMapping { topics: [(name.to_owned(), target)].into(), ..TopicMapping::default() }
}

#[tokio::test]
async fn offsets_under_the_old_name_do_not_outlast_a_rename_that_the_offsets_missed() {
    let (store, mapping) = (MemoryStore::new(), TopicMapping::default());
    let (old, id) = topic(&store, "old").await;
    let (_, other) = topic(&store, "other").await;
    let groups = open(&store, &mapping).await;
    commit(&groups, "old", id, 5).await;
    commit(&groups, "other", other, 6).await;
    let new = store.rename_topic(&old, "new").await.unwrap().topic;

    let groups = open(&store, &mapping).await;
    assert_eq!((committed(&groups, "old", id), committed(&groups, "other", other)), (None, Some(6)));
    commit(&groups, "new", id, 7).await;
    let groups = open(&store, &mapping).await;
    assert_eq!(committed(&groups, "new", id), Some(7));

    store.rename_topic(&new, "old").await.unwrap();
    let groups = open(&store, &mapping).await;
    assert_eq!((committed(&groups, "old", id), committed(&groups, "new", id)), (None, None));
}

#[tokio::test]
async fn a_rename_that_the_offsets_missed_is_found_without_a_restart() {
    let (store, mapping) = (MemoryStore::new(), TopicMapping::default());
    let (old, id) = topic(&store, "old").await;
    let groups = open(&store, &mapping).await;
    commit(&groups, "old", id, 5).await;
    store.rename_topic(&old, "new").await.unwrap();
    let existing = Existing { store: Arc::new(store), mapping: Mapping::new(&mapping).unwrap() };
    forget_missing(&groups.shared, &existing).await;
    assert_eq!(committed(&groups, "old", id), None);
}

#[tokio::test]
async fn a_changed_topic_mapping_takes_no_offsets_away() {
    let elsewhere = TopicMapping { default_stream: "elsewhere".to_owned(), ..TopicMapping::default() };
    let changed = [
        // Out of sight, by the default stream and by an override.
        elsewhere.clone(),
        with_override("t", "elsewhere", "t"),
        // Seen under another name.
        with_override("alias", "kafka", "t"),
        TopicMapping { topics: with_override("alias", "kafka", "t").topics, ..elsewhere },
    ];
    for changed in changed {
        let (store, mapping) = (MemoryStore::new(), TopicMapping::default());
        let (_, id) = topic(&store, "t").await;
        commit(&open(&store, &mapping).await, "t", id, 5).await;
        drop(open(&store, &changed).await);
        let groups = open(&store, &mapping).await;
        assert_eq!(committed(&groups, "t", id), Some(5), "{changed:?}");
    }
}

#[tokio::test]
async fn offsets_of_a_topic_without_a_kafka_name_of_its_own_outlast_a_lost_override() {
    let (store, mapping) = (MemoryStore::new(), with_override("t", "kafka", "with space"));
    let (_, id) = topic(&store, "with space").await;
    commit(&open(&store, &mapping).await, "t", id, 5).await;
    drop(open(&store, &TopicMapping::default()).await);
    let groups = open(&store, &mapping).await;
    assert_eq!(committed(&groups, "t", id), Some(5));
}
