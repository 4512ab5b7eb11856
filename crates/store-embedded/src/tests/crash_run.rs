//! A store at random work, with crashes at random places, and the model it is held against.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use milena_store::frame::Frames;
use milena_store::{Appended, Durability, PartitionRef, StoreError, TimeKind, TopicSettings};

use super::Mutant;
use super::basics::{ALL, timed};
use crate::EmbeddedConfig;
use crate::env::Env;
use crate::fault::Wait;
use crate::fs::faulty::{Dice, FaultyFs};
use crate::partition::{Partition, flush_together};
use crate::store::Inner;

const INTERVAL_BYTES: u64 = 700;
/// Bytes of a header in front of the frames of an append.
const ENTRY_BYTES: u64 = 64;

pub(super) type Outcome<T> = Result<T, String>;

/// What was appended at once.
#[derive(Clone, Debug)]
struct Group {
    payloads: Vec<Vec<u8>>,
    bytes: u64,
}

/// What may be there after a crash.
#[derive(Default)]
struct Model {
    /// The start of the log that was seen or acknowledged.
    start: u64,
    /// A start that a trim that did not return may have set.
    start_max: u64,
    /// Groups that were acknowledged, with their offsets.
    acknowledged: Vec<(u64, Group)>,
    /// Groups that may have been stored behind those, in this order.
    unsure: Vec<Group>,
    /// Bytes behind what was flushed on purpose.
    unflushed: u64,
}

impl Model {
    fn end(&self) -> u64 {
        self.acknowledged.last().map_or(0, |(base, group)| base + group.payloads.len() as u64).max(self.start)
    }

    fn payload(&self, offset: u64) -> Option<&Vec<u8>> {
        let at = self.acknowledged.partition_point(|(base, _)| *base <= offset).checked_sub(1)?;
        let (base, group) = &self.acknowledged[at];
        group.payloads.get(usize::try_from(offset - base).unwrap())
    }
}

struct Run {
    fs: FaultyFs,
    dice: Dice,
    config: EmbeddedConfig,
    mutant: Mutant,
    now: Arc<AtomicU64>,
    store: Option<(Arc<Inner>, Arc<Partition>)>,
    at: Option<PartitionRef>,
    model: Model,
    written: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Close,
    Kill,
    Crash,
}

impl Run {
    fn new(seed: u64, durability: Durability, mutant: Mutant) -> Self {
        let mut dice = Dice::new(seed ^ 0x5eed);
        let config = EmbeddedConfig {
            durability,
            segment_bytes: 300 + dice.roll(2000),
            retention_bytes: Some(3000 + dice.roll(20_000)).filter(|_| dice.chance(50)),
            open_files_max: 8,
            maintenance_every: None,
            preallocate_bytes: 0,
            ..EmbeddedConfig::default()
        };
        Self {
            fs: FaultyFs::new(seed),
            dice,
            config,
            mutant,
            now: Arc::new(AtomicU64::new(1000)),
            store: None,
            at: None,
            model: Model::default(),
            written: 0,
        }
    }

    fn open(&mut self) -> Result<(), StoreError> {
        let now = self.now.clone();
        let clock = Arc::new(move || now.fetch_add(1, Ordering::Relaxed));
        let mut env = Env::new(Arc::new(self.fs.clone()), PathBuf::from("/data"), self.config.clone(), clock);
        env.mutant = self.mutant;
        let inner = Inner::open_on(env)?;
        if self.at.is_none() {
            self.at = Some(inner.create("kafka", "t", 1, &TopicSettings::default())?.topic.partition(0));
        }
        let partition = inner.partition(self.at.as_ref().unwrap())?;
        self.store = Some((inner, partition));
        Ok(())
    }

    fn partition(&self) -> Arc<Partition> {
        self.store.as_ref().unwrap().1.clone()
    }

    /// One of the things that happen in the life of a store.
    fn step(&mut self) -> Outcome<()> {
        match self.dice.roll(40) {
            0..20 => self.append()?,
            20..22 => self.trim(),
            22..24 => self.maintain(),
            24 => {
                let partition = self.partition();
                let flushed = if self.dice.chance(50) {
                    partition.flush_all()
                } else {
                    flush_together(&self.store.as_ref().unwrap().0.env, &[partition])
                };
                if flushed.is_ok() {
                    self.model.unflushed = 0;
                }
            }
            25 => self.end(End::Close)?,
            26 => self.end(End::Kill)?,
            27 => self.end(End::Crash)?,
            28..31 => {
                let after = self.dice.roll(30);
                self.fs.faults(|faults| faults.crash_in = Some(after));
            }
            31 => {
                let after = self.dice.roll(4);
                self.fs.faults(|faults| faults.sync_fails_in = Some(after));
            }
            32 => {
                let after = self.dice.roll(4);
                self.fs.faults(|faults| faults.write_fails_in = Some(after));
            }
            33 => {
                let capacity = self.fs.used() + self.dice.roll(600);
                self.fs.faults(|faults| faults.capacity = Some(capacity));
            }
            34 => self.fs.faults(|faults| faults.capacity = None),
            _ => match self.read() {
                Err(error) if !self.fs.has_crashed() => return Err(error),
                _ => {}
            },
        }
        if self.fs.has_crashed() {
            let end = if self.dice.chance(70) { End::Crash } else { End::Kill };
            self.end(end)?;
        }
        Ok(())
    }

