//! The queue of waiting appends, and the leader that writes for all of them.
//!
//! An append that finds nobody writing leads: it writes itself, or a blocking thread does it in its place. Appends
//! that arrive meanwhile wait in the queue without holding a thread; the leader takes all of them as the next group,
//! writes it with one call and flushes it once. It leads until the queue is empty, so a leader that is done cannot
//! barge in before those who wait, and groups grow with the load.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use milena_store::frame::Frames;
use milena_store::{AppendBatch, Appended, StoreError};
use tokio::sync::oneshot;

use super::{Partition, Queue};
use crate::facade;
use crate::fault::{Fault, Wait};
use crate::format::ENTRY_FRAME_BYTES_MAX;
use crate::limits::{HEADER_BYTES_MAX, PAYLOAD_BYTES_MAX, QUEUE_APPENDS_MAX, QUEUE_BYTES_MAX};

/// Appends up to this size are written by the async thread itself when no flush is due: below it, a write into the
/// page cache takes less time than two switches between threads.
const INLINE_BYTES_MAX: usize = 256 * 1024;
/// Most appends and bytes in one group. The number stays below half of the kernel's limit of parts per call.
const GROUP_APPENDS_MAX: usize = 500;
const GROUP_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Longest time that a leader waits for those it just answered.
const COMPANY_WAIT_MAX: Duration = Duration::from_micros(200);

/// A batch that was checked.
pub(crate) struct Prepared {
    pub(crate) batch: AppendBatch,
    /// Smallest and largest origin timestamp above 0; `None` when no frame has one.
    pub(crate) origins: Option<(u64, u64)>,
    pub(crate) has_untimed: bool,
    reply: Option<oneshot::Sender<Result<Appended, StoreError>>>,
}

impl Prepared {
    /// Walks the frames once: their number must be as said, and none may pass the limits. The times are taken from
    /// the frames, since searches by time rest on them.
    pub(crate) fn check(batch: AppendBatch) -> Result<Self, StoreError> {
        let bytes = batch.frames.len();
        if bytes > ENTRY_FRAME_BYTES_MAX {
            return Err(refused("bytes of the batch", bytes as u64, ENTRY_FRAME_BYTES_MAX as u64));
        }
        let mut count: u32 = 0;
        let mut origins: Option<(u64, u64)> = None;
        let mut has_untimed = false;
        let mut frames = Frames::new(&batch.frames);
        for frame in frames.by_ref() {
            count = count.saturating_add(1);
            if frame.payload.len() > PAYLOAD_BYTES_MAX {
                return Err(refused("bytes of a payload", frame.payload.len() as u64, PAYLOAD_BYTES_MAX as u64));
            }
            if frame.headers.len() > HEADER_BYTES_MAX {
                return Err(refused("bytes of user headers", frame.headers.len() as u64, HEADER_BYTES_MAX as u64));
            }
            if frame.origin_micros == 0 {
                has_untimed = true;
            } else {
                let (min, max) = origins.unwrap_or((frame.origin_micros, frame.origin_micros));
                origins = Some((min.min(frame.origin_micros), max.max(frame.origin_micros)));
            }
        }
        if frames.is_damaged() || count != batch.count || count == 0 {
            return Err(refused("number of whole frames in the batch", u64::from(count), u64::from(batch.count)));
        }
        Ok(Self { batch, origins, has_untimed, reply: None })
    }

    fn answer(self, answer: Result<Appended, StoreError>) {
        if let Some(reply) = self.reply {
            // Nobody listening means that the caller gave up; the append stands all the same.
            drop(reply.send(answer));
        }
    }
}

fn refused(what: &'static str, actual: u64, limit: u64) -> StoreError {
    StoreError::Refused { what, actual, limit }
}

/// Given up on drop: then somebody else may lead.
struct Lead<P: Deref<Target = Partition>> {
    partition: P,
    over: bool,
}

impl<P: Deref<Target = Partition>> Lead<P> {
    fn of(partition: P) -> Self {
        Self { partition, over: false }
    }

