//! What the application and the thread that drives the clients have in common: the partitions and the queue of records.
//!
//! One lock over all of it, held for as long as one step of one partition takes, never over I/O.

use std::collections::{BTreeSet, HashMap, VecDeque};

use parking_lot::Mutex;
use rdkafka::message::{Headers, Message, OwnedMessage};
use tokio::sync::{Notify, broadcast};

use crate::State::{CatchingUp, Live, Merging};
use crate::consumer::Happened;
use crate::delivery::TopicPartition;
use crate::error::refuses;
use crate::wake::Wake;
use crate::{
    AckOutcome, Buffers, Epoch, Error, Event, Input, Lane, Order, Output, Partition, PartitionStatus, Settings,
};

/// So many records of the live lane may go before one of the backfill that waits: new records come first, and still the backfill
/// never stands.
const LIVE_IN_A_ROW: u32 = 8;

/// Events that a listener may be behind before it misses some.
const EVENTS_MAX: usize = 1_024;

/// Something the driving thread has to do for a partition.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) partition: TopicPartition,
    pub(crate) epoch: Epoch,
    pub(crate) what: Output,
}

struct Slot {
    machine: Partition,
    /// Records that were fetched and not handed out.
    records: HashMap<i64, OwnedMessage>,
}

#[derive(Debug)]
struct Queued {
    partition: TopicPartition,
    epoch: Epoch,
    lane: Lane,
    offset: i64,
}

/// A record on its way out of the queue.
pub(crate) struct Given {
    pub(crate) record: OwnedMessage,
    pub(crate) partition: TopicPartition,
    pub(crate) epoch: Epoch,
    pub(crate) lane: Lane,
    pub(crate) offset: i64,
    pub(crate) fork: Option<i64>,
}

#[derive(Default)]
struct State {
    slots: HashMap<TopicPartition, Slot>,
    /// Both lanes, when records come by offset.
    live: VecDeque<Queued>,
    backfill: VecDeque<Queued>,
    in_a_row: u32,
    tasks: VecDeque<Task>,
    last_epoch: u64,
    /// Nobody has heard of it yet.
    refused: Option<Error>,
    end: Option<Result<(), Error>>,
}

/// See the [module](self).
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Wakes receivers.
    filled: Notify,
    pub(crate) wake: std::sync::Arc<Wake>,
    events: broadcast::Sender<Happened>,
    settings: Settings,
}

