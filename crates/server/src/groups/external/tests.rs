use milena_groups::{CommitPartition, CommitTopic, Generation};
use milena_store::testing::{Layer, Layered, MemoryStore, OffsetFault, OffsetRules};
use milena_store::{OffsetStore, StoreFuture, TopicRef, TopicSettings};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::*;
use crate::config::ServerConfig;
use crate::groups::{Coordinator, GroupService};

/// A mandate that the test gives and takes.
#[derive(Debug)]
struct Mandate(watch::Sender<bool>);

impl Coordinators for Mandate {
    fn coordinator_of(&self, group: &str) -> Coordinator {
        if group == "elsewhere" { Coordinator::Unknown } else { Coordinator::Here }
    }

    fn mandate(&self) -> watch::Receiver<bool> {
        self.0.subscribe()
    }
}

/// A call that can be held up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Store,
    DeleteGroup,
}

/// A store that holds one call up until the test lets it go.
struct Gate {
    store: MemoryStore,
    holds: Mutex<Option<Call>>,
    go: Notify,
}

impl Gate {
    async fn pass(&self, call: Call) {
        let held = self.holds.lock().take_if(|held| *held == call).is_some();
        if held {
            self.go.notified().await;
        }
    }

    fn hold(&self, call: Call) {
        *self.holds.lock() = Some(call);
    }

    /// Waits until the call is there.
    async fn held(&self) {
        while self.holds.lock().is_some() {
            sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Layer for Gate {
    fn below(&self) -> &dyn Store {
        &self.store
    }

    fn offset_store(&self) -> Option<&dyn OffsetStore> {
        Some(self)
    }
}

impl OffsetStore for Gate {
    fn group_bytes_max(&self) -> usize {
        self.store.group_bytes_max()
    }

    fn create_group<'a>(&'a self, topic: &'a TopicRef, group: &'a str) -> StoreFuture<'a, ()> {
        self.store.create_group(topic, group)
    }

    fn has_group<'a>(&'a self, topic: &'a TopicRef, group: &'a str) -> StoreFuture<'a, bool> {
        self.store.has_group(topic, group)
    }

    fn groups<'a>(&'a self, topic: &'a TopicRef) -> StoreFuture<'a, Vec<String>> {
        OffsetStore::groups(&self.store, topic)
    }

    fn delete_group<'a>(&'a self, topic: &'a TopicRef, group: &'a str) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.pass(Call::DeleteGroup).await;
            self.store.delete_group(topic, group).await
        })
    }

    fn load<'a>(&'a self, at: &'a PartitionRef, group: &'a str) -> StoreFuture<'a, Option<u64>> {
        self.store.load(at, group)
    }

    fn store<'a>(&'a self, at: &'a PartitionRef, group: &'a str, offset: u64) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.pass(Call::Store).await;
            OffsetStore::store(&self.store, at, group, offset).await
        })
    }

    fn forget<'a>(&'a self, at: &'a PartitionRef, group: &'a str) -> StoreFuture<'a, ()> {
        self.store.forget(at, group)
    }
}

struct Gateway {
    groups: GroupService,
    gate: Arc<Layered<Gate>>,
    topics: TopicDirectory,
    store: MemoryStore,
    mandate: Arc<Mandate>,
}

impl Gateway {
    /// A gateway over a topic `t` of some partitions.
    async fn open(partitions: u32) -> Self {
        let store = MemoryStore::with_offsets(OffsetRules::Free);
        store.create_topic("kafka", "t", partitions, &TopicSettings::default()).await.unwrap();
        let mandate = Arc::new(Mandate(watch::Sender::new(true)));
        let config = ServerConfig { coordinators: Arc::clone(&mandate) as _, ..ServerConfig::default() };
        let gate = Gate { store: store.clone(), holds: Mutex::new(None), go: Notify::new() };
        let gate = Arc::new(Layered(gate));
        let of_server = Arc::clone(&gate) as Arc<dyn Store>;
        let topics = TopicDirectory::open(Arc::clone(&of_server), &config).await.unwrap();
        let groups = GroupService::open_external(&config, of_server, topics.clone(), Arc::default()).unwrap();
        Self { groups, gate, topics, store, mandate }
    }

