//! What the application of all members knows: what was delivered to whom, who acknowledged it, and why something may come again.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::time::Instant;

use milena_catchup::RangeSet;

use super::super::child::partition_of;
use super::{Place, Stored};

/// A record that was delivered after its acknowledgement.
#[derive(Debug, Clone, Copy)]
struct Again {
    place: Place,
    by: usize,
    acked: Instant,
    to: usize,
    delivered: Instant,
}

/// What the application knows, over all members.
#[derive(Default)]
pub(crate) struct Book(Mutex<Pages>);

#[derive(Default)]
struct Pages {
    deliveries: u64,
    /// Who acknowledged a record last, and when.
    acked: HashMap<Place, (usize, Instant)>,
    /// What was delivered after that.
    again: Vec<Again>,
    /// What was committed when a member was killed.
    killed: HashMap<usize, Stored>,
    /// When a member was given a partition, each time.
    assigned: HashMap<(usize, i32), Vec<Instant>>,
    /// What was committed when the broker was killed, and when it was back.
    restarted: Option<(Stored, Instant)>,
    /// When a member had a partition taken away, or a commit refused.
    lost: HashMap<(usize, i32), Instant>,
    /// Acknowledgements that came too late.
    late: HashSet<(usize, Place)>,
    /// What members said, for whoever wants to know why something came again.
    said: Vec<(usize, Instant, String)>,
}

impl Book {
    pub(crate) fn delivered(&self, to: usize, place: Place) {
        let mut pages = self.0.lock().unwrap();
        pages.deliveries += 1;
        if let Some((by, acked)) = pages.acked.get(&place).copied() {
            pages.again.push(Again { place, by, acked, to, delivered: Instant::now() });
        }
    }

    pub(crate) fn acked(&self, by: usize, place: Place) {
        self.0.lock().unwrap().acked.insert(place, (by, Instant::now()));
    }

    pub(crate) fn killed(&self, number: usize, stored: Stored) {
        self.0.lock().unwrap().killed.insert(number, stored);
    }

    pub(crate) fn restarted(&self, stored: Stored) {
        self.0.lock().unwrap().restarted = Some((stored, Instant::now()));
    }

    /// A line of a member's standard error.
    pub(crate) fn heard(&self, number: usize, topic: &str, text: &str) {
        let mut pages = self.0.lock().unwrap();
        pages.said.push((number, Instant::now(), text.to_owned()));
        if let Some((partition, event)) = partition_of(text, topic) {
            if event == "Lost" || event.starts_with("CommitFailed") {
                pages.lost.insert((number, partition), Instant::now());
            } else if event.starts_with("Assigned") {
                pages.assigned.entry((number, partition)).or_default().push(Instant::now());
            }
            assert!(!event.starts_with("MetadataNotKept") && !event.starts_with("ProgressReset"), "{text}");
        } else if let Some((line, why)) = text.split_once(": ")
            && (why.starts_with("not open") || why.starts_with("too late"))
        {
            let numbers: Vec<i64> = line.split(' ').skip(1).map(|number| number.parse().unwrap()).collect();
            pages.late.insert((number, (i32::try_from(numbers[0]).unwrap(), numbers[1])));
        }
    }

    /// Nothing is missing, and nothing came again but for a reason. Answers the deliveries, and how many came again.
    pub(crate) fn judge(&self, ends: &[i64]) -> (u64, usize) {
        let pages = self.0.lock().unwrap();
        for (partition, end) in (0..).zip(ends) {
            let missing: Vec<_> = (0..*end).filter(|offset| !pages.acked.contains_key(&(partition, *offset))).collect();
            assert!(missing.is_empty(), "partition {partition} of {end}: nobody acknowledged {missing:?}");
        }
        if let Some(again) = pages.again.iter().find(|again| !pages.explains(again)) {
            panic!("came again: {}", pages.what_is_known(again));
        }
        (pages.deliveries, pages.again.len())
    }
}

impl Pages {
    /// The bound on duplicates: what was acknowledged and not committed when its member or the broker was killed, what a member
    /// had of a partition that it lost, and acknowledgements that came too late. And what a member gets of a partition that it has lost
    /// and does not know of yet, while another one has it: it says so afterwards, of the partition or of its acknowledgement. Records and
    /// events come through two pipes, so which of both is read first says nothing. One that is killed says nothing at all.
    fn explains(&self, again: &Again) -> bool {
        let Again { place, by, acked, to, delivered } = *again;
        let open = |stored: &Stored| !covers(stored, place);
        let lost_after = |member, at| self.lost.get(&(member, place.0)).is_some_and(|lost| at <= *lost);
        self.late.contains(&(by, place))
            || lost_after(by, acked)
            || lost_after(to, delivered)
            || self.late.contains(&(to, place))
            || self.killed.contains_key(&to) && self.had_it_before(to, by, again)
            || self.killed.get(&by).is_some_and(open)
            || self.restarted.as_ref().is_some_and(|(stored, back)| acked <= *back && open(stored))
    }
}

impl Pages {
    /// Whether the record was delivered to `to` after `by` got the partition, and `to` had got it before that and not again. Only where
    /// both said so: an assignment that nobody read of excuses nothing.
    fn had_it_before(&self, to: usize, by: usize, again: &Again) -> bool {
        let last = |member| {
            let all = self.assigned.get(&(member, again.place.0))?;
            all.iter().filter(|at| **at <= again.delivered).max()
        };
        last(to).zip(last(by)).is_some_and(|(to, by)| to < by)
    }
}

/// For whoever wants to know why.
impl Pages {
    fn what_is_known(&self, again: &Again) -> String {
        let at = again.acked;
        let after = |then: Instant| then.saturating_duration_since(at).as_secs_f64();
        let of_both =
            |(who, when, _): &&(usize, Instant, String)| (*who == again.by || *who == again.to) && *when >= at;
        let said: Vec<_> = self.said.iter().filter(of_both).take(100).collect();
        let said: Vec<_> =
            said.iter().map(|(who, when, text)| format!("  {:.3} s, {who}: {text}", after(*when))).collect();
        let covered = |stored: &Stored| covers(stored, again.place);
        format!(
            "{again:?}, {:.3} s after its acknowledgement. Whoever acknowledged it was killed, and it was committed then: {:?}; the broker \
             was back so long after, and it was committed before: {:?}; what both members said since:\n{}",
            after(again.delivered),
            self.killed.get(&again.by).map(covered),
            self.restarted.as_ref().map(|(stored, back)| (after(*back), covered(stored))),
            said.join("\n")
        )
    }
}

fn covers(stored: &[(i64, RangeSet)], (partition, offset): Place) -> bool {
    let (floor, ahead) = &stored[usize::try_from(partition).unwrap()];
    offset < *floor || ahead.contains(offset)
}
