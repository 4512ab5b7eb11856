//! Reads, by explicit offset only.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use iggy::prelude::TcpClient;
use iggy_binary_protocol::requests::messages::PollMessagesRequest;
use iggy_binary_protocol::{WireConsumer, WireIdentifier, WirePollingStrategy};
use iggy_common::BinaryTransport;
use milena_store::{Bounds, Entry, PartitionRef, ReadLimit, StoreError};
use parking_lot::Mutex;
use tokio::time::sleep;

use crate::error::Op;
use crate::gap::{Instead, Verdict, Wanted};
use crate::inner::Inner;
use crate::limits;
use crate::line::{CallError, For};
use crate::partition::Partition;
use crate::poll::{self, ONE, Polled};

impl Inner {
    pub(crate) async fn read(&self, at: &PartitionRef, from: u64, limit: ReadLimit) -> Result<Vec<Entry>, StoreError> {
        let bounds = self.readable(at, from).await?;
        let mut entries = Vec::new();
        let (mut next, mut left) = (from, limit.bytes);
        for turn in 0..limits::POLLS_PER_READ {
            if next >= bounds.end {
                break;
            }
            let wanted = ReadLimit { bytes: left, at_least_one: limit.at_least_one && entries.is_empty() };
            let polled = match self.read_once(at, next, wanted, bounds.end).await {
                Ok(Instead::Read(polled)) => polled,
                Ok(Instead::Pass(behind)) => {
                    next = behind;
                    continue;
                }
                // What was read is an answer; the rest is the next read's.
                Err(_) if turn > 0 && !entries.is_empty() => break,
                Err(error) => return Err(error),
            };
            let Some(last) = polled.entries.last() else { break };
            next = last.base_offset.saturating_add(u64::from(last.count));
            let bytes: usize = polled.entries.iter().map(|entry| entry.frames.len()).sum();
            left = left.saturating_sub(bytes);
            entries.extend(polled.entries);
            if polled.cut || polled.damage.is_some() || left < limit.bytes / 4 {
                break;
            }
        }
        Ok(entries)
    }

    /// The bounds when `from` lies within them.
    async fn readable(&self, at: &PartitionRef, from: u64) -> Result<Bounds, StoreError> {
        self.settle_doubt(at).await?;
        let inside = |bounds: &Bounds| (bounds.start..=bounds.end).contains(&from);
        if let Some(bounds) = self.recent_bounds(at).filter(inside) {
            return Ok(bounds);
        }
        let bounds = self.bounds_as_of(at, Instant::now()).await?;
        if inside(&bounds) { Ok(bounds) } else { Err(StoreError::OutOfRange { bounds }) }
    }

    /// One poll that brings something, unless the limit is too small for it.
    async fn read_once(&self, at: &PartitionRef, from: u64, limit: ReadLimit, end: u64) -> Result<Instead, StoreError> {
        let (state, partition) = self.partition(at).await?;
        if let Some(instead) = self.read_in_gap(at, &partition, from, limit).await {
            return Ok(instead);
        }
        let wanted = |until: u64| Wanted { offsets: from..until.min(end), limit };
        let mut pause = limits::EMPTY_POLL_PAUSE;
        for _ in 0..limits::EMPTY_POLLS_MAX {
            let count = partition.lock().poll_count(limit.bytes, end.saturating_sub(from));
            let body = self.poll(at, WirePollingStrategy::offset(from), count).await?;
            let mut polled = poll::decode(&body, from, limit);
            partition.lock().met(polled.messages, polled.bytes, polled.largest);
            if let Some(first) = polled.first.filter(|first| *first > from) {
                return match self.dialer.roster.is_cluster() {
                    true => self.bridge(at, &wanted(first)).await,
                    false => Err(self.passed_by(at, from, first).await),
                };
            }
            if !polled.entries.is_empty() || polled.cut {
                partition.lock().gaps.delivered(&polled);
                return Ok(Instead::Read(polled));
            }
            if let Some(damage) = polled.damage.take() {
                return match self.read_elsewhere(at, &wanted(end)).await {
                    Some(polled) => Ok(Instead::Read(polled)),
                    None => Err(StoreError::Broken { context: format!("{at:?} at offset {from}: {damage}") }),
                };
            }
            // A fault of the server's disk is answered like the end of the log, and so is a race with retention.
            sleep(pause).await;
            pause *= 2;
            self.look(&state, Instant::now()).await?;
            self.settle(at, &partition).await?;
            let (bounds, falling) = {
                let known = partition.lock();
                (known.bounds(), known.is_falling())
            };
            if !(bounds.start..bounds.end).contains(&from) {
                return Err(StoreError::OutOfRange { bounds });
            }
            if falling {
                return Err(StoreError::Busy { reason: format!("the Iggy server lags behind in {at:?}") });
            }
            if let Some(polled) = self.read_elsewhere(at, &wanted(end)).await {
                return Ok(Instead::Read(polled));
            }
        }
        let reason = format!("the Iggy server lists offset {from} of {at:?} and does not deliver it");
        if !self.dialer.roster.is_cluster() {
            return Err(StoreError::Broken { context: reason });
        }
        // The node that is read from may lag behind the one that told the end.
        Err(StoreError::Busy { reason })
    }

