//! Looks for topics that another gateway created, over a store that counts them.

use std::sync::atomic::AtomicUsize;

use milena_store::testing::{Layer, Layered, MemoryStore};
use milena_store::{Capabilities, Store, StoreFuture, TopicInfo, TopicSettings};

use super::*;
use crate::config::ServerConfig;

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
    again.seek_ids([Uuid::nil(), id]).await;
    assert!(again.by_name("d").is_none(), "all that was asked for is known");
}

#[tokio::test(start_paused = true)]
async fn a_topic_is_found_by_its_id() {
    let store = Listed::new(true);
    let (one, two) = (store.open().await, store.open().await);
    store.create("t").await;
    one.seek_names(["t"]).await;
    let id = one.by_name("t").unwrap().id;
    two.seek_ids([id]).await;
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
    directory.seek_ids([Uuid::from_u128(1)]).await;
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
