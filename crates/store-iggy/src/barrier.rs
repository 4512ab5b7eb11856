//! What became of an append in doubt, in a cluster.
//!
//! When a leader dies with an append that it had sent to others and not confirmed, the next leader may take it over, and
//! until it leads nobody shows it. So "it is not there" means nothing until the partition's new leader has answered
//! something that only a leader can, and that comes behind all that it took over. A consumer offset is such a thing: it
//! is stored under a number that nobody else uses and taken away again at once, since it would hold back retention.
//!
//! Nor does "it is there" mean anything when another node says so: after all nodes were killed each has what was on its own
//! disk, and what the leader lacks is gone. So the same connection tells behind that where the leader's log ends, and the
//! doubt is over when the end that is known here is that one.

use std::sync::Arc;
use std::time::Instant;

use iggy::prelude::TcpClient;
use iggy_binary_protocol::codec::WireEncode;
use iggy_binary_protocol::codes::{DELETE_CONSUMER_OFFSET_CODE, STORE_CONSUMER_OFFSET_CODE};
use iggy_binary_protocol::requests::consumer_offsets::{DeleteConsumerOffsetRequest, StoreConsumerOffsetRequest};
use iggy_binary_protocol::{AckLevel, WireConsumer, WireIdentifier};
use iggy_common::{BinaryTransport, IggyError, TopicClient, TopicDetails};
use milena_store::{PartitionRef, StoreError};

use crate::error::Op;
use crate::inner::{Inner, is_same, missing_topic};
use crate::limits;
use crate::line::{CallError, For};
use crate::partition::Described;

/// Number of the consumer whose offset is stored and taken away.
const CONSUMER: u32 = u32::MAX - 7;

/// The questions that settle the doubts about one partition: one at a time, and whoever waited for it uses its answer.
/// Each keeps the partition's appends waiting for as long as nobody leads.
#[derive(Debug, Default)]
pub(crate) struct Settling {
    /// When the last question was answered by nobody, and what came of it.
    failed: tokio::sync::Mutex<Option<(Instant, StoreError)>>,
}

impl Settling {
    /// Asks unless there is nothing to ask any more, or a question ended in vain since this was called.
    async fn settle<F>(&self, is_settled: impl Fn() -> bool, ask: impl FnOnce() -> F) -> Result<(), StoreError>
    where
        F: Future<Output = Result<(), StoreError>>,
    {
        let called = Instant::now();
        let mut failed = self.failed.lock().await;
        if is_settled() {
            return Ok(());
        }
        if let Some((at, error)) = &*failed
            && *at >= called
        {
            return Err(error.clone());
        }
        let asked = ask().await;
        *failed = asked.clone().err().map(|error| (Instant::now(), error));
        asked
    }
}

impl Inner {
    /// An append is in doubt.
    pub(crate) fn doubt(&self, at: &PartitionRef) {
        self.dialer.roster.doubt(at, Instant::now());
        if self.topics.get(&at.topic).is_none() {
            // It was deleted meanwhile, and nobody will ask.
            self.dialer.roster.forget(&at.topic);
        }
    }

    /// Before a partition is read: when an append to it is in doubt, makes sure that its leader shows all that there is.
    ///
    /// # Errors
    /// [`StoreError::Busy`] while no leader answers.
    pub(crate) async fn settle_doubt(&self, at: &PartitionRef) -> Result<(), StoreError> {
        let is_settled = || self.dialer.roster.doubted(at, Instant::now()).is_none();
        if is_settled() {
            return Ok(());
        }
        let settling = self.state(&at.topic).await?.settling(at.partition);
        settling.settle(is_settled, || self.ask_leader(at)).await
    }