    fn append(&mut self) -> Outcome<()> {
        let partition = self.partition();
        let mut waiting = Vec::new();
        for _ in 0..=self.dice.roll(4) {
            let mut payloads = Vec::new();
            for _ in 0..=self.dice.roll(3) {
                self.written += 1;
                let mut payload = self.written.to_le_bytes().to_vec();
                let limit = if self.dice.chance(10) { 1500 } else { 100 };
                payload.resize(8 + usize::try_from(self.dice.roll(limit)).unwrap(), 7);
                payloads.push(payload);
            }
            let batch = timed(&payloads.iter().map(|payload| (1, payload.as_slice())).collect::<Vec<_>>());
            let bytes = batch.frames.len() as u64 + ENTRY_BYTES;
            waiting.push((Group { payloads, bytes }, partition.enqueue(batch)));
        }
        partition.lead_now();
        for (group, mut answer) in waiting {
            self.take_answer(group, &answer.try_recv().map_err(|error| error.to_string())?)?;
        }
        Ok(())
    }

    fn take_answer(&mut self, group: Group, answer: &Result<Appended, StoreError>) -> Outcome<()> {
        match answer {
            Ok(appended) => {
                let base = appended.base_offset.ok_or("no offset")?;
                if !self.model.unsure.is_empty() {
                    return Err(format!("acknowledged at {base} behind an append in doubt"));
                }
                if base != self.model.end() {
                    return Err(format!("offset {base} was given, {} was next", self.model.end()));
                }
                self.model.unflushed += group.bytes;
                self.model.acknowledged.push((base, group));
            }
            Err(StoreError::InDoubt { .. }) => self.model.unsure.push(group),
            Err(_) => {}
        }
        Ok(())
    }

    fn trim(&mut self) {
        let before = self.model.start + self.dice.roll(self.model.end() - self.model.start + 1);
        self.model.start_max = self.model.start_max.max(before);
        if let Ok(bounds) = self.partition().trim(before) {
            self.model.start = bounds.start;
        }
    }

    fn maintain(&mut self) {
        self.model.start_max = self.model.end();
        let (inner, partition) = self.store.clone().unwrap();
        inner.maintain(self.now.load(Ordering::Relaxed));
        self.model.start = self.model.start.max(partition.bounds().start);
        if !self.fs.has_crashed() {
            self.model.start_max = self.model.start_max.max(self.model.start);
        }
    }

    fn read(&mut self) -> Outcome<()> {
        let partition = self.partition();
        let bounds = partition.bounds();
        // Where appends are seen before they are flushed, those in doubt may be seen as well.
        let unsure: usize = self.model.unsure.iter().map(|group| group.payloads.len()).sum();
        let end_max = self.model.end() + unsure as u64;
        if !(self.model.end()..=end_max).contains(&bounds.end) || bounds.start != self.model.start {
            return Err(format!("{bounds:?}, expected {}..{}", self.model.start, self.model.end()));
        }
        let from = bounds.start + self.dice.roll(bounds.end - bounds.start + 1);
        let bytes = usize::try_from(self.dice.roll(2000)).unwrap();
        let limit = milena_store::ReadLimit { bytes, at_least_one: true };
        let entries = partition.read(from, limit, Wait::Yes).map_err(|fault| format!("{fault:?}"))?;
        if entries.is_empty() != (from == bounds.end) {
            return Err(format!("{} entries from {from} of {bounds:?}", entries.len()));
        }
        for entry in entries {
            for (offset, frame) in (entry.base_offset..).zip(Frames::new(&entry.frames)) {
                if offset >= from
                    && offset < self.model.end()
                    && self.model.payload(offset).map(Vec::as_slice) != Some(frame.payload)
                {
                    return Err(format!("offset {offset} has another message"));
                }
            }
        }
        let found = partition.find(from, 0, TimeKind::Append).map_err(|error| error.to_string())?;
        match found.map(|found| found.offset) {
            None if from == bounds.end => Ok(()),
            Some(offset) if offset == from => Ok(()),
            other => Err(format!("the first message from {from} on was found at {other:?}")),
        }
    }

