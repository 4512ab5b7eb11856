//! From stored messages to events: which messages count, and in which order.

use bytes::Bytes;

use super::codec::{Body, Message, Stamp, damaged};
use crate::error::StoreError;

/// What a table is told while its log is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateEvent<'a> {
    /// Forget everything: a snapshot follows, as records.
    Reset,
    /// One record, in the order in which they were appended.
    Record(&'a [u8]),
}

/// What a claim counts as: a process that is restarted often and says little must come to a snapshot too.
const CLAIM_BYTES: u64 = 64;

struct Partial {
    covers: u64,
    next_index: u32,
    records: Vec<Bytes>,
    bytes: u64,
}

/// The rules by which a log is read. Fed with every message in offset order.
///
/// A claim counts when it follows the term in force. Any other message counts when it carries the term in force and a
/// sequence above the last one. So whatever lands late, behind the claim that settled its fate, does not count. The newest
/// record is held back until something newer says that it was not void.
pub(super) struct Replay<A> {
    apply: A,
    start: u64,
    whole: bool,
    pending: Option<(Stamp, Bytes)>,
    partial: Option<Partial>,
    pub(super) term: u64,
    pub(super) seq: u64,
    /// Writer of the claim in force; 0 when that claim was trimmed.
    pub(super) owner: u64,
    /// Offset that the newest whole snapshot covers, if there is one.
    pub(super) covers: Option<u64>,
    pub(super) snapshot_bytes: u64,
    /// Bytes of records and claims behind the newest whole snapshot.
    pub(super) bytes_since: u64,
}