impl Shared {
    pub(crate) fn new(settings: Settings, wake: std::sync::Arc<Wake>) -> Self {
        let events = broadcast::channel(EVENTS_MAX).0;
        Self { state: Mutex::default(), filled: Notify::new(), wake, events, settings }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn events(&self) -> broadcast::Receiver<Happened> {
        self.events.subscribe()
    }

    pub(crate) fn tell(&self, partition: &TopicPartition, event: Event) {
        // Nobody has to listen.
        let _ = self.events.send(Happened::To(partition.clone(), event));
    }

    /// An error of the consumer as a whole. Who waits for a record hears of it when waiting will not help.
    pub(crate) fn trouble(&self, code: i16, reason: String) {
        if refuses(code) {
            self.state.lock().refused = Some(Error::Refused { code, reason: reason.clone() });
            self.filled.notify_one();
        }
        let _ = self.events.send(Happened::Trouble { code, reason });
    }

    /// A new assignment of a partition. Its epoch is one that no assignment had before.
    pub(crate) fn assigned(&self, partition: &TopicPartition) -> Epoch {
        let mut state = self.state.lock();
        state.last_epoch += 1;
        let epoch = Epoch(state.last_epoch);
        let slot = Slot { machine: Partition::new(epoch, self.settings.clone()), records: HashMap::new() };
        state.slots.insert(partition.clone(), slot);
        state.refused = None;
        epoch
    }

    /// One step of a partition that needs no record, by the epoch it has.
    pub(crate) fn step(&self, partition: &TopicPartition, input: Input) {
        let mut state = self.state.lock();
        if let Some(epoch) = state.slots.get(partition).map(|slot| slot.machine.epoch()) {
            self.apply(&mut state, partition, epoch, input, None);
        }
    }

    /// One step of a partition that needs no record, in that epoch.
    pub(crate) fn step_in(&self, partition: &TopicPartition, epoch: Epoch, input: Input) {
        self.apply(&mut self.state.lock(), partition, epoch, input, None);
    }

    /// A reader has a record. `true` when there are tasks.
    pub(crate) fn fetched(&self, partition: &TopicPartition, lane: Lane, record: OwnedMessage) -> bool {
        let mut state = self.state.lock();
        if let Some(epoch) = state.slots.get(partition).map(|slot| slot.machine.epoch()) {
            let input = Input::Fetched { lane, offset: record.offset(), bytes: bytes_of(&record) };
            self.apply(&mut state, partition, epoch, input, Some(record));
        }
        !state.tasks.is_empty()
    }

    pub(crate) fn ack(&self, partition: &TopicPartition, epoch: Epoch, offset: i64) -> AckOutcome {
        let mut state = self.state.lock();
        let before = state.tasks.len();
        let outcome = self.apply(&mut state, partition, epoch, Input::Ack { offset }, None);
        if state.tasks.len() > before {
            self.wake.up();
        }
        outcome
    }

    pub(crate) fn defer(&self, partition: &TopicPartition, epoch: Epoch, record: OwnedMessage) {
        let mut state = self.state.lock();
        let before = state.tasks.len();
        let input = Input::Defer { offset: record.offset() };
        self.apply(&mut state, partition, epoch, input, Some(record));
        if state.tasks.len() > before {
            self.wake.up();
        }
    }

    /// The next record, or the end, or neither yet.
    fn next(&self) -> Option<Result<Option<Given>, Error>> {
        let mut state = self.state.lock();
        while let Some(queued) = pop(&mut state) {
            let Queued { partition, epoch, lane, offset } = queued;
            let Some(slot) = state.slots.get_mut(&partition) else { continue };
            // What is not handed out is dropped with its record.
            let Some(record) = slot.records.remove(&offset) else { continue };
            if slot.machine.on(epoch, Input::HandOut { offset }).contains(&Output::Drop) {
                continue;
            }
            let fork = slot.machine.fork();
            return Some(Ok(Some(Given { record, partition, epoch, lane, offset, fork })));
        }
        if let Some(end) = state.end.clone() {
            return Some(end.map(|()| None));
        }
        state.refused.take().map(Err)
    }

    /// Waits for the next record; `None` when there will be none any more.
    pub(crate) async fn recv(&self) -> Result<Option<Given>, Error> {
        loop {
            let filled = self.filled.notified();
            tokio::pin!(filled);
            // Before the look, so that nothing that comes in between is missed.
            filled.as_mut().enable();
            if let Some(next) = self.next() {
                return next;
            }
            filled.await;
        }
    }

    /// There will be nothing more: `Err` when that was not asked for.
    pub(crate) fn finish(&self, end: Result<(), Error>) {
        let mut state = self.state.lock();
        state.slots.clear();
        state.live.clear();
        state.backfill.clear();
        state.end.get_or_insert(end);
        drop(state);
        self.filled.notify_waiters();
    }

    pub(crate) fn ended(&self) -> Option<Result<(), Error>> {
        self.state.lock().end.clone()
    }

    pub(crate) fn task(&self) -> Option<Task> {
        self.state.lock().tasks.pop_front()
    }

    /// The assignment that a partition is in.
    pub(crate) fn epoch(&self, of: &TopicPartition) -> Option<Epoch> {
        self.state.lock().slots.get(of).map(|slot| slot.machine.epoch())
    }

    fn status_of(&self, of: &TopicPartition) -> Option<PartitionStatus> {
        self.state.lock().slots.get(of).map(|slot| slot.machine.status())
    }

    /// The highest offset that one of its lanes would read next.
    pub(crate) fn position(&self, of: &TopicPartition) -> Option<i64> {
        let status = self.status_of(of)?;
        Some(status.backfill.map_or(0, |lane| lane.position).max(status.live.position))
    }

    /// The offset that the backfill lane reads next; `None` without one.
    pub(crate) fn backfill_position(&self, of: &TopicPartition) -> Option<i64> {
        let status = self.status_of(of)?;
        status.backfill.filter(|_| status.state == CatchingUp).map(|lane| lane.position)
    }

    /// The offset that the live lane reads next; `None` before it has begun.
    pub(crate) fn live_position(&self, of: &TopicPartition) -> Option<i64> {
        let status = self.status_of(of)?;
        matches!(status.state, Live | CatchingUp | Merging).then_some(status.live.position)
    }

    /// Whether the application has records of that partition in hand.
    pub(crate) fn in_hand(&self, of: &TopicPartition) -> bool {
        let status = self.state.lock().slots.get(of).map(|slot| slot.machine.status());
        status.is_some_and(|status| status.live.in_hand + status.backfill.map_or(0, |lane| lane.in_hand) > 0)
    }

    /// All partitions there are.
    pub(crate) fn partitions(&self) -> Vec<TopicPartition> {
        self.state.lock().slots.keys().cloned().collect()
    }

    /// True while one of these is there.
    pub(crate) fn any(&self, of: &BTreeSet<TopicPartition>) -> bool {
        let state = self.state.lock();
        of.iter().any(|partition| state.slots.contains_key(partition))
    }

    pub(crate) fn status(&self) -> Vec<(TopicPartition, PartitionStatus)> {
        let state = self.state.lock();
        let mut all: Vec<_> =
            state.slots.iter().map(|(partition, slot)| (partition.clone(), slot.machine.status())).collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }

    pub(crate) fn buffers(&self, partition: &TopicPartition) -> Option<Buffers> {
        self.state.lock().slots.get(partition).map(|slot| slot.machine.buffers())
    }

    /// Hands an input to the machine and does what comes out, as far as it needs no I/O.
    fn apply(
        &self,
        state: &mut State,
        partition: &TopicPartition,
        epoch: Epoch,
        input: Input,
        mut record: Option<OwnedMessage>,
    ) -> AckOutcome {
        let mut outcome = AckOutcome::Stale;
        let Some(slot) = state.slots.get_mut(partition) else { return outcome };
        let (mut released, mut filled) = (false, 0);
        for output in slot.machine.on(epoch, input) {
            match output {
                Output::Ack(counted) => outcome = counted,
                Output::Deliver { lane, offset } => {
                    if let Some(record) = record.take_if(|record| record.offset() == offset) {
                        slot.records.insert(offset, record);
                    }
                    let one_queue = lane == Lane::Live || self.settings.order == Order::Offset;
                    let queue = if one_queue { &mut state.live } else { &mut state.backfill };
                    queue.push_back(Queued { partition: partition.clone(), epoch, lane, offset });
                    filled += 1;
                }
                Output::Hold => {
                    if let Some(record) = record.take() {
                        slot.records.insert(record.offset(), record);
                    }
                }
                Output::Drop => record = None,
                Output::DropQueued => {
                    slot.records.clear();
                    state.live.retain(|queued| queued.partition != *partition);
                    state.backfill.retain(|queued| queued.partition != *partition);
                }
                Output::Event(event) => self.tell(partition, event),
                what => {
                    released |= what == Output::Released;
                    state.tasks.push_back(Task { partition: partition.clone(), epoch, what });
                }
            }
        }
        if released {
            state.slots.remove(partition);
        }
        for _ in 0..filled {
            self.filled.notify_one();
        }
        outcome
    }
}

/// The queue that is next, and its first record.
fn pop(state: &mut State) -> Option<Queued> {
    let live_first = state.in_a_row < LIVE_IN_A_ROW || state.backfill.is_empty();
    if live_first && let Some(queued) = state.live.pop_front() {
        state.in_a_row = state.in_a_row.saturating_add(1);
        return Some(queued);
    }
    state.in_a_row = 0;
    state.backfill.pop_front().or_else(|| state.live.pop_front())
}

/// What a record weighs in memory: key, value and headers, in bytes.
fn bytes_of(record: &OwnedMessage) -> u64 {
    let headers = record.headers().map_or(0, |headers| {
        headers.iter().map(|header| header.key.len() + header.value.map_or(0, <[u8]>::len)).sum::<usize>()
    });
    let length = |part: Option<&[u8]>| part.map_or(0, <[u8]>::len);
    (length(record.key()) + length(record.payload()) + headers) as u64
}
