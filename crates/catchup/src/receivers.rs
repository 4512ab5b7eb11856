//! The application's tasks that wait for a record.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Wakes as many tasks as there are records, and does nothing when none waits.
#[derive(Debug, Default)]
pub(crate) struct Receivers {
    filled: Notify,
    /// Those that wait or are about to.
    count: AtomicUsize,
}

impl Receivers {
    /// Waits until there is something to find. May be dropped at any time: who was woken in vain wakes the next.
    pub(crate) async fn wait<T>(&self, look: impl Fn() -> Option<T>) -> T {
        if let Some(found) = look() {
            return found;
        }
        let _counted = Counted::among(&self.count);
        loop {
            let filled = self.filled.notified();
            tokio::pin!(filled);
            // Before the look, so that nothing that comes in between is missed.
            filled.as_mut().enable();
            if let Some(found) = look() {
                return found;
            }
            filled.await;
        }
    }

    /// Tells of so many things that were put where `look` finds them. Each task is counted before it looks, and they were put there
    /// before it is read here how many are counted: who is not counted yet sees them.
    pub(crate) fn wake(&self, things: usize) {
        for _ in 0..things.min(self.count.load(Ordering::SeqCst)) {
            self.filled.notify_one();
        }
    }

    /// Tells all of them.
    pub(crate) fn wake_all(&self) {
        self.filled.notify_waiters();
    }
}

struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn among(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Waker};

    use super::*;

    fn ready(task: &mut Pin<Box<impl Future>>) -> bool {
        task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    fn take(things: &AtomicUsize) -> Option<usize> {
        things.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |things| things.checked_sub(1)).ok()
    }

    #[test]
    fn as_many_are_woken_as_there_are_things_and_wait() {
        let (receivers, things) = (Receivers::default(), AtomicUsize::new(0));
        let mut tasks: Vec<_> = (0..4).map(|_| Box::pin(receivers.wait(|| take(&things)))).collect();
        // The last one does not wait yet.
        assert!(tasks.iter_mut().take(3).all(|task| !ready(task)));
        assert_eq!(receivers.count.load(Ordering::SeqCst), 3);
        things.store(2, Ordering::SeqCst);
        receivers.wake(2);
        assert_eq!(tasks.iter_mut().take(3).filter_map(|task| ready(task).then_some(())).count(), 2);
        assert_eq!(receivers.count.load(Ordering::SeqCst), 1);
        things.store(5, Ordering::SeqCst);
        receivers.wake(5);
        assert!(ready(&mut tasks[3]), "what is there is taken without waiting");
        drop(tasks);
        assert_eq!(receivers.count.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn who_is_dropped_after_it_was_woken_wakes_the_next() {
        let (receivers, things) = (Receivers::default(), AtomicUsize::new(0));
        let mut one = Box::pin(receivers.wait(|| take(&things)));
        let mut other = Box::pin(receivers.wait(|| take(&things)));
        assert!(!ready(&mut one) && !ready(&mut other));
        things.store(1, Ordering::SeqCst);
        receivers.wake(1);
        drop(one);
        assert!(ready(&mut other));
    }

    #[test]
    fn who_finds_nothing_any_more_waits_on() {
        let (receivers, things) = (Receivers::default(), AtomicUsize::new(0));
        let mut one = Box::pin(receivers.wait(|| take(&things)));
        assert!(!ready(&mut one));
        things.store(1, Ordering::SeqCst);
        receivers.wake(1);
        assert!(ready(&mut Box::pin(receivers.wait(|| take(&things)))), "one that came later was faster");
        assert!(!ready(&mut one));
        things.store(1, Ordering::SeqCst);
        receivers.wake(1);
        assert!(ready(&mut one));
    }
}
