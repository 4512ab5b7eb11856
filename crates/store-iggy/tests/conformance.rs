//! The suite of promises, over Iggy's protocol served in this process: on the reference store, and on the embedded one.
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
#[path = "common/on_disk.rs"]
mod on_disk;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use common::{RUNTIME, open};

use door::TestServer;
use milena_iggy_door::{Door, DoorLimits, OffsetRules};
use milena_store::Store;
use milena_store::conformance::StoreFactory;
use milena_store_iggy::{IggyConfig, SecretString};
use milena_testkit::iggy_server::{PASSWORD, USER};
use parking_lot::Mutex;
use tempfile::TempDir;

impl StoreFactory for TestServer {
    fn open(&self) -> Arc<dyn Store> {
        TestServer::open(self)
    }

    fn crash(&self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        drop(store);
        Some(StoreFactory::open(self))
    }
}

/// The same over the embedded store in a folder, as `milena serve --iggy-listen` has it.
struct OnDisk {
    door: Mutex<Option<Door>>,
    address: SocketAddr,
    folder: TempDir,
    rules: OffsetRules,
}

impl OnDisk {
    fn with(rules: OffsetRules) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let door = RUNTIME.block_on(on_disk::open_door(PASSWORD, folder.path(), nowhere, rules, DoorLimits::default()));
        Self { address: door.address(), door: Mutex::new(Some(door)), folder, rules }
    }
}

impl StoreFactory for OnDisk {
    fn open(&self) -> Arc<dyn Store> {
        open(IggyConfig {
            append_connections: 3,
            read_connections: 2,
            state_stream: "gateway".to_owned(),
            call_timeout: Duration::from_secs(10),
            ..IggyConfig::new(&self.address.to_string(), USER, SecretString::from(PASSWORD.to_owned()))
        })
    }

    /// Both ends of the connection end.
    fn crash(&self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        drop(store);
        drop(self.door.lock().take());
        let again = RUNTIME.block_on(on_disk::open_door(
            PASSWORD,
            self.folder.path(),
            self.address,
            self.rules,
            DoorLimits::default(),
        ));
        *self.door.lock() = Some(again);
        Some(self.open())
    }
}

mod in_memory {
    use super::*;

    milena_store::conformance_tests!(TestServer::new());
    milena_store::offset_conformance_tests!(TestServer::with(OffsetRules::Free));
}

mod in_a_folder {
    use super::*;

    milena_store::conformance_tests!(OnDisk::with(OffsetRules::Server));
    milena_store::offset_conformance_tests!(OnDisk::with(OffsetRules::Free));
}
