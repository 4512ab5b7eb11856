//! What the application and the thread that drives the clients have in common: the partitions and the queue of records.
//!
//! One lock over all of it, held for as long as the steps of one partition take that a batch of records makes, never over I/O.
//! What belongs to a record goes by the epoch of its assignment, which no other assignment of any partition has.
//!
//! - `flush`: what the answer to a call `commit` waits for
//! - `look`: what can be seen of the partitions

mod flush;
mod look;

pub(crate) use flush::{Over, Standing};

use std::collections::{BTreeMap, HashMap, VecDeque};

use parking_lot::Mutex;
use rdkafka::message::{Message, OwnedMessage};
use tokio::sync::broadcast;

use crate::consumer::Happened;
use crate::delivery::TopicPartition;
use crate::error::refuses;
use crate::partition::Taken;
use crate::receivers::Receivers;
use crate::records::{Batch, Record};
use crate::wake::Wake;
use crate::{AckOutcome, Bound, Epoch, Error, Event, Input, Lane, Order, Output, Partition, Settings};

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
    partition: TopicPartition,
    machine: Partition,
    /// Records that are kept back.
    held: BTreeMap<i64, Record>,
}

#[derive(Debug)]
struct Queued {
    epoch: Epoch,
    lane: Lane,
    record: Record,
}

/// A record on its way out of the queue.
pub(crate) struct Given {
    pub(crate) record: Record,
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
    /// Assignments that ended since the driving thread asked last.
    over: Vec<Over>,
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

    fn end(&mut self, epoch: Epoch) {
        let Some(Slot { partition, machine, .. }) = self.slots.remove(&epoch) else { return };
        if self.epochs.get(&partition) == Some(&epoch) {
            self.epochs.remove(&partition);
        }
        self.over.push(Over { epoch, machine });
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
            state.end(before);
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

    /// How many records, and bytes of them, a lane of a partition takes before it is full.
    pub(crate) fn room(&self, partition: &TopicPartition, lane: Lane) -> Bound {
        let state = self.state.lock();
        state.slot(partition).map_or(Bound { records: 1, bytes: 1 }, |slot| slot.machine.room(lane))
    }

    /// A reader has records of a partition. They are taken out of `batch`. `true` when there are tasks.
    pub(crate) fn fetched(&self, partition: &TopicPartition, lane: Lane, batch: &mut Batch) -> bool {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let epoch = state.epochs.get(partition).copied();
        let slot = epoch.and_then(|epoch| Some((epoch, state.slots.get_mut(&epoch)?)));
        let Some((epoch, slot)) = slot else {
            batch.clear();
            return false;
        };
        let queue = queue_of(lane, self.settings.order, &mut state.live, &mut state.backfill);
        let before = queue.len();
        for (record, taken) in batch.hand_over(|offset, bytes| slot.machine.take(lane, offset, bytes)) {
            if taken == Taken::Hold {
                slot.held.insert(record.offset(), record);
            } else {
                queue.push_back(Queued { epoch, lane, record });
            }
        }
        let queued = queue.len() - before;
        slot.machine.settle(&mut state.outputs);
        let done = self.perform(state, epoch, None);
        let (tasks, queued) = (!state.tasks.is_empty(), queued + done.queued);
        drop(guard);
        self.receivers.wake(queued);
        tasks
    }

    pub(crate) fn ack(&self, epoch: Epoch, offset: i64) -> AckOutcome {
        self.answer(epoch, Input::Ack { offset }, None)
    }

    pub(crate) fn defer(&self, epoch: Epoch, record: OwnedMessage) {
        self.answer(epoch, Input::Defer { offset: record.offset() }, Some(Record::Back(record)));
    }

    /// What the application says of a record.
    fn answer(&self, epoch: Epoch, input: Input, record: Option<Record>) -> AckOutcome {
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
        state.over.clear();
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

    /// Hands an input to the machine and does what comes out, as far as it needs no I/O. Whoever calls it wakes the receivers.
    fn apply(&self, state: &mut State, epoch: Epoch, input: Input, record: Option<Record>) -> Done {
        if let Some(slot) = state.slots.get_mut(&epoch) {
            slot.machine.step(epoch, input, &mut state.outputs);
        }
        self.perform(state, epoch, record)
    }

    /// Does what came out of a step.
    fn perform(&self, state: &mut State, epoch: Epoch, mut record: Option<Record>) -> Done {
        let mut done = Done { outcome: AckOutcome::Stale, queued: 0 };
        if state.outputs.is_empty() {
            return done;
        }
        let Some(slot) = state.slots.get_mut(&epoch) else { return done };
        let mut outputs = std::mem::take(&mut state.outputs);
        let mut released = false;
        for output in outputs.drain(..) {
            match output {
                Output::Ack(counted) => done.outcome = counted,
                Output::Deliver { lane, offset } => {
                    let given = record.take_if(|record| record.offset() == offset);
                    let Some(record) = given.or_else(|| slot.held.remove(&offset)) else { continue };
                    let queue = queue_of(lane, self.settings.order, &mut state.live, &mut state.backfill);
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
        if released {
            state.end(epoch);
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

/// The queue of a lane.
fn queue_of<'a>(
    lane: Lane,
    order: Order,
    live: &'a mut VecDeque<Queued>,
    backfill: &'a mut VecDeque<Queued>,
) -> &'a mut VecDeque<Queued> {
    if lane == Lane::Live || order == Order::Offset { live } else { backfill }
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