    /// Writes group after group until nobody waits.
    fn run(mut self) {
        loop {
            let mut group = self.next_group();
            if group.is_empty() {
                return;
            }
            let (started, appends) = (Instant::now(), group.len());
            let mut flushed = false;
            while !group.is_empty() {
                flushed |= self.partition.commit(&mut group);
            }
            if flushed && appends > 1 {
                self.await_company(appends, started.elapsed());
            }
        }
    }

    /// After a flush for several appends, gives their callers a moment to come back with the next ones. Without it the
    /// first one to return would be flushed alone while the others wait, and every second flush would be for one.
    fn await_company(&self, appends: usize, flush: Duration) {
        let until = Instant::now() + (flush / 8).min(COMPANY_WAIT_MAX);
        while self.partition.queue.lock().waiting.len() < appends && Instant::now() < until {
            std::thread::yield_now();
        }
    }

    /// Takes the next group, or stops leading when nobody waits.
    fn next_group(&mut self) -> Vec<Prepared> {
        let mut queue = self.partition.queue.lock();
        let group = queue.take_group();
        if group.is_empty() {
            queue.led = false;
            self.over = true;
        }
        group
    }
}

impl<P: Deref<Target = Partition>> Drop for Lead<P> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let mut queue = self.partition.queue.lock();
        queue.led = false;
        queue.bytes = 0;
        let left: Vec<Prepared> = queue.waiting.drain(..).collect();
        drop(queue);
        for append in left {
            append.answer(Err(StoreError::Busy { reason: "the runtime is shutting down".to_owned() }));
        }
    }
}

impl Queue {
    fn push(&mut self, append: Prepared) -> Result<(), StoreError> {
        let bytes = append.batch.frames.len();
        if self.waiting.len() >= QUEUE_APPENDS_MAX || self.bytes.saturating_add(bytes) > QUEUE_BYTES_MAX {
            return Err(StoreError::Busy { reason: "too many appends wait for this partition".to_owned() });
        }
        self.bytes += bytes;
        self.waiting.push_back(append);
        Ok(())
    }

    fn take_group(&mut self) -> Vec<Prepared> {
        let mut bytes = 0;
        let mut group = Vec::new();
        while let Some(next) = self.waiting.front() {
            bytes += next.batch.frames.len();
            if group.len() >= GROUP_APPENDS_MAX || (bytes > GROUP_BYTES_MAX && !group.is_empty()) {
                break;
            }
            group.extend(self.waiting.pop_front());
        }
        self.bytes = self.bytes.saturating_sub(group.iter().map(|append| append.batch.frames.len()).sum());
        group
    }
}

impl Partition {
    /// Appends; see [`milena_store::Store::append`].
    pub(crate) async fn append(self: &Arc<Self>, batch: AppendBatch) -> Result<Appended, StoreError> {
        self.refuse_when_gone()?;
        let append = Prepared::check(batch)?;
        if self.take_lead() {
            // Nothing is awaited between here and the answer or the hand-over, so a dropped future cannot leave the
            // partition without a leader.
            if !facade::must_not_block(&*self.env.fs) {
                let answer = self.commit_one(&append);
                self.lead();
                return answer;
            }
            if let Some(answer) = self.try_inline(&append) {
                if !self.queue.lock().give_up_lead() {
                    self.lead_elsewhere();
                }
                return answer;
            }
            let (append, answer) = with_reply(append);
            self.queue.lock().push_first(append);
            self.lead_elsewhere();
            return wait_for(answer).await;
        }
        let (append, answer) = with_reply(append);
        let leads = {
            let mut queue = self.queue.lock();
            queue.push(append)?;
            !std::mem::replace(&mut queue.led, true)
        };
        if leads {
            // The leader finished between the two looks at the queue.
            if facade::must_not_block(&*self.env.fs) { self.lead_elsewhere() } else { self.lead() }
        }
        wait_for(answer).await
    }

    /// Puts an append into the queue, for a leader to come.
    #[cfg(test)]
    pub(crate) fn enqueue(&self, batch: AppendBatch) -> oneshot::Receiver<Result<Appended, StoreError>> {
        let (append, answer) = with_reply(Prepared::check(batch).unwrap());
        self.queue.lock().push(append).unwrap();
        answer
    }