impl<A: FnMut(StateEvent<'_>)> Replay<A> {
    /// For a log whose first retained offset is `start`.
    pub(super) fn new(start: u64, apply: A) -> Self {
        Self {
            apply,
            start,
            // A trimmed log says nothing before its first whole snapshot.
            whole: start == 0,
            pending: None,
            partial: None,
            term: 0,
            seq: 0,
            owner: 0,
            covers: None,
            snapshot_bytes: 0,
            bytes_since: 0,
        }
    }

    /// Takes the message at `offset`.
    pub(super) fn message(&mut self, offset: u64, message: Message) {
        let Message { stamp, body } = message;
        if let Body::Claim { writer, follows, voids } = body {
            self.claim(stamp, writer, follows, voids);
            return;
        }
        if !self.whole && self.begins_sound_snapshot(offset, &body) {
            // The claim of this term lies in the part that was trimmed.
            (self.term, self.seq, self.owner) = (stamp.term, stamp.seq.saturating_sub(1), 0);
        }
        if stamp.term != self.term || stamp.seq <= self.seq {
            return;
        }
        self.seq = stamp.seq;
        match body {
            Body::Record(payload) => {
                self.flush();
                self.partial = None;
                self.pending = Some((stamp, payload));
            }
            Body::Chunk { covers, index, last, records } => {
                self.flush();
                self.chunk(offset, covers, index, records);
                if last {
                    self.snapshot_is_whole();
                }
            }
            Body::Claim { .. } => {}
        }
    }

    fn begins_sound_snapshot(&self, offset: u64, body: &Body) -> bool {
        matches!(body, Body::Chunk { index: 0, covers, .. } if *covers >= self.start && *covers <= offset)
    }

    fn claim(&mut self, stamp: Stamp, writer: u64, follows: u64, voids: Option<Stamp>) {
        if follows != self.term || stamp.term <= self.term {
            return;
        }
        (self.term, self.seq, self.owner) = (stamp.term, 0, writer);
        self.bytes_since += CLAIM_BYTES;
        self.partial = None;
        if self.pending.as_ref().is_some_and(|(pending, _)| Some(*pending) == voids) {
            self.pending = None;
        }
    }

    fn chunk(&mut self, offset: u64, covers: u64, index: u32, records: Vec<Bytes>) {
        let bytes: u64 = records.iter().map(|record| record.len() as u64).sum();
        if index == 0 {
            let sound = covers >= self.start && covers <= offset;
            self.partial = sound.then_some(Partial { covers, next_index: 1, records, bytes });
            return;
        }
        match &mut self.partial {
            Some(partial) if partial.next_index == index && partial.covers == covers => {
                partial.next_index += 1;
                partial.records.extend(records);
                partial.bytes += bytes;
            }
            _ => self.partial = None,
        }
    }

    fn snapshot_is_whole(&mut self) {
        let Some(partial) = self.partial.take() else { return };
        self.whole = true;
        (self.apply)(StateEvent::Reset);
        for record in &partial.records {
            (self.apply)(StateEvent::Record(record));
        }
        self.covers = Some(partial.covers);
        self.snapshot_bytes = partial.bytes;
        self.bytes_since = 0;
    }

    fn flush(&mut self) {
        if let Some((_, payload)) = self.pending.take().filter(|_| self.whole) {
            self.bytes_since += payload.len() as u64;
            (self.apply)(StateEvent::Record(&payload));
        }
    }

    /// At the end of the log.
    pub(super) fn finish(&mut self) -> Result<(), StoreError> {
        self.flush();
        if self.whole {
            Ok(())
        } else {
            Err(damaged(self.start, "is the first one kept, and no whole snapshot stands for what was before it"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(term: u64, seq: u64, payload: &'static str) -> Message {
        Message { stamp: Stamp { term, seq }, body: Body::Record(Bytes::from_static(payload.as_bytes())) }
    }

    fn claim(term: u64, follows: u64, voids: Option<(u64, u64)>) -> Message {
        let voids = voids.map(|(term, seq)| Stamp { term, seq });
        Message { stamp: Stamp { term, seq: 0 }, body: Body::Claim { writer: 0, follows, voids } }
    }

    fn chunk(seq: u64, covers: u64, index: u32, last: bool, payload: &'static str) -> Message {
        let records = vec![Bytes::from_static(payload.as_bytes())];
        Message { stamp: Stamp { term: 1, seq }, body: Body::Chunk { covers, index, last, records } }
    }

    fn replayed(start: u64, messages: Vec<Message>) -> Result<Vec<String>, StoreError> {
        let mut table = Vec::new();
        let mut replay = Replay::new(start, |event: StateEvent<'_>| match event {
            StateEvent::Reset => table.clear(),
            StateEvent::Record(payload) => table.push(String::from_utf8_lossy(payload).into_owned()),
        });
        for (offset, message) in (start..).zip(messages) {
            replay.message(offset, message);
        }
        replay.finish()?;
        drop(replay);
        Ok(table)
    }

    #[test]
    fn records_come_in_order() {
        let log = vec![claim(1, 0, None), record(1, 1, "a"), record(1, 2, "b")];
        assert_eq!(replayed(0, log).unwrap(), ["a", "b"]);
    }

    #[test]
    fn a_record_that_a_claim_voids_does_not_count_even_behind_several_claims() {
        let log = vec![
            claim(1, 0, None),
            record(1, 1, "a"),
            record(1, 2, "doubt"),
            claim(2, 1, Some((1, 2))),
            claim(3, 1, Some((1, 2))),
            record(2, 1, "b"),
        ];
        assert_eq!(replayed(0, log).unwrap(), ["a", "b"]);
    }

    #[test]
    fn a_record_that_lands_behind_the_claim_that_settled_it_does_not_count() {
        let log = vec![
            claim(1, 0, None),
            claim(2, 1, Some((1, 1))),
            record(1, 1, "late"),
            record(2, 1, "a"),
            record(1, 1, "late"),
        ];
        assert_eq!(replayed(0, log).unwrap(), ["a"]);
    }

    #[test]
    fn a_record_stored_twice_counts_once() {
        let log = vec![claim(1, 0, None), record(1, 1, "a"), record(1, 1, "a"), record(1, 2, "b")];
        assert_eq!(replayed(0, log).unwrap(), ["a", "b"]);
    }

    #[test]
    fn a_claim_that_lands_behind_the_one_that_was_faster_changes_nothing() {
        let log =
            vec![claim(1, 0, None), record(1, 1, "a"), claim(2, 1, None), claim(3, 1, Some((1, 1))), record(2, 1, "b")];
        assert_eq!(replayed(0, log).unwrap(), ["a", "b"]);
    }

    #[test]
    fn a_whole_snapshot_replaces_what_came_before() {
        let log = vec![
            claim(1, 0, None),
            record(1, 1, "a"),
            chunk(2, 2, 0, false, "s"),
            chunk(3, 2, 1, true, "t"),
            record(1, 4, "b"),
        ];
        assert_eq!(replayed(0, log).unwrap(), ["s", "t", "b"]);
    }

    #[test]
    fn a_snapshot_that_was_cut_off_is_ignored() {
        let log = vec![claim(1, 0, None), record(1, 1, "a"), chunk(2, 2, 0, false, "s"), record(1, 3, "b")];
        assert_eq!(replayed(0, log).unwrap(), ["a", "b"]);
        let without_its_middle = vec![
            claim(1, 0, None),
            record(1, 1, "a"),
            chunk(2, 2, 0, false, "s"),
            chunk(4, 2, 2, true, "u"),
            record(1, 5, "b"),
        ];
        assert_eq!(replayed(0, without_its_middle).unwrap(), ["a", "b"]);
    }

    #[test]
    fn a_trimmed_log_starts_with_its_snapshot() {
        let log = vec![chunk(8, 20, 0, true, "s"), record(1, 9, "a")];
        assert_eq!(replayed(20, log).unwrap(), ["s", "a"]);
    }

    #[test]
    fn a_trimmed_log_without_a_whole_snapshot_is_damage_and_not_an_empty_table() {
        assert!(replayed(20, vec![record(1, 9, "a")]).is_err());
        assert!(replayed(20, vec![chunk(8, 20, 0, false, "s"), record(1, 9, "a")]).is_err());
        assert!(replayed(20, Vec::new()).is_err());
    }

    #[test]
    fn a_snapshot_that_covers_less_than_was_trimmed_does_not_stand_for_it() {
        assert!(replayed(20, vec![chunk(8, 19, 0, true, "s")]).is_err());
    }
}
