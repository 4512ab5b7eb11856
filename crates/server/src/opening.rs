//! The store while a server starts, or takes groups over: a store that hangs is an error that says so, and not a process
//! that neither serves nor ends.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use milena_store::state_log::{StateEvent, StateLog, StateLogOptions};
use milena_store::{Store, StoreError};
use tokio::time::{Duration, timeout};

use crate::limits::STORE_SILENCE_MAX;

/// Silence after which a line is logged, so that whoever looks at a start that takes long sees what it waits for.
const SAID_AFTER: Duration = Duration::from_secs(10);

/// What the store answers, if it does in time.
///
/// # Errors
/// As `call`; [`StoreError::Busy`] after 60 s.
pub async fn answered<T>(what: &str, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    within_silence(what, &AtomicU64::new(0), Box::pin(call)).await
}

/// As [`StateLog::open`]. It may take long when there is much to read, but no single answer of the store may.
///
/// # Errors
/// As [`StateLog::open`]; [`StoreError::Busy`] after 60 s without an answer.
pub async fn open_log(
    store: Arc<dyn Store>,
    topic: &str,
    options: StateLogOptions,
    apply: impl FnMut(StateEvent<'_>),
) -> Result<StateLog, StoreError> {
    let progress = Arc::clone(&options.progress);
    let what = format!("the internal topic `{topic}`");
    // Boxed, as its state is large and opening happens once.
    within_silence(&what, &progress, Box::pin(StateLog::open(store, topic, options, apply))).await
}

async fn within_silence<T>(
    what: &str,
    progress: &AtomicU64,
    mut work: Pin<Box<impl Future<Output = Result<T, StoreError>>>>,
) -> Result<T, StoreError> {
    let mut seen = progress.load(Ordering::Relaxed);
    let mut silence = Duration::ZERO;
    loop {
        if let Ok(done) = timeout(SAID_AFTER, &mut work).await {
            return done;
        }
        let now = progress.load(Ordering::Relaxed);
        silence = if now == seen { silence + SAID_AFTER } else { Duration::ZERO };
        seen = now;
        if silence >= STORE_SILENCE_MAX {
            let reason = format!("no answer for {} s when asked for {what}", silence.as_secs());
            return Err(StoreError::Busy { reason });
        }
        if silence == SAID_AFTER {
            tracing::warn!(waiting_for = what, "the store has not answered for {} s", silence.as_secs());
        }
    }
}

#[cfg(test)]
mod tests {
    use milena_store::testing::{Fault, MemoryStore};
    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_log_whose_claim_hangs_is_an_error_that_names_it() {
        let store = MemoryStore::new();
        store.plan(Fault::Hangs { applied: true });
        let before = Instant::now();
        let opened = open_log(Arc::new(store.clone()), "offsets", StateLogOptions::default(), |_| ()).await;
        let error = opened.err().expect("a store that hangs").to_string();
        assert_eq!(error, "the store is busy: no answer for 60 s when asked for the internal topic `offsets`");
        // The last answer came somewhere within the first step.
        assert!((STORE_SILENCE_MAX..=STORE_SILENCE_MAX + SAID_AFTER).contains(&before.elapsed()));
        let again = open_log(Arc::new(store), "offsets", StateLogOptions::default(), |_| ()).await;
        assert!(again.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_is_slow_may_take_as_long_as_it_goes_on() {
        let progress = AtomicU64::new(0);
        let slow = async {
            for _ in 0..10 {
                sleep(STORE_SILENCE_MAX / 2).await;
                progress.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        assert!(within_silence("much", &progress, Box::pin(slow)).await.is_ok());
        let hung: Result<(), _> = answered("the topics", std::future::pending()).await;
        assert!(matches!(hung, Err(StoreError::Busy { .. })));
    }
}
