use milena_store::testing::{Fault, Layer, Layered, MemoryStore};
use milena_store::{StoreFuture, TopicSettings};
use tokio::sync::Notify;

use super::*;

/// A store whose next list of topics, once that is asked for, is read at once and told late.
#[derive(Default)]
struct LateList {
    memory: MemoryStore,
    is_late: Mutex<bool>,
    was_read: Notify,
    may_tell: Notify,
}

impl Layer for LateList {
    fn below(&self) -> &dyn Store {
        &self.memory
    }

    fn topics(&self) -> StoreFuture<'_, Vec<TopicInfo>> {
        Box::pin(async {
            let list = self.memory.topics().await;
            if std::mem::take(&mut *self.is_late.lock()) {
                self.was_read.notify_one();
                self.may_tell.notified().await;
            }
            list
        })
    }
}

fn names(streams: &[(Stream, Vec<TopicInfo>)]) -> Vec<(&str, usize)> {
    streams.iter().map(|(stream, topics)| (stream.name.as_str(), topics.len())).collect()
}

#[tokio::test]
async fn a_list_from_before_a_rename_does_not_bring_the_old_name_back() {
    let store = Arc::new(Layered(LateList::default()));
    let admin: Arc<dyn Store> = store.clone();
    admin.create_topic("old", "t", 1, &TopicSettings::default()).await.unwrap();
    let state = State::open(Arc::clone(&admin), 0).await.unwrap();
    let catalog = Arc::new(Catalog::new(Arc::clone(&admin), state, 10));
    let old = catalog.stream(&WireIdentifier::named("old").unwrap()).await.unwrap().unwrap();

    *store.is_late.lock() = true;
    let listing = tokio::spawn({
        let catalog = Arc::clone(&catalog);
        async move { catalog.streams().await.unwrap() }
    });
    store.was_read.notified().await;
    catalog.rename_stream(&admin, &old, "new").await.unwrap();
    store.may_tell.notify_one();
    assert_eq!(names(&listing.await.unwrap()), [("new", 1)]);
    assert_eq!(names(&catalog.streams().await.unwrap()), [("new", 1)]);

    let new = catalog.stream(&WireIdentifier::named("new").unwrap()).await.unwrap().unwrap();
    catalog.rename_stream(&admin, &new, "old").await.unwrap();
    assert_eq!(names(&catalog.streams().await.unwrap()), [("old", 1)]);
}

/// A store that refuses what is written next after the rename of a stream.
#[derive(Default)]
struct FullAfterRename {
    memory: MemoryStore,
}

impl Layer for FullAfterRename {
    fn below(&self) -> &dyn Store {
        &self.memory
    }

    fn rename_stream<'a>(&'a self, stream: &'a str, name: &'a str) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.memory.rename_stream(stream, name).await?;
            self.memory.plan(Fault::Full);
            Ok(())
        })
    }
}

/// A catalog of that store with the stream `old`.
async fn with_old(store: &Arc<dyn Store>) -> (Catalog, Stream) {
    store.create_topic("old", "t", 1, &TopicSettings::default()).await.unwrap();
    let state = State::open(Arc::clone(store), 0).await.unwrap();
    let catalog = Catalog::new(Arc::clone(store), state, 10);
    let old = catalog.stream(&WireIdentifier::named("old").unwrap()).await.unwrap().unwrap();
    (catalog, old)
}

/// The same, and it was written down that the stream is to be named `new`.
async fn rename_begun(store: &Arc<dyn Store>) -> (Catalog, Stream) {
    let (catalog, old) = with_old(store).await;
    let of = catalog.topics_of(&old).await.unwrap().first().unwrap().topic.stream_id();
    catalog.state.write(Record::Rename { id: old.id, name: "new".to_owned(), of }).await.unwrap();
    (catalog, old)
}

/// A catalog with a stream that has a new name in the store, and the old one in the list.
async fn renamed_in_part() -> (Catalog, Arc<dyn Store>, Stream) {
    let store: Arc<dyn Store> = Arc::new(Layered(FullAfterRename::default()));
    let (catalog, old) = with_old(&store).await;
    let renamed = catalog.rename_stream(&store, &old, "new").await;
    assert!(matches!(renamed, Err(Refusal::InDoubt)), "{renamed:?}");
    assert_eq!(catalog.known(&WireIdentifier::Numeric(old.id)), Some(old.clone()));
    (catalog, store, old)
}

