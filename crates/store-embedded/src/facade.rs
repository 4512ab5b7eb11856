//! From blocking calls to futures: where an async runtime is there, its blocking threads do what can wait.

use milena_store::StoreError;
use tokio::runtime::Handle;

use crate::fs::Fs;

/// True when the calling thread belongs to an async runtime and the file system can hold it up.
pub(crate) fn must_not_block(fs: &dyn Fs) -> bool {
    fs.can_block() && Handle::try_current().is_ok()
}

/// Runs `work` on a blocking thread of the runtime, or here when there is none. When the runtime is shutting down it
/// may be dropped instead.
pub(crate) fn detach(work: impl FnOnce() + Send + 'static) {
    match Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn_blocking(work)),
        Err(_) => work(),
    }
}

/// Runs `work` where it may wait, and answers what it answers.
pub(crate) async fn run<T: Send + 'static>(
    fs: &dyn Fs,
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    if !must_not_block(fs) {
        return work();
    }
    match Handle::try_current() {
        Ok(runtime) => runtime.spawn_blocking(work).await.unwrap_or_else(|error| {
            Err(StoreError::InDoubt { reason: format!("the thread that did it ended: {error}") })
        }),
        Err(_) => work(),
    }
}
