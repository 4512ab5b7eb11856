//! The coordinator behind one lock, and what has to happen after every call.
//!
//! The lock is held for the work of one event and never across a wait, so a slow store holds up nobody but those who
//! commit. Records go into the queue of the appender, in their order, before the lock is given back; answers are sent after.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use milena_groups::{Answer, Append, Census, GroupConfig, GroupError, Groups, Moment, Now, Outputs, Timestamp, Token};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Duration, Instant};

use super::settings::GroupSettings;
use crate::metrics::GroupMetrics;

/// What the handlers, the appender and the timers share.
pub(super) struct Shared {
    state: Mutex<State>,
    pub(super) settings: GroupSettings,
    pub(super) metrics: Arc<GroupMetrics>,
    /// Largest record that the log takes.
    record_bytes_max: usize,
    /// Longest group id where it is shorter than Kafka's, in bytes.
    group_id_bytes_max: usize,
    /// Zero of the monotonic clock.
    started: Instant,
    /// There is something to append, or the end has come.
    pub(super) queued: Notify,
    /// Something is due earlier than the timer thinks.
    pub(super) sooner: Notify,
    /// True when no record comes any more.
    closing: watch::Sender<bool>,
}

/// How much there is of everything that belongs to groups.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// Groups by state, and members. Groups that consist of offsets alone are not in it.
    pub census: Census,
    /// Committed offsets.
    pub offsets: usize,
    /// Groups that have committed offsets.
    pub groups_with_offsets: usize,
    /// Bytes of records that wait for the store.
    pub unsettled_bytes: usize,
    /// Whether groups are served here: not while their offsets are loaded, nor when another gateway coordinates.
    pub serving: Result<(), GroupError>,
}

/// What the lock protects.
pub(super) struct State {
    pub(super) groups: Groups,
    out: Outputs,
    /// Records on their way to the log, in order.
    pub(super) queue: VecDeque<Append>,
    /// Bytes of records that are not settled.
    pub(super) unsettled_bytes: usize,
    /// Whom the answer of a token goes to. A connection has one request at a time, so there are few more than connections.
    waiters: HashMap<Token, oneshot::Sender<Answer>>,
    last_token: u64,
    /// When the timer will look again.
    armed: Option<Moment>,
}

impl Shared {
    /// Coordinates nothing yet.
    pub(super) fn new(settings: GroupSettings, record_bytes_max: usize, metrics: Arc<GroupMetrics>) -> Self {
        let membership = settings.membership();
        let group_id_bytes_max = membership.group_id_bytes_max;
        let state = State {
            groups: Groups::elsewhere(membership, settings.offsets(record_bytes_max)),
            out: Outputs::default(),
            queue: VecDeque::new(),
            unsettled_bytes: 0,
            waiters: HashMap::new(),
            last_token: 0,
            armed: None,
        };
        Self {
            state: Mutex::new(state),
            settings,
            metrics,
            record_bytes_max,
            group_id_bytes_max,
            started: Instant::now(),
            queued: Notify::new(),
            sooner: Notify::new(),
            closing: watch::Sender::new(false),
        }
    }

    /// The same where group ids are shorter, since names are in the store.
    pub(super) fn with_group_ids_of(self, bytes_max: usize) -> Self {
        let group_id_bytes_max = self.group_id_bytes_max.min(bytes_max);
        Self { group_id_bytes_max, ..self }
    }

    /// Longest group id, in bytes.
    pub(super) fn group_id_bytes_max(&self) -> usize {
        self.group_id_bytes_max
    }

    fn membership(&self) -> GroupConfig {
        GroupConfig { group_id_bytes_max: self.group_id_bytes_max, ..self.settings.membership() }
    }

    /// Groups whose offsets are still to be loaded.
    pub(super) fn loading(&self) -> Groups {
        Groups::new(self.membership(), self.settings.offsets(self.record_bytes_max))
    }

    /// Groups of a gateway that does not coordinate.
    pub(super) fn elsewhere(&self) -> Groups {
        Groups::elsewhere(self.membership(), self.settings.offsets(self.record_bytes_max))
    }

    /// Serves groups whose log was replayed.
    pub(super) fn begin(&self, mut groups: Groups) {
        let before = self.run_on_state(|state, now| {
            groups.loaded_in_place_of(&mut state.groups, now.wall);
            std::mem::replace(&mut state.groups, groups)
        });
        drop(before);
    }

