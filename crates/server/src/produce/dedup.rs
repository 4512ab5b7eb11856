//! The table of producers of one partition: which batch is fresh, which one was stored before.
//!
//! Pure: `now` is an argument, nothing waits and nothing is read. The rules:
//!
//! - a batch whose sequences are all stored is answered with the offset it has, and not written again
//! - an older epoch is refused; a newer one is accepted when it begins at sequence 0, since Java producers raise their
//!   epoch by themselves after an error
//! - a gap is refused while the state of the producer is known: a failed batch that is retried must not land behind
//!   the one that followed it
//! - of what the store lost although it had acknowledged it, nobody knows how much the producer will send again: it goes on
//!   anywhere between the first record that is gone and what it would have sent next, once; from then on order counts
//! - a producer that is not known (evicted, expired, not in the tail that was read) is accepted as it comes; no
//!   detection is claimed that is not there
//!
//! A batch on its way to the store is a [`Doubt`] until the store has answered. Whoever finds one at a producer's
//! turn must find out first whether that batch landed.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::time::{Duration, Instant};

use super::sequence::{Runs, Span, WINDOW, advance, distance};

/// A batch of an idempotent producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// Producer id.
    pub producer_id: u64,
    /// Producer epoch, 15 bits.
    pub epoch: u16,
    /// Its sequences.
    pub span: Span,
}

/// A batch that was handed to the store and whose outcome is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Doubt {
    /// The batch.
    pub batch: Batch,
    /// End of the partition as last known before the append began: the batch can only have landed here or behind.
    pub from: u64,
    /// When the store gave up on it; `None` when its caller went away before an answer came.
    pub since: Option<Instant>,
}

/// What to do with a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Append it.
    Fresh,
    /// Append it, although nothing is known of its producer and it does not begin at sequence 0.
    Unknown,
    /// It is stored already, from this offset on.
    Duplicate(u64),
    /// It leaves a gap, or was stored too long ago to be found.
    OutOfSequence,
    /// A later incarnation of the producer has written since.
    OldEpoch,
    /// An earlier batch must be resolved first.
    Resolve(Doubt),
}

/// What is remembered of a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remembered {
    /// Producer id.
    pub producer_id: u64,
    /// Producer epoch.
    pub epoch: u16,
    /// Sequence of its last record; `None` when none is known to be stored.
    pub last_sequence: Option<u32>,
    /// When it last sent a batch.
    pub used_at: Instant,
}

#[derive(Debug)]
struct Producer {
    epoch: u16,
    runs: Runs,
    doubt: Option<Doubt>,
    /// After the store lost records of its own: the sequence that was expected before. A batch may begin there, or at any
    /// sequence from the one on that is expected now.
    lost_until: Option<u32>,
    /// Everything but the doubt was forgotten.
    is_forgotten: bool,
    turn: Turn,
}

impl Producer {
    /// The newest epoch counts, with what is stored in it.
    fn replay(&mut self, batch: &Batch, offset: u64) -> u32 {
        if batch.epoch < self.epoch {
            return 0;
        }
        if batch.epoch > self.epoch {
            self.epoch = batch.epoch;
            self.runs = Runs::expecting(batch.span.first);
            self.lost_until = None;
        }
        let copies = self.runs.replay(batch.span, offset);
        if self.lost_until.is_some_and(|until| distance(until, self.runs.next()) < WINDOW) {
            self.lost_until = None;
        }
        copies
    }

    /// What is known to lie at `end` and behind it is not there, or is to be read again.
    fn lose(&mut self, end: u64) {
        let expected = self.runs.next();
        self.runs.cut(end);
        if self.runs.next() != expected {
            self.lost_until.get_or_insert(expected);
        }
    }

    fn expects(&self, first: u32) -> bool {
        let next = self.runs.next();
        match self.lost_until {
            // All that is known of is gone, and perhaps the partition with it.
            Some(until) if self.runs.is_empty() => distance(first, until) < WINDOW,
            Some(until) => distance(next, first) <= distance(next, until),
            None => first == next,
        }
    }
}

/// What came of reading a batch in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Read {
    /// Its producer was not known.
    pub is_new: bool,
    /// How many of its records are known to be stored elsewhere too.
    pub copies: u32,
}

/// When a producer was last used; the number tells apart what happened at the same instant.
type Turn = (Instant, u64);

