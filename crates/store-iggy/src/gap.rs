//! What the node that leads a partition lacks in the middle of its log, from the other nodes of the cluster.
//!
//! A node that was restarted takes in what it missed while new messages arrive, and this server can leave some of them out
//! for good, or write them behind later ones. When such a node leads, it delivers what follows to whoever asks for what it
//! lacks, without a word. The others mostly have it. So all nodes are asked:
//!
//! - one has the messages: they are delivered, up to the first that the leader has. Where several have them, they must be
//!   the same ones;
//! - most nodes answered, and none has anything below either: the partition begins later, by retention. An acknowledged
//!   message is on most nodes, so one of those that answered would have it;
//! - none has them, and all answered: they are lost. That is believed when it is still so after [`limits::LOST_GRACE`],
//!   with an answer in between that only a leader can give, since a node may still be taking them in. Then they are
//!   passed over, as Kafka's clients know it from compaction: what lies behind them is as it was acknowledged, and a
//!   consumer that waits for what no node has would wait for ever;
//! - otherwise a node that is away may have them, and is waited for.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use iggy::prelude::TcpClient;
use iggy_binary_protocol::WirePollingStrategy;
use iggy_common::{BinaryTransport, IggyError, TopicClient};
use milena_store::{PartitionRef, ReadLimit, StoreError};
use tokio::time::timeout;

use crate::inner::{Inner, is_same};
use crate::limits;
use crate::line::For;
use crate::poll::{self, Polled};
use crate::roster::Node;

const ONE: ReadLimit = ReadLimit { bytes: 0, at_least_one: true };

/// What is asked of each node.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// The messages of these offsets, of which the leader lacks the first.
    pub(crate) offsets: Range<u64>,
    pub(crate) limit: ReadLimit,
}

/// What one node has from the wanted offset on.
#[derive(Debug, Default)]
struct Said {
    polled: Polled,
    /// Offset of its first message, where it was asked for that.
    start: Option<u64>,
}

impl Said {
    fn has(&self, offset: u64) -> bool {
        self.polled.first == Some(offset) && (self.polled.cut || !self.polled.entries.is_empty())
    }

    fn frames(&self) -> Vec<u8> {
        self.polled.entries.iter().map(|entry| &*entry.frames).collect::<Vec<_>>().concat()
    }

    fn count(&self) -> u64 {
        self.polled.entries.iter().map(|entry| u64::from(entry.count)).sum()
    }
}

/// What the answers of the nodes come to.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The wanted messages, or the first of them.
    Found(Polled),
    /// Nobody has anything below this offset, which is above the wanted one.
    Starts(u64),
    /// Every node was asked, and none has the messages below this offset.
    Nobody { next: u64 },
    /// Two nodes have different messages at one offset.
    Differ,
    /// Too few nodes answered.
    Unknown,
}

fn judge(mut answers: Vec<Said>, nodes: usize, wanted: &Range<u64>) -> Verdict {
    // A node that could not read its disk, or still builds the partition, delivers nothing as if there were nothing.
    answers.retain(|said| said.polled.first.is_some() || said.start.is_some());
    let (most_answered, all_answered) = (answers.len() * 2 > nodes, answers.len() >= nodes);
    let starts = answers.iter().filter_map(|said| said.start).min();
    let behind = answers.iter().filter_map(|said| said.polled.first).filter(|first| *first > wanted.start).min();
    let mut having: Vec<Said> = answers.into_iter().filter(|said| said.has(wanted.start)).collect();
    having.sort_by_key(Said::count);
    if let Some(best) = having.pop() {
        let frames = best.frames();
        let agrees = |said: &Said| frames.starts_with(&said.frames());
        return if having.iter().all(agrees) { Verdict::Found(best.polled) } else { Verdict::Differ };
    }
    match starts {
        Some(start) if start > wanted.start && most_answered => Verdict::Starts(start),
        Some(start) if start <= wanted.start && all_answered => {
            Verdict::Nobody { next: behind.unwrap_or(wanted.end).min(wanted.end) }
        }
        _ => Verdict::Unknown,
    }
}

/// What is known of the messages of one partition that its leader lacks. Pure: times are arguments.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gaps {
    /// Offsets that other nodes delivered and the leader did not: it need not be asked first.
    elsewhere: Option<Range<u64>>,
    /// Messages that no node had, by the offset behind them.
    missing: BTreeMap<u64, Missing>,
}

