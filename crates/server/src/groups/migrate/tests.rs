use std::collections::BTreeMap;

use milena_groups::{CommitPartition, CommitRequest, CommitTopic, Generation, Sender};
use milena_store::testing::{Fault, MemoryStore, OffsetFault, OffsetRules};
use milena_store::{OffsetStore, TopicSettings};
use tokio::time::{Duration, timeout};

use super::*;
use crate::gateways::{ClusterSettings, Gateways};
use crate::groups::storage::{OffsetStorage, StorageError, choose};
use crate::groups::topics::incarnation;
use crate::groups::{ForeignOffsets, GroupService};

fn config(asked: OffsetStorage) -> ServerConfig {
    let mut config = ServerConfig { offset_storage: asked, ..ServerConfig::default() };
    config.groups.foreign_offsets = ForeignOffsets::Allow;
    config
}

fn shared(store: &MemoryStore) -> Arc<dyn Store> {
    Arc::new(store.clone())
}

/// A server's groups on a store, for as long as the test asks.
async fn open(store: &MemoryStore, asked: OffsetStorage) -> Result<(GroupService, TopicDirectory), StorageError> {
    let config = config(asked);
    let topics = TopicDirectory::open(shared(store), &config).await.unwrap();
    let groups = match choose(&config, &shared(store)).await? {
        Kept::Topic => {
            let mapping = topics.mapping().clone();
            GroupService::open(&config, shared(store), mapping, Arc::default(), false).await.unwrap()
        }
        Kept::ConsumerOffsets => {
            GroupService::open_external(&config, shared(store), topics.clone(), Arc::default()).unwrap()
        }
    };
    Ok((groups, topics))
}

async fn commit(store: &MemoryStore, rows: &[(&str, &str, i32, i64)]) {
    let (groups, topics) = open(store, OffsetStorage::Auto).await.unwrap();
    for (group, topic, partition, offset) in rows {
        let partition = CommitPartition {
            partition: *partition,
            exists: true,
            offset: *offset,
            leader_epoch: -1,
            metadata: Some("text".into()),
            expected: None,
        };
        let id = topics.by_name(topic).map(|topic| incarnation(&topic));
        let topic = CommitTopic { name: Arc::from(*topic), id, partitions: vec![partition] };
        let request = CommitRequest { group: Arc::from(*group), retention_ms: None, topics: vec![topic] };
        let sender = Sender { group, member_id: "", instance_id: None, generation: Generation::NONE };
        assert_eq!(groups.commit(&sender, request).await.unwrap(), [Ok(())]);
    }
    groups.close(Duration::from_secs(5)).await;
}

/// What a server answers that starts now, of some groups.
async fn answers(store: &MemoryStore) -> BTreeMap<(String, String, i32), i64> {
    let (groups, topics) = open(store, OffsetStorage::Auto).await.unwrap();
    let mut found = BTreeMap::new();
    for group in ["g", "h"] {
        for topic in topics.list().iter().filter(|topic| !topic.internal) {
            let all = (0..topic.partitions).map(|partition| topic.store.partition(partition)).collect();
            let offsets = if groups.is_external() {
                groups.stored(group, all).await.unwrap()
            } else {
                let get = |partition: u32| {
                    let of = incarnation(topic);
                    let index = i32::try_from(partition).unwrap();
                    groups.offsets(group, |view| view.get(&topic.name, of, index).map(milena_groups::Committed::offset))
                };
                (0..topic.partitions).map(|partition| get(partition).unwrap()).collect()
            };
            for (partition, offset) in (0..).zip(offsets) {
                if let Some(offset) = offset {
                    found.insert((group.to_owned(), topic.name.to_string(), partition), offset);
                }
            }
        }
    }
    found
}

/// Two topics, and offsets of two groups in the log.
async fn filled(asked: OffsetStorage) -> MemoryStore {
    let store = MemoryStore::with_offsets(OffsetRules::Free);
    for (topic, partitions) in [("t", 3), ("u", 1)] {
        store.create_topic("kafka", topic, partitions, &TopicSettings::default()).await.unwrap();
    }
    drop(open(&store, asked).await.unwrap());
    commit(&store, &[("g", "t", 0, 0), ("g", "t", 2, 7), ("g", "u", 0, 9), ("h", "t", 1, i64::MAX)]).await;
    store
}

async fn moved(store: &MemoryStore, to: Kept) -> Result<Migrated, MigrateError> {
    Box::pin(migrate(&config(OffsetStorage::Auto), shared(store), to, false)).await
}

