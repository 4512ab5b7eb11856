//! What the tests of this crate share.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::sync::{Arc, LazyLock};

use milena_store_iggy::{IggyConfig, IggyStore};
use tokio::runtime::Runtime;

/// The runtime of all servers and stores of a test binary; the suite itself runs on plain threads.
pub static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap());

pub fn open(config: IggyConfig) -> Arc<IggyStore> {
    Arc::new(RUNTIME.block_on(Box::pin(IggyStore::open(config))).unwrap())
}
