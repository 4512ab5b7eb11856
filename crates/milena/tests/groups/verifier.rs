//! What must hold of every run, whatever happened to members and server.

use std::collections::{BTreeMap, BTreeSet};

use super::journal::{Entry, Event, Nanos};

/// What the group had committed, asked for between two times.
#[derive(Debug, Clone)]
pub struct Sample {
    pub asked: Nanos,
    pub committed: BTreeMap<i32, i64>,
}

/// Everything that is wrong with a run. `ends` is where each partition ends.
pub fn faults(entries: &[Entry], samples: &[Sample], ends: &BTreeMap<i32, i64>) -> Vec<String> {
    [not_delivered(entries, ends), two_owners(entries), fell_back(entries, samples), misplaced(entries)].concat()
}

/// Records that nobody got.
pub fn not_delivered(entries: &[Entry], ends: &BTreeMap<i32, i64>) -> Vec<String> {
    let mut missing: BTreeSet<(i32, i64)> =
        ends.iter().flat_map(|(partition, end)| (0..*end).map(|offset| (*partition, offset))).collect();
    for entry in entries {
        if let Event::Got { partition, offset, .. } = entry.event {
            missing.remove(&(partition, offset));
        }
    }
    missing.into_iter().take(20).map(|(partition, offset)| format!("nobody got {partition}@{offset}")).collect()
}

/// Partitions that two had at once, or within one generation.
fn two_owners(entries: &[Entry]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut lives = 0;
    // Generations begin anew with the server; a member is in those of the server that gave it its partitions.
    let mut life_of: BTreeMap<&str, u32> = BTreeMap::new();
    let mut claims: BTreeMap<(u32, i32, i32), &str> = BTreeMap::new();
    let mut owners: BTreeMap<i32, &str> = BTreeMap::new();
    for entry in entries {
        let identity = entry.identity.as_str();
        let (generation, claimed) = match &entry.event {
            Event::Assigned { generation, partitions } => {
                life_of.insert(identity, lives);
                if *generation < 1 && !partitions.is_empty() {
                    faults.push(format!("{identity} has partitions in no generation"));
                }
                for partition in partitions {
                    if let Some(other) = owners.insert(*partition, identity).filter(|other| *other != identity) {
                        faults.push(format!("{identity} was given {partition}, which {other} still has"));
                    }
                }
                (*generation, partitions.clone())
            }
            Event::Got { generation, partition, .. } => (*generation, vec![*partition]),
            Event::Revoked { partitions, .. } => {
                owners.retain(|partition, owner| *owner != identity || !partitions.contains(partition));
                continue;
            }
            Event::Silenced => {
                owners.retain(|_, owner| *owner != identity);
                continue;
            }
            Event::ServerRestarted => {
                lives += 1;
                owners.clear();
                continue;
            }
            _ => continue,
        };
        let life = life_of.get(identity).copied().unwrap_or(lives);
        for partition in claimed {
            if let Some(other) =
                claims.insert((life, generation, partition), identity).filter(|other| *other != identity)
            {
                faults.push(format!("{partition} belongs to {other} and {identity} in generation {generation}"));
            }
        }
    }
    faults.dedup();
    faults
}

/// Committed offsets that fell, vanished, or are below what was acknowledged before they were asked for.
fn fell_back(entries: &[Entry], samples: &[Sample]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut acked: BTreeMap<i32, i64> = BTreeMap::new();
    let mut last: BTreeMap<i32, i64> = BTreeMap::new();
    let mut entries = entries.iter().peekable();
    for sample in samples {
        while let Some(entry) = entries.next_if(|entry| entry.at < sample.asked) {
            raise(&mut acked, entry);
        }
        for (partition, least) in &acked {
            if sample.committed.get(partition).is_none_or(|offset| offset < least) {
                let found = sample.committed.get(partition);
                faults.push(format!("{partition}: {least} was acknowledged, {found:?} is committed"));
            }
        }
        for (partition, before) in &last {
            if sample.committed.get(partition).is_none_or(|offset| offset < before) {
                let found = sample.committed.get(partition);
                faults.push(format!("{partition}: {before} was committed, now {found:?}"));
            }
        }
        last.clone_from(&sample.committed);
    }
    faults
}

fn raise(acked: &mut BTreeMap<i32, i64>, entry: &Entry) {
    if let Event::Acked { offsets } = &entry.event {
        for (partition, offset) in offsets {
            let most = acked.entry(*partition).or_default();
            *most = (*most).max(*offset);
        }
    }
}

/// Members that began before an acknowledged commit, or went on anywhere but behind what they got. The last record may come
/// again: librdkafka goes on behind what it handed out when a rebalance began, which does not count the record that is being
/// handed out in that moment.
fn misplaced(entries: &[Entry]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut acked: BTreeMap<i32, i64> = BTreeMap::new();
    let mut least: BTreeMap<(&str, i32), i64> = BTreeMap::new();
    let mut next: BTreeMap<(&str, i32), i64> = BTreeMap::new();
    for entry in entries {
        let member = entry.member.as_str();
        match &entry.event {
            Event::Assigned { partitions, .. } => {
                for partition in partitions {
                    next.remove(&(member, *partition));
                    least.insert((member, *partition), acked.get(partition).copied().unwrap_or(0));
                }
            }
            Event::Got { partition, offset, .. } => {
                let key = (member, *partition);
                if let Some(least) = least.remove(&key).filter(|least| offset < least) {
                    faults.push(format!("{member} began with {partition}@{offset}, but {least} was acknowledged"));
                }
                if let Some(next) = next.insert(key, offset + 1).filter(|next| ![*next, next - 1].contains(offset)) {
                    faults.push(format!("{member} got {partition}@{offset} where {next} is next"));
                }
            }
            _ => raise(&mut acked, entry),
        }
    }
    faults
}

