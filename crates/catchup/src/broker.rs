//! The calls that wait for the broker, in threads of their own, so that the one that drives the clients never waits.
//!
//! Commits are made here too, one after the other: librdkafka answers a commit only to the thread that waits for it (rust-rdkafka
//! never calls `commit_callback` for a commit that was asked for without waiting).

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::TopicPartitionListElem;
use rdkafka::{Offset, TopicPartitionList};

use crate::checkpoint::CheckpointStore;
use crate::delivery::TopicPartition;
use crate::error::number;
use crate::member::{Context, list_of};
use crate::reader::Reader;
use crate::wake::Wake;
use crate::{CommitFailure, CommitId, Epoch, Error, Lane, LogId, Progress, Reset, Resolved};

/// How long a question may take before it is asked again.
const PATIENCE: Duration = Duration::from_secs(10);

/// What one partition wants to have committed.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub(crate) partition: TopicPartition,
    pub(crate) epoch: Epoch,
    pub(crate) id: CommitId,
    pub(crate) floor: i64,
    pub(crate) metadata: String,
}

/// Why the ends of a log are asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Doubt {
    /// This lane was told that its position is not in the log.
    Position(Lane),
    /// The reader was told that the log ends, which may be before the fork.
    End,
}

/// Something to ask the broker.
pub(crate) enum Job {
    /// Where these partitions start.
    Resolve(Vec<(TopicPartition, Epoch)>),
    /// Where this partition's log begins and ends, as its leader says.
    LogEnds(TopicPartition, Epoch, Doubt),
    Commit(Vec<View>),
    ReadBack(TopicPartition, Epoch),
    /// Anything at all of the leader of this partition: librdkafka's thread for a broker sleeps up to a second when it had nothing to
    /// fetch, a partition that begins does not wake it, and a question does.
    Nudge(TopicPartition),
    /// Closing a client takes a moment.
    Discard(Reader),
}

/// What the broker says.
#[derive(Debug)]
pub(crate) enum Answer {
    Resolved(Epoch, Option<Resolved>),
    LogEnds(TopicPartition, Epoch, Doubt, KafkaResult<(i64, i64)>),
    /// Whether a checkpoint is stored, or removed.
    Saved(Epoch, CommitId, bool),
    Committed(Vec<(View, Result<(), CommitFailure>)>),
    ReadBack(Epoch, Option<(i64, String)>),
}

/// A thread that asks. It ends when this is dropped, after the question it is at.
pub(crate) struct Broker {
    jobs: Sender<Job>,
}

impl Broker {
    /// Starts the thread. It holds the consumer only while it asks.
    pub(crate) fn start(
        name: &str,
        consumer: &Arc<BaseConsumer<Context>>,
        (reset, store): (Reset, Option<Arc<dyn CheckpointStore>>),
        answers: Sender<Answer>,
        wake: &Arc<Wake>,
    ) -> io::Result<Self> {
        let (jobs, todo) = channel();
        let asker = Asker {
            consumer: Arc::downgrade(consumer),
            reset,
            store,
            answers,
            wake: Arc::clone(wake),
            cluster: None,
            forgetful: false,
        };
        thread::Builder::new().name(name.to_owned()).spawn(move || asker.run(&todo))?;
        Ok(Self { jobs })
    }

    pub(crate) fn ask(&self, job: Job) {
        if self.jobs.send(job).is_err() {
            tracing::error!("the thread that asks the broker is gone");
        }
    }
}

struct Asker {
    consumer: Weak<BaseConsumer<Context>>,
    reset: Reset,
    /// Where checkpoints are, when not in the metadata.
    store: Option<Arc<dyn CheckpointStore>>,
    answers: Sender<Answer>,
    wake: Arc<Wake>,
    /// Id of the cluster, once known.
    cluster: Option<String>,
    /// The broker is known not to give metadata back.
    forgetful: bool,
}

impl Asker {
    fn run(mut self, todo: &Receiver<Job>) {
        while let Ok(job) = todo.recv() {
            let Some(consumer) = self.consumer.upgrade() else { return };
            match job {
                Job::Resolve(partitions) => self.resolve(&consumer, partitions),
                Job::LogEnds(partition, epoch, doubt) => {
                    let ends = consumer.fetch_watermarks(&partition.topic, partition.partition, PATIENCE);
                    self.answer(Answer::LogEnds(partition, epoch, doubt, ends));
                }
                Job::Commit(views) => {
                    let answered = self.commit(&consumer, views);
                    self.answer(Answer::Committed(answered));
                }
                Job::ReadBack(partition, epoch) => {
                    let found = committed(&consumer, list_of(std::slice::from_ref(&partition)));
                    let found = found.ok().and_then(|mut all| all.pop()).and_then(|(_, found)| found.ok().flatten());
                    self.answer(Answer::ReadBack(epoch, found));
                }
                Job::Nudge(partition) => {
                    if let Err(error) = consumer.fetch_watermarks(&partition.topic, partition.partition, PATIENCE) {
                        tracing::debug!("ends of {partition}: {error}");
                    }
                }
                Job::Discard(reader) => drop(reader),
            }
        }
    }

    fn answer(&self, answer: Answer) {
        // Nobody listens when the consumer is closed.
        let _ = self.answers.send(answer);
        self.wake.up();
    }