    /// Gives everything up: whoever waits is answered with 16, also for records that wait for the log or are on their way
    /// to it. `next` takes the place.
    pub(super) fn resign(&self, next: Groups) {
        let given_up = self.run_on_state(|state, _| {
            state.groups.resign(&mut state.out);
            state.unsettled_bytes = 0;
            (std::mem::replace(&mut state.groups, next), std::mem::take(&mut state.queue))
        });
        // A large table takes a while to be freed, which nobody should wait for.
        drop(given_up);
    }

    /// No record comes any more.
    pub(super) fn close(&self) {
        self.closing.send_replace(true);
        self.queued.notify_one();
    }

    pub(super) fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    /// Resolves when no record comes any more.
    pub(super) async fn closed(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }

    /// Runs one event, then does what it brought about.
    pub(super) fn run<T>(&self, event: impl FnOnce(&mut Groups, Now, &mut Outputs) -> T) -> T {
        self.run_on_state(|state, now| event(&mut state.groups, now, &mut state.out))
    }

    /// As [`Shared::run`], for a request that is answered through its token. The answer may be there already.
    pub(super) fn ask(
        &self,
        request: impl FnOnce(&mut Groups, Token, Now, &mut Outputs),
    ) -> (Token, oneshot::Receiver<Answer>) {
        let (sender, receiver) = oneshot::channel();
        let token = self.run_on_state(|state, now| {
            state.last_token += 1;
            let token = Token(state.last_token);
            state.waiters.insert(token, sender);
            request(&mut state.groups, token, now, &mut state.out);
            token
        });
        (token, receiver)
    }

    /// Nobody waits for that answer any more.
    pub(super) fn give_up(&self, token: Token) {
        self.state.lock().waiters.remove(&token);
    }

    pub(super) fn run_on_state<T>(&self, event: impl FnOnce(&mut State, Now) -> T) -> T {
        let mut state = self.state.lock();
        // Read under the lock, so that time never falls from one event to the next.
        let now = self.now();
        let result = event(&mut state, now);
        let queued = state.take_appends();
        let answers = state.take_answers();
        for event in state.out.events.drain(..) {
            self.metrics.note(&event);
        }
        let sooner = state.rearm();
        drop(state);
        if queued {
            self.queued.notify_one();
        }
        if sooner {
            self.sooner.notify_one();
        }
        for (waiter, answer) in answers {
            // Whoever gave up in this moment does not want it.
            let _ = waiter.send(answer);
        }
        result
    }

    /// Looks, without changing anything.
    pub(super) fn read<T>(&self, look: impl FnOnce(&Groups) -> T) -> T {
        look(&self.state.lock().groups)
    }

    /// How much there is of everything, at the cost of a few numbers under the lock.
    pub(super) fn usage(&self) -> Usage {
        let state = self.state.lock();
        let offsets = state.groups.offsets();
        Usage {
            census: state.groups.coordinator().census(),
            offsets: offsets.len(),
            groups_with_offsets: offsets.groups_len(),
            unsettled_bytes: state.unsettled_bytes,
            serving: state.groups.check_serving(),
        }
    }

    /// True when so many bytes wait for the store that no more commits are taken.
    pub(super) fn is_full(&self) -> bool {
        self.state.lock().unsettled_bytes >= self.settings.offsets_in_flight_bytes
    }

    /// What the timer has to wait for; it is told when something comes before that.
    pub(super) fn arm(&self) -> Option<Instant> {
        let mut state = self.state.lock();
        state.armed = state.groups.deadline();
        state.armed.map(|moment| self.started + Duration::from_millis(moment.as_millis()))
    }

    fn now(&self) -> Now {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now {
            moment: Moment::from_millis(millis(self.started.elapsed())),
            wall: Timestamp(i64::try_from(millis(wall)).unwrap_or(i64::MAX)),
        }
    }
}

impl State {
    fn take_appends(&mut self) -> bool {
        let any = !self.out.appends.is_empty();
        self.unsettled_bytes += self.out.appends.iter().map(|append| append.record.len()).sum::<usize>();
        self.queue.extend(self.out.appends.drain(..));
        any
    }

    fn take_answers(&mut self) -> Vec<(oneshot::Sender<Answer>, Answer)> {
        let answers = self.out.answers.drain(..);
        answers.filter_map(|(token, answer)| Some((self.waiters.remove(&token)?, answer))).collect()
    }

    /// True when the timer would look too late.
    fn rearm(&mut self) -> bool {
        let Some(deadline) = self.groups.deadline() else { return false };
        let sooner = self.armed.is_none_or(|armed| deadline < armed);
        if sooner {
            self.armed = Some(deadline);
        }
        sooner
    }
}
