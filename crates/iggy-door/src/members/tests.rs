use std::time::Duration;

use milena_store::TopicRef;

use super::*;

/// How long a partition waits for a commit.
const WAIT: Duration = Duration::from_secs(30);

fn key() -> GroupKey {
    (Incarnation::of(&TopicRef::new("s", "t", 1, 2, 3)), 0)
}

/// One group over time, in which everything that was given out counts as committed unless a test says otherwise.
struct Case {
    members: Members,
    partitions: u32,
    max: usize,
    now: Instant,
    committed: HashMap<u32, u64>,
}

impl Case {
    fn of(partitions: u32) -> Self {
        let (members, now) = (Members::default(), Instant::now());
        Self { members, partitions, max: 10, now, committed: HashMap::new() }
    }

    fn join(&self, client: u128) -> bool {
        let Self { partitions, max, now, .. } = *self;
        let who = Joining { client, partitions, max, now, until: now + WAIT };
        self.members.join(key(), who, |partition| self.committed.get(&partition).copied(), || true)
    }

    fn assigned(&self) -> Vec<Vec<u32>> {
        self.members.of(key(), self.now).into_iter().map(|member| member.partitions).collect()
    }

    fn assignment(&self, client: u128) -> Option<(u64, Vec<u32>)> {
        self.members.assignment(key(), client, self.partitions, self.now)
    }

    fn may(&self, client: u128, partition: u32) -> (bool, bool) {
        let polls = self.members.polls(key(), client, partition, self.now);
        (polls, self.members.owns(key(), client, partition, self.now))
    }

    fn commit(&mut self, partition: u32, offset: u64) {
        self.committed.insert(partition, offset);
        self.members.committed(key(), partition, offset);
    }

    /// Client 1 reads all partitions, was given messages up to 5 of each, and has committed 4.
    fn at_work(partitions: u32) -> Self {
        let mut case = Self::of(partitions);
        case.join(1);
        for partition in 0..partitions {
            assert!(case.members.served(key(), 1, partition, 5));
            case.commit(partition, 4);
        }
        case
    }
}

#[test]
fn one_member_reads_everything_and_a_second_takes_half_of_it() {
    let case = Case::of(4);
    assert!(case.join(1));
    assert_eq!(case.assigned(), [vec![0, 1, 2, 3]]);
    case.join(2);
    assert_eq!(case.assigned(), [vec![0, 1], vec![3, 2]]);
    assert_eq!((case.may(2, 3), case.may(1, 3)), ((true, true), (false, false)));
}

#[test]
fn a_member_that_joins_again_stays_as_it_is() {
    let case = Case::of(2);
    case.join(1);
    let before = case.assignment(1);
    assert!(case.join(1));
    assert_eq!(case.assignment(1), before);
    assert_eq!(case.members.groups_of(1), [key()]);
}

