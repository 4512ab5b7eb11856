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
//! - none has them, and all have what comes behind: they are lost. That is believed when it was so at each of the times
//!   that somebody asked, over [`limits::LOST_GRACE`] and not further apart than [`limits::LOST_SEEN_AGAIN`], with an
//!   answer in between that only a leader can give, since a node may still be taking them in. Then they are passed over,
//!   as Kafka's clients know it from compaction: what lies behind them is as it was acknowledged, and a consumer that
//!   waits for what no node has would wait for ever;
//! - otherwise a node that is away may have them, and is waited for.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use iggy::prelude::TcpClient;
use iggy_binary_protocol::WirePollingStrategy;
use iggy_common::{BinaryTransport, IggyError};
use milena_store::{PartitionRef, ReadLimit, StoreError};

use crate::inner::Inner;
use crate::limits;
use crate::poll::{self, ONE, Polled};

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
    /// Every node has something behind them, and none has the messages below this offset.
    Nobody { next: u64 },
    /// Two nodes have different messages at one offset.
    Differ,
    /// Too few nodes answered.
    Unknown,
}

fn judge(mut answers: Vec<Said>, nodes: usize, wanted: &Range<u64>) -> Verdict {
    // A node that could not read its disk, or still builds the partition, delivers nothing as if there were nothing.
    answers.retain(|said| said.polled.first.is_some() || said.start.is_some());
    let most_answered = answers.len() * 2 > nodes;
    // One that has nothing behind them may not have come so far yet.
    let all_passed = answers.iter().filter(|said| said.polled.first.is_some()).count() >= nodes;
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
        Some(start) if start <= wanted.start && all_passed => {
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
    /// When it was last said that two nodes have different messages.
    differed: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Missing {
    from: u64,
    since: Instant,
    /// When nobody had them the last time.
    last: Instant,
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
        self.are_there(&gap);
        let is_new = self.elsewhere(gap.start).is_none_or(|end| end != gap.end);
        if is_new {
            self.elsewhere = Some(gap);
        }
        is_new
    }

    /// The leader delivers these.
    pub(crate) fn delivered(&mut self, polled: &Polled) {
        if self.missing.is_empty() {
            return;
        }
        for entry in &polled.entries {
            self.are_there(&(entry.base_offset..entry.base_offset.saturating_add(u64::from(entry.count))));
        }
    }

    fn are_there(&mut self, found: &Range<u64>) {
        self.missing.retain(|next, missing| *next <= found.start || missing.from >= found.end);
    }

    /// True when it is to be said that two nodes have different messages: each read finds that again.
    fn may_tell_difference(&mut self, now: Instant) -> bool {
        let may = self.differed.is_none_or(|last| now.saturating_duration_since(last) >= limits::DIFFER_PAUSE);
        if may {
            self.differed = Some(now);
        }
        may
    }

    /// They are asked in vain, or the leader has it again.
    pub(crate) fn not_elsewhere(&mut self) {
        self.elsewhere = None;
    }

    /// All nodes answered, and none has the messages in `gap`. That is believed after `grace`.
    pub(crate) fn nobody_has(&mut self, gap: Range<u64>, grace: Duration, now: Instant) -> Absence {
        if !self.missing.contains_key(&gap.end) && self.missing.len() >= limits::GAPS_MAX {
            self.missing.pop_first();
        }
        let fresh = Missing { from: gap.start, since: now, last: now, is_lost: false, counted: 0 };
        let mut is_new = false;
        let missing = self.missing.entry(gap.end).or_insert_with(|| {
            is_new = true;
            fresh
        });
        let is_stale = !missing.is_lost && now.saturating_duration_since(missing.last) > limits::LOST_SEEN_AGAIN;
        if gap.start < missing.from || is_stale {
            // Of the first of them this is the first sight; or nobody looked for long, and they may have been there meanwhile.
            *missing = Missing { counted: missing.counted, ..fresh };
            is_new = true;
        }
        if is_new {
            return Absence::New;
        }
        missing.last = now;
        if now.saturating_duration_since(missing.since) < grace {
            return Absence::Waits;
        }
        let count = gap.end.saturating_sub(gap.start);
        let more = count.saturating_sub(missing.counted);
        *missing = Missing { from: gap.start, is_lost: true, counted: missing.counted.max(count), ..*missing };
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
    /// What the nodes that can be reached have of it. They are asked at once, so that each answer that is as large as a
    /// read may be is in memory as often as there are nodes; this is rare.
    pub(crate) async fn ask_around(&self, at: &PartitionRef, wanted: &Wanted) -> Verdict {
        let Some(partition) = self.topics.get(&at.topic).and_then(|state| state.partition(at.partition)) else {
            return Verdict::Unknown;
        };
        let (from, limit) = (wanted.offsets.start, wanted.limit);
        let count = partition.lock().poll_count(limit.bytes, wanted.offsets.end.saturating_sub(from));
        let poll = self.poll_request(at, WirePollingStrategy::offset(from), count);
        let first = self.poll_request(at, WirePollingStrategy::first(), 1);
        let (Ok(poll), Ok(first)) = (poll, first) else { return Verdict::Unknown };
        let polls = Arc::new((poll, first));
        let ask = move |client: Arc<TcpClient>, _| {
            let polls = Arc::clone(&polls);
            async move {
                let (poll, first) = &*polls;
                let body: Bytes = client.send_poll_with_response(poll).await?;
                let mut said = Said { polled: poll::decode(&body, from, limit), start: None };
                if !said.has(from) {
                    let body: Bytes = client.send_poll_with_response(first).await?;
                    said.start = poll::decode(&body, 0, ONE).first;
                }
                Ok::<_, IggyError>(said)
            }
        };
        let answers = self.ask_nodes(&at.topic, ask).await.into_iter().map(|(_, said)| said).collect();
        let verdict = judge(answers, self.dialer.roster.len(), &wanted.offsets);
        match &verdict {
            Verdict::Found(polled) => {
                self.metrics.gap_reads.add(1);
                tracing::debug!(partition = ?at, from, messages = polled.messages, "read elsewhere");
            }
            Verdict::Differ if partition.lock().gaps.may_tell_difference(Instant::now()) => tracing::error!(
                partition = ?at, offset = from,
                "two nodes of the Iggy cluster have different messages at one offset, and the one that leads has none"
            ),
            Verdict::Differ | Verdict::Starts(_) | Verdict::Nobody { .. } | Verdict::Unknown => {}
        }
        verdict
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
        let grace = self.config().lost_grace;
        match gaps.nobody_has(gap.clone(), grace, now) {
            Absence::New => {
                tracing::error!(
                    partition = ?at, offsets = ?gap, wait = ?grace,
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