    /// Leads until nobody waits.
    #[cfg(test)]
    pub(crate) fn lead_now(&self) {
        assert!(!std::mem::replace(&mut self.queue.lock().led, true));
        self.lead();
    }

    fn take_lead(&self) -> bool {
        let mut queue = self.queue.lock();
        queue.waiting.is_empty() && !std::mem::replace(&mut queue.led, true)
    }

    /// Hands the lead to a blocking thread.
    fn lead_elsewhere(self: &Arc<Self>) {
        let lead = Lead::of(self.clone());
        facade::detach(move || lead.run());
    }

    /// Leads here and now. The caller took the lead.
    fn lead(&self) {
        Lead::of(self).run();
    }

    /// Writes and, where the policy says so, flushes as many appends of the group as fit into the segment; answers and
    /// removes them. True when a flush was needed.
    fn commit(&self, group: &mut Vec<Prepared>) -> bool {
        match self.write_group(group) {
            Err(error) => {
                group.drain(..).for_each(|append| append.answer(Err(error.clone())));
                false
            }
            Ok(written) => {
                let log_start = self.bounds().start;
                let outcome = self.settle(&written);
                let mut base = written.base_offset;
                for append in group.drain(..written.appends) {
                    let count = u64::from(append.batch.count);
                    append.answer(outcome.clone().map(|()| Appended {
                        base_offset: Some(base),
                        append_time_micros: written.append_micros,
                        log_start,
                    }));
                    base += count;
                }
                written.must_flush
            }
        }
    }

    fn commit_one(&self, append: &Prepared) -> Result<Appended, StoreError> {
        let written = self.write_group(std::slice::from_ref(append))?;
        let log_start = self.bounds().start;
        self.settle(&written)?;
        let (base_offset, append_time_micros) = (Some(written.base_offset), written.append_micros);
        Ok(Appended { base_offset, append_time_micros, log_start })
    }

    /// The quick way: nothing to flush, nothing to create, and the page cache takes the bytes. `None` when it is not
    /// as simple as that; then nothing was done.
    fn try_inline(&self, append: &Prepared) -> Option<Result<Appended, StoreError>> {
        if append.batch.frames.len() > INLINE_BYTES_MAX || self.env.writes_are_slow() {
            return None;
        }
        let mut writer = self.writer.try_lock()?;
        let effective = self.effective();
        if !self.is_quick(&writer, &effective, append) {
            return None;
        }
        let started = Instant::now();
        let written = match self.write_locked(&mut writer, &effective, std::slice::from_ref(append), Wait::No) {
            Ok(written) => written,
            Err(Fault::WouldWait) => return None,
            Err(Fault::Store(error)) => return Some(Err(error)),
        };
        drop(writer);
        self.env.note_write_time(started.elapsed());
        self.publish(written.end_offset, written.frame_bytes);
        Some(Ok(Appended {
            base_offset: Some(written.base_offset),
            append_time_micros: written.append_micros,
            log_start: self.bounds().start,
        }))
    }
}

impl Queue {
    fn give_up_lead(&mut self) -> bool {
        if self.waiting.is_empty() {
            self.led = false;
        }
        !self.led
    }

    /// The leader's own append goes before those that came while it tried.
    fn push_first(&mut self, append: Prepared) {
        self.bytes += append.batch.frames.len();
        self.waiting.push_front(append);
    }
}

fn with_reply(append: Prepared) -> (Prepared, oneshot::Receiver<Result<Appended, StoreError>>) {
    let (reply, answer) = oneshot::channel();
    (Prepared { reply: Some(reply), ..append }, answer)
}

async fn wait_for(answer: oneshot::Receiver<Result<Appended, StoreError>>) -> Result<Appended, StoreError> {
    let lost = |_| StoreError::InDoubt { reason: "the thread that was to write it ended".to_owned() };
    answer.await.unwrap_or_else(|error| Err(lost(error)))
}
