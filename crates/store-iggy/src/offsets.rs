//! Consumer offsets of the server: one number per consumer group and partition.
//!
//! Servers differ in whom they let store one. Those of today take it from the member of the group that owns the
//! partition, and only up to the last message; this store never joins a group, so on them every store fails, and the
//! probe of `milena-store` says so. The kind of consumer is one constant here, so that a kind without those rules can
//! take its place.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use iggy_common::{Consumer, ConsumerGroupClient, ConsumerKind, ConsumerOffsetClient, Identifier, IggyError};
use milena_store::{OffsetStore, PartitionRef, StoreError, StoreFuture, TopicRef};
use parking_lot::Mutex;

use crate::engine::IggyStore;
use crate::error::Op;
use crate::inner::Inner;
use crate::limits;
use crate::line::{CallError, For};

/// Whose offsets they are. A named consumer would be hashed to 32 bits by the server, and two groups could share one.
const KIND: ConsumerKind = ConsumerKind::ConsumerGroup;

/// What a change is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Changed {
    /// The offset of a partition.
    Offset(PartitionRef),
    /// The group itself, which takes the offsets of all partitions with it.
    Group(TopicRef),
}

impl Changed {
    fn topic(&self) -> &TopicRef {
        match self {
            Self::Offset(at) => &at.topic,
            Self::Group(topic) => topic,
        }
    }

    /// True when two of one group must take effect in their order.
    fn meets(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Offset(at), Self::Offset(other)) => at == other,
            _ => self.topic() == other.topic(),
        }
    }
}

/// Changes whose request may still take effect. One that comes behind them must not be overtaken.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    until: Mutex<HashMap<(Changed, String), Instant>>,
}

impl Doubts {
    /// Refuses a change while one before it can still take effect.
    fn check(&self, change: &Changed, group: &str, now: Instant) -> Result<(), StoreError> {
        let until = self.until.lock();
        let before = until.iter().find(|((before, of), until)| now < **until && of == group && before.meets(change));
        match before {
            Some(((before, _), _)) => {
                let reason = format!("a change of {before:?} that the server did not confirm may still take effect");
                Err(StoreError::Busy { reason })
            }
            None => Ok(()),
        }
    }

    /// Each call over a connection can leave one behind, and those that are over go with the next, so they are few.
    fn note(&self, change: Changed, group: &str, now: Instant, time: Duration) {
        let mut doubts = self.until.lock();
        doubts.retain(|_, until| now < *until);
        doubts.insert((change, group.to_owned()), now + time);
    }

    /// Notes a change when its outcome leaves open whether it will take effect.
    fn note_outcome(&self, change: Changed, group: &str, outcome: &Result<(), CallError>) {
        if let Err(error) = outcome
            && matches!(error.of(Op::Change, ""), StoreError::InDoubt { .. })
        {
            // A request that was given up is tried by the SDK for as long as it likes; of a connection that is gone,
            // the server has read what it will read.
            let late = matches!(error, CallError::Late(_));
            let time = if late { limits::OFFSET_LATE } else { limits::OFFSET_LOST };
            self.note(change, group, Instant::now(), time);
        }
    }
}

/// Names of a topic and a consumer, as the SDK takes them.
struct Address {
    stream: Identifier,
    topic: Identifier,
    consumer: Consumer,
}

impl Address {
    fn new(inner: &Inner, topic: &TopicRef, group: &str) -> Result<Self, StoreError> {
        let (stream, topic) = inner.names.topic(topic.stream(), topic.topic())?;
        Ok(Self { stream, topic, consumer: Consumer { kind: KIND, id: group_name(group)? } })
    }
}

fn group_name(group: &str) -> Result<Identifier, StoreError> {
    let (actual, limit) = (group.len() as u64, limits::GROUP_BYTES_MAX as u64);
    Identifier::named(group).map_err(|_| StoreError::Refused { what: "the name of a group in bytes", actual, limit })
}