#[derive(Debug, Clone, Copy)]
struct Missing {
    from: u64,
    since: Instant,
    is_lost: bool,
    /// Messages that were counted as lost.
    counted: u64,
}

/// What it means that no node has some messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absence {
    /// It is seen for the first time.
    New,
    /// It is not believed yet.
    Waits,
    /// They are lost; of so many it was not known yet.
    Lost { more: u64 },
}

impl Gaps {
    /// End of the stretch that holds `offset` and that other nodes have.
    pub(crate) fn elsewhere(&self, offset: u64) -> Option<u64> {
        self.elsewhere.as_ref().filter(|gap| gap.contains(&offset)).map(|gap| gap.end)
    }

    /// Other nodes have what the leader lacks. True when that was not known.
    pub(crate) fn found(&mut self, gap: Range<u64>) -> bool {
        self.missing.retain(|next, missing| *next <= gap.start || missing.from >= gap.end);
        let is_new = self.elsewhere(gap.start).is_none_or(|end| end != gap.end);
        if is_new {
            self.elsewhere = Some(gap);
        }
        is_new
    }

    /// They are asked in vain, or the leader has it again.
    pub(crate) fn not_elsewhere(&mut self) {
        self.elsewhere = None;
    }

    /// All nodes answered, and none has the messages in `gap`.
    pub(crate) fn nobody_has(&mut self, gap: Range<u64>, now: Instant) -> Absence {
        if !self.missing.contains_key(&gap.end) && self.missing.len() >= limits::GAPS_MAX {
            self.missing.pop_first();
        }
        let fresh = Missing { from: gap.start, since: now, is_lost: false, counted: 0 };
        let mut is_new = false;
        let missing = self.missing.entry(gap.end).or_insert_with(|| {
            is_new = true;
            fresh
        });
        if gap.start < missing.from {
            // Of the first of them this is the first sight.
            *missing = Missing { counted: missing.counted, ..fresh };
            is_new = true;
        }
        if is_new {
            return Absence::New;
        }
        if now.saturating_duration_since(missing.since) < limits::LOST_GRACE {
            return Absence::Waits;
        }
        let count = gap.end.saturating_sub(gap.start);
        let more = count.saturating_sub(missing.counted);
        *missing =
            Missing { from: gap.start, since: missing.since, is_lost: true, counted: missing.counted.max(count) };
        Absence::Lost { more }
    }

    /// Where to read on when the message at `offset` is lost.
    pub(crate) fn lost(&self, offset: u64) -> Option<u64> {
        let (next, missing) = self.missing.range(offset.saturating_add(1)..).next()?;
        (missing.is_lost && missing.from <= offset).then_some(*next)
    }
}

/// What to do where the leader lacks the wanted message.
pub(crate) enum Instead {
    /// These are the messages.
    Read(Polled),
    /// They are lost: reading goes on there.
    Pass(u64),
}

impl Inner {
    /// All nodes that can be reached, one after another: this is rare, and each answer may be large.
    pub(crate) async fn ask_around(&self, at: &PartitionRef, wanted: &Wanted) -> Verdict {
        let roster = &self.dialer.roster;
        let mut answers = Vec::new();
        for node in roster.reachable(Instant::now()) {
            answers.extend(self.ask_one(&node, at, Some(wanted)).await);
        }
        let verdict = judge(answers, roster.len(), &wanted.offsets);
        match &verdict {
            Verdict::Found(polled) => {
                self.metrics.gap_reads.add(1);
                tracing::debug!(partition = ?at, from = wanted.offsets.start, messages = polled.messages, "read elsewhere");
            }
            Verdict::Differ => tracing::error!(
                partition = ?at, offset = wanted.offsets.start,
                "two nodes of the Iggy cluster have different messages at one offset, and the one that leads has none"
            ),
            Verdict::Starts(_) | Verdict::Nobody { .. } | Verdict::Unknown => {}
        }
        verdict
    }