#[tokio::test]
async fn a_rename_that_was_stored_in_part_gives_no_second_number_to_the_new_name() {
    let (catalog, store, old) = renamed_in_part().await;
    let new = catalog.stream(&WireIdentifier::named("new").unwrap()).await.unwrap().unwrap();
    assert_eq!(new.id, old.id);
    assert_eq!(names(&catalog.streams().await.unwrap()), [("new", 1)]);
    let state = State::open(Arc::clone(&store), 0).await.unwrap();
    assert_eq!(names(&Catalog::new(store, state, 10).streams().await.unwrap()), [("new", 1)]);
}

#[tokio::test]
async fn a_stream_whose_rename_was_stored_in_part_is_renamed_again_under_its_new_name_only() {
    let (catalog, store, old) = renamed_in_part().await;
    let again = catalog.rename_stream(&store, &old, "third").await;
    assert!(matches!(again, Err(Refusal::Rejected(Code::STREAM_NOT_FOUND))), "{again:?}");
    assert_eq!(names(&catalog.streams().await.unwrap()), [("new", 1)]);
}

#[tokio::test]
async fn a_stream_whose_rename_was_stored_in_part_is_found_with_its_topics_before_anybody_lists_them() {
    for by_number in [true, false] {
        let (catalog, store, old) = renamed_in_part().await;
        let found = if by_number {
            catalog.stream(&WireIdentifier::Numeric(old.id)).await.unwrap().unwrap()
        } else {
            assert_eq!(catalog.stream(&WireIdentifier::named("old").unwrap()).await.unwrap(), None);
            catalog.stream(&WireIdentifier::named("new").unwrap()).await.unwrap().unwrap()
        };
        assert_eq!((found.id, found.name.as_str(), catalog.topics_of(&found).await.unwrap().len()), (old.id, "new", 1));
        let topic = WireIdentifier::named("t").unwrap();
        assert_eq!(catalog.topic(&WireIdentifier::Numeric(old.id), &topic).await.unwrap().info.topic.stream(), "new");
        // A topic that is created now belongs to the stream.
        store.create_topic(&found.name, "u", 1, &TopicSettings::default()).await.unwrap();
        assert_eq!(names(&catalog.streams().await.unwrap()), [("new", 2)]);
    }
}

#[tokio::test]
async fn a_stream_whose_rename_was_stored_in_part_can_be_read_while_the_store_takes_nothing() {
    let memory = MemoryStore::new();
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    let (catalog, old) = rename_begun(&store).await;
    store.rename_stream("old", "new").await.unwrap();
    for id in [WireIdentifier::Numeric(old.id), WireIdentifier::named("new").unwrap(), WireIdentifier::Numeric(old.id)]
    {
        memory.plan(Fault::Full);
        let found = catalog.stream(&id).await.unwrap().unwrap();
        assert_eq!((found.name.as_str(), catalog.topics_of(&found).await.unwrap().len()), ("new", 1));
    }
    assert!(catalog.state.look(|table| table.is_renaming(old.id)), "nothing was stored");
    catalog.stream(&WireIdentifier::Numeric(old.id)).await.unwrap().unwrap();
    assert!(!catalog.state.look(|table| table.is_renaming(old.id)));
}

#[tokio::test]
async fn a_stream_that_others_made_under_the_name_of_a_rename_that_was_not_done_is_found() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (catalog, old) = rename_begun(&store).await;
    store.create_topic("new", "t", 1, &TopicSettings::default()).await.unwrap();
    let new = catalog.stream(&WireIdentifier::named("new").unwrap()).await.unwrap().unwrap();
    assert_ne!(new.id, old.id);
    assert_eq!(catalog.stream(&WireIdentifier::named("old").unwrap()).await.unwrap(), Some(old));
}

#[tokio::test]
async fn a_rename_that_was_not_done_leaves_the_stream_its_name() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (catalog, old) = rename_begun(&store).await;
    assert_eq!(catalog.stream(&WireIdentifier::named("old").unwrap()).await.unwrap(), Some(old.clone()));
    assert!(!catalog.state.look(|table| table.is_renaming(old.id)));
    assert_eq!(catalog.stream(&WireIdentifier::named("new").unwrap()).await.unwrap(), None);
}