impl Inner {
    /// Asks something that changes nothing; once more when the connection turns out to be dead.
    async fn ask_offsets<T, F>(
        &self,
        target: For<'_>,
        request: impl Fn(std::sync::Arc<iggy::prelude::TcpClient>) -> F,
    ) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, IggyError>>,
    {
        match self.pool.offsets().call(target, &request, |outcome| outcome).await {
            Err(error) if error.is_loss() => self.pool.offsets().call(target, &request, |outcome| outcome).await,
            asked => asked,
        }
    }

    /// Checks that the server still has this incarnation, and not only another of its name.
    async fn check_there(&self, topic: &TopicRef) -> Result<(), StoreError> {
        let state = self.state(topic).await?;
        self.look(&state, Instant::now()).await
    }

    /// What to make of an answer that something is not there: it may be the whole topic, and then nobody may take the
    /// answer for one about an offset of a topic that is.
    async fn missing(&self, topic: &TopicRef, what: &'static str) -> StoreError {
        match self.check_there(topic).await {
            Ok(()) => StoreError::NotFound { what: what.to_owned() },
            Err(error) => error,
        }
    }

    async fn load_offset(&self, at: &PartitionRef, group: &str) -> Result<Option<u64>, StoreError> {
        let (_, known) = self.partition(at).await?;
        let roster = &self.dialer.roster;
        if roster.is_cluster() && roster.leader(at).is_none() && known.lock().bounds().end > 0 {
            // Another gateway stored it, so nothing has shown yet who leads the partition. An empty one has no reader that
            // could go astray, and cannot be asked.
            roster.suspect(at, Instant::now());
        }
        self.settle_doubt(at).await?;
        let address = &Address::new(self, &at.topic, group)?;
        let partition = Some(at.partition);
        // In a cluster each node answers from what it has, and only the one that leads the partition has all.
        let asked = self
            .ask_offsets(For::Reading(at), |client| async move {
                client.get_consumer_offset(&address.consumer, &address.stream, &address.topic, partition).await
            })
            .await;
        match asked.map_err(|error| error.of(Op::Read, "a consumer offset")) {
            Ok(found) => Ok(found.map(|info| info.stored_offset)),
            // Nothing stored is no error, so this is about the topic. A topic that is there after all is no reason to
            // say that nothing is stored.
            Err(StoreError::NotFound { .. }) => match self.missing(&at.topic, "").await {
                StoreError::NotFound { what } if what.is_empty() => {
                    Err(StoreError::Busy { reason: format!("the server does not find {at:?}, which it has") })
                }
                error => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    /// A change of one offset; the inner error is what the server said.
    async fn change_offset<F>(
        &self,
        at: &PartitionRef,
        group: &str,
        request: impl FnOnce(std::sync::Arc<iggy::prelude::TcpClient>) -> F,
    ) -> Result<Result<(), CallError>, StoreError>
    where
        F: Future<Output = Result<(), IggyError>>,
    {
        let change = Changed::Offset(at.clone());
        self.offset_doubts.check(&change, group, Instant::now())?;
        let outcome = self.pool.offsets().call(For::Writing(at), request, |outcome| outcome).await;
        self.offset_doubts.note_outcome(change, group, &outcome);
        Ok(outcome)
    }

    async fn store_offset(&self, at: &PartitionRef, group: &str, offset: u64) -> Result<(), StoreError> {
        self.partition(at).await?;
        let address = &Address::new(self, &at.topic, group)?;
        let partition = Some(at.partition);
        let outcome = self.change_offset(at, group, |client| async move {
            client.store_consumer_offset(&address.consumer, &address.stream, &address.topic, partition, offset).await
        });
        match outcome.await?.map_err(|error| error.of(Op::Change, "a consumer offset")) {
            Err(StoreError::NotFound { .. }) => {
                Err(self.missing(&at.topic, "a consumer group that this client is a member of").await)
            }
            stored => stored,
        }
    }

    async fn forget_offset(&self, at: &PartitionRef, group: &str) -> Result<(), StoreError> {
        match self.partition(at).await {
            Err(StoreError::NotFound { .. }) => return Ok(()),
            found => found?,
        };
        let address = &Address::new(self, &at.topic, group)?;
        let partition = Some(at.partition);
        let outcome = self.change_offset(at, group, |client| async move {
            client.delete_consumer_offset(&address.consumer, &address.stream, &address.topic, partition).await
        });
        match outcome.await? {
            Ok(()) | Err(CallError::Said(IggyError::ConsumerOffsetNotFound(_))) => Ok(()),
            Err(error) => match error.of(Op::Change, "a consumer offset") {
                // The same answer comes for a group that is not there and from a server that asks for membership.
                missing @ StoreError::NotFound { .. } => match self.load_offset(at, group).await {
                    Ok(None) | Err(StoreError::NotFound { .. }) => Ok(()),
                    Ok(Some(_)) => Err(missing),
                    Err(error) => Err(error),
                },
                error => Err(error),
            },
        }
    }

    async fn create_offset_group(&self, topic: &TopicRef, group: &str) -> Result<(), StoreError> {
        // Asked anew: a group created under the name of a topic that is another one by now would let it inherit.
        self.check_there(topic).await?;
        self.offset_doubts.check(&Changed::Group(topic.clone()), group, Instant::now())?;
        let address = &Address::new(self, topic, group)?;
        let created = self.pool.offsets().call(
            For::Leader,
            |client| async move { client.create_consumer_group(&address.stream, &address.topic, group).await },
            |outcome| outcome,
        );
        match created.await.map_err(|error| error.of(Op::Change, "a consumer group")) {
            Ok(_) | Err(StoreError::Exists { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn has_offset_group(&self, topic: &TopicRef, group: &str) -> Result<bool, StoreError> {
        self.state(topic).await?;
        let address = &Address::new(self, topic, group)?;
        let asked = self
            .ask_offsets(For::Leader, |client| async move {
                client.get_consumer_group(&address.stream, &address.topic, &address.consumer.id).await
            })
            .await;
        match asked.map_err(|error| error.of(Op::Read, "a consumer group")) {
            Ok(found) => Ok(found.is_some()),
            Err(StoreError::NotFound { .. }) => self.check_there(topic).await.map(|()| false),
            Err(error) => Err(error),
        }
    }

    async fn offset_groups(&self, topic: &TopicRef) -> Result<Vec<String>, StoreError> {
        self.state(topic).await?;
        let (stream, name) = &self.names.topic(topic.stream(), topic.topic())?;
        let asked =
            self.ask_offsets(For::Leader, |client| async move { client.get_consumer_groups(stream, name).await }).await;
        match asked.map_err(|error| error.of(Op::Read, "consumer groups")) {
            Ok(groups) => Ok(groups.into_iter().map(|group| group.name).collect()),
            Err(StoreError::NotFound { .. }) => Err(self.missing(topic, "the topic").await),
            Err(error) => Err(error),
        }
    }

    async fn delete_offset_group(&self, topic: &TopicRef, group: &str) -> Result<(), StoreError> {
        match self.check_there(topic).await {
            Err(StoreError::NotFound { .. }) => return Ok(()),
            there => there?,
        }
        let change = Changed::Group(topic.clone());
        self.offset_doubts.check(&change, group, Instant::now())?;
        let address = &Address::new(self, topic, group)?;
        let deleted = self.pool.offsets().call(
            For::Leader,
            |client| async move {
                client.delete_consumer_group(&address.stream, &address.topic, &address.consumer.id).await
            },
            |outcome| outcome,
        );
        let deleted = deleted.await;
        self.offset_doubts.note_outcome(change, group, &deleted);
        match deleted.map_err(|error| error.of(Op::Change, "a consumer group")) {
            // It is not there; the topic was.
            Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl OffsetStore for IggyStore {
    fn group_bytes_max(&self) -> usize {
        limits::GROUP_BYTES_MAX
    }

    fn create_group<'a>(&'a self, topic: &'a TopicRef, group: &'a str) -> StoreFuture<'a, ()> {
        let (topic, group) = (topic.clone(), group.to_owned());
        self.run(|inner| async move { inner.create_offset_group(&topic, &group).await })
    }

    fn has_group<'a>(&'a self, topic: &'a TopicRef, group: &'a str) -> StoreFuture<'a, bool> {
        let (topic, group) = (topic.clone(), group.to_owned());
        self.run(|inner| async move { inner.has_offset_group(&topic, &group).await })
    }

    fn groups<'a>(&'a self, topic: &'a TopicRef) -> StoreFuture<'a, Vec<String>> {
        let topic = topic.clone();
        self.run(|inner| async move { inner.offset_groups(&topic).await })
    }

    fn delete_group<'a>(&'a self, topic: &'a TopicRef, group: &'a str) -> StoreFuture<'a, ()> {
        let (topic, group) = (topic.clone(), group.to_owned());
        self.run(|inner| async move { inner.delete_offset_group(&topic, &group).await })
    }

    fn load<'a>(&'a self, at: &'a PartitionRef, group: &'a str) -> StoreFuture<'a, Option<u64>> {
        let (at, group) = (at.clone(), group.to_owned());
        self.run(|inner| async move { inner.load_offset(&at, &group).await })
    }

    fn store<'a>(&'a self, at: &'a PartitionRef, group: &'a str, offset: u64) -> StoreFuture<'a, ()> {
        let (at, group) = (at.clone(), group.to_owned());
        self.run(move |inner| async move { inner.store_offset(&at, &group, offset).await })
    }

