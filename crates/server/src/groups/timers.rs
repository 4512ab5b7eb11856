//! The clock of the coordinator: sessions and barriers that end, offsets that expire.

use std::sync::Arc;

use milena_groups::{Groups, Walk};
use tokio::task::yield_now;
use tokio::time::Instant;
use tokio::time::{MissedTickBehavior, interval_at, sleep_until};

use super::shared::Shared;
use super::topics::{Existing, forget_missing};

/// Ends what is due, for ever. Members that all vanish are evicted on time even when nobody talks to the group.
pub(super) async fn tick(shared: Arc<Shared>) {
    loop {
        let deadline = shared.arm();
        let due = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = shared.sooner.notified() => {}
            () = due => shared.run(Groups::tick),
        }
        // Very many groups are due in slices, one behind the other.
        yield_now().await;
    }
}

/// Lets go of old offsets, and of those whose topic went or was renamed behind the server's back, for ever.
pub(super) async fn expire(shared: Arc<Shared>, existing: Existing) {
    let every = shared.settings.offsets_check_interval;
    let mut rounds = interval_at(Instant::now() + every, every);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        forget_missing(&shared, &existing).await;
        let mut walk = Walk::default();
        while !walk.is_over() {
            shared.run(|groups, now, out| groups.expire(&mut walk, now, out));
            // Between two slices others have their turn.
            yield_now().await;
        }
    }
}