    fn resolve(&mut self, consumer: &BaseConsumer<Context>, partitions: Vec<(TopicPartition, Epoch)>) {
        if self.cluster.is_none() {
            self.cluster = consumer.client().fetch_cluster_id(PATIENCE);
        }
        let names: Vec<_> = partitions.iter().map(|(partition, _)| partition.clone()).collect();
        // Before the offsets: a checkpoint must not be newer than what it is looked at beside.
        let mut stored = self.load(&names);
        let found = committed(consumer, list_of(&names)).unwrap_or_else(|error| {
            tracing::warn!("committed offsets: {error}");
            Vec::new()
        });
        for (partition, epoch) in partitions {
            let offset = found.iter().find(|(of, _)| *of == partition).and_then(|(_, offset)| offset.clone().ok());
            let checkpoint = stored.remove(&partition);
            let both = offset.zip(checkpoint);
            let resolved = both.and_then(|(offset, checkpoint)| self.ends(consumer, &partition, offset, checkpoint));
            self.answer(Answer::Resolved(epoch, resolved));
        }
    }

    /// The checkpoints of these partitions, without those that could not be read.
    fn load(&self, partitions: &[TopicPartition]) -> HashMap<TopicPartition, Option<Progress>> {
        let Some(store) = &self.store else {
            return partitions.iter().map(|partition| (partition.clone(), None)).collect();
        };
        let loaded = partitions.iter().zip(store.load(partitions));
        let loaded = loaded.filter_map(|(partition, checkpoint)| {
            let said = |error: &Error| tracing::warn!("checkpoint of {partition}: {error}");
            Some((partition.clone(), checkpoint.inspect_err(said).ok()?))
        });
        loaded.collect()
    }

    fn ends(
        &self,
        consumer: &BaseConsumer<Context>,
        partition: &TopicPartition,
        committed: Option<(i64, String)>,
        checkpoint: Option<Progress>,
    ) -> Option<Resolved> {
        match consumer.fetch_watermarks(&partition.topic, partition.partition, PATIENCE) {
            Ok((low, high)) => {
                let log = LogId::of(self.cluster.as_deref().unwrap_or(""), &partition.topic, partition.partition);
                Some(Resolved { committed, checkpoint, log, low, high, reset: self.reset })
            }
            Err(error) => {
                tracing::warn!("ends of {partition}: {error}");
                None
            }
        }
    }

    /// One request for all. librdkafka says of it only whether it failed for all, so that several partitions are read back, and
    /// those that differ are committed alone.
    fn commit(&mut self, consumer: &BaseConsumer<Context>, views: Vec<View>) -> Vec<(View, Result<(), CommitFailure>)> {
        let whole = send(consumer, &views);
        let may_differ = matches!(whole, Ok(()) | Err(CommitFailure::MetadataTooLarge)) && views.len() > 1;
        if !may_differ {
            return views.into_iter().map(|view| (view, whole)).collect();
        }
        let names: Vec<_> = views.iter().map(|view| view.partition.clone()).collect();
        let kept = if whole.is_ok() { committed(consumer, list_of(&names)).unwrap_or_default() } else { Vec::new() };
        let answered = views.into_iter().map(|view| {
            let found = kept.iter().find(|(of, _)| *of == view.partition).and_then(|(_, found)| found.as_ref().ok());
            let found = found.and_then(Option::as_ref);
            let result = match found {
                Some((floor, metadata)) if *floor == view.floor && (self.forgetful || *metadata == view.metadata) => {
                    Ok(())
                }
                found => {
                    let alone = send(consumer, std::slice::from_ref(&view));
                    // Taken, and yet not there: this broker keeps the offset alone.
                    self.forgetful |= alone.is_ok() && found.is_some_and(|(floor, _)| *floor == view.floor);
                    alone
                }
            };
            (view, result)
        });
        answered.collect()
    }
}

/// Commits these views and waits for the answer.
fn send(consumer: &BaseConsumer<Context>, views: &[View]) -> Result<(), CommitFailure> {
    let result = as_list(views).and_then(|list| consumer.commit(&list, CommitMode::Sync));
    result.map_err(|error| {
        let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail);
        CommitFailure::from_code(number(code))
    })
}

fn as_list(views: &[View]) -> KafkaResult<TopicPartitionList> {
    let mut list = TopicPartitionList::with_capacity(views.len());
    for view in views {
        let mut element = list.add_partition(&view.partition.topic, view.partition.partition);
        element.set_offset(Offset::Offset(view.floor))?;
        // Once, on a new element: setting it again would leak what it had.
        element.set_metadata(&view.metadata);
    }
    Ok(list)
}

type Found = Vec<(TopicPartition, KafkaResult<Option<(i64, String)>>)>;

/// Committed offsets with their metadata, as far as they are committed.
pub(crate) fn committed(consumer: &BaseConsumer<Context>, list: TopicPartitionList) -> KafkaResult<Found> {
    let found = consumer.committed_offsets(list, PATIENCE)?;
    let element = |element: &TopicPartitionListElem<'_>| {
        let offset = match (element.error(), element.offset()) {
            (Err(error), _) => Err(error),
            (Ok(()), Offset::Offset(offset)) => Ok(Some((offset, metadata_of(element)))),
            (Ok(()), Offset::Invalid) => Ok(None),
            (Ok(()), other) => {
                tracing::warn!("a committed offset that is none: {other:?}");
                Err(KafkaError::OffsetFetch(RDKafkaErrorCode::InvalidArgument))
            }
        };
        (TopicPartition::new(element.topic(), element.partition()), offset)
    };
    Ok(found.elements().iter().map(element).collect())
}

/// The metadata of an element. rust-rdkafka panics over what is not UTF-8, as the metadata of another client can be; such a string
/// is not ours, and counts as none.
fn metadata_of(element: &TopicPartitionListElem<'_>) -> String {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| element.metadata().to_owned())).unwrap_or_default()
}