    /// What one node has; `None` when it does not answer, or knows another topic of that name.
    async fn ask_one(&self, node: &Node, at: &PartitionRef, wanted: Option<&Wanted>) -> Option<Said> {
        let (stream, topic) = self.names.topic(at.topic.stream(), at.topic.topic()).ok()?;
        let first = self.poll_request(at, WirePollingStrategy::first(), 1).ok()?;
        let from = wanted.map_or(0, |wanted| wanted.offsets.start);
        let limit = wanted.map_or(ONE, |wanted| wanted.limit);
        let poll = match wanted {
            Some(wanted) => {
                let partition = self.topics.get(&at.topic)?.partition(at.partition)?;
                let count = partition.lock().poll_count(limit.bytes, wanted.offsets.end.saturating_sub(from));
                Some(self.poll_request(at, WirePollingStrategy::offset(from), count).ok()?)
            }
            None => None,
        };
        let ask = |client: Arc<TcpClient>| async move {
            let details = client.get_topic(&stream, &topic).await?;
            if !details.is_some_and(|details| is_same(&at.topic, &details)) {
                return Ok::<_, IggyError>(None);
            }
            let mut said = Said::default();
            if let Some(poll) = poll {
                let body: Bytes = client.send_poll_with_response(&poll).await?;
                said.polled = poll::decode(&body, from, limit);
            }
            if !said.has(from) {
                let body: Bytes = client.send_poll_with_response(&first).await?;
                said.start = poll::decode(&body, 0, ONE).first;
            }
            Ok(Some(said))
        };
        let call = self.pool.read().call(For::Node(node), ask, |outcome| outcome);
        timeout(limits::NODE_PATIENCE, call).await.ok()?.ok()?
    }

    /// Where a partition begins in a cluster: of most nodes, the first message that any of them has, `u64::MAX` when none has
    /// one; `None` when too few answer. That a node delivers nothing says something only where the partition may be empty.
    pub(crate) async fn earliest(&self, at: &PartitionRef, may_be_empty: bool) -> Option<u64> {
        let roster = &self.dialer.roster;
        let (mut answers, mut earliest) = (0, u64::MAX);
        for node in roster.reachable(Instant::now()) {
            let Some(said) = self.ask_one(&node, at, None).await else { continue };
            answers += usize::from(may_be_empty || said.start.is_some());
            earliest = earliest.min(said.start.unwrap_or(u64::MAX));
        }
        (answers * 2 > roster.len()).then_some(earliest)
    }

    /// The node that is read lacks the first of the wanted messages and has what is behind the last.
    pub(crate) async fn bridge(&self, at: &PartitionRef, wanted: &Wanted) -> Result<Instead, StoreError> {
        let (state, partition) = self.partition(at).await?;
        let from = wanted.offsets.start;
        match self.ask_around(at, wanted).await {
            Verdict::Found(polled) => {
                let mut known = partition.lock();
                known.met(polled.messages, polled.bytes, polled.largest);
                if known.gaps.found(wanted.offsets.clone()) {
                    tracing::warn!(
                        partition = ?at, offsets = ?wanted.offsets,
                        "the node of the Iggy cluster that leads a partition lacks messages that others have; they are read there"
                    );
                }
                return Ok(Instead::Read(polled));
            }
            Verdict::Starts(start) => {
                partition.lock().starts_at(start);
                self.look(&state, Instant::now()).await?;
                let bounds = partition.lock().bounds();
                if !(bounds.start..=bounds.end).contains(&from) {
                    return Err(StoreError::OutOfRange { bounds });
                }
            }
            Verdict::Nobody { next } => {
                if self.are_lost(at, from..next, &mut partition.lock().gaps) {
                    return Ok(Instead::Pass(next));
                }
            }
            Verdict::Differ | Verdict::Unknown => {}
        }
        Err(StoreError::Busy { reason: format!("the node that leads {at:?} lacks offset {from}") })
    }

    /// True when messages that no node has are given up.
    fn are_lost(&self, at: &PartitionRef, gap: Range<u64>, gaps: &mut Gaps) -> bool {
        let now = Instant::now();
        match gaps.nobody_has(gap.clone(), now) {
            Absence::New => {
                tracing::error!(
                    partition = ?at, offsets = ?gap, wait = ?limits::LOST_GRACE,
                    "no node of the Iggy cluster has these acknowledged messages; they are waited for, and passed over then"
                );
                // Nothing more is read here before the leader has answered.
                self.dialer.roster.suspect(at, now);
                false
            }
            Absence::Waits => false,
            Absence::Lost { more } => {
                if more > 0 {
                    self.metrics.lost_messages.add(more);
                    tracing::error!(
                        partition = ?at, offsets = ?gap,
                        "acknowledged messages are lost: no node of the Iggy cluster has them. Consumers go on behind them"
                    );
                }
                true
            }
        }
    }
}

#[cfg(test)]
mod tests;