    /// Messages of which it is known that the node that leads lacks them.
    async fn read_in_gap(
        &self,
        at: &PartitionRef,
        partition: &Mutex<Partition>,
        from: u64,
        limit: ReadLimit,
    ) -> Option<Instead> {
        let (lost, until) = {
            let known = partition.lock();
            (known.gaps.lost(from), known.gaps.elsewhere(from))
        };
        if let Some(behind) = lost {
            return Some(Instead::Pass(behind));
        }
        let found = self.read_elsewhere(at, &Wanted { offsets: from..until?, limit }).await;
        if found.is_none() {
            partition.lock().gaps.not_elsewhere();
        }
        found.map(Instead::Read)
    }

    /// What another node of a cluster has.
    async fn read_elsewhere(&self, at: &PartitionRef, wanted: &Wanted) -> Option<Polled> {
        if !self.dialer.roster.is_cluster() {
            return None;
        }
        match self.ask_around(at, wanted).await {
            Verdict::Found(polled) => Some(polled),
            _ => None,
        }
    }

    fn poll_lost(&self, at: &PartitionRef, count: u32) {
        if let Some(partition) = self.topics.get(&at.topic).and_then(|state| state.partition(at.partition)) {
            partition.lock().poll_lost(count);
        }
    }

    /// The first offset that is delivered, or `end` when the server has no message and says so; `None` when that is not
    /// known.
    pub(crate) async fn first_offset(&self, at: &PartitionRef, end: Option<u64>) -> Option<u64> {
        let body = self.poll(at, WirePollingStrategy::first(), 1).await.ok()?;
        let polled = poll::decode(&body, 0, ONE);
        polled.first.or_else(|| end.filter(|end| polled.names_end(*end)))
    }

    /// A single server serves from its first message when a poll asks for an older one, without a word. What it has before
    /// the wanted message tells whether this is one that it lacks.
    async fn passed_by(&self, at: &PartitionRef, from: u64, first: u64) -> StoreError {
        let known = async {
            let (state, partition) = self.partition(at).await?;
            // It was delivered a moment ago, so an empty answer says nothing.
            if self.first_offset(at, None).await.is_some_and(|known| known >= first) {
                partition.lock().starts_at(first);
            }
            self.look(&state, Instant::now()).await?;
            let bounds = partition.lock().bounds();
            Ok::<_, StoreError>(bounds)
        };
        match known.await {
            Ok(bounds) if (bounds.start..=bounds.end).contains(&from) => {
                StoreError::Broken { context: format!("{at:?} has a gap at offset {from}") }
            }
            Ok(bounds) => StoreError::OutOfRange { bounds },
            Err(error) => error,
        }
    }

    /// One poll. When it has no answer, the next ones of this partition ask for fewer messages.
    pub(crate) async fn poll(
        &self,
        at: &PartitionRef,
        strategy: WirePollingStrategy,
        count: u32,
    ) -> Result<Bytes, StoreError> {
        let poll = async |count| {
            let unnamed = |error: StoreError| CallError::Unsent(error.to_string());
            let request = &self.poll_request(at, strategy.clone(), count).map_err(unnamed)?;
            let send = |client: Arc<TcpClient>| async move { client.send_poll_with_response(request).await };
            let polled = self.pool.read().call(For::Reading(at), send, |outcome| outcome).await;
            if polled.as_ref().is_err_and(CallError::lost_the_reply) {
                self.poll_lost(at, count);
            }
            polled
        };
        let polled = match poll(count).await {
            Err(error) if error.is_loss() => poll((count / 2).max(1)).await,
            polled => polled,
        };
        polled.map_err(|error| error.of(Op::Read, "a partition"))
    }

    /// A request for `count` messages, as `strategy` says.
    pub(crate) fn poll_request(
        &self,
        at: &PartitionRef,
        strategy: WirePollingStrategy,
        count: u32,
    ) -> Result<PollMessagesRequest, StoreError> {
        let (stream_id, topic_id) = self.names.wire(&at.topic)?;
        Ok(PollMessagesRequest {
            // Nothing is committed, so that whoever asks does not matter.
            consumer: WireConsumer::consumer(WireIdentifier::numeric(0)),
            stream_id,
            topic_id,
            partition_id: Some(at.partition),
            strategy,
            count,
            auto_commit: false,
        })
    }
}
