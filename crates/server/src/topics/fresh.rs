//! Topics that others create, grow and delete on the store.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::directory::TopicDirectory;

impl TopicDirectory {
    /// Looks at the store every so often until the directory is dropped, where others may change topics too.
    pub(crate) fn keep_fresh(&self, every: Duration) {
        if !self.inner.shared {
            return;
        }
        let inner = Arc::downgrade(&self.inner);
        tokio::spawn(async move {
            let mut rounds = interval_at(Instant::now() + every, every);
            rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                rounds.tick().await;
                let Some(inner) = inner.upgrade() else { return };
                if let Err(error) = inner.refresh().await {
                    // What was known stays; whoever needs the store hears of it.
                    tracing::debug!(%error, "the topics of the store could not be looked at");
                }
            }
        });
    }
}
