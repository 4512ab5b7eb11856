//! Changes of configs over a store in memory, with failures at every step.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use milena_store::testing::{Fault, Layer, Layered, MemoryStore};
use milena_store::{Capabilities, Store, StoreFuture, TopicRef, TopicSettings};

use super::*;
use crate::config::ServerConfig;
use crate::topics::configs::{ConfigEdit, EditOp};

/// A store that may be shared, and whose settings can be made not to change.
#[derive(Clone)]
struct Stubborn {
    memory: MemoryStore,
    refuses: Arc<AtomicBool>,
    shared: bool,
}

impl Layer for Stubborn {
    fn below(&self) -> &dyn Store {
        &self.memory
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { foreign_writers: self.shared, ..self.memory.capabilities() }
    }

    fn update_settings<'a>(&'a self, topic: &'a TopicRef, settings: &'a TopicSettings) -> StoreFuture<'a, TopicInfo> {
        if self.refuses.load(Ordering::Relaxed) && topic.stream() == "kafka" {
            return Box::pin(async { Err(StoreError::Busy { reason: "planned".to_owned() }) });
        }
        self.memory.update_settings(topic, settings)
    }
}

impl Stubborn {
    fn new(shared: bool) -> Self {
        Self { memory: MemoryStore::new(), refuses: Arc::default(), shared }
    }

    async fn open(&self, instance_id: u16) -> TopicDirectory {
        let store = Self { memory: self.memory.again(), ..self.clone() };
        let config = ServerConfig { instance_id, ..ServerConfig::default() };
        TopicDirectory::open(Arc::new(Layered(store)), &config).await.unwrap()
    }

    async fn settings(&self) -> TopicSettings {
        self.memory.topic("kafka", "t").await.unwrap().unwrap().settings
    }
}

fn edit(name: &str, value: &str) -> ConfigChange {
    ConfigChange::Edit(vec![ConfigEdit { name: name.to_owned(), op: EditOp::Set(value.to_owned()) }])
}

fn set_on(topics: &TopicDirectory) -> Vec<(String, String)> {
    topics.by_name("t").unwrap().config.set.clone().into_iter().collect()
}

fn pair(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

async fn with_topic(store: &Stubborn) -> (TopicDirectory, Arc<Topic>) {
    let topics = store.open(0).await;
    let topic = topics.create("t", 1, Configs::new()).await.unwrap();
    (topics, topic)
}

#[tokio::test]
async fn a_change_is_in_force_at_once_in_the_store_and_after_a_restart() {
    let store = Stubborn::new(false);
    let (topics, topic) = with_topic(&store).await;
    let altered = topics.alter(&topic, edit("retention.ms", "5000")).await.unwrap();
    assert_eq!((altered.id, altered.partitions), (topic.id, 1));
    assert_eq!(set_on(&topics), [pair("retention.ms", "5000")]);
    assert_eq!(store.settings().await.retention, Some(Some(Duration::from_secs(5))));
    assert_eq!(set_on(&store.open(0).await), [pair("retention.ms", "5000")]);
}

#[tokio::test]
async fn what_the_store_refuses_is_not_changed_also_after_a_restart() {
    let store = Stubborn::new(false);
    let (topics, topic) = with_topic(&store).await;
    topics.alter(&topic, edit("retention.ms", "5000")).await.unwrap();
    store.refuses.store(true, Ordering::Relaxed);
    let refused = topics.alter(&topic, edit("retention.ms", "6000")).await;
    assert!(matches!(refused, Err(TopicError::Store(StoreError::Busy { .. }))), "{refused:?}");
    assert_eq!(set_on(&topics), [pair("retention.ms", "5000")]);
    store.refuses.store(false, Ordering::Relaxed);
    assert_eq!(set_on(&store.open(0).await), [pair("retention.ms", "5000")]);
}

#[tokio::test]
async fn what_could_not_be_made_durable_is_not_changed() {
    let store = Stubborn::new(false);
    let (topics, topic) = with_topic(&store).await;
    store.memory.plan(Fault::Full);
    assert!(topics.alter(&topic, edit("retention.ms", "5000")).await.is_err());
    assert_eq!(set_on(&topics), []);
    assert_ne!(store.settings().await.retention, Some(Some(Duration::from_secs(5))));
}

#[tokio::test]
async fn two_changes_at_once_do_not_take_each_other_back() {
    let store = Stubborn::new(false);
    let (topics, topic) = with_topic(&store).await;
    let one = topics.alter(&topic, edit("retention.ms", "5000"));
    let other = topics.alter(&topic, edit("segment.ms", "7"));
    let (one, other) = tokio::join!(one, other);
    assert!(one.is_ok() && other.is_ok());
    assert_eq!(set_on(&topics), [pair("retention.ms", "5000"), pair("segment.ms", "7")]);
}

#[tokio::test]
async fn changes_through_two_gateways_do_not_take_each_other_back() {
    let store = Stubborn::new(true);
    let (one, topic) = with_topic(&store).await;
    let two = store.open(1).await;
    one.alter(&topic, edit("retention.ms", "5000")).await.unwrap();
    let seen = two.by_name("t").unwrap();
    two.alter(&seen, edit("segment.ms", "7")).await.unwrap();
    assert_eq!(set_on(&two), [pair("retention.ms", "5000"), pair("segment.ms", "7")]);
}

#[tokio::test]
async fn a_topic_that_is_gone_or_internal_is_not_changed() {
    let store = Stubborn::new(false);
    let (topics, topic) = with_topic(&store).await;
    let internal = Arc::new(Topic { internal: true, ..(*topic).clone() });
    assert_eq!(topics.alter(&internal, edit("retention.ms", "1")).await.unwrap_err(), TopicError::Internal);
    topics.delete(&topic).await.unwrap();
    assert_eq!(topics.alter(&topic, edit("retention.ms", "1")).await.unwrap_err(), TopicError::NotFound);
}

#[tokio::test]
async fn what_the_creator_of_a_foreign_topic_asked_of_the_store_is_shown_and_stays_when_something_else_is_set() {
    let store = Stubborn::new(true);
    let asked = TopicSettings { retention: Some(None), retention_bytes: Some(Some(5_000)), ..TopicSettings::default() };
    store.memory.create_topic("kafka", "t", 1, &asked).await.unwrap();
    let topics = store.open(0).await;
    let foreign = [pair("retention.bytes", "5000"), pair("retention.ms", "-1")];
    assert_eq!(set_on(&topics), foreign);
    topics.alter(&topics.by_name("t").unwrap(), edit("max.message.bytes", "2000")).await.unwrap();
    let settings = store.settings().await;
    assert_eq!((settings.retention, settings.retention_bytes), (asked.retention, asked.retention_bytes));
    assert_eq!(set_on(&topics), [vec![pair("max.message.bytes", "2000")], foreign.to_vec()].concat());
}