#[test]
fn what_a_member_read_goes_to_those_that_stay_and_its_number_to_the_next() {
    let case = Case::of(3);
    for client in 1..=3 {
        case.join(client);
    }
    assert!(case.members.leave(key(), 2));
    assert_eq!(case.assigned(), [vec![0, 2], vec![1]]);
    case.join(4);
    assert_eq!(case.members.of(key(), case.now).iter().map(|member| member.id).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(!case.members.leave(key(), 9));
}

#[test]
fn more_members_than_partitions_leave_some_without() {
    let mut case = Case::of(2);
    for client in 1..=3 {
        case.join(client);
    }
    assert_eq!(case.assigned().iter().filter(|partitions| partitions.is_empty()).count(), 1);
    case.partitions = 3;
    assert_eq!(
        case.assignment(1).map(|(_, partitions)| partitions),
        Some(vec![0]),
        "it asks, and all are dealt out anew"
    );
    assert_eq!(case.assigned(), [vec![0], vec![1], vec![2]]);
}

#[test]
fn every_partition_has_exactly_one_reader_whoever_comes_and_goes() {
    let mut case = Case::of(7);
    for step in 0..400u64 {
        let client = u128::from(step * 7 % 5 + 1);
        match step % 7 {
            2 | 5 => {
                case.members.leave(key(), client);
            }
            3 => (0..7).for_each(|partition| _ = case.members.served(key(), client, partition, step)),
            4 => case.commit(u32::try_from(step % 6).unwrap(), step),
            6 => case.now += WAIT / 3,
            _ => {
                case.join(client);
            }
        }
        let mut all: Vec<u32> = case.assigned().concat();
        all.sort_unstable();
        assert!(all == [0, 1, 2, 3, 4, 5, 6] || case.assigned().is_empty(), "{all:?} after step {step}");
        for partition in 0..7 {
            let polling = (1..=5).filter(|client| case.may(*client, partition).0).count();
            assert!(polling <= 1, "{polling} members poll {partition} after step {step}");
        }
    }
}

#[test]
fn a_group_takes_no_more_members_than_it_may() {
    let case = Case { max: 2, ..Case::of(1) };
    assert!(case.join(1) && case.join(2) && !case.join(3));
    assert_eq!(case.members.groups_of(2), [key()]);
    assert!(case.members.is_member(2) && !case.members.is_member(3));
    case.members.remove_topic(key().0);
    assert_eq!((case.members.groups_of(2), case.members.is_member(2)), (vec![], false));
}

#[test]
fn a_member_that_leaves_everything_is_in_no_group() {
    let case = Case::of(2);
    case.join(1);
    case.join(2);
    case.members.leave_all(1);
    assert_eq!((case.members.groups_of(1), case.assigned()), (vec![], vec![vec![0, 1]]));
    case.members.remove(key());
    assert!(!case.members.is_member(2));
}

#[test]
fn partitions_with_uncommitted_messages_move_when_these_are_committed_and_others_at_once() {
    let mut case = Case::at_work(4);
    case.commit(2, 5);
    case.join(2);
    assert_eq!(case.assigned(), [vec![0, 1, 3], vec![2]], "3 waits, 2 was committed");
    assert_eq!((case.may(1, 3), case.may(2, 3)), ((false, true), (false, false)), "it is committed and not polled");
    let (before, polled) = case.assignment(1).unwrap();
    assert_eq!(polled, [0, 1]);
    case.commit(3, 4);
    assert_eq!(case.may(2, 3), (false, false), "that is not all that was given out");
    case.commit(3, 5);
    assert_eq!((case.may(1, 3), case.may(2, 3)), ((false, false), (true, true)));
    assert_eq!(case.assignment(2), Some((before + 1, vec![2, 3])), "members see that something changed");
}

#[test]
fn a_partition_whose_messages_nobody_commits_moves_after_a_while() {
    let mut case = Case::at_work(2);
    case.join(2);
    case.now += WAIT - Duration::from_millis(1);
    assert_eq!(case.may(2, 1), (false, false));
    case.now += Duration::from_millis(1);
    assert_eq!((case.may(1, 1), case.may(2, 1)), ((false, false), (true, true)));
}

#[test]
fn nobody_else_is_given_a_partition_that_is_on_its_way() {
    let mut case = Case::at_work(3);
    case.join(2);
    case.join(3);
    assert_eq!(case.assigned(), [vec![0, 1, 2], vec![], vec![]]);
    for partition in 1..3 {
        case.commit(partition, 5);
    }
    assert_eq!(case.assigned(), [vec![0], vec![2], vec![1]]);
}

#[test]
fn who_leaves_is_not_waited_for() {
    for leaving in [1, 2] {
        let case = Case::at_work(2);
        case.join(2);
        case.members.leave(key(), leaving);
        assert_eq!(case.assigned(), [vec![0, 1]], "{leaving} left");
        assert_eq!(case.may(3 - leaving, 1), (true, true));
    }
}

#[test]
fn after_a_purge_nothing_is_waited_for() {
    let case = Case::at_work(2);
    case.join(2);
    case.members.purged(key().0);
    assert_eq!(case.assigned(), [vec![0], vec![1]]);
    let case = Case::at_work(2);
    case.members.purged(key().0);
    case.join(2);
    assert_eq!(case.assigned(), [vec![0], vec![1]]);
}

#[test]
fn what_is_given_to_who_is_no_member_holds_nothing_up() {
    let case = Case::of(2);
    case.join(1);
    assert!(!case.members.served(key(), 9, 1, 5), "it has no partition");
    case.join(2);
    assert_eq!(case.assigned(), [vec![0], vec![1]]);
}

#[test]
fn what_was_given_to_who_left_is_not_waited_for_when_somebody_joins() {
    let case = Case::of(2);
    case.join(1);
    case.join(2);
    assert!(case.members.served(key(), 2, 1, 5));
    assert!(case.members.leave(key(), 2));
    case.join(3);
    assert_eq!(case.assigned(), [vec![0], vec![1]]);
}

#[test]
fn what_was_given_before_a_handover_that_took_too_long_is_not_waited_for_again() {
    let mut case = Case::at_work(2);
    case.join(2);
    case.now += WAIT;
    assert_eq!(case.may(2, 1), (true, true));
    assert!(case.members.leave(key(), 1));
    case.join(3);
    // The newest one has the place of the first.
    assert_eq!(case.assigned(), [vec![1], vec![0]]);
}
