use std::collections::BTreeMap;

use milena_groups::{CommitPartition, CommitRequest, CommitTopic, Committed, Generation, GroupError, Sender, TopicId};
use milena_store::testing::{Fault, MemoryStore, TestMessage, batch_of};
use milena_store::{INTERNAL_STREAM, TopicRef, TopicSettings};

use super::*;
use crate::config::ServerConfig;
use crate::groups::{Coordinator, Coordinators, ForeignOffsets, GroupService};
use crate::topics::mapping::Mapping;

/// A mandate that the test gives and takes.
#[derive(Debug)]
struct Mandate(watch::Sender<bool>);

impl Coordinators for Mandate {
    fn coordinator_of(&self, _group: &str) -> Coordinator {
        Coordinator::Here
    }

    fn mandate(&self) -> watch::Receiver<bool> {
        self.0.subscribe()
    }
}

/// One gateway of several over a store.
struct Gateway {
    groups: GroupService,
    mandate: Arc<Mandate>,
}

impl Gateway {
    async fn open(store: &MemoryStore, instance_id: u16, mandated: bool) -> Result<Self, StoreError> {
        let mandate = Arc::new(Mandate(watch::Sender::new(mandated)));
        let mut config =
            ServerConfig { instance_id, coordinators: Arc::clone(&mandate) as _, ..ServerConfig::default() };
        config.groups.foreign_offsets = ForeignOffsets::Allow;
        let mapping = Mapping::new(&config.topic_mapping).expect("it is the default");
        let groups = GroupService::open(&config, Arc::new(store.clone()), mapping, Arc::default(), false).await?;
        Ok(Self { groups, mandate })
    }

    async fn commit(&self, partition: i32, offset: i64) -> Result<(), GroupError> {
        self.commit_of(None, partition, offset).await
    }

    async fn commit_of(&self, id: Option<TopicId>, partition: i32, offset: i64) -> Result<(), GroupError> {
        let (leader_epoch, metadata, expected) = (-1, None, None);
        let partition = CommitPartition { partition, exists: id.is_some(), offset, leader_epoch, metadata, expected };
        let topic = CommitTopic { name: "t".into(), id, partitions: vec![partition] };
        let request = CommitRequest { group: "g".into(), retention_ms: None, topics: vec![topic] };
        let sender = Sender { group: "g", member_id: "", instance_id: None, generation: Generation::NONE };
        self.groups.commit(&sender, request).await.expect("the store is quick").remove(0)
    }

    /// As a client does it: again, until it is acknowledged. Answers how often it was not.
    async fn commit_in_the_end(&self, partition: i32, offset: i64) -> u32 {
        for tries in 0..1_000 {
            match self.commit(partition, offset).await {
                Ok(()) => return tries,
                Err(GroupError::StoreFailed | GroupError::Loading | GroupError::NotCoordinator) => {}
                Err(other) => panic!("{other}"),
            }
            sleep(Duration::from_millis(100)).await;
        }
        panic!("never acknowledged");
    }

    fn get(&self, partition: i32) -> Result<Option<i64>, GroupError> {
        self.groups.offsets("g", |view| view.get("t", TopicId::FOREIGN, partition).map(Committed::offset))
    }