    async fn commit(&self, offsets: &[(i32, i64)]) -> Vec<Result<(), GroupError>> {
        let partitions = offsets.iter().map(|(partition, offset)| CommitPartition {
            partition: *partition,
            exists: true,
            offset: *offset,
            leader_epoch: -1,
            metadata: None,
            expected: None,
        });
        let topic = self.topics.by_name("t").unwrap();
        let topic = CommitTopic { name: "t".into(), id: Some(incarnation(&topic)), partitions: partitions.collect() };
        let request = CommitRequest { group: "g".into(), retention_ms: None, topics: vec![topic] };
        let sender = Sender { group: "g", member_id: "", instance_id: None, generation: Generation::NONE };
        self.groups.commit(&sender, request).await.unwrap()
    }

    fn at(&self, partition: u32) -> PartitionRef {
        self.topics.by_name("t").unwrap().store.partition(partition)
    }

    async fn stored(&self, partition: u32) -> Option<u64> {
        self.store.load(&self.at(partition), "kafka.cg.g").await.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_is_late_holds_up_those_behind_it_and_no_others() {
    let gateway = Gateway::open(64).await;
    assert_eq!(gateway.commit(&[(0, 1)]).await, [Ok(())]);
    gateway.store.plan_offsets(OffsetFault::Hangs);
    assert_eq!(gateway.commit(&[(0, 2)]).await, [Err(GroupError::StoreFailed)], "told to try again in time");
    let all: Vec<(i32, i64)> = (1..64).map(|partition| (partition, 7)).collect();
    let results = gateway.commit(&all).await;
    let done = results.iter().filter(|result| result.is_ok()).count();
    assert!(done > 32 && done < 63, "only those behind the one that hangs wait: {done}");
    assert_eq!(gateway.stored(0).await, Some(1));
}

#[tokio::test(start_paused = true)]
async fn commits_of_one_partition_take_effect_in_their_order_also_when_the_first_of_them_takes_longest() {
    let gateway = Gateway::open(1).await;
    gateway.gate.hold(Call::Store);
    let watched = async {
        gateway.gate.held().await;
        sleep(Duration::from_millis(100)).await;
        assert_eq!(gateway.stored(0).await, None, "the others wait for the first");
        gateway.gate.go.notify_one();
    };
    let (a, b, c) = (gateway.commit(&[(0, 1)]), gateway.commit(&[(0, 2)]), gateway.commit(&[(0, 3), (0, 4)]));
    let (a, b, c, ()) = tokio::join!(biased; a, b, c, watched);
    assert_eq!((a, b, c), (vec![Ok(())], vec![Ok(())], vec![Ok(()), Ok(())]));
    assert_eq!(gateway.stored(0).await, Some(4), "the last word counts");
}

#[tokio::test(start_paused = true)]
async fn while_a_group_is_deleted_a_commit_is_told_to_come_again_and_one_that_was_answered_stays() {
    let gateway = Gateway::open(1).await;
    assert_eq!(gateway.commit(&[(0, 5)]).await, [Ok(())]);
    gateway.gate.hold(Call::DeleteGroup);
    let between = async {
        gateway.gate.held().await;
        assert_eq!(gateway.commit(&[(0, 6)]).await, [Err(GroupError::StoreFailed)]);
        assert_eq!(gateway.groups.delete_groups(&["g"]).await, [Err(GroupError::StoreFailed)], "one at a time");
        gateway.gate.go.notify_one();
    };
    let (deleted, ()) = tokio::join!(gateway.groups.delete_groups(&["g"]), between);
    assert_eq!(deleted, [Ok(())]);
    assert_eq!(gateway.stored(0).await, None);
    assert_eq!(gateway.commit(&[(0, 7)]).await, [Ok(())]);
    assert_eq!(gateway.stored(0).await, Some(7));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_takes_too_long_keeps_commits_away_until_it_is_over() {
    let gateway = Gateway::open(1).await;
    assert_eq!(gateway.commit(&[(0, 5)]).await, [Ok(())]);
    gateway.gate.hold(Call::DeleteGroup);
    assert_eq!(gateway.groups.delete_groups(&["g"]).await, [Err(GroupError::StoreFailed)]);
    assert_eq!(gateway.commit(&[(0, 6)]).await, [Err(GroupError::StoreFailed)]);
    gateway.gate.go.notify_one();
    while gateway.commit(&[(0, 7)]).await != [Ok(())] {
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(gateway.stored(0).await, Some(7));
}

#[tokio::test]
async fn when_one_of_the_groups_is_not_coordinated_here_none_is_told_that_it_was_deleted() {
    let gateway = Gateway::open(1).await;
    assert_eq!(gateway.commit(&[(0, 5)]).await, [Ok(())]);
    let deleted = gateway.groups.delete_groups(&["g", "elsewhere"]).await;
    assert_eq!(deleted, [Err(GroupError::NotCoordinator); 2]);
    assert_eq!(gateway.stored(0).await, Some(5));
}

#[tokio::test(start_paused = true)]
async fn what_waits_when_the_mandate_goes_is_not_written_and_the_next_mandate_serves_at_once() {
    let gateway = Gateway::open(1).await;
    assert_eq!(gateway.commit(&[(0, 1)]).await, [Ok(())]);
    gateway.mandate.0.send_replace(false);
    while gateway.commit(&[(0, 3)]).await != [Err(GroupError::NotCoordinator)] {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let before = gateway.stored(0).await;
    // What was let in under the mandate before.
    let stale = Write { group: "g".into(), at: gateway.at(0), offset: Some(9), term: 0, done: oneshot::channel().0 };
    let external = gateway.groups.external.as_ref().unwrap();
    assert_eq!(external.port.write(&stale).await, Err(GroupError::NotCoordinator));
    assert_eq!(gateway.groups.stored("g", vec![gateway.at(0)]).await, Err(GroupError::NotCoordinator));
    gateway.mandate.0.send_replace(true);
    while gateway.groups.stored("g", vec![gateway.at(0)]).await.is_err() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(gateway.stored(0).await, before);
    assert_eq!(gateway.commit(&[(0, 4)]).await, [Ok(())]);
}

#[tokio::test(start_paused = true)]
async fn a_read_that_fails_is_an_error_and_never_no_offset() {
    let gateway = Gateway::open(3).await;
    assert_eq!(gateway.commit(&[(0, 1), (2, 3)]).await, [Ok(()), Ok(())]);
    let all = || (0..3).map(|partition| gateway.at(partition)).collect::<Vec<_>>();
    for fault in [OffsetFault::Busy, OffsetFault::Limit, OffsetFault::Hangs] {
        gateway.store.plan_offsets(None);
        gateway.store.plan_offsets(fault);
        assert_eq!(gateway.groups.stored("g", all()).await, Err(GroupError::StoreFailed), "{fault:?}");
        gateway.store.plan_offsets(fault);
        assert!(gateway.groups.all_stored("g").await.is_err(), "{fault:?}");
        gateway.store.plan_offsets(fault);
        assert!(gateway.groups.list(&milena_groups::ListFilter::default()).await.is_err(), "{fault:?}");
    }
    assert_eq!(gateway.groups.stored("g", all()).await, Ok(vec![Some(1), None, Some(3)]));
}

#[tokio::test(start_paused = true)]
async fn what_the_store_refuses_is_a_final_error_of_its_partition_and_what_it_may_mend_is_not() {
    let gateway = Gateway::open(2).await;
    assert_eq!(gateway.commit(&[(0, 1), (1, 1)]).await, [Ok(()), Ok(())]);
    for (fault, error) in [
        (OffsetFault::Limit, GroupError::OffsetRefused),
        (OffsetFault::Busy, GroupError::StoreFailed),
        (OffsetFault::InDoubtApplied, GroupError::StoreFailed),
    ] {
        gateway.store.plan_offsets(fault);
        let results = gateway.commit(&[(0, 2), (1, 2)]).await;
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{fault:?}");
        assert!(results.contains(&Err(error)), "{fault:?}: {results:?}");
    }
}

#[tokio::test]
async fn a_commit_to_an_incarnation_that_is_gone_founds_no_group_in_the_one_that_has_its_name() {
    let gateway = Gateway::open(1).await;
    let old = gateway.at(0).topic;
    gateway.store.delete_topic(&old).await.unwrap();
    let new = gateway.store.create_topic("kafka", "t", 1, &TopicSettings::default()).await.unwrap().topic;
    assert_eq!(gateway.commit(&[(0, 5)]).await, [Err(GroupError::UnknownTopicOrPartition)]);
    assert!(OffsetStore::groups(&gateway.store, &new).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_group_that_somebody_deleted_is_created_again_by_the_next_commit() {
    let gateway = Gateway::open(1).await;
    assert_eq!(gateway.commit(&[(0, 1)]).await, [Ok(())]);
    gateway.store.delete_group(&gateway.at(0).topic, "kafka.cg.g").await.unwrap();
    assert_eq!(gateway.commit(&[(0, -1)]).await, [Ok(())], "there is nothing to take away");
    assert_eq!(gateway.commit(&[(0, 2)]).await, [Ok(())]);
    assert_eq!(gateway.stored(0).await, Some(2));
}