    /// Ends the store in that way, opens it again and looks at what is there.
    fn end(&mut self, end: End) -> Outcome<()> {
        let (inner, partition) = self.store.take().ok_or("no store")?;
        drop(partition);
        let mut end = end;
        if end == End::Close {
            self.fs.faults(|faults| faults.capacity = None);
            let closed = inner.close();
            if closed.is_err() && !self.fs.has_crashed() {
                // The flush failed, so that what was in the cache only is as good as lost.
                end = End::Kill;
            }
        }
        drop(inner);
        let mut lost = end == End::Crash;
        let mut tries = 0;
        loop {
            if lost {
                self.fs.crash();
            } else {
                self.fs.kill();
            }
            if tries < 3 && self.dice.chance(30) {
                let after = self.dice.roll(12);
                self.fs.faults(|faults| faults.crash_in = Some(after));
            }
            tries += 1;
            match self.open() {
                Ok(()) if !self.fs.has_crashed() => break,
                Ok(()) => self.store = None,
                Err(error) if !self.fs.has_crashed() => return Err(format!("it does not open: {error}")),
                Err(_) => {}
            }
            let again = self.dice.chance(50);
            lost |= again;
            if again {
                end = End::Crash;
            }
        }
        self.fs.faults(|faults| *faults = Default::default());
        self.verify(end)
    }

    /// Compares what is there with what must and may be there, and goes on from that.
    fn verify(&mut self, end: End) -> Outcome<()> {
        let partition = self.partition();
        let bounds = partition.bounds();
        if bounds.start < self.model.start || bounds.start > self.model.start_max.max(self.model.start) {
            let Model { start, start_max, .. } = self.model;
            return Err(format!("{end:?}: the start is {}, it was {start}, perhaps {start_max}", bounds.start));
        }
        let mut groups = Vec::new();
        let mut from = bounds.start;
        while from < bounds.end {
            let read = partition.read(from, ALL, Wait::Yes).map_err(|fault| format!("{end:?}: {fault:?}"))?;
            for entry in read {
                let payloads: Vec<Vec<u8>> = Frames::new(&entry.frames).map(|frame| frame.payload.to_vec()).collect();
                from = entry.base_offset + u64::from(entry.count);
                let bytes = entry.frames.len() as u64 + ENTRY_BYTES;
                groups.push((entry.base_offset, Group { payloads, bytes }));
            }
        }
        self.check_contents(end, bounds.start, &groups)?;
        self.check_losses(end, bounds.end)?;
        let kept = self.model.acknowledged.iter().filter(|(base, _)| *base < bounds.end);
        let mut acknowledged: Vec<(u64, Group)> =
            kept.filter(|(base, _)| groups.first().is_none_or(|first| *base < first.0)).cloned().collect();
        acknowledged.extend(groups);
        if let Some((base, group)) = acknowledged.last_mut() {
            // The start can lie within a group of which nothing is left.
            group.payloads.truncate(usize::try_from(bounds.end - *base).unwrap());
        }
        let (start, start_max) = (bounds.start, bounds.start);
        let unflushed = if self.config.durability == Durability::Os || end == End::Kill { u64::MAX / 2 } else { 0 };
        self.model = Model { start, start_max, acknowledged, unsure: Vec::new(), unflushed };
        if self.model.end() != bounds.end {
            return Err(format!("{end:?}: the end is {}, what is there ends at {}", bounds.end, self.model.end()));
        }
        Ok(())
    }

    fn check_contents(&self, end: End, start: u64, groups: &[(u64, Group)]) -> Outcome<()> {
        let model_end = self.model.end();
        let mut unsure: Vec<&Vec<u8>> = self.model.unsure.iter().flat_map(|group| &group.payloads).collect();
        unsure.reverse();
        // Without flushes, a write that failed and was cut back can come back when the machine dies.
        let lenient = end == End::Crash && self.config.durability == Durability::Os;
        for (base, group) in groups {
            for (offset, payload) in (*base..).zip(&group.payloads) {
                let expected = if offset < model_end { self.model.payload(offset) } else { unsure.pop() };
                if offset >= start && expected != Some(payload) && !lenient {
                    return Err(format!("{end:?}: offset {offset} of {model_end} has another message"));
                }
            }
        }
        Ok(())
    }

    fn check_losses(&self, end: End, store_end: u64) -> Outcome<()> {
        let lost = self.model.acknowledged.iter().filter(|(base, _)| *base >= store_end);
        let lost: u64 = lost.map(|(_, group)| group.bytes).sum();
        let allowed = match self.config.durability {
            _ if end != End::Crash => 0,
            Durability::Os => u64::MAX,
            Durability::Interval { bytes, .. } => bytes.min(self.model.unflushed),
            Durability::Always => 0,
        };
        if lost > allowed {
            return Err(format!("{end:?}: {lost} acknowledged bytes are gone, {allowed} may be"));
        }
        Ok(())
    }
}

/// A whole life with that seed; an error says what the model does not allow.
pub(super) fn run(seed: u64, durability: Durability, mutant: Mutant) -> Outcome<()> {
    let mut run = Run::new(seed, durability, mutant);
    run.open().map_err(|error| error.to_string())?;
    for step in 0..120 {
        run.step().map_err(|error| format!("seed {seed}, step {step}: {error}"))?;
    }
    run.end(End::Crash).map_err(|error| format!("seed {seed}, at the end: {error}"))
}

pub(super) const INTERVAL: Durability =
    Durability::Interval { every: Duration::from_secs(3600), bytes: INTERVAL_BYTES };
