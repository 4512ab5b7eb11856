//! Work that runs to its end when nobody waits for it any more.
//!
//! When a client hangs up, or its time is over, an append under way still has to come to its verdict: the producer's next
//! batch waits for that instead of guessing. A task of its own for each append would do that too, at the price of another
//! way through the scheduler and back. So whoever waits for the work also runs it, and it becomes a task only when it is
//! given up.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A future that goes on in a task when it is dropped half-way. What was never polled has not begun, and is dropped.
pub(super) struct Whole<T: Send + 'static> {
    work: Option<Work<T>>,
    begun: bool,
}

impl<T: Send + 'static> Whole<T> {
    pub(super) fn new(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self { work: Some(Box::pin(work)), begun: false }
    }
}

impl<T: Send + 'static> Future for Whole<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        // Taken out meanwhile: what panics is not polled again by a task.
        let Some(mut work) = self.work.take() else { return Poll::Pending };
        self.begun = true;
        let polled = work.as_mut().poll(context);
        if polled.is_pending() {
            self.work = Some(work);
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Whole<T> {
    fn drop(&mut self) {
        let Some(work) = self.work.take().filter(|_| self.begun) else { return };
        // Without a runtime there is nothing that could run it; the process is at its end.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(work);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use tokio::sync::Notify;
    use tokio::time::timeout;

    use super::*;

    struct Watched {
        work: Whole<u32>,
        go_on: Arc<Notify>,
        done: Arc<Notify>,
        has_begun: Arc<AtomicBool>,
    }

    fn watched() -> Watched {
        let (go_on, done, has_begun) =
            (Arc::<Notify>::default(), Arc::<Notify>::default(), Arc::<AtomicBool>::default());
        let (waits, tells, begins) = (Arc::clone(&go_on), Arc::clone(&done), Arc::clone(&has_begun));
        let work = Whole::new(async move {
            begins.store(true, Ordering::SeqCst);
            waits.notified().await;
            tells.notify_one();
            7
        });
        Watched { work, go_on, done, has_begun }
    }

    #[tokio::test]
    async fn who_waits_for_it_gets_its_outcome() {
        let Watched { work, go_on, .. } = watched();
        go_on.notify_one();
        assert_eq!(work.await, 7);
    }

    #[tokio::test]
    async fn what_is_given_up_half_way_runs_to_its_end() {
        let Watched { work, go_on, done, .. } = watched();
        assert!(timeout(Duration::from_millis(1), work).await.is_err());
        go_on.notify_one();
        timeout(Duration::from_secs(60), done.notified()).await.expect("it goes on in a task");
    }

    #[tokio::test]
    async fn what_has_not_begun_never_does() {
        let Watched { work, has_begun, .. } = watched();
        drop(work);
        tokio::task::yield_now().await;
        assert!(!has_begun.load(Ordering::SeqCst));
    }
}