    /// Waits until the answer is another one than that.
    async fn no_longer(&self, error: GroupError) {
        while self.get(0) == Err(error) {
            sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_gateways_that_write_one_log_each_notices_and_no_acknowledged_commit_is_lost() {
    let store = MemoryStore::new();
    let one = Gateway::open(&store, 1, true).await.unwrap();
    assert_eq!(one.commit(0, 1).await, Ok(()));
    let two = Gateway::open(&store, 2, true).await.unwrap();
    assert_eq!(two.commit(1, 2).await, Ok(()));
    assert_eq!((two.get(0), one.get(1)), (Ok(Some(1)), Ok(None)), "one does not know yet");

    assert_eq!(one.commit(2, 3).await, Err(GroupError::StoreFailed));
    assert_eq!(one.commit_in_the_end(2, 3).await, 0, "the first time it is loaded again at once");
    assert_eq!((one.get(0), one.get(1), one.get(2)), (Ok(Some(1)), Ok(Some(2)), Ok(Some(3))));

    let mut acknowledged = BTreeMap::new();
    let mut refused = 0;
    for round in 0..12 {
        let (gateway, partition, offset) = (if round % 2 == 0 { &two } else { &one }, round % 5, i64::from(round));
        refused += gateway.commit_in_the_end(partition, offset).await;
        acknowledged.insert(partition, offset);
        for (partition, offset) in &acknowledged {
            assert_eq!(gateway.get(*partition), Ok(Some(*offset)), "round {round}");
        }
    }
    assert!(refused > 12, "who fights for the log waits longer each time, {refused}");
}

#[tokio::test(start_paused = true)]
async fn a_commit_of_the_coordinator_before_that_lands_late_does_not_count_however_often_it_is_read() {
    let store = MemoryStore::new();
    let before = Gateway::open(&store, 1, true).await.unwrap();
    assert_eq!(before.commit(0, 1).await, Ok(()));
    // It is on its way while its sender loses the mandate, and lands when the next one has loaded and written.
    store.plan(Fault::InDoubtLate { appends: 99 });
    assert_eq!(before.commit(0, 2).await, Err(GroupError::StoreFailed));
    before.mandate.0.send_replace(false);
    let after = Gateway::open(&store, 2, true).await.unwrap();
    assert_eq!((after.get(0), after.commit(0, 3).await), (Ok(Some(1)), Ok(())));
    store.land_late();
    assert_eq!((after.commit(1, 4).await, after.get(0), after.get(1)), (Ok(()), Ok(Some(3)), Ok(Some(4))));
    let later = Gateway::open(&store, 3, true).await.unwrap();
    assert_eq!((later.get(0), later.get(1)), (Ok(Some(3)), Ok(Some(4))));
}

#[tokio::test(start_paused = true)]
async fn what_waits_when_the_mandate_ends_is_refused_and_loaded_again_with_the_next_one() {
    let store = MemoryStore::new();
    let gateway = Gateway::open(&store, 1, true).await.unwrap();
    assert_eq!(gateway.commit(0, 1).await, Ok(()));
    store.plan(Fault::Hangs { applied: true });
    let behind = async {
        sleep(Duration::from_millis(5)).await;
        gateway.commit(1, 2).await
    };
    let (first, second, ()) = tokio::join!(gateway.commit(0, 2), behind, async {
        sleep(Duration::from_millis(10)).await;
        gateway.mandate.0.send_replace(false);
    });
    assert_eq!((first, second), (Err(GroupError::NotCoordinator), Err(GroupError::NotCoordinator)));
    assert_eq!(gateway.get(0), Err(GroupError::NotCoordinator));
    assert_eq!(gateway.commit(0, 3).await, Err(GroupError::NotCoordinator));

    gateway.mandate.0.send_replace(true);
    gateway.no_longer(GroupError::NotCoordinator).await;
    gateway.no_longer(GroupError::Loading).await;
    // The store had taken the first one although it never said so; the second one never left.
    assert_eq!((gateway.get(0), gateway.get(1)), (Ok(Some(2)), Ok(None)));
    assert_eq!(gateway.commit(1, 3).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_mandate_that_was_lost_in_between_is_a_new_one() {
    let store = MemoryStore::new();
    let one = Gateway::open(&store, 1, true).await.unwrap();
    assert_eq!(one.commit(0, 1).await, Ok(()));
    let two = Gateway::open(&store, 2, true).await.unwrap();
    assert_eq!(two.commit(0, 2).await, Ok(()));
    one.mandate.0.send_replace(true);
    while one.get(0) != Ok(Some(2)) {
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(one.commit(0, 3).await, Ok(()));
}

async fn damaged_log(store: &MemoryStore) -> TopicRef {
    let log = store.create_topic(INTERNAL_STREAM, OFFSETS_TOPIC, 1, &TopicSettings::default()).await.unwrap().topic;
    store.append(&log.partition(0), batch_of(&[TestMessage::new(1, b"no record of ours")])).await.unwrap();
    log
}

#[tokio::test(start_paused = true)]
async fn while_offsets_cannot_be_loaded_nothing_is_said_to_be_missing_and_it_is_tried_again() {
    let store = MemoryStore::new();
    let log = damaged_log(&store).await;
    let gateway = Gateway::open(&store, 1, false).await.unwrap();
    assert_eq!(gateway.get(0), Err(GroupError::NotCoordinator));
    gateway.mandate.0.send_replace(true);
    gateway.no_longer(GroupError::NotCoordinator).await;
    sleep(RETRY_MAX * 3).await;
    assert_eq!(gateway.get(0), Err(GroupError::Loading));
    store.delete_topic(&log).await.unwrap();
    gateway.no_longer(GroupError::Loading).await;
    assert_eq!(gateway.get(0), Ok(None));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_while_offsets_are_loaded_ends_the_start_and_is_asked_again_later() {
    let store = MemoryStore::new();
    store.plan(Fault::Hangs { applied: false });
    let opened = Gateway::open(&store, 1, true).await;
    assert!(matches!(opened.err(), Some(StoreError::Busy { .. })));

    let gateway = Gateway::open(&store, 1, false).await.unwrap();
    store.plan(Fault::Hangs { applied: true });
    gateway.mandate.0.send_replace(true);
    gateway.no_longer(GroupError::NotCoordinator).await;
    gateway.no_longer(GroupError::Loading).await;
    assert_eq!(gateway.commit(0, 1).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn offsets_that_cannot_be_loaded_at_the_start_are_an_error() {
    let store = MemoryStore::new();
    damaged_log(&store).await;
    let opened = Gateway::open(&store, 1, true).await;
    assert!(matches!(opened.err(), Some(StoreError::Broken { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_service_that_does_not_coordinate_or_cannot_load_ends_at_once() {
    let store = MemoryStore::new();
    let idle = Gateway::open(&store, 1, false).await.unwrap();
    idle.groups.close(Duration::from_secs(5)).await;
    let loading = Gateway::open(&store, 2, false).await.unwrap();
    store.plan(Fault::Hangs { applied: false });
    loading.mandate.0.send_replace(true);
    loading.no_longer(GroupError::NotCoordinator).await;
    let before = Instant::now();
    loading.groups.close(Duration::from_secs(5)).await;
    assert!(before.elapsed() < Duration::from_secs(5));
}

#[test]
fn waits_between_attempts_begin_with_none_and_stop_growing() {
    let mut retry = Retry::default();
    assert!(retry.is_first());
    let waits: Vec<_> = (0..12).map(|_| retry.next_wait().as_millis()).collect();
    assert_eq!(waits, [0, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000]);
    assert!(!retry.is_first());
}

#[tokio::test(start_paused = true)]
async fn topics_that_go_while_offsets_are_loaded_take_their_offsets_with_them() {
    // Back under its old name, or out of sight with the whole stream: nothing in the list of topics tells of it later.
    for back in [true, false] {
        let store = MemoryStore::new();
        let topic = store.create_topic("kafka", "t", 1, &TopicSettings::default()).await.unwrap().topic;
        let id = TopicId(crate::topics::ids::topic_id(&topic).as_u128());
        let before = Gateway::open(&store, 1, true).await.unwrap();
        before.commit_of(Some(id), 0, 5).await.unwrap();
        drop(before);

        let gateway = Gateway::open(&store, 2, false).await.unwrap();
        let mapping = Mapping::new(&ServerConfig::default().topic_mapping).unwrap();
        store.watch(gateway.groups.watcher(mapping).unwrap());
        store.plan(Fault::Hangs { applied: false });
        gateway.mandate.0.send_replace(true);
        gateway.no_longer(GroupError::NotCoordinator).await;
        sleep(Duration::from_millis(10)).await;
        assert_eq!(gateway.get(0), Err(GroupError::Loading));
        store.rename_stream("kafka", "elsewhere").await.unwrap();
        if back {
            store.rename_stream("elsewhere", "kafka").await.unwrap();
        }
        gateway.no_longer(GroupError::Loading).await;
        let held = |gateway: &Gateway| gateway.groups.offsets("g", |view| view.get("t", id, 0).map(Committed::offset));
        assert_eq!(held(&gateway), Ok(None), "back: {back}");
        // And the log knows.
        assert_eq!(gateway.commit(1, 1).await, Ok(()));
        assert_eq!(held(&Gateway::open(&store, 3, true).await.unwrap()), Ok(None), "back: {back}");
    }
}
