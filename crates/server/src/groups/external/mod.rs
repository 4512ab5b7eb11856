//! Committed offsets that the store keeps by itself: consumer offsets of consumer groups of its own.
//!
//! Nothing is in memory here; every commit and every fetch asks the store, one call for each partition. The rules:
//!
//! 1. A commit is answered when the store has confirmed it, each partition by itself: all of a request or nothing cannot
//!    hold.
//! 2. A read that failed is never "nothing stored".
//! 3. Commits of one partition by one group take effect in the order in which the coordinator let them in.
//! 4. Only who coordinates a group writes for it: what waits when the mandate goes is refused, not carried out.
//! 5. While a group is deleted, nothing is committed for it: a commit that was answered must not go with it.
//!
//! - `deleting`: which groups that are
//! - `port`: one call, and the group that it needs
//! - `lanes`: the order of writes, and how many wait
//! - `read`: offsets of a group, and who has some

mod deleting;
mod lanes;
mod port;
mod read;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use milena_groups::{CommitRequest, DeleteRequest, Description, GroupError, GroupState, Readers, Sender};
use milena_store::{PartitionRef, Store};
use tokio::sync::{oneshot, watch};
use tokio::time::{Duration, Instant, timeout_at};

use super::coordinators::Coordinators;
use super::keeper::changed;
use super::shared::Shared;
use super::topics::incarnation;
use crate::topics::TopicDirectory;
use deleting::Deleting;
use lanes::{Lanes, Write};
use port::Port;
pub(crate) use port::{GROUP_PREFIX, stored_name};
pub use read::Stored;

/// How long a request may take that looks at all topics. Clients of admin requests give up after 30 s.
const ADMIN_WAIT: Duration = Duration::from_secs(20);

/// Result of one partition, now or later.
type Outcome = Result<oneshot::Receiver<Result<(), GroupError>>, GroupError>;

/// The offsets of all groups, in the store.
pub(super) struct External {
    shared: Arc<Shared>,
    port: Arc<Port>,
    lanes: Lanes,
    topics: TopicDirectory,
    deleting: Deleting,
}

impl External {
    pub(super) fn new(
        shared: Arc<Shared>,
        store: Arc<dyn Store>,
        topics: TopicDirectory,
        coordinators: Arc<dyn Coordinators>,
    ) -> Self {
        let port = Arc::new(Port::new(store, coordinators, Arc::clone(&shared.metrics)));
        let lanes = Lanes::start(&port);
        Self { shared, port, lanes, topics, deleting: Deleting::default() }
    }

    /// Serves groups: their offsets are where they are, so there is nothing to load.
    pub(super) fn begin(&self) {
        self.shared.begin(self.shared.loading());
    }

