//! What the application and the thread that drives the clients have in common: the partitions and the queue of records.
//!
//! One lock over all of it, held for as long as the steps of one partition take that a batch of records makes, never over I/O.
//! What belongs to a record goes by the epoch of its assignment, which no other assignment of any partition has.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use parking_lot::Mutex;
use rdkafka::message::{Message, OwnedMessage};
use tokio::sync::broadcast;

use crate::State::{CatchingUp, Live, Merging};
use crate::consumer::Happened;
use crate::delivery::TopicPartition;
use crate::error::refuses;
use crate::partition::Covering;
use crate::receivers::Receivers;
use crate::wake::Wake;
use crate::{
    AckOutcome, Bound, Buffers, Epoch, Error, Event, Input, Lane, Order, Output, Partition, PartitionStatus, Settings,
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

/// Records of one lane with their bytes, in the order of the log.
pub(crate) type Batch = Vec<(OwnedMessage, u64)>;

struct Slot {
    partition: TopicPartition,
    machine: Partition,
    /// Records that are kept back.
    held: BTreeMap<i64, OwnedMessage>,
}

#[derive(Debug)]
struct Queued {
    epoch: Epoch,
    lane: Lane,
    record: OwnedMessage,
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
    /// The assignment that a partition is in.
    epochs: HashMap<TopicPartition, Epoch>,
    slots: BTreeMap<Epoch, Slot>,
    /// Both lanes, when records come by offset.
    live: VecDeque<Queued>,
    backfill: VecDeque<Queued>,
    in_a_row: u32,
    tasks: VecDeque<Task>,
    last_epoch: u64,
    /// Nobody has heard of it yet.
    refused: Option<Error>,
    end: Option<Result<(), Error>>,
    /// What a step asks for; empty between two of them. Kept for its memory.
    outputs: Vec<Output>,
}

impl State {
    fn slot(&self, of: &TopicPartition) -> Option<&Slot> {
        self.slots.get(self.epochs.get(of)?)
    }
}

/// See the [module](self).
pub(crate) struct Shared {
    state: Mutex<State>,
    receivers: Receivers,
    pub(crate) wake: std::sync::Arc<Wake>,
    events: broadcast::Sender<Happened>,
    settings: Settings,
}

impl Shared {
    pub(crate) fn new(settings: Settings, wake: std::sync::Arc<Wake>) -> Self {
        let events = broadcast::channel(EVENTS_MAX).0;
        Self { state: Mutex::default(), receivers: Receivers::default(), wake, events, settings }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn events(&self) -> broadcast::Receiver<Happened> {
        self.events.subscribe()
    }

    /// Tells of an assignment, from outside of a step.
    pub(crate) fn tell(&self, partition: &TopicPartition, event: Event) {
        if let Some(epoch) = self.epoch(partition) {
            self.tell_in(epoch, partition, event);
        }
    }

    fn tell_in(&self, epoch: Epoch, partition: &TopicPartition, event: Event) {
        // Nobody has to listen.
        let _ = self.events.send(Happened::To { partition: partition.clone(), epoch, event });
    }

    /// An error of the consumer as a whole. Who waits for a record hears of it when waiting will not help.
    pub(crate) fn trouble(&self, code: i16, reason: String) {
        if refuses(code) {
            self.state.lock().refused = Some(Error::Refused { code, reason: reason.clone() });
            self.receivers.wake(1);
        }
        let _ = self.events.send(Happened::Trouble { code, reason });
    }

    /// A new assignment of a partition. Its epoch is one that no assignment had before.
    pub(crate) fn assigned(&self, partition: &TopicPartition) -> Epoch {
        let mut state = self.state.lock();
        state.last_epoch += 1;
        let epoch = Epoch(state.last_epoch);
        let machine = Partition::new(epoch, self.settings.clone());
        let slot = Slot { partition: partition.clone(), machine, held: BTreeMap::new() };
        state.slots.insert(epoch, slot);
        if let Some(before) = state.epochs.insert(partition.clone(), epoch) {
            state.slots.remove(&before);
        }
        state.refused = None;
        epoch
    }

    /// One step of a partition that needs no record, by the epoch it has.
    pub(crate) fn step(&self, partition: &TopicPartition, input: Input) {
        let mut state = self.state.lock();
        if let Some(&epoch) = state.epochs.get(partition) {
            let done = self.apply(&mut state, epoch, input, None);
            drop(state);
            self.receivers.wake(done.queued);
        }
    }

    /// One step of a partition that needs no record, in that epoch.
    pub(crate) fn step_in(&self, epoch: Epoch, input: Input) {
        let done = self.apply(&mut self.state.lock(), epoch, input, None);
        self.receivers.wake(done.queued);
    }

    /// Wants everything committed that is finished now. Answers what covers it, for each assignment.
    pub(crate) fn flush(&self) -> Vec<(Epoch, Covering)> {
        let mut state = self.state.lock();
        let epochs: Vec<_> = state.slots.keys().copied().collect();
        for epoch in &epochs {
            // A commit queues no record.
            self.apply(&mut state, *epoch, Input::CommitDue, None);
        }
        state.slots.iter().map(|(epoch, slot)| (*epoch, slot.machine.covering())).collect()
    }

    /// Whether that has its answer, or the assignment is over.
    pub(crate) fn covered(&self, epoch: Epoch, by: &mut Covering) -> bool {
        self.state.lock().slots.get(&epoch).is_none_or(|slot| slot.machine.covered(by))
    }

    /// How many records, and bytes of them, a lane of a partition takes before it is full.
    pub(crate) fn room(&self, partition: &TopicPartition, lane: Lane) -> Bound {
        let state = self.state.lock();
        state.slot(partition).map_or(Bound { records: 1, bytes: 1 }, |slot| slot.machine.room(lane))
    }

    /// A reader has records of a partition. They are taken out of `batch`. `true` when there are tasks.
    pub(crate) fn fetched(&self, partition: &TopicPartition, lane: Lane, batch: &mut Batch) -> bool {
        let (mut state, mut queued) = (self.state.lock(), 0);
        let epoch = state.epochs.get(partition).copied();
        for (record, bytes) in batch.drain(..) {
            if let Some(epoch) = epoch {
                let input = Input::Fetched { lane, offset: record.offset(), bytes };
                queued += self.apply(&mut state, epoch, input, Some(record)).queued;
            }
        }
        let tasks = !state.tasks.is_empty();
        drop(state);
        self.receivers.wake(queued);
        tasks
    }

    pub(crate) fn ack(&self, epoch: Epoch, offset: i64) -> AckOutcome {
        self.answer(epoch, Input::Ack { offset }, None)
    }

    pub(crate) fn defer(&self, epoch: Epoch, record: OwnedMessage) {
        self.answer(epoch, Input::Defer { offset: record.offset() }, Some(record));
    }

    /// What the application says of a record.
    fn answer(&self, epoch: Epoch, input: Input, record: Option<OwnedMessage>) -> AckOutcome {
        let mut state = self.state.lock();
        let before = state.tasks.len();
        let done = self.apply(&mut state, epoch, input, record);
        let tasks = state.tasks.len() > before;
        // Whoever is woken takes the lock at once.
        drop(state);
        if tasks {
            self.wake.up();
        }
        self.receivers.wake(done.queued);
        done.outcome
    }

    /// The next record, or the end, or neither yet.
    fn next(&self) -> Option<Result<Option<Given>, Error>> {
        let mut state = self.state.lock();
        while let Some(Queued { epoch, lane, record }) = pop(&mut state) {
            // What is not handed out is dropped.
            let Some(slot) = state.slots.get_mut(&epoch) else { continue };
            let offset = record.offset();
            if slot.machine.on(epoch, Input::HandOut { offset }).contains(&Output::Drop) {
                continue;
            }
            let (partition, fork) = (slot.partition.clone(), slot.machine.fork());
            return Some(Ok(Some(Given { record, partition, epoch, lane, offset, fork })));
        }
        if let Some(end) = state.end.clone() {
            return Some(end.map(|()| None));
        }
        state.refused.take().map(Err)
    }

    /// Waits for the next record; `None` when there will be none any more.
    pub(crate) async fn recv(&self) -> Result<Option<Given>, Error> {
        self.receivers.wait(|| self.next()).await
    }

    /// There will be nothing more: `Err` when that was not asked for.
    pub(crate) fn finish(&self, end: Result<(), Error>) {
        let mut state = self.state.lock();
        state.epochs.clear();
        state.slots.clear();
        state.live.clear();
        state.backfill.clear();
        state.end.get_or_insert(end);
        drop(state);
        self.receivers.wake_all();
    }

    pub(crate) fn ended(&self) -> Option<Result<(), Error>> {
        self.state.lock().end.clone()
    }

    pub(crate) fn task(&self) -> Option<Task> {
        self.state.lock().tasks.pop_front()
    }

    /// The assignment that a partition is in.
    pub(crate) fn epoch(&self, of: &TopicPartition) -> Option<Epoch> {
        self.state.lock().epochs.get(of).copied()
    }

    fn status_of(&self, of: &TopicPartition) -> Option<PartitionStatus> {
        self.state.lock().slot(of).map(|slot| slot.machine.status())
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
        self.status_of(of)
            .is_some_and(|status| status.live.in_hand + status.backfill.map_or(0, |lane| lane.in_hand) > 0)
    }

    /// All partitions there are.
    pub(crate) fn partitions(&self) -> Vec<TopicPartition> {
        self.state.lock().epochs.keys().cloned().collect()
    }

    /// True while one of these is there.
    pub(crate) fn any(&self, of: &BTreeSet<TopicPartition>) -> bool {
        let state = self.state.lock();
        of.iter().any(|partition| state.epochs.contains_key(partition))
    }

    pub(crate) fn status(&self) -> Vec<(TopicPartition, PartitionStatus)> {
        let state = self.state.lock();
        let mut all: Vec<_> =
            state.slots.values().map(|slot| (slot.partition.clone(), slot.machine.status())).collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }

    pub(crate) fn buffers(&self, partition: &TopicPartition) -> Option<Buffers> {
        self.state.lock().slot(partition).map(|slot| slot.machine.buffers())
    }

    /// Hands an input to the machine and does what comes out, as far as it needs no I/O. Whoever calls it wakes the receivers.
    fn apply(&self, state: &mut State, epoch: Epoch, input: Input, mut record: Option<OwnedMessage>) -> Done {
        let mut done = Done { outcome: AckOutcome::Stale, queued: 0 };
        let Some(slot) = state.slots.get_mut(&epoch) else { return done };
        let mut outputs = std::mem::take(&mut state.outputs);
        slot.machine.step(epoch, input, &mut outputs);
        let mut released = false;
        for output in outputs.drain(..) {
            match output {
                Output::Ack(counted) => done.outcome = counted,
                Output::Deliver { lane, offset } => {
                    let given = record.take_if(|record| record.offset() == offset);
                    let Some(record) = given.or_else(|| slot.held.remove(&offset)) else { continue };
                    let one_queue = lane == Lane::Live || self.settings.order == Order::Offset;
                    let queue = if one_queue { &mut state.live } else { &mut state.backfill };
                    queue.push_back(Queued { epoch, lane, record });
                    done.queued += 1;
                }
                Output::Hold => {
                    if let Some(record) = record.take() {
                        slot.held.insert(record.offset(), record);
                    }
                }
                Output::Drop => record = None,
                Output::DropQueued => {
                    slot.held.clear();
                    state.live.retain(|queued| queued.epoch != epoch);
                    state.backfill.retain(|queued| queued.epoch != epoch);
                }
                Output::Event(event) => self.tell_in(epoch, &slot.partition, event),
                what => {
                    released |= what == Output::Released;
                    state.tasks.push_back(Task { partition: slot.partition.clone(), epoch, what });
                }
            }
        }
        state.outputs = outputs;
        if released && let Some(slot) = state.slots.remove(&epoch) {
            state.epochs.remove(&slot.partition);
        }
        done
    }
}

/// What came of one step.
struct Done {
    /// Of an acknowledgement.
    outcome: AckOutcome,
    /// So many records were put into the queue.
    queued: usize,
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

#[cfg(test)]
mod tests;