    fn forget<'a>(&'a self, at: &'a PartitionRef, group: &'a str) -> StoreFuture<'a, ()> {
        let (at, group) = (at.clone(), group.to_owned());
        self.run(|inner| async move { inner.forget_offset(&at, &group).await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_waits_until_the_one_before_it_can_no_longer_take_effect() {
        let doubts = Doubts::default();
        let topic = TopicRef::new("s", "t", 1, 2, 3);
        let (at, now) = (topic.partition(0), Instant::now());
        let offset = Changed::Offset(at);
        assert_eq!(doubts.check(&offset, "g", now), Ok(()));
        doubts.note(offset.clone(), "g", now, limits::OFFSET_LATE);
        assert!(matches!(doubts.check(&offset, "g", now), Err(StoreError::Busy { .. })));
        assert_eq!(doubts.check(&offset, "other", now), Ok(()));
        assert_eq!(doubts.check(&Changed::Offset(topic.partition(1)), "g", now), Ok(()));
        assert_eq!(doubts.check(&offset, "g", now + limits::OFFSET_LATE), Ok(()));
        doubts.note(offset, "other", now + limits::OFFSET_LATE, limits::OFFSET_LOST);
        assert_eq!(doubts.until.lock().len(), 1, "what is over is forgotten");
    }

    #[test]
    fn the_deletion_of_a_group_and_the_changes_of_its_offsets_wait_for_each_other() {
        let topic = TopicRef::new("s", "t", 1, 2, 3);
        let (offset, group) = (Changed::Offset(topic.partition(0)), Changed::Group(topic));
        let elsewhere = Changed::Offset(TopicRef::new("s", "u", 1, 3, 3).partition(0));
        let now = Instant::now();
        for (first, second) in [(&group, &offset), (&offset, &group), (&group, &group)] {
            let doubts = Doubts::default();
            doubts.note(first.clone(), "g", now, limits::OFFSET_LOST);
            assert!(matches!(doubts.check(second, "g", now), Err(StoreError::Busy { .. })), "{first:?} {second:?}");
            assert_eq!(doubts.check(second, "other", now), Ok(()));
            assert_eq!(doubts.check(&elsewhere, "g", now), Ok(()));
        }
    }
}
