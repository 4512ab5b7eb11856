//! Writes in their order: those of one group and partition take the same lane, and a lane has one under way at a time.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use milena_groups::GroupError;
use milena_store::PartitionRef;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::port::Port;

/// Writes under way at a time: as many as keep the connections of an engine busy.
const LANES: usize = 8;

/// Writes that wait for one lane, some 200 bytes each: a request may commit thousands of partitions. Passed: 14.
const WAITING_MAX: usize = 16_384;

/// One offset to store, or to take away.
pub(super) struct Write {
    pub(super) group: Arc<str>,
    pub(super) at: PartitionRef,
    /// `None` takes it away.
    pub(super) offset: Option<u64>,
    /// The mandate under which it was let in.
    pub(super) term: u64,
    /// Whoever waits for it may have given up.
    pub(super) done: oneshot::Sender<Result<(), GroupError>>,
}

enum Step {
    Write(Write),
    /// Answers when all before it is done.
    Settled(oneshot::Sender<()>),
}

struct Lane {
    steps: mpsc::UnboundedSender<Step>,
    waiting: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

/// All lanes. They end when it is dropped.
pub(super) struct Lanes(Vec<Lane>);

impl Lanes {
    pub(super) fn start(port: &Arc<Port>) -> Self {
        let lane = |_| {
            // Bounded by the count beside it.
            let (steps, todo) = mpsc::unbounded_channel();
            let waiting = Arc::new(AtomicUsize::new(0));
            let task = tokio::spawn(work(Arc::clone(port), todo, Arc::clone(&waiting)));
            Lane { steps, waiting, task }
        };
        Self((0..LANES).map(lane).collect())
    }

    /// Sends a write on its way.
    pub(super) fn push(&self, write: Write) -> Result<(), GroupError> {
        let full = GroupError::TooManyInFlight { max: WAITING_MAX };
        let mut hasher = DefaultHasher::new();
        (&write.group, &write.at).hash(&mut hasher);
        let at = usize::try_from(hasher.finish() % LANES as u64).unwrap_or(0);
        let lane = self.0.get(at).ok_or(full)?;
        if lane.waiting.fetch_add(1, Ordering::AcqRel) >= WAITING_MAX {
            lane.waiting.fetch_sub(1, Ordering::AcqRel);
            return Err(full);
        }
        lane.steps.send(Step::Write(write)).map_err(|_| GroupError::StoreFailed)
    }

    /// Resolves when all that was sent on its way before is done.
    pub(super) async fn settled(&self) {
        let mut waits = Vec::with_capacity(self.0.len());
        for lane in &self.0 {
            let (sender, receiver) = oneshot::channel();
            if lane.steps.send(Step::Settled(sender)).is_ok() {
                waits.push(receiver);
            }
        }
        for wait in waits {
            // A lane that ended has nothing left to do.
            let _ = wait.await;
        }
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        for lane in &self.0 {
            lane.task.abort();
        }
    }
}

async fn work(port: Arc<Port>, mut todo: mpsc::UnboundedReceiver<Step>, waiting: Arc<AtomicUsize>) {
    while let Some(step) = todo.recv().await {
        match step {
            Step::Write(write) => {
                let result = port.write(&write).await;
                waiting.fetch_sub(1, Ordering::AcqRel);
                let _ = write.done.send(result);
            }
            Step::Settled(done) => {
                let _ = done.send(());
            }
        }
    }
}
