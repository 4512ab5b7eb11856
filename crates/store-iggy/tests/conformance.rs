//! The suite of promises, over Iggy's protocol served in this process.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod common;
#[path = "common/door.rs"]
mod door;

use std::sync::Arc;

use door::TestServer;
use milena_iggy_door::OffsetRules;
use milena_store::Store;
use milena_store::conformance::StoreFactory;

impl StoreFactory for TestServer {
    fn open(&self) -> Arc<dyn Store> {
        TestServer::open(self)
    }

    fn crash(&self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        drop(store);
        Some(StoreFactory::open(self))
    }
}

milena_store::conformance_tests!(TestServer::new());
milena_store::offset_conformance_tests!(TestServer::with(OffsetRules::Free));