#[tokio::test]
async fn offsets_go_to_the_store_and_back_whole_and_another_run_finds_them_there() {
    let store = filled(OffsetStorage::Topic).await;
    let before = answers(&store).await;
    assert_eq!(before.len(), 4);
    let there = moved(&store, Kept::ConsumerOffsets).await.unwrap();
    assert_eq!(there, Migrated { groups: 2, offsets: 4, bare: 4, ..Migrated::default() });
    assert_eq!(answers(&store).await, before);
    assert!(matches!(open(&store, OffsetStorage::Topic).await, Err(StorageError::Elsewhere { .. })));
    assert!(moved(&store, Kept::ConsumerOffsets).await.unwrap().was_there);
    assert_eq!(answers(&store).await, before);

    // What the log held before is not what comes back: one offset is newer, and one is gone.
    commit(&store, &[("g", "t", 0, 1), ("g", "u", 0, -1)]).await;
    let before = answers(&store).await;
    let back = moved(&store, Kept::Topic).await.unwrap();
    assert_eq!(back, Migrated { groups: 2, offsets: 3, ..Migrated::default() });
    assert_eq!(answers(&store).await, before);
    let topic = store.topic("kafka", "t").await.unwrap().unwrap().topic;
    assert!(OffsetStore::groups(&store, &topic).await.unwrap().is_empty(), "nothing holds back retention any more");
}

/// Consumer offsets of other gateways in front of the same topics.
async fn others_have_some(store: &MemoryStore) {
    let topic = store.topic("kafka", "t").await.unwrap().unwrap().topic;
    store.create_group(&topic, "kafka.cg.theirs").await.unwrap();
    OffsetStore::store(store, &topic.partition(0), "kafka.cg.theirs", 3).await.unwrap();
}

async fn groups_in_store(store: &MemoryStore) -> Vec<String> {
    let topic = store.topic("kafka", "t").await.unwrap().unwrap().topic;
    OffsetStore::groups(store, &topic).await.unwrap()
}

#[tokio::test]
async fn where_no_move_left_offsets_in_the_store_those_of_others_stay() {
    let store = filled(OffsetStorage::Topic).await;
    others_have_some(&store).await;
    assert!(moved(&store, Kept::Topic).await.unwrap().was_there);
    assert_eq!(groups_in_store(&store).await, ["kafka.cg.theirs"]);
}

#[tokio::test]
async fn a_move_to_the_store_leaves_the_groups_of_others_there() {
    let store = filled(OffsetStorage::Topic).await;
    others_have_some(&store).await;
    assert_eq!(moved(&store, Kept::ConsumerOffsets).await.unwrap().offsets, 4);
    assert_eq!(groups_in_store(&store).await, ["kafka.cg.g", "kafka.cg.h", "kafka.cg.theirs"]);
    let topic = store.topic("kafka", "t").await.unwrap().unwrap().topic;
    assert_eq!(store.load(&topic.partition(0), "kafka.cg.theirs").await.unwrap(), Some(3));
}

