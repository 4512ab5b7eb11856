//! The thread that writes checkpoints, so that the one that drives the clients never waits for it.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::CheckpointStore;
use crate::broker::Answer;
use crate::delivery::TopicPartition;
use crate::wake::Wake;
use crate::{CommitId, Epoch, Error, Progress};

/// Checkpoints that go to the broker together.
const BATCH: usize = 128;

/// One checkpoint to write.
#[derive(Debug, Clone)]
pub(crate) struct Write {
    pub(crate) partition: TopicPartition,
    pub(crate) epoch: Epoch,
    pub(crate) id: CommitId,
    /// `None` to remove it.
    pub(crate) what: Option<Progress>,
}

/// The thread. It ends when this is dropped, after what it has been given.
pub(crate) struct Writer {
    jobs: Sender<Write>,
}

impl Writer {
    pub(crate) fn start(
        store: Arc<dyn CheckpointStore>,
        answers: Sender<Answer>,
        wake: &Arc<Wake>,
    ) -> io::Result<Self> {
        let (jobs, todo) = channel();
        let wake = Arc::clone(wake);
        let run = move || {
            let mut next = None;
            while let Some(writes) = batch(&todo, &mut next) {
                for answer in write(&*store, writes) {
                    // Nobody listens when the consumer is closed.
                    let _ = answers.send(answer);
                }
                wake.up();
            }
        };
        thread::Builder::new().name("catchup-checkpoint".to_owned()).spawn(run)?;
        Ok(Self { jobs })
    }

    /// Writes that, and answers with [`Answer::Saved`]. `false` when the thread is gone.
    pub(crate) fn ask(&self, write: Write) -> bool {
        self.jobs.send(write).is_ok()
    }
}

/// What waits, up to a partition that comes a second time: its two checkpoints have an order. Waits for the first.
fn batch(todo: &Receiver<Write>, next: &mut Option<Write>) -> Option<Vec<Write>> {
    let first = next.take().or_else(|| todo.recv().ok())?;
    let mut named = HashSet::from([first.partition.clone()]);
    let mut writes = vec![first];
    while writes.len() < BATCH
        && let Ok(write) = todo.try_recv()
    {
        if !named.insert(write.partition.clone()) {
            *next = Some(write);
            break;
        }
        writes.push(write);
    }
    Some(writes)
}

fn write(store: &dyn CheckpointStore, writes: Vec<Write>) -> Vec<Answer> {
    let (mut save, mut saving, mut clear, mut clearing) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for Write { partition, epoch, id, what } in writes {
        if let Some(checkpoint) = what {
            save.push((partition.clone(), checkpoint));
            saving.push((partition, epoch, id));
        } else {
            clear.push(partition.clone());
            clearing.push((partition, epoch, id));
        }
    }
    let saved = if save.is_empty() { Vec::new() } else { store.save(&save) };
    let cleared = if clear.is_empty() { Vec::new() } else { store.clear(&clear) };
    answers(saving, saved).chain(answers(clearing, cleared)).collect()
}

fn answers(
    of: Vec<(TopicPartition, Epoch, CommitId)>,
    results: Vec<Result<(), Error>>,
) -> impl Iterator<Item = Answer> {
    of.into_iter().zip(results).map(|((partition, epoch, id), result)| {
        if let Err(error) = &result {
            tracing::warn!("checkpoint of {partition}: {error}");
        }
        Answer::Saved(epoch, id, result.is_ok())
    })
}