/// Producers of one partition, at most `producers_max`, each until `expiration` after its last use.
#[derive(Debug)]
pub struct Table {
    producers: HashMap<u64, Producer>,
    /// Producer ids by last use, least recent first.
    turns: BTreeMap<Turn, u64>,
    uses: u64,
    falls: u64,
    producers_max: usize,
    expiration: Duration,
}

impl Table {
    /// An empty table.
    #[must_use]
    pub fn new(producers_max: usize, expiration: Duration) -> Self {
        Self {
            producers: HashMap::new(),
            turns: BTreeMap::new(),
            uses: 0,
            falls: 0,
            producers_max: producers_max.max(1),
            expiration,
        }
    }

    /// Number of producers remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.producers.len()
    }

    /// True when no producer is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.producers.is_empty()
    }

    /// The producers that are remembered now, the one that was used last at the end.
    pub fn remembered(&mut self, now: Instant) -> Vec<Remembered> {
        self.expire(now);
        let known = self.turns.values().filter_map(|producer_id| {
            let producer = self.producers.get(producer_id)?;
            let last = producer.runs.iter().last().map(|run| advance(run.span.first, run.span.count.saturating_sub(1)));
            Some(Remembered {
                producer_id: *producer_id,
                epoch: producer.epoch,
                last_sequence: last,
                used_at: producer.turn.0,
            })
        });
        known.collect()
    }

    /// Judges a batch. Changes nothing but forgetting who has expired.
    pub fn decide(&mut self, batch: &Batch, now: Instant) -> Decision {
        self.expire(now);
        let Some(producer) = self.producers.get(&batch.producer_id) else {
            return if batch.span.first == 0 { Decision::Fresh } else { Decision::Unknown };
        };
        if let Some(doubt) = producer.doubt {
            return Decision::Resolve(doubt);
        }
        match batch.epoch.cmp(&producer.epoch) {
            std::cmp::Ordering::Less => Decision::OldEpoch,
            std::cmp::Ordering::Greater if batch.span.first == 0 => Decision::Fresh,
            std::cmp::Ordering::Greater => Decision::OutOfSequence,
            std::cmp::Ordering::Equal => match producer.runs.find(batch.span) {
                Some(offset) => Decision::Duplicate(offset),
                None if producer.expects(batch.span.first) => Decision::Fresh,
                None => Decision::OutOfSequence,
            },
        }
    }

    /// Notes that `batch`, which [`Table::decide`] let through, is handed to the store now.
    ///
    /// Also when the store refuses it later, the producer stays known and its sequence expected: the batch behind it
    /// may not overtake its retry.
    pub fn begin(&mut self, batch: &Batch, from: u64, now: Instant) {
        let producer = self.touch(batch, now);
        // Of what was lost this is where the producer goes on; what it sends behind it follows it.
        if batch.epoch == producer.epoch && producer.lost_until.take().is_some() {
            producer.runs.expect(batch.span.first);
        }
        producer.doubt = Some(Doubt { batch: *batch, from, since: None });
    }

    /// Notes that the store gave up on the batch of this producer without knowing its outcome.
    pub fn gave_up(&mut self, producer_id: u64, now: Instant) {
        if let Some(doubt) = self.producers.get_mut(&producer_id).and_then(|producer| producer.doubt.as_mut()) {
            doubt.since.get_or_insert(now);
        }
    }

    /// Notes that `batch` is stored from `offset` on. Answers how many of its records are stored elsewhere too, which is so
    /// when another gateway stored it at the same time.
    pub fn landed(&mut self, batch: &Batch, offset: u64, now: Instant) -> u32 {
        let producer = self.touch(batch, now);
        producer.doubt = None;
        producer.is_forgotten = false;
        producer.replay(batch, offset)
    }

    /// Notes that the batch of this producer was not stored, and never will be.
    pub fn not_applied(&mut self, producer_id: u64) {
        if let Some(producer) = self.producers.get_mut(&producer_id) {
            producer.doubt = None;
        }
    }

    /// As [`Table::not_applied`], of a batch that was in doubt. Meanwhile the producer may have gone on elsewhere, so one that was
    /// to be forgotten is forgotten now: the sequence that was expected here may lie far back.
    pub fn never_landed(&mut self, producer_id: u64) {
        if self.producers.get(&producer_id).is_some_and(|producer| producer.is_forgotten) {
            self.forget(producer_id);
        }
        self.not_applied(producer_id);
    }

    /// Forgets a producer.
    pub fn forget(&mut self, producer_id: u64) {
        if let Some(producer) = self.producers.remove(&producer_id) {
            self.turns.remove(&producer.turn);
        }
    }

    /// Takes note of what the log says: `batch` lies at `offset` and was stored at `used_at`. May be told again of what is
    /// known.
    pub fn read(&mut self, batch: &Batch, offset: u64, used_at: Instant, now: Instant) -> Read {
        if now.saturating_duration_since(used_at) >= self.expiration {
            return Read::default();
        }
        let before = self.producers.get(&batch.producer_id).map(|producer| producer.turn.0);
        let producer = self.touch(batch, before.map_or(used_at, |before| before.max(used_at)));
        producer.is_forgotten = false;
        Read { is_new: before.is_none(), copies: producer.replay(batch, offset) }
    }

    /// The store lost what lay at `end` and behind it. Batches that are on their way to it stay in doubt, and may have landed
    /// from `end` on.
    pub fn fell(&mut self, end: u64) {
        self.falls += 1;
        for producer in self.producers.values_mut() {
            producer.lose(end);
            if let Some(doubt) = &mut producer.doubt {
                doubt.from = doubt.from.min(end);
            }
        }
    }

    /// What is known may be wrong, and is to be read again.
    pub fn distrust(&mut self) {
        self.falls += 1;
    }

    /// How often the store lost records. What was learned of it before the last time may be wrong.
    #[must_use]
    pub fn falls(&self) -> u64 {
        self.falls
    }

    /// Forgets what lies in `offsets`, which was read again and is about to be told with [`Table::read`]. Answers what is known
    /// to lie behind them, to be told after it: it was stored since.
    pub fn reread(&mut self, offsets: Range<u64>) -> Vec<(Batch, u64)> {
        let mut behind = Vec::new();
        for (&producer_id, producer) in &mut self.producers {
            let newer = producer.runs.iter().filter_map(|run| run.at_or_behind(offsets.end));
            let epoch = producer.epoch;
            behind.extend(newer.map(|run| (Batch { producer_id, epoch, span: run.span }, run.first_offset)));
            producer.lose(offsets.start);
        }
        behind
    }

    /// Forgets all producers but those that have a batch at `end` or behind it, of which more is known than the log said up to
    /// `end`. Of one that has a batch on its way to the store that batch is kept.
    pub fn forget_before(&mut self, end: u64) {
        let turns = &mut self.turns;
        self.producers.retain(|_, producer| {
            let is_newer = producer
                .runs
                .iter()
                .last()
                .is_some_and(|run| run.first_offset.saturating_add(u64::from(run.span.count)) > end);
            let is_kept = is_newer || producer.doubt.is_some();
            if !is_kept {
                turns.remove(&producer.turn);
            }
            if let Some(doubt) = producer.doubt.filter(|_| !is_newer) {
                producer.runs = Runs::expecting(doubt.batch.span.first);
                producer.lost_until = None;
                producer.is_forgotten = true;
            }
            is_kept
        });
    }

    /// Forgets producers that were not used for the expiration time.
    pub fn expire(&mut self, now: Instant) {
        while let Some((&turn, &producer_id)) = self.turns.first_key_value() {
            if now.saturating_duration_since(turn.0) < self.expiration {
                return;
            }
            self.turns.remove(&turn);
            self.producers.remove(&producer_id);
        }
    }

    fn make_room(&mut self) {
        while self.producers.len() >= self.producers_max {
            let Some((_, producer_id)) = self.turns.pop_first() else { return };
            self.producers.remove(&producer_id);
        }
    }

    /// The producer of `batch`, made when it is missing, as the most recently used one.
    fn touch(&mut self, batch: &Batch, now: Instant) -> &mut Producer {
        if !self.producers.contains_key(&batch.producer_id) {
            self.make_room();
        }
        let turn = self.next_turn(now);
        let producer = self.producers.entry(batch.producer_id).or_insert_with(|| Producer {
            epoch: batch.epoch,
            runs: Runs::expecting(batch.span.first),
            doubt: None,
            lost_until: None,
            is_forgotten: false,
            turn,
        });
        self.turns.remove(&producer.turn);
        self.turns.insert(turn, batch.producer_id);
        producer.turn = turn;
        producer
    }

    fn next_turn(&mut self, at: Instant) -> Turn {
        self.uses += 1;
        (at, self.uses)
    }
}
