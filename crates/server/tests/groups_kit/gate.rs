//! A store that holds up appends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use milena_store::testing::{Layer, MemoryStore};
use milena_store::{AppendBatch, Appended, PartitionRef, Store, StoreFuture};
use tokio::sync::Semaphore;

/// A store in memory where appends to one topic wait for the test, once it has said so.
#[derive(Clone)]
pub(crate) struct Gated {
    memory: MemoryStore,
    topic: Arc<str>,
    holds: Arc<AtomicBool>,
    waiting: Arc<AtomicUsize>,
    open: Arc<Semaphore>,
}

impl Gated {
    pub(crate) fn new(topic: &str) -> Self {
        let open = Arc::new(Semaphore::new(0));
        let topic = topic.into();
        Self { memory: MemoryStore::new(), topic, holds: Arc::default(), waiting: Arc::default(), open }
    }

    /// Appends wait from now on.
    pub(crate) fn hold(&self) {
        self.holds.store(true, Ordering::SeqCst);
    }

    /// Waits until that many appends stand before the gate, or have.
    pub(crate) async fn arrived(&self, appends: usize) {
        while self.waiting.load(Ordering::SeqCst) < appends {
            tokio::task::yield_now().await;
        }
    }

    /// Lets that many appends through.
    pub(crate) fn open(&self, appends: usize) {
        self.open.add_permits(appends);
    }
}

impl Layer for Gated {
    fn below(&self) -> &dyn Store {
        &self.memory
    }

    fn append<'a>(&'a self, at: &'a PartitionRef, batch: AppendBatch) -> StoreFuture<'a, Appended> {
        Box::pin(async move {
            if self.holds.load(Ordering::SeqCst) && at.topic.topic() == &*self.topic {
                self.waiting.fetch_add(1, Ordering::SeqCst);
                self.open.acquire().await.expect("never closed").forget();
            }
            self.memory.append(at, batch).await
        })
    }
}
