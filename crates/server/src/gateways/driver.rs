//! The task behind [`super::Gateways`]: reads the log, lets the machine decide, appends, and tells everybody what follows.

use std::sync::Arc;

use milena_store::{Store, StoreError};
use tokio::time::{Duration, Instant, sleep_until, timeout};

use super::log::{GatewayLog, Message, is_lost};
use super::machine::{Machine, Me, Standing};
use super::shared::{Published, Shared};
use super::view::View;
use crate::opening::answered;

/// Attempts to say farewell.
const FAREWELLS_MAX: u32 = 2;

/// Shortest time for which a start waits for a store that is away, however short the beat: three beats as they are by default.
const AWAY_MIN: Duration = Duration::from_secs(9);

/// What was done.
enum Round {
    /// The log was read, and there was nothing to send.
    Read,
    /// A beat was sent, and the log was read again.
    Sent,
}

/// Reads and appends.
pub(super) struct Driver {
    shared: Arc<Shared>,
    log: GatewayLog,
    machine: Machine,
    /// Zero of the machine's clock.
    origin: Instant,
    /// Time between looks at the log.
    poll: Duration,
    /// How long the store may take. What takes longer may still land.
    patience: Duration,
    trimmed: u64,
    /// The store failed, and that was said.
    failing: bool,
}

impl Driver {
    pub(super) async fn open(store: Arc<dyn Store>, me: Me, shared: Arc<Shared>) -> Result<Self, StoreError> {
        let (poll, patience) = (me.beat / 3, me.beat);
        let log = answered("the log of gateways", GatewayLog::open(store)).await?;
        let base = log.next();
        let origin = Instant::now();
        let machine = Machine::new(me, View::from_base(base), Duration::ZERO);
        Ok(Self { shared, log, machine, origin, poll, patience, trimmed: base, failing: false })
    }

    /// Goes on until this gateway has its number, or will not get it.
    pub(super) async fn join(&mut self) -> Result<Standing, StoreError> {
        let mut failed_since = None;
        loop {
            match self.round().await {
                Ok(Round::Sent) => failed_since = None,
                // Reading alone is not enough: a full store can still be read.
                Ok(Round::Read) => {}
                // A store that is away for a moment is waited for, one that stays away is an error at start.
                Err(error) => {
                    let since = *failed_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= (self.patience * 3).max(AWAY_MIN) {
                        return Err(error);
                    }
                }
            }
            if *self.machine.standing() != Standing::Waiting {
                return Ok(self.machine.standing().clone());
            }
            sleep_until(Instant::now() + self.poll).await;
        }
    }

    /// Goes on until this gateway leaves or is displaced.
    pub(super) async fn run(mut self) {
        loop {
            let serves = self.shared.serves();
            self.machine.serve(serves, self.now());
            match self.round().await {
                Err(error) if is_lost(&error) => return self.lose(&error),
                result => self.note(result),
            }
            if *self.machine.standing() == Standing::Displaced {
                tracing::error!(
                    "another gateway runs under the instance number of this one, which was silent for too long"
                );
                return;
            }
            if self.shared.is_leaving() {
                return self.farewell().await;
            }
            let now = self.now();
            let look = now + self.poll;
            let until = self.machine.mandate(now).map_or(look, |(_, until)| until.min(look));
            tokio::select! {
                () = sleep_until(self.origin + until) => {}
                () = self.shared.serves_other_than(serves) => {}
                () = self.shared.left() => {}
            }
        }
    }

    /// Reads all there is, and sends what is due. What was sent is read before this returns, if it was answered.
    async fn round(&mut self) -> Result<Round, StoreError> {
        let began = Instant::now();
        let read = self.read().await;
        self.publish();
        read?;
        self.shared.note_read(began);
        let Some(beat) = self.machine.next(self.now(), self.log.next()) else {
            return Ok(Round::Read);
        };
        patiently(self.patience, self.log.append(&beat)).await?;
        let read = self.read().await;
        self.publish();
        self.trim().await;
        read.map(|()| Round::Sent)
    }

    async fn read(&mut self) -> Result<(), StoreError> {
        loop {
            let messages = patiently(self.patience, self.log.read()).await?;
            if messages.is_empty() {
                return Ok(());
            }
            // After the read: the longer ago a beat is taken to be, the sooner its sender is given up.
            let now = self.now();
            for Message { offset, log_micros, beat } in messages {
                if let Some(beat) = beat {
                    self.machine.read(offset, log_micros, now, &beat);
                } else {
                    tracing::warn!(offset, "the log of gateways holds a message that is no record of this version");
                }
            }
        }
    }

    async fn farewell(&mut self) {
        self.machine.leave(self.now());
        self.publish();
        let Some(beat) = self.machine.next(self.now(), self.log.next()) else { return };
        for _ in 0..FAREWELLS_MAX {
            match patiently(self.patience, self.log.append(&beat)).await {
                Ok(()) => return,
                Err(error) => tracing::warn!(%error, "the other gateways were not told that this one stops"),
            }
        }
    }

    /// Trying on would be in vain, and meanwhile nobody here would notice that another gateway has the number. A process that
    /// starts anew begins at the base.
    fn lose(&mut self, error: &StoreError) {
        tracing::error!(
            %error,
            next = self.log.next(),
            "the log of gateways no longer has what this gateway has to read next; it was away for too long, or the topic \
             was deleted"
        );
        self.machine.lose_log();
        self.publish();
    }

    async fn trim(&mut self) {
        let base = self.machine.view().base();
        if base > self.trimmed && self.machine.mandate(self.now()).is_some() {
            self.trimmed = base;
            let _ = timeout(self.patience, self.log.trim(base)).await;
        }
    }

    fn publish(&self) {
        let now = self.now();
        self.shared.publish(Published {
            mandate: self.machine.mandate(now).map(|(term, until)| (term, self.origin + until)),
            coordinator: self.machine.coordinator(now),
            others: self.machine.others(now),
            standing: self.machine.standing().clone(),
        });
    }

    fn note(&mut self, result: Result<Round, StoreError>) {
        match (result, self.failing) {
            (Err(error), false) => {
                self.failing = true;
                tracing::error!(%error, "the log of gateways cannot be reached; this gateway stops coordinating groups");
            }
            (Ok(Round::Sent), true) => {
                self.failing = false;
                tracing::info!("the log of gateways is reached again");
            }
            _ => {}
        }
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }
}

async fn patiently<T>(patience: Duration, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    timeout(patience, call).await.unwrap_or_else(|_| {
        Err(StoreError::InDoubt { reason: format!("the store did not answer within {} ms", patience.as_millis()) })
    })
}
