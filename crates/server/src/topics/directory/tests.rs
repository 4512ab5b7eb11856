//! The directory over a store in memory, with failures at every step of a change.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use milena_store::testing::{Fault, Layer, Layered, MemoryStore};
use milena_store::{Capabilities, StoreFuture, TopicRef, TopicSettings};

use super::*;
use crate::config::MappedTopic;

/// What becomes of the next change of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mishap {
    Busy,
    DoubtDone,
    DoubtNotDone,
}

/// A store whose topic changes can fail.
#[derive(Clone)]
struct Flaky {
    memory: MemoryStore,
    next: Arc<parking_lot::Mutex<Option<Mishap>>>,
    listing_fails: Arc<AtomicBool>,
    slow: Arc<AtomicBool>,
    /// Another gateway that creates the topic `t` right before the topics are listed.
    rival: Arc<parking_lot::Mutex<Option<TopicDirectory>>>,
    foreign: bool,
}

impl Flaky {
    fn new() -> Self {
        let memory = MemoryStore::new();
        Self {
            memory,
            next: Arc::default(),
            listing_fails: Arc::default(),
            slow: Arc::default(),
            rival: Arc::default(),
            foreign: false,
        }
    }

    fn again(&self) -> Self {
        Self { memory: self.memory.again(), ..self.clone() }
    }

    fn fail_next(&self, mishap: Mishap) {
        *self.next.lock() = Some(mishap);
    }

    async fn change<T>(&self, change: StoreFuture<'_, T>) -> Result<T, StoreError> {
        if self.slow.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mishap = self.next.lock().take();
        let doubt = || StoreError::InDoubt { reason: "planned".to_owned() };
        match mishap {
            None => change.await,
            Some(Mishap::Busy) => Err(StoreError::Busy { reason: "planned".to_owned() }),
            Some(Mishap::DoubtNotDone) => Err(doubt()),
            Some(Mishap::DoubtDone) => {
                change.await?;
                Err(doubt())
            }
        }
    }
}

impl Layer for Flaky {
    fn below(&self) -> &dyn Store {
        &self.memory
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { foreign_writers: self.foreign, ..self.memory.capabilities() }
    }

    fn topics(&self) -> StoreFuture<'_, Vec<TopicInfo>> {
        Box::pin(async {
            if self.listing_fails.load(Ordering::Relaxed) {
                return Err(StoreError::Busy { reason: "planned".to_owned() });
            }
            let rival = self.rival.lock().take();
            if let Some(rival) = rival {
                rival.create("t", 1, retention("5")).await?;
            }
            self.memory.topics().await
        })
    }

    fn create_topic<'a>(
        &'a self,
        stream: &'a str,
        topic: &'a str,
        partitions: u32,
        settings: &'a TopicSettings,
    ) -> StoreFuture<'a, TopicInfo> {
        Box::pin(self.change(self.memory.create_topic(stream, topic, partitions, settings)))
    }

    fn delete_topic<'a>(&'a self, topic: &'a TopicRef) -> StoreFuture<'a, ()> {
        Box::pin(self.change(self.memory.delete_topic(topic)))
    }

    fn grow_topic<'a>(&'a self, topic: &'a TopicRef, partitions: u32) -> StoreFuture<'a, TopicInfo> {
        Box::pin(self.change(self.memory.grow_topic(topic, partitions)))
    }
}

async fn open(store: &Flaky) -> TopicDirectory {
    open_with(store, &ServerConfig::default()).await
}

async fn open_with(store: &Flaky, config: &ServerConfig) -> TopicDirectory {
    TopicDirectory::open(Arc::new(Layered(store.again())), config).await.unwrap()
}

/// Another gateway of the same store.
async fn open_beside(store: &Flaky) -> TopicDirectory {
    open_with(store, &ServerConfig { instance_id: 1, ..ServerConfig::default() }).await
}

fn retention(value: &str) -> Configs {
    Configs::from([("retention.ms".to_owned(), value.to_owned())])
}

fn names(directory: &TopicDirectory) -> Vec<String> {
    directory.list().iter().map(|topic| topic.name.to_string()).collect()
}