#[tokio::test(start_paused = true)]
async fn a_move_that_was_called_off_or_begun_again_clears_what_it_wrote_and_not_what_others_have() {
    for call_off in [true, false] {
        let store = filled(OffsetStorage::Topic).await;
        others_have_some(&store).await;
        // Killed while it writes.
        (0..20).for_each(|_| store.plan_offsets(None));
        store.plan_offsets(OffsetFault::Hangs);
        assert!(timeout(Duration::from_millis(100), moved(&store, Kept::ConsumerOffsets)).await.is_err());
        store.forget_offset_faults();
        let begun = groups_in_store(&store).await;
        assert!(begun.len() > 1, "{begun:?}");
        if call_off {
            assert!(moved(&store, Kept::Topic).await.unwrap().was_there);
            assert_eq!(groups_in_store(&store).await, ["kafka.cg.theirs"]);
        } else {
            // A group of the first attempt that is not there any more, as where nobody can tell that a server runs.
            let mut log = RecordLog::open(&shared(&store), 0).await.unwrap();
            assert!(log.name(["gone".to_owned()].into()).await.unwrap());
            let topic = store.topic("kafka", "t").await.unwrap().unwrap().topic;
            store.create_group(&topic, "kafka.cg.gone").await.unwrap();
            assert_eq!(moved(&store, Kept::ConsumerOffsets).await.unwrap().offsets, 4);
            assert_eq!(groups_in_store(&store).await, ["kafka.cg.g", "kafka.cg.h", "kafka.cg.theirs"]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_move_that_is_killed_at_any_call_to_the_store_loses_nothing_and_is_finished_or_called_off_by_another_run() {
    let plan = |store: &MemoryStore, calls: usize| {
        for _ in 0..calls {
            store.plan_offsets(None);
        }
        store.plan_offsets(OffsetFault::Hangs);
    };
    for (asked, to) in [(OffsetStorage::Topic, Kept::ConsumerOffsets), (OffsetStorage::Auto, Kept::Topic)] {
        let interrupted = killed_everywhere(asked, to, plan).await;
        assert!(interrupted > 3, "{interrupted}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_move_that_is_killed_at_any_append_to_a_log_loses_nothing_and_is_finished_or_called_off_by_another_run() {
    for applied in [false, true] {
        let plan = |store: &MemoryStore, appends: usize| {
            for _ in 0..appends {
                store.plan(None);
            }
            store.plan(Fault::Hangs { applied });
        };
        for (asked, to) in [(OffsetStorage::Topic, Kept::ConsumerOffsets), (OffsetStorage::Auto, Kept::Topic)] {
            let interrupted = killed_everywhere(asked, to, plan).await;
            assert!(interrupted > 0, "{interrupted}");
        }
    }
}

/// A move that is killed at the first call that `plan` counts, at the second and so on, and then run again. Says how many
/// of them were killed with the move under way.
async fn killed_everywhere(asked: OffsetStorage, to: Kept, plan: impl Fn(&MemoryStore, usize)) -> usize {
    let mut interrupted = 0;
    for calls in 0..1_000 {
        let store = filled(asked).await;
        let before = answers(&store).await;
        plan(&store, calls);
        let killed = timeout(Duration::from_millis(100), moved(&store, to)).await.is_err();
        store.forget_offset_faults();
        store.forget_faults();
        if !killed {
            break;
        }
        let started = open(&store, OffsetStorage::Auto).await.map(|_| ());
        match started {
            // Before the move was written down, or after it was done.
            Ok(()) => assert_eq!(answers(&store).await, before, "{calls} calls"),
            Err(StorageError::Moving { from, to: target }) => {
                interrupted += 1;
                assert_eq!(target, to);
                if calls % 2 == 0 {
                    assert!(moved(&store, from).await.unwrap().was_there);
                    assert_eq!(answers(&store).await, before, "{calls} calls, called off");
                }
            }
            Err(error) => panic!("{error}"),
        }
        moved(&store, to).await.unwrap();
        assert_eq!(answers(&store).await, before, "{calls} calls");
        if to == Kept::Topic {
            assert!(groups_in_store(&store).await.is_empty(), "{calls} calls: nothing holds back retention");
        }
    }
    interrupted
}

#[tokio::test]
async fn what_only_the_topic_can_hold_ends_the_move_unless_it_is_given_up() {
    let store = filled(OffsetStorage::Topic).await;
    let before = answers(&store).await;
    commit(&store, &[("g", "elsewhere", 0, 1), (&"g".repeat(247), "t", 0, 1)]).await;
    let error = moved(&store, Kept::ConsumerOffsets).await.unwrap_err();
    assert!(matches!(error, MigrateError::Unfit { unfit: 2, id_bytes_max: 246 }), "{error}");
    assert_eq!(answers(&store).await, before, "nothing was begun");
    let config = config(OffsetStorage::Auto);
    let given_up = migrate(&config, shared(&store), Kept::ConsumerOffsets, true).await.unwrap();
    assert_eq!((given_up.offsets, given_up.given_up), (4, 2));
    assert_eq!(answers(&store).await, before);
}

#[tokio::test]
async fn a_store_whose_rules_exclude_it_is_left_as_it_is() {
    let store = filled(OffsetStorage::Topic).await;
    store.set_offset_rules(OffsetRules::MembersOnly);
    assert!(matches!(moved(&store, Kept::ConsumerOffsets).await, Err(MigrateError::Refused(_))));
    assert_eq!(answers(&store).await.len(), 4);
    assert!(matches!(moved(&MemoryStore::new(), Kept::Topic).await, Err(MigrateError::NotOffered)));
}

fn clustered(instance_id: u16) -> ServerConfig {
    ServerConfig { instance_id, cluster: Some(ClusterSettings::default()), ..config(OffsetStorage::Auto) }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_joined_a_moment_ago_is_not_overlooked() {
    let store = filled(OffsetStorage::Topic).await;
    let alone = Alone::claim(&clustered(1), &shared(&store)).await.unwrap();
    assert!(alone.confirm().await.is_ok());
    let joined = Gateways::join(&ClusterSettings::default(), &clustered(2), &[], shared(&store)).await.unwrap();
    assert!(matches!(alone.confirm().await, Err(MigrateError::Running)));
    joined.leave(Duration::from_secs(5)).await;
    assert!(alone.confirm().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn while_a_gateway_runs_nothing_is_moved() {
    let store = filled(OffsetStorage::Topic).await;
    let running = Alone::claim(&clustered(1), &shared(&store)).await.unwrap();
    let refused = migrate(&clustered(2), shared(&store), Kept::ConsumerOffsets, false).await;
    assert!(matches!(refused, Err(MigrateError::Running)), "{refused:?}");
    running.leave().await;
    let moved = migrate(&clustered(2), shared(&store), Kept::ConsumerOffsets, false).await.unwrap();
    assert_eq!(moved.offsets, 4);
}