    /// Follows the mandate until the service is closed and what waits is written.
    pub(super) async fn follow(self: Arc<Self>, mut mandate: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                biased;
                () = changed(&mut mandate) => {
                    let mandated = *mandate.borrow_and_update();
                    tracing::info!(here = mandated, "the coordinator of consumer groups changes");
                    self.port.term.fetch_add(1, Ordering::AcqRel);
                    self.shared.resign(self.shared.elsewhere());
                    if mandated {
                        self.begin();
                    }
                }
                () = self.shared.closed() => {
                    self.lanes.settled().await;
                    return;
                }
            }
        }
    }

    /// OffsetCommit: one result per partition, in order. What takes longer than `wait` is to be tried again, and may still
    /// take effect.
    pub(super) async fn commit(
        &self,
        sender: &Sender<'_>,
        request: &CommitRequest,
        wait: Duration,
    ) -> Vec<Result<(), GroupError>> {
        let deadline = Instant::now() + wait;
        let judged = self.judge(request);
        // Under the lock of the groups, so that commits come in the order in which they were let in.
        let asked = self.shared.run(|groups, now, _| {
            groups.check_commit(sender, now)?;
            if self.deleting.contains(&request.group) {
                return Err(GroupError::StoreFailed);
            }
            Ok(judged.into_iter().map(|judged| self.push(&request.group, judged?)).collect::<Vec<Outcome>>())
        });
        match asked {
            Ok(outcomes) => answers(outcomes, deadline).await,
            Err(error) => request.refused(error),
        }
    }

    /// What is to be written where, of each partition.
    fn judge(&self, request: &CommitRequest) -> Vec<Result<(PartitionRef, Option<u64>), GroupError>> {
        let units = self.shared.settings.offset_metadata_max;
        let mut judged = Vec::new();
        for topic in &request.topics {
            let found = self.topics.by_name(&topic.name).filter(|found| Some(incarnation(found)) == topic.id);
            judged.extend(topic.partitions.iter().map(|asked| {
                let partition = u32::try_from(asked.partition).ok().filter(|_| asked.exists);
                let (Some(found), Some(partition)) = (&found, partition) else {
                    return Err(GroupError::UnknownTopicOrPartition);
                };
                if asked.expected.is_some() {
                    return Err(GroupError::ConditionUnsupported);
                }
                let offset = asked.wanted(units)?.and_then(|offset| u64::try_from(offset).ok());
                Ok((found.store.partition(partition), offset))
            }));
        }
        judged
    }

    fn push(&self, group: &Arc<str>, (at, offset): (PartitionRef, Option<u64>)) -> Outcome {
        let (done, outcome) = oneshot::channel();
        let term = self.port.term.load(Ordering::Acquire);
        self.lanes.push(Write { group: Arc::clone(group), at, offset, term, done })?;
        Ok(outcome)
    }

    /// OffsetDelete: one result per partition, in order.
    pub(super) async fn delete_offsets(
        &self,
        request: &DeleteRequest,
    ) -> Result<Vec<Result<(), GroupError>>, GroupError> {
        let deadline = Instant::now() + ADMIN_WAIT;
        let held = within(deadline, self.held()).await?;
        let readers =
            self.shared.read(|groups| groups.check_deletion(&request.group, held.contains(&*request.group)))?;
        if readers == Readers::Others {
            return Err(GroupError::NonEmptyGroup);
        }
        let mut outcomes = Vec::new();
        for topic in &request.topics {
            let found = self.topics.by_name(&topic.name);
            for partition in &topic.partitions {
                let partition = u32::try_from(*partition).ok();
                let there = found.as_ref().zip(partition).filter(|(topic, partition)| *partition < topic.partitions);
                outcomes.push(match there {
                    _ if readers.read(&topic.name) => Err(GroupError::SubscribedToTopic),
                    Some((topic, partition)) => self.push(&request.group, (topic.store.partition(partition), None)),
                    // What is not there has no offset.
                    None => Ok(done()),
                });
            }
        }
        Ok(answers(outcomes, deadline).await)
    }

    /// DeleteGroups: one result per group, in order.
    pub(super) async fn delete_groups(&self, groups: &[&str]) -> Vec<Result<(), GroupError>> {
        let deadline = Instant::now() + ADMIN_WAIT;
        let held = match within(deadline, self.held()).await {
            Ok(held) => held,
            Err(error) => return vec![Err(error); groups.len()],
        };
        let mut results = Vec::with_capacity(groups.len());
        for group in groups {
            results.push(within(deadline, self.delete_group(group, held.contains(*group))).await);
        }
        results
    }

    async fn delete_group(&self, group: &str, has_offsets: bool) -> Result<(), GroupError> {
        // Under the lock of the groups, so that each commit was let in before, or finds that the group is being deleted.
        let mark = self.shared.read(|known| match known.check_deletion(group, has_offsets)? {
            Readers::Nobody => self.deleting.mark(group).ok_or(GroupError::StoreFailed),
            _ => Err(GroupError::NonEmptyGroup),
        })?;
        let term = self.port.term.load(Ordering::Acquire);
        // A commit that waits would found the group again after it was deleted.
        self.lanes.settled().await;
        let name = stored_name(group);
        let topics = self.topics_of(&name).await?;
        let (shared, port, group) = (Arc::clone(&self.shared), Arc::clone(&self.port), group.to_owned());
        // A task, since whoever asked may give up, and the mark has to stay until no call is under way.
        let deleted = tokio::spawn(async move {
            for topic in topics {
                port.delete_group(&topic.store, &group, &name, term).await?;
            }
            shared.run(|groups, _, _| groups.deleted(&group));
            drop(mark);
            Ok(())
        });
        deleted.await.unwrap_or(Err(GroupError::StoreFailed))
    }

    /// The names of all groups that have offsets.
    pub(super) async fn names(&self) -> Result<BTreeSet<String>, GroupError> {
        within(Instant::now() + ADMIN_WAIT, self.held()).await
    }
}

/// Groups that have offsets, as far as a request has to know.
#[derive(Debug)]
pub struct Held(pub(super) Option<Result<BTreeSet<String>, GroupError>>);

impl Held {
    /// A group as it is shown, when `known` is what the coordinator knows of it.
    pub(super) fn describe(&self, group: &str, known: Description) -> Result<Description, GroupError> {
        match &self.0 {
            Some(Ok(names)) if known.state == GroupState::Dead && names.contains(group) => {
                Ok(Description::only_offsets())
            }
            Some(Err(error)) if known.state == GroupState::Dead => Err(*error),
            _ => Ok(known),
        }
    }
}

/// An outcome that is there already.
fn done() -> oneshot::Receiver<Result<(), GroupError>> {
    let (sender, receiver) = oneshot::channel();
    // The receiver is right here.
    let _ = sender.send(Ok(()));
    receiver
}

/// What came of writes; what is not known at the deadline may still take effect.
async fn answers(outcomes: Vec<Outcome>, deadline: Instant) -> Vec<Result<(), GroupError>> {
    let mut results = Vec::with_capacity(outcomes.len());
    for outcome in outcomes {
        results.push(match outcome {
            Ok(outcome) => match timeout_at(deadline, outcome).await {
                Ok(Ok(result)) => result,
                Ok(Err(_)) | Err(_) => Err(GroupError::StoreFailed),
            },
            Err(error) => Err(error),
        });
    }
    results
}

async fn within<T>(deadline: Instant, work: impl Future<Output = Result<T, GroupError>>) -> Result<T, GroupError> {
    timeout_at(deadline, Box::pin(work)).await.unwrap_or(Err(GroupError::StoreFailed))
}
