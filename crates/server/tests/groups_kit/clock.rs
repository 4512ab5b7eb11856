//! A clock that stands still between the steps of a test, although requests go over TCP.

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// After this real time the clock runs by itself, so that a test that waits for something in vain fails instead of hanging.
const HELD_FOR: Duration = Duration::from_secs(60);

/// Holds the clock of the runtime. A paused clock jumps to the next deadline when nothing is left to do, and waiting for
/// a socket counts as nothing; a blocking task that is under way keeps it from that.
pub(crate) struct HeldClock(#[expect(dead_code, reason = "held, and dropped with the clock")] Sender<()>);

impl HeldClock {
    pub(crate) fn hold() -> Self {
        tokio::time::pause();
        let (held, ended) = channel::<()>();
        tokio::task::spawn_blocking(move || ended.recv_timeout(HELD_FOR));
        Self(held)
    }

    /// Lets time pass, and everybody who waited for it do what he does then.
    pub(crate) async fn pass(&self, time: Duration) {
        tokio::time::advance(time).await;
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    pub(crate) async fn seconds(&self, seconds: u64) {
        self.pass(Duration::from_secs(seconds)).await;
    }
}