    async fn ask_leader(&self, at: &PartitionRef) -> Result<(), StoreError> {
        // An answer counts when it came from the node that was asked: where the SDK found another one that leads, nobody
        // knows which it was, and what is read next could come from one that lags.
        for _ in 0..=self.dialer.roster.len() {
            let Some(since) = self.dialer.roster.doubted(at, Instant::now()) else { return Ok(()) };
            let (state, partition) = self.partition(at).await?;
            let (floor, asked) = (partition.lock().floor(), Instant::now());
            match self.barrier(at).await {
                Ok(details) => {
                    let (asked, details) = details;
                    let Some(details) = details.filter(|details| is_same(&state.topic, details)) else {
                        self.retire(&state.topic);
                        return Err(missing_topic(&state.topic));
                    };
                    let said = details.partitions.into_iter().find(|said| said.id == at.partition);
                    let Some(said) = said else {
                        return Err(StoreError::Busy { reason: format!("the leader of {at:?} does not list it") });
                    };
                    let mut partition = partition.lock();
                    let (seen, is_settled) =
                        partition.led_to(&Described::from(&said), floor, limits::FALL_GRACE, asked);
                    self.tell(at, seen);
                    if !is_settled {
                        let reason = format!("the leader of {at:?} has less than was there, which may pass");
                        return Err(StoreError::Busy { reason });
                    }
                    // Where something came into doubt meanwhile the loop asks once more.
                    self.dialer.roster.settled(at, asked, Instant::now());
                }
                Err(CallError::Moved) => {}
                // The partition is empty, which every node says alike, whether it leads or not.
                Err(CallError::Said(IggyError::InvalidOffset(_))) if since >= limits::EMPTY_DOUBT => {
                    self.dialer.roster.settled(at, asked, Instant::now());
                }
                Err(CallError::Said(IggyError::InvalidOffset(_))) => break,
                Err(error) => return Err(error.of(Op::Read, "the leader of a partition")),
            }
        }
        match self.dialer.roster.doubted(at, Instant::now()) {
            None => Ok(()),
            Some(_) => Err(StoreError::Busy { reason: format!("it is not known yet who leads {at:?}") }),
        }
    }

    /// What the leader says of the topic behind all that it took over, and when it was asked: what is appended over the same
    /// connection before that is known by then, or in doubt.
    async fn barrier(&self, at: &PartitionRef) -> Result<(Instant, Option<TopicDetails>), CallError> {
        let unnamed = |error: StoreError| CallError::Unsent(error.to_string());
        let (stream_id, topic_id) = self.names.wire(&at.topic).map_err(unnamed)?;
        let (stream, topic) = self.names.topic(at.topic.stream(), at.topic.topic()).map_err(unnamed)?;
        let (consumer, partition_id) = (WireConsumer::consumer(WireIdentifier::numeric(CONSUMER)), Some(at.partition));
        let store = StoreConsumerOffsetRequest {
            consumer: consumer.clone(),
            stream_id: stream_id.clone(),
            topic_id: topic_id.clone(),
            partition_id,
            offset: 0,
            ack: AckLevel::Quorum,
        };
        let delete = DeleteConsumerOffsetRequest { consumer, stream_id, topic_id, partition_id, ack: AckLevel::Quorum };
        let ask = |client: Arc<TcpClient>| async move {
            let asked = Instant::now();
            client.send_raw_with_response(STORE_CONSUMER_OFFSET_CODE, store.to_bytes()).await?;
            match client.send_raw_with_response(DELETE_CONSUMER_OFFSET_CODE, delete.to_bytes()).await {
                Ok(_) | Err(IggyError::ConsumerOffsetNotFound(_)) => {}
                Err(error) => left_behind(at, &error),
            }
            Ok((asked, client.get_topic(&stream, &topic).await?))
        };
        self.pool
            .append(at)
            .call(For::Proving(at), ask, |outcome| {
                if let Err(error) = &outcome
                    && error.lost_the_reply()
                {
                    left_behind(at, error);
                }
                outcome
            })
            .await
    }
}

/// The next question to the leader takes it away; when none is needed, somebody else has to.
fn left_behind(at: &PartitionRef, error: &dyn std::fmt::Debug) {
    tracing::warn!(partition = ?at, consumer = CONSUMER, ?error, "a consumer offset that holds back retention may be left behind");
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use tokio::task::yield_now;

    use super::*;

    /// What four calls at once hear when each question comes to `outcome`, and how many questions there were.
    async fn at_once(settling: &Settling, outcome: Result<(), StoreError>) -> (Vec<Result<(), StoreError>>, usize) {
        let (settled, questions) = (AtomicBool::new(false), AtomicUsize::new(0));
        let one = || {
            settling.settle(
                || settled.load(Ordering::Relaxed),
                || async {
                    questions.fetch_add(1, Ordering::Relaxed);
                    for _ in 0..20 {
                        yield_now().await;
                    }
                    settled.store(outcome.is_ok(), Ordering::Relaxed);
                    outcome.clone()
                },
            )
        };
        let (a, b, c, d) = tokio::join!(one(), one(), one(), one());
        (vec![a, b, c, d], questions.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn calls_that_come_at_once_share_one_question_to_the_leader_and_its_outcome() {
        let settling = Settling::default();
        let busy = StoreError::Busy { reason: "nobody leads".to_owned() };
        assert_eq!(at_once(&settling, Err(busy.clone())).await, (vec![Err(busy.clone()); 4], 1));
        assert_eq!(at_once(&settling, Ok(())).await, (vec![Ok(()); 4], 1), "a later call asks again");
        assert_eq!(at_once(&settling, Err(busy.clone())).await, (vec![Err(busy); 4], 1));
    }
}
