//! What the admin handlers share: refusals, a bounded amount of error text, deadlines.

use std::future::Future;
use std::time::Duration;

use milena_store::PartitionRef;
use milena_wire::kafka_protocol::messages::BrokerId;
use milena_wire::kafka_protocol::protocol::StrBytes;
use tokio::time::{Instant, timeout_at};

use crate::codes;
use crate::limits::Limits;
use crate::topics::{Topic, TopicError};

/// All operations on a topic, as a bit set by Kafka's numbers: read 3, write 4, create 5, delete 6, alter 7,
/// describe 8, describe configs 10, alter configs 11. Without authorization everybody may do everything.
pub const TOPIC_OPERATIONS: i32 = 0b1101_1111_1000;

/// Shortest time that a change gets. Some clients send 0, meaning "do not wait for the replicas": there is nothing of
/// the kind to wait for, and a change that was only begun would have to be answered with an error.
const TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// Why one item of an admin request is refused. The text goes to the client: it is short, whatever the client sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The directory of topics refused.
    #[error("{0}")]
    Topic(#[from] TopicError),
    /// The item contradicts itself or another item of the request.
    #[error("{0}")]
    Request(&'static str),
    /// A manual assignment that is none.
    #[error("{0}")]
    Assignment(&'static str),
    /// A reassignment to be cancelled that does not exist.
    #[error("no reassignment of this partition is under way")]
    NoReassignment,
    /// A replication factor that is none.
    #[error("the replication factor {0} is neither -1 nor at least 1")]
    ReplicationFactor(i16),
    /// No topic has that id.
    #[error("no topic has this id")]
    UnknownId,
    /// The request asks for more than one request may.
    #[error("{0}")]
    TooMuch(String),
    /// It was begun and may still be carried out.
    #[error("the change did not end within the timeout of the request")]
    TimedOut,
}

/// Error text under a budget, so that a request of many bad items is not answered with many times its size. Items
/// past the budget keep their code.
#[derive(Debug)]
pub struct Texts {
    left: usize,
}

impl Texts {
    /// A response's budget.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Self { left: limits.error_text_bytes }
    }

    /// The code of an error, and its text while there is room.
    pub fn of(&mut self, error: &AdminError) -> (i16, Option<StrBytes>) {
        self.take(error, error.to_string())
    }

    /// As [`Self::of`], of the topic `name`; in the words of Apache Kafka where scripts look for them. A topic that exists
    /// has no long name.
    pub fn of_topic(&mut self, name: &str, error: &AdminError) -> (i16, Option<StrBytes>) {
        match error {
            AdminError::Topic(TopicError::Exists) => self.take(error, format!("Topic '{name}' already exists.")),
            AdminError::Topic(TopicError::NotMore { now, asked }) if i64::from(*now) == *asked => {
                self.take(error, format!("Topic already has {now} partition(s)."))
            }
            AdminError::Topic(TopicError::NotMore { now, asked }) => self.take(
                error,
                format!("The topic {name} currently has {now} partition(s); {asked} would not be an increase."),
            ),
            _ => self.of(error),
        }
    }

    fn take(&mut self, error: &AdminError, text: String) -> (i16, Option<StrBytes>) {
        let fits = text.len() <= self.left;
        self.left = if fits { self.left - text.len() } else { 0 };
        (codes::of_admin(error).code(), fits.then(|| StrBytes::from_string(text)))
    }
}

/// When the changes of a request must have ended.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Instant);

impl Deadline {
    /// The client's `timeout_ms`, but at least a second and at most what the server allows.
    #[must_use]
    pub fn new(timeout_ms: i32, limits: &Limits) -> Self {
        let asked = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
        Self(Instant::now() + asked.min(limits.admin_timeout_max).max(TIMEOUT_MIN))
    }

    /// The outcome of a change, or [`AdminError::TimedOut`] when the time is up; the change itself goes on. Nothing
    /// is begun behind the deadline.
    ///
    /// # Errors
    /// The change's own, or the timeout.
    pub async fn within<T>(self, change: impl Future<Output = Result<T, TopicError>>) -> Result<T, AdminError> {
        let outcome = self.limit(change).await.ok_or(AdminError::TimedOut)?;
        outcome.map_err(AdminError::Topic)
    }

    /// As [`Self::within`], with `None` when the time is up.
    pub async fn limit<T>(self, change: impl Future<Output = T>) -> Option<T> {
        if Instant::now() >= self.0 {
            return None;
        }
        timeout_at(self.0, change).await.ok()
    }
}

/// The partition of a topic that a client names, if there is one.
#[must_use]
pub fn partition_of(topic: &Topic, index: i32) -> Option<PartitionRef> {
    let index = u32::try_from(index).ok().filter(|index| *index < topic.partitions)?;
    Some(topic.store.partition(index))
}

/// Checks the replicas of one partition in a manual assignment. Placement is the engine's, so which brokers they
/// name does not matter; a list that no cluster could place is still refused.
///
/// # Errors
/// [`AdminError::Assignment`].
pub fn check_replicas(brokers: &[BrokerId]) -> Result<(), AdminError> {
    let mut ids: Vec<i32> = brokers.iter().map(|broker| broker.0).collect();
    ids.sort_unstable();
    if ids.is_empty() {
        return Err(AdminError::Assignment("a manual assignment names no broker for a partition"));
    }
    if ids.iter().any(|id| *id < 0) {
        return Err(AdminError::Assignment("a manual assignment names a broker below 0"));
    }
    if ids.windows(2).any(|pair| pair.first() == pair.last()) {
        return Err(AdminError::Assignment("a manual assignment names a broker twice for one partition"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replicas(ids: &[i32]) -> Result<(), AdminError> {
        check_replicas(&ids.iter().map(|id| BrokerId(*id)).collect::<Vec<_>>())
    }

    #[test]
    fn replicas_are_some_distinct_brokers() {
        assert!(replicas(&[0]).is_ok());
        assert!(replicas(&[3, 1, 2]).is_ok());
        assert!(replicas(&[]).is_err());
        assert!(replicas(&[1, 2, 1]).is_err());
        assert!(replicas(&[-1]).is_err());
    }

    #[test]
    fn text_ends_with_the_budget_and_codes_do_not() {
        let mut texts = Texts::new(&Limits { error_text_bytes: 50, ..Limits::default() });
        let error = AdminError::UnknownId;
        assert_eq!(texts.of(&error), (100, Some(StrBytes::from_static_str("no topic has this id"))));
        assert!(texts.of(&error).1.is_some());
        assert_eq!(texts.of(&error), (100, None));
    }

    #[test]
    fn what_scripts_look_for_is_in_the_words_of_kafka() {
        let mut texts = Texts::new(&Limits::default());
        let mut text = |error: TopicError| texts.of_topic("a", &AdminError::Topic(error)).1.unwrap().to_string();
        assert_eq!(text(TopicError::Exists), "Topic 'a' already exists.");
        assert_eq!(text(TopicError::NotMore { now: 5, asked: 5 }), "Topic already has 5 partition(s).");
        assert_eq!(
            text(TopicError::NotMore { now: 5, asked: 2 }),
            "The topic a currently has 5 partition(s); 2 would not be an increase."
        );
        assert_eq!(text(TopicError::NotFound), "the topic does not exist");
    }

    #[test]
    fn the_operations_are_the_bits_of_their_numbers() {
        assert_eq!(TOPIC_OPERATIONS, [3, 4, 5, 6, 7, 8, 10, 11].iter().map(|bit| 1 << bit).sum::<i32>());
    }

    #[tokio::test(start_paused = true)]
    async fn a_timeout_of_zero_still_leaves_time_for_the_change() {
        let deadline = Deadline::new(0, &Limits::default());
        let change = async {
            tokio::time::sleep(Duration::from_millis(900)).await;
            Ok(())
        };
        assert_eq!(deadline.within(change).await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_timeout_above_the_servers_is_cut_to_it() {
        let limits = Limits { admin_timeout_max: Duration::from_secs(5), ..Limits::default() };
        let begin = Instant::now();
        let forever = std::future::pending::<Result<(), TopicError>>();
        assert_eq!(Deadline::new(i32::MAX, &limits).within(forever).await, Err(AdminError::TimedOut));
        assert_eq!(begin.elapsed().as_secs(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_begun_behind_the_deadline() {
        let deadline = Deadline::new(0, &Limits::default());
        tokio::time::sleep(Duration::from_secs(2)).await;
        let change = async { panic!("it was begun") };
        assert_eq!(deadline.within::<()>(change).await, Err(AdminError::TimedOut));
    }
}
