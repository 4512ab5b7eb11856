use milena_store::testing::{Layer, Layered, MemoryStore};
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