async fn stored(store: &Flaky, topic: &str) -> TopicInfo {
    store.memory.topic("kafka", topic).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_created_topic_is_found_by_name_and_by_id() {
    let directory = open(&Flaky::new()).await;
    let topic = directory.create("t", 3, Configs::new()).await.unwrap();
    assert_eq!(directory.by_name("t").unwrap().partitions, 3);
    assert_eq!(&*directory.by_id(topic.id).unwrap().name, "t");
    assert!(directory.by_name("u").is_none());
}

#[tokio::test]
async fn the_listing_is_sorted_by_name() {
    let directory = open(&Flaky::new()).await;
    for name in ["b", "a", "c"] {
        directory.create(name, 1, Configs::new()).await.unwrap();
    }
    assert_eq!(names(&directory), ["a", "b", "c"]);
}

#[tokio::test]
async fn a_name_of_digits_is_a_name() {
    let store = Flaky::new();
    open(&store).await.create("0", 1, Configs::new()).await.unwrap();
    assert_eq!(stored(&store, "0").await.topic.topic(), "0");
    assert_eq!(names(&open(&store).await), ["0"]);
}

#[tokio::test]
async fn a_store_that_cannot_list_its_topics_is_an_error_and_not_an_empty_cluster() {
    let store = Flaky::new();
    store.listing_fails.store(true, Ordering::Relaxed);
    let opened = TopicDirectory::open(Arc::new(Layered(store)), &ServerConfig::default()).await;
    assert!(matches!(opened.err(), Some(OpenError::Store(StoreError::Busy { .. }))));
}

#[tokio::test]
async fn a_failed_refresh_keeps_what_was_known() {
    let store = Flaky::new();
    let directory = open(&store).await;
    directory.create("t", 1, Configs::new()).await.unwrap();
    store.listing_fails.store(true, Ordering::Relaxed);
    assert!(directory.refresh().await.is_err());
    assert_eq!(names(&directory), ["t"]);
}

#[tokio::test]
async fn a_refresh_sees_what_others_did() {
    let store = Flaky::new();
    let directory = open(&store).await;
    let gone = directory.create("gone", 1, Configs::new()).await.unwrap();
    store.memory.delete_topic(&gone.store).await.unwrap();
    store.memory.create_topic("kafka", "native", 2, &TopicSettings::default()).await.unwrap();
    store.memory.create_topic("kafka", "no kafka name", 1, &TopicSettings::default()).await.unwrap();
    directory.refresh().await.unwrap();
    assert_eq!(names(&directory), ["native"]);
    assert!(directory.by_id(gone.id).is_none());
    assert_eq!(directory.hidden(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_others_do_is_seen_after_a_while_without_being_asked_for() {
    let store = Flaky { foreign: true, ..Flaky::new() };
    let directory = open(&store).await;
    directory.keep_fresh(Duration::from_secs(5));
    let native = store.memory.create_topic("kafka", "native", 2, &TopicSettings::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(names(&directory), ["native"]);
    store.memory.delete_topic(&native.topic).await.unwrap();
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(names(&directory), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_concurrent_creations_exactly_one_succeeds() {
    let directory = open(&Flaky::new()).await;
    let tries: Vec<_> = (0..16)
        .map(|n| {
            let directory = directory.clone();
            tokio::spawn(async move { directory.create_topic("t", 1, retention(&n.to_string())).await })
        })
        .collect();
    let mut winners = Vec::new();
    for one in tries {
        match one.await.unwrap() {
            Ok(topic) => winners.push(topic),
            Err(error) => assert_eq!(error, TopicError::Exists),
        }
    }
    assert_eq!(winners.len(), 1);
    assert_eq!(directory.by_name("t").unwrap().config.set, winners[0].config.set);
}

#[tokio::test]
async fn a_topic_that_somebody_else_created_exists_and_is_known_from_then_on() {
    let store = Flaky::new();
    let directory = open(&store).await;
    store.memory.create_topic("kafka", "t", 4, &TopicSettings::default()).await.unwrap();
    assert_eq!(directory.create_topic("t", 1, retention("5")).await.unwrap_err(), TopicError::Exists);
    assert_eq!(directory.by_name("t").unwrap().partitions, 4);
    assert!(open(&store).await.by_name("t").unwrap().config.set.is_empty(), "the plan was taken back");
}

#[tokio::test]
async fn a_topic_that_another_gateway_just_created_is_taken_over_with_its_configs() {
    let store = Flaky::new();
    let (one, two) = (open(&store).await, open_beside(&store).await);
    one.create("t", 1, retention("5")).await.unwrap();
    assert_eq!(two.create_topic("t", 1, Configs::new()).await.unwrap_err(), TopicError::Exists);
    assert_eq!(two.by_name("t").unwrap().config.set, retention("5"));
}

#[tokio::test]
async fn a_topic_is_not_listed_without_the_configs_that_another_gateway_gives_it_meanwhile() {
    let store = Flaky::new();
    let (one, two) = (open(&store).await, open_beside(&store).await);
    *store.rival.lock() = Some(one);
    two.refresh().await.unwrap();
    assert_eq!(two.by_name("t").unwrap().config.set, retention("5"));
}

#[tokio::test]
async fn configs_are_in_force_and_there_again_after_a_restart() {
    let store = Flaky::new();
    let created = open(&store).await.create("t", 1, retention("60000")).await.unwrap();
    assert_eq!(created.config.set, retention("60000"));
    assert_eq!(stored(&store, "t").await.settings.retention, Some(Some(Duration::from_mins(1))));
    assert_eq!(open(&store).await.by_name("t").unwrap().config.set, retention("60000"));
}

#[tokio::test]
async fn configs_that_could_not_be_planned_stop_the_creation() {
    let store = Flaky::new();
    let directory = open(&store).await;
    store.memory.plan(Fault::Full);
    let refused = directory.create_topic("t", 1, retention("5")).await.unwrap_err();
    assert!(matches!(refused, TopicError::Store(StoreError::Full { .. })));
    assert!(store.memory.topic("kafka", "t").await.unwrap().is_none());
}

#[tokio::test]
async fn configs_that_were_planned_but_not_bound_are_not_lost() {
    let store = Flaky::new();
    let directory = open(&store).await;
    store.memory.plan(None);
    store.memory.plan(Fault::Full);
    let created = directory.create("t", 1, retention("5")).await.unwrap();
    assert_eq!(created.config.set, retention("5"));
    store.memory.forget_faults();
    assert_eq!(open(&store).await.by_name("t").unwrap().config.set, retention("5"));
}

#[tokio::test]
async fn a_refused_creation_leaves_no_configs_behind() {
    let store = Flaky::new();
    let directory = open(&store).await;
    store.fail_next(Mishap::Busy);
    assert!(directory.create("t", 1, retention("5")).await.is_err());
    directory.create("t", 1, Configs::new()).await.unwrap();
    assert!(open(&store).await.by_name("t").unwrap().config.set.is_empty());
}

#[tokio::test]
async fn a_creation_in_doubt_that_took_place_is_a_success() {
    let store = Flaky::new();
    let directory = open(&store).await;
    store.fail_next(Mishap::DoubtDone);
    directory.create("t", 2, retention("5")).await.unwrap();
    assert_eq!(open(&store).await.by_name("t").unwrap().config.set, retention("5"));
}

#[tokio::test]
async fn a_creation_in_doubt_that_did_not_take_place_can_be_tried_again_with_other_configs() {
    let store = Flaky::new();
    let directory = open(&store).await;
    store.fail_next(Mishap::DoubtNotDone);
    let doubt = directory.create_topic("t", 1, retention("5")).await.unwrap_err();
    assert!(matches!(doubt, TopicError::Store(StoreError::InDoubt { .. })));
    directory.create("t", 1, Configs::new()).await.unwrap();
    assert!(open(&store).await.by_name("t").unwrap().config.set.is_empty(), "the old plan was taken back");
}

#[tokio::test]
async fn a_client_that_goes_away_does_not_leave_store_and_cache_apart() {
    let store = Flaky::new();
    let directory = open(&store).await;
    store.slow.store(true, Ordering::Relaxed);
    let creation = directory.create_topic("t", 1, retention("5"));
    assert!(tokio::time::timeout(Duration::from_millis(1), creation).await.is_err());
    // The change holds the lock until it is done.
    drop(directory.inner.changes.lock().await);
    assert_eq!(directory.by_name("t").unwrap().config.set, retention("5"));
}

#[tokio::test]
async fn a_deleted_topic_is_gone_and_one_created_again_inherits_nothing() {
    let store = Flaky::new();
    let directory = open(&store).await;
    let first = directory.create("t", 1, retention("5")).await.unwrap();
    directory.delete(&first).await.unwrap();
    assert!(directory.by_name("t").is_none() && directory.by_id(first.id).is_none());
    let second = directory.create("t", 1, Configs::new()).await.unwrap();
    assert_ne!(second.id, first.id);
    assert!(open(&store).await.by_name("t").unwrap().config.set.is_empty());
}

#[tokio::test]
async fn an_old_incarnation_cannot_delete_its_successor() {
    let directory = open(&Flaky::new()).await;
    let first = directory.create("t", 1, Configs::new()).await.unwrap();
    directory.delete(&first).await.unwrap();
    directory.create("t", 1, Configs::new()).await.unwrap();
    assert_eq!(directory.delete(&first).await, Err(TopicError::NotFound));
    assert_eq!(names(&directory), ["t"]);
}

#[tokio::test]
async fn a_deletion_in_doubt_that_took_place_is_a_success() {
    let store = Flaky::new();
    let directory = open(&store).await;
    let topic = directory.create("t", 1, Configs::new()).await.unwrap();
    store.fail_next(Mishap::DoubtDone);
    assert_eq!(directory.delete(&topic).await, Ok(()));
    assert!(directory.by_name("t").is_none());
}

#[tokio::test]
async fn a_deletion_that_did_not_take_place_leaves_the_topic() {
    let store = Flaky::new();
    let directory = open(&store).await;
    let topic = directory.create("t", 1, Configs::new()).await.unwrap();
    for mishap in [Mishap::DoubtNotDone, Mishap::Busy] {
        store.fail_next(mishap);
        assert!(matches!(directory.delete(&topic).await, Err(TopicError::Store(_))), "{mishap:?}");
        assert_eq!(names(&directory), ["t"]);
    }
}

#[tokio::test]
async fn growth_keeps_id_and_configs() {
    let directory = open(&Flaky::new()).await;
    let topic = directory.create("t", 1, retention("5")).await.unwrap();
    let grown = directory.grow(&topic, 3).await.unwrap();
    assert_eq!((grown.partitions, grown.id, &grown.config.set), (3, topic.id, &retention("5")));
    assert_eq!(directory.by_name("t").unwrap().partitions, 3);
}

#[tokio::test]
async fn growth_is_measured_against_what_the_topic_has_by_then() {
    let directory = open(&Flaky::new()).await;
    let topic = directory.create("t", 1, Configs::new()).await.unwrap();
    directory.grow(&topic, 3).await.unwrap();
    assert_eq!(directory.grow(&topic, 2).await.err(), Some(TopicError::NotMore { now: 3, asked: 2 }));
}

#[tokio::test]
async fn the_operators_default_reaches_topics_that_exist_already() {
    let store = Flaky::new();
    open(&store).await.create("t", 1, Configs::new()).await.unwrap();
    let config = ServerConfig { topic_defaults: retention("1000"), ..ServerConfig::default() };
    open_with(&store, &config).await;
    assert_eq!(stored(&store, "t").await.settings.retention, Some(Some(Duration::from_secs(1))));
}

#[tokio::test]
async fn a_topic_that_another_tool_created_keeps_the_settings_it_was_given() {
    let store = Flaky { foreign: true, ..Flaky::new() };
    let settings = TopicSettings { retention: Some(None), ..TopicSettings::default() };
    store.memory.create_topic("kafka", "native", 1, &settings).await.unwrap();
    open(&store).await;
    assert_eq!(stored(&store, "native").await.settings, settings);
}

#[tokio::test]
async fn the_most_partitions_are_the_lower_of_the_servers_and_the_stores() {
    let config = ServerConfig { max_partitions_per_topic: 5, ..ServerConfig::default() };
    let directory = open_with(&Flaky::new(), &config).await;
    assert!(directory.create_topic("five", 5, Configs::new()).await.is_ok());
    let six = directory.create_topic("six", 6, Configs::new()).await.unwrap_err();
    assert_eq!(six, TopicError::Partitions { asked: 6, limit: 5 });
}

#[tokio::test]
async fn an_override_creates_its_topic_at_its_target() {
    let store = Flaky::new();
    let mut config = ServerConfig::default();
    let target = MappedTopic { stream: "billing".to_owned(), topic: "orders v2".to_owned() };
    config.topic_mapping.topics.insert("org.example.orders".to_owned(), target);
    open_with(&store, &config).await.create("org.example.orders", 1, retention("5")).await.unwrap();
    assert!(store.memory.topic("billing", "orders v2").await.unwrap().is_some());
    let directory = open_with(&store, &config).await;
    assert_eq!(directory.by_name("org.example.orders").unwrap().config.set, retention("5"));
}

#[tokio::test]
async fn a_bad_mapping_or_a_bad_default_stops_the_start() {
    let mut config = ServerConfig::default();
    config.topic_mapping.default_stream = String::new();
    let opened = TopicDirectory::open(Arc::new(Layered(Flaky::new())), &config).await;
    assert!(matches!(opened.err(), Some(OpenError::Mapping(_))));
    let config = ServerConfig { topic_defaults: retention("soon"), ..ServerConfig::default() };
    let opened = TopicDirectory::open(Arc::new(Layered(Flaky::new())), &config).await;
    assert!(matches!(opened.err(), Some(OpenError::Defaults(_))));
}
