//! The records of the journal in memory.

use std::collections::{HashMap, HashSet};

use milena_store::{Epochs, PartitionRef, TopicRef, TopicSettings};

use crate::journal::{Incarnation, Kept, Record, micros};
use crate::limits;

/// What the journal says of one partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Where it begins; 0 where the server says.
    pub(crate) trim: u64,
    pub(crate) epochs: Epochs,
    /// An end that it had in its newest epoch.
    pub(crate) end: u64,
}

/// Who may remove segments, and since when by the server's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Claim {
    by: u64,
    at_micros: u64,
}

type Place = (Incarnation, u32);

/// All of it.
#[derive(Debug, Default, Clone)]
pub(crate) struct Table {
    settings: HashMap<Incarnation, TopicSettings>,
    marks: HashMap<Place, Marks>,
    claims: HashMap<Place, Claim>,
    /// Time of the newest record.
    now_micros: u64,
}

impl Table {
    /// Takes a record in that the server stored at `at_micros`.
    pub(crate) fn apply(&mut self, record: &Record, at_micros: u64) {
        self.now_micros = self.now_micros.max(at_micros);
        match record {
            Record::Settings { of, settings } => {
                self.settings.insert(*of, settings.into());
            }
            Record::Trim { of, partition, before, epoch } => {
                let marks = self.marks.entry((*of, *partition)).or_default();
                // Messages of another epoch are not those that were trimmed.
                if *epoch == marks.epochs.current() {
                    marks.trim = if *before == 0 { 0 } else { marks.trim.max(*before) };
                }
            }
            Record::Gone { of } => {
                self.settings.remove(of);
                self.marks.retain(|(topic, _), _| topic != of);
                self.claims.retain(|(topic, _), _| topic != of);
            }
            Record::Epoch { of, partition, epoch, start } => {
                self.marks.entry((*of, *partition)).or_default().begin(*epoch, *start);
            }
            Record::Ends { of, ends } => {
                for (partition, epoch, end) in ends {
                    let marks = self.marks.entry((*of, *partition)).or_default();
                    if *epoch == marks.epochs.current() {
                        marks.end = marks.end.max(*end);
                    }
                }
            }
            Record::Claim { of, partition, by, at_micros: said } => {
                self.claim((*of, *partition), Claim { by: *by, at_micros: at_micros.max(*said) });
            }
            // Whoever read what it stands for needs nothing of it; `load` is for the others.
            Record::Snapshot { .. } => {}
        }
    }

    /// The first claim counts until it is over.
    fn claim(&mut self, at: Place, claim: Claim) {
        let over = |held: &Claim| {
            held.by == claim.by || held.at_micros.saturating_add(micros(limits::CLAIM_LIFE)) < claim.at_micros
        };
        if self.claims.get(&at).is_none_or(over) {
            self.claims.insert(at, claim);
        }
    }

    pub(crate) fn settings(&self, topic: &TopicRef) -> Option<&TopicSettings> {
        self.settings.get(&topic.into())
    }

    pub(crate) fn marks(&self, at: &PartitionRef) -> Marks {
        self.marks.get(&((&at.topic).into(), at.partition)).cloned().unwrap_or_default()
    }

    /// Who holds the claim on a partition.
    pub(crate) fn holder(&self, at: &PartitionRef) -> Option<u64> {
        self.claims.get(&((&at.topic).into(), at.partition)).map(|claim| claim.by)
    }

    /// The records that make this table, without those of topics that are gone: they are not `living`, and old enough to be
    /// seen by every node of a cluster if they were there.
    pub(crate) fn records(&self, living: &HashSet<Incarnation>) -> Vec<Record> {
        let settled = self.now_micros.saturating_sub(micros(limits::TOPIC_SETTLED));
        let kept = |of: &Incarnation| living.contains(of) || of.created_at_micros > settled;
        let mut records = Vec::new();
        for (of, settings) in self.settings.iter().filter(|(of, _)| kept(of)) {
            records.push(Record::Settings { of: *of, settings: Kept::from(settings) });
        }
        for ((of, partition), marks) in self.marks.iter().filter(|((of, _), _)| kept(of)) {
            marks.records(*of, *partition, &mut records);
        }
        for ((of, partition), claim) in self.claims.iter().filter(|((of, _), _)| kept(of)) {
            let Claim { by, at_micros } = *claim;
            records.push(Record::Claim { of: *of, partition: *partition, by, at_micros });
        }
        records
    }
}

impl Marks {
    fn begin(&mut self, epoch: u32, start: u64) {
        let before = self.epochs.current();
        self.epochs.begin(epoch, start, limits::EPOCHS_MAX);
        if epoch < before {
            return;
        }
        if self.trim > start {
            // It would hide new messages when they reach it.
            self.trim = 0;
        }
        self.end = if epoch > before { start } else { self.end.max(start) };
    }

    fn records(&self, of: Incarnation, partition: u32, records: &mut Vec<Record>) {
        for begin in self.epochs.starts() {
            records.push(Record::Epoch { of, partition, epoch: begin.epoch, start: begin.start });
        }
        let epoch = self.epochs.current();
        if self.end > 0 {
            records.push(Record::Ends { of, ends: vec![(partition, epoch, self.end)] });
        }
        if self.trim > 0 {
            records.push(Record::Trim { of, partition, before: self.trim, epoch });
        }
    }
}

#[cfg(test)]
mod tests;