/// The verifier itself: each fault is found, and a run without one passes.
mod tests {
    use super::*;

    fn entry(at: Nanos, member: &str, event: Event) -> Entry {
        Entry { at, member: member.to_owned(), identity: member.to_owned(), event }
    }

    fn assigned(at: Nanos, member: &str, generation: i32) -> Entry {
        entry(at, member, Event::Assigned { generation, partitions: vec![0] })
    }

    fn revoked(at: Nanos, member: &str) -> Entry {
        entry(at, member, Event::Revoked { generation: 1, partitions: vec![0] })
    }

    fn got(at: Nanos, member: &str, generation: i32, offset: i64) -> Entry {
        entry(at, member, Event::Got { generation, partition: 0, offset })
    }

    fn acked(at: Nanos, member: &str, offset: i64) -> Entry {
        entry(at, member, Event::Acked { offsets: vec![(0, offset)] })
    }

    fn sample(asked: Nanos, offset: i64) -> Sample {
        Sample { asked, committed: BTreeMap::from([(0, offset)]) }
    }

    fn good() -> Vec<Entry> {
        vec![
            assigned(1, "a", 1),
            got(2, "a", 1, 0),
            acked(3, "a", 1),
            revoked(4, "a"),
            assigned(5, "b", 2),
            got(6, "b", 2, 1),
        ]
    }

    fn of(entries: &[Entry], samples: &[Sample], end: i64) -> Vec<String> {
        faults(entries, samples, &BTreeMap::from([(0, end)]))
    }

    #[test]
    fn a_good_run_has_no_faults() {
        assert_eq!(of(&good(), &[sample(4, 1), sample(7, 2)], 2), Vec::<String>::new());
    }

    #[test]
    fn a_record_that_nobody_got_is_a_fault() {
        assert_eq!(of(&good(), &[], 3), ["nobody got 0@2"]);
    }

    #[test]
    fn a_partition_that_is_given_away_before_it_is_revoked_is_a_fault() {
        let run = [assigned(1, "a", 1), assigned(2, "b", 2)];
        assert_eq!(of(&run, &[], 0), ["b was given 0, which a still has"]);
        let killed = [assigned(1, "a", 1), entry(2, "a", Event::Silenced), assigned(3, "b", 2)];
        assert_eq!(of(&killed, &[], 0), Vec::<String>::new());
    }

    #[test]
    fn two_owners_in_one_generation_are_a_fault_even_one_after_the_other() {
        let run = [assigned(1, "a", 1), revoked(2, "a"), assigned(3, "b", 1)];
        assert_eq!(of(&run, &[], 0), ["0 belongs to a and b in generation 1"]);
        let restarted = [assigned(1, "a", 1), entry(2, "", Event::ServerRestarted), assigned(3, "b", 1)];
        assert_eq!(of(&restarted, &[], 0), Vec::<String>::new());
    }

    #[test]
    fn a_committed_offset_that_falls_or_vanishes_is_a_fault() {
        assert_eq!(of(&[], &[sample(1, 5), sample(2, 4)], 0), ["0: 5 was committed, now Some(4)"]);
        let none = Sample { asked: 2, committed: BTreeMap::new() };
        assert_eq!(of(&[], &[sample(1, 5), none], 0), ["0: 5 was committed, now None"]);
    }

    #[test]
    fn an_acknowledged_commit_that_is_not_there_is_a_fault() {
        assert_eq!(of(&[acked(1, "a", 5)], &[sample(2, 4)], 0), ["0: 5 was acknowledged, Some(4) is committed"]);
        assert_eq!(of(&[acked(3, "a", 5)], &[sample(2, 4)], 0), Vec::<String>::new());
    }

    #[test]
    fn a_member_that_begins_before_a_commit_or_jumps_is_a_fault() {
        let rewound = [acked(1, "a", 5), assigned(2, "b", 1), got(3, "b", 1, 4)];
        assert_eq!(of(&rewound, &[], 0), ["b began with 0@4, but 5 was acknowledged"]);
        let jumped = [assigned(1, "a", 1), got(2, "a", 1, 0), got(3, "a", 1, 2)];
        assert_eq!(of(&jumped, &[], 0), ["a got 0@2 where 1 is next"]);
        let again = [got(1, "a", 1, 4), got(2, "a", 1, 5), got(3, "a", 1, 5), got(4, "a", 1, 4)];
        assert_eq!(of(&again[..3], &[], 0), Vec::<String>::new());
        assert_eq!(of(&again, &[], 0), ["a got 0@4 where 6 is next"]);
    }
}
