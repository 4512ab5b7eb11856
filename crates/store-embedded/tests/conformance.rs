//! The suite of promises, over files with small segments and in memory.
#![allow(clippy::unwrap_used, missing_docs, reason = "test code")]

use std::sync::Arc;

use milena_store::Store;
use milena_store::conformance::StoreFactory;
use milena_store_embedded::{EmbeddedConfig, open};
use tempfile::TempDir;

struct OnDisk(TempDir);

impl StoreFactory for OnDisk {
    fn open(&self) -> Arc<dyn Store> {
        // Small segments, so that most tests cross from one to the next.
        let dir = Some(self.0.path().join("data"));
        open(&EmbeddedConfig { dir, segment_bytes: 64 << 10, ..EmbeddedConfig::default() }).unwrap()
    }

    fn crash(&self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        drop(store);
        Some(self.open())
    }
}

milena_store::conformance_tests!(OnDisk(tempfile::tempdir().unwrap()));

mod in_memory {
    use super::*;

    struct InMemory;

    impl StoreFactory for InMemory {
        fn open(&self) -> Arc<dyn Store> {
            open(&EmbeddedConfig::default()).unwrap()
        }

        fn keeps_data(&self) -> bool {
            false
        }
    }

    milena_store::conformance_tests!(InMemory);
}
