//! Who reads which partitions of a consumer group. Members are connections, so nothing of this is stored.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;

use crate::state::Incarnation;

/// A group: its topic, and its number within it.
pub(crate) type GroupKey = (Incarnation, u32);

/// A member as it is described.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// Number within the group, the smallest that was free.
    pub(crate) id: u32,
    /// The client that it is.
    pub(crate) client: u128,
    /// Partitions that it reads.
    pub(crate) partitions: Vec<u32>,
}

#[derive(Debug, Default)]
struct Group {
    generation: u64,
    /// Partitions of the topic, as last heard.
    partitions: u32,
    /// In the order of their numbers.
    members: Vec<Member>,
}

/// All groups that have members.
#[derive(Debug, Default)]
pub(crate) struct Members {
    groups: Mutex<HashMap<GroupKey, Group>>,
}

impl Members {
    /// Takes `client` in, unless there are `max` members; true when it is a member then. One that is already stays as it
    /// is.
    ///
    /// `is_in_force` is asked under the lock that [`Self::leave_all`] takes: whoever ends a session first says so and then
    /// calls that, so a join of the session comes before it and is undone, or after it and is refused.
    pub(crate) fn join(
        &self,
        key: GroupKey,
        client: u128,
        partitions: u32,
        max: usize,
        is_in_force: impl FnOnce() -> bool,
    ) -> bool {
        let mut groups = self.groups.lock();
        if !is_in_force() {
            return false;
        }
        let group = groups.entry(key).or_default();
        group.resize(partitions);
        if group.members.iter().any(|member| member.client == client) {
            return true;
        }
        if group.members.len() >= max {
            return false;
        }
        let id = (0..).zip(&group.members).find(|(vacant, member)| *vacant != member.id);
        let at = id.map_or(group.members.len(), |(vacant, _)| vacant as usize);
        let member = Member { id: u32::try_from(at).unwrap_or(u32::MAX), client, partitions: Vec::new() };
        group.members.insert(at, member);
        group.admit();
        true
    }

    /// Lets `client` go; true when it was a member. What it read is dealt out anew.
    pub(crate) fn leave(&self, key: GroupKey, client: u128) -> bool {
        let mut groups = self.groups.lock();
        let Some(group) = groups.get_mut(&key) else { return false };
        let before = group.members.len();
        group.members.retain(|member| member.client != client);
        if group.members.len() == before {
            return false;
        }
        if group.members.is_empty() {
            groups.remove(&key);
        } else {
            group.deal();
        }
        true
    }

    /// Deals the partitions of a topic out anew if their number has changed.
    pub(crate) fn resize(&self, of: Incarnation, partitions: u32) {
        let mut groups = self.groups.lock();
        groups.iter_mut().filter(|(key, _)| key.0 == of).for_each(|(_, group)| group.resize(partitions));
    }

    /// Lets a client leave every group that it is in.
    pub(crate) fn leave_all(&self, client: u128) {
        for key in self.groups_of(client) {
            self.leave(key, client);
        }
    }

    /// Forgets a group.
    pub(crate) fn remove(&self, key: GroupKey) {
        self.groups.lock().remove(&key);
    }

    /// Forgets the groups of a topic.
    pub(crate) fn remove_topic(&self, of: Incarnation) {
        self.groups.lock().retain(|key, _| key.0 != of);
    }

    /// The members of a group.
    pub(crate) fn of(&self, key: GroupKey) -> Vec<Member> {
        self.groups.lock().get(&key).map_or_else(Vec::new, |group| group.members.clone())
    }

    /// The groups that `client` is a member of.
    pub(crate) fn groups_of(&self, client: u128) -> Vec<GroupKey> {
        let groups = self.groups.lock();
        let is_member = |group: &Group| group.members.iter().any(|member| member.client == client);
        groups.iter().filter(|(_, group)| is_member(group)).map(|(key, _)| *key).collect()
    }

    /// Generation and partitions of a member; `None` for who is none.
    pub(crate) fn assignment(&self, key: GroupKey, client: u128) -> Option<(u64, Vec<u32>)> {
        let groups = self.groups.lock();
        let group = groups.get(&key)?;
        let member = group.members.iter().find(|member| member.client == client)?;
        Some((group.generation, member.partitions.clone()))
    }

    /// True when `client` is the member that reads `partition`.
    pub(crate) fn owns(&self, key: GroupKey, client: u128, partition: u32) -> bool {
        let groups = self.groups.lock();
        let mut members = groups.get(&key).into_iter().flat_map(|group| &group.members);
        members.any(|member| member.client == client && member.partitions.contains(&partition))
    }
}

impl Group {
    fn resize(&mut self, partitions: u32) {
        if self.partitions != partitions {
            self.partitions = partitions;
            self.deal();
        }
    }

    /// Round robin over all members, from nothing.
    fn deal(&mut self) {
        self.generation += 1;
        let (members, partitions) = (self.members.len(), self.partitions);
        for (index, member) in self.members.iter_mut().enumerate() {
            member.partitions = (0..partitions).skip(index).step_by(members.max(1)).collect();
        }
    }

    /// Gives the newest member its share, and leaves the others what they have as far as that is fair: first what nobody
    /// reads, then the highest partitions of those that have more than their share.
    fn admit(&mut self) {
        self.generation += 1;
        let read: HashSet<u32> = self.members.iter().flat_map(|member| member.partitions.iter().copied()).collect();
        let mut free: Vec<u32> = (0..self.partitions).filter(|partition| !read.contains(partition)).collect();
        let idle = |member: &Member| member.partitions.is_empty();
        if free.is_empty() {
            free = self.excess();
        }
        let count = self.members.iter().filter(|member| idle(member)).count().max(1);
        let takers = self.members.iter_mut().filter(|member| idle(member));
        for (index, member) in takers.enumerate() {
            member.partitions = free.iter().skip(index).step_by(count).copied().collect();
        }
    }

    /// Takes away what members have above their share.
    fn excess(&mut self) -> Vec<u32> {
        let (members, partitions) = (self.members.len().max(1), self.partitions as usize);
        let (fair, mut remainder) = (partitions / members, partitions % members);
        let mut taken = Vec::new();
        for member in &mut self.members {
            let extra = usize::from(remainder > 0 && member.partitions.len() > fair);
            remainder -= extra;
            let kept = member.partitions.len().min(fair + extra);
            taken.extend(member.partitions.split_off(kept).into_iter().rev());
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use milena_store::TopicRef;

    use super::*;

    fn key() -> GroupKey {
        (Incarnation::of(&TopicRef::new("s", "t", 1, 2, 3)), 0)
    }

    fn assigned(members: &Members) -> Vec<Vec<u32>> {
        members.of(key()).into_iter().map(|member| member.partitions).collect()
    }

    #[test]
    fn one_member_reads_everything_and_a_second_takes_half_of_it() {
        let members = Members::default();
        assert!(members.join(key(), 1, 4, 10, || true));
        assert_eq!(assigned(&members), [vec![0, 1, 2, 3]]);
        members.join(key(), 2, 4, 10, || true);
        assert_eq!(assigned(&members), [vec![0, 1], vec![3, 2]]);
        assert!(members.owns(key(), 2, 3) && !members.owns(key(), 1, 3));
    }

    #[test]
    fn a_member_that_joins_again_stays_as_it_is() {
        let members = Members::default();
        members.join(key(), 1, 2, 10, || true);
        let before = members.assignment(key(), 1);
        members.join(key(), 1, 2, 10, || true);
        assert_eq!(members.assignment(key(), 1), before);
    }

    #[test]
    fn what_a_member_read_goes_to_those_that_stay_and_its_number_to_the_next() {
        let members = Members::default();
        for client in 1..=3 {
            members.join(key(), client, 3, 10, || true);
        }
        assert!(members.leave(key(), 2));
        assert_eq!(assigned(&members), [vec![0, 2], vec![1]]);
        members.join(key(), 4, 3, 10, || true);
        assert_eq!(members.of(key()).iter().map(|member| member.id).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(!members.leave(key(), 9));
    }

    #[test]
    fn more_members_than_partitions_leave_some_without() {
        let members = Members::default();
        for client in 1..=3 {
            members.join(key(), client, 2, 10, || true);
        }
        assert_eq!(assigned(&members).iter().filter(|partitions| partitions.is_empty()).count(), 1);
        members.resize(key().0, 3);
        assert_eq!(assigned(&members), [vec![0], vec![1], vec![2]]);
    }

    #[test]
    fn every_partition_has_exactly_one_reader_whoever_comes_and_goes() {
        let members = Members::default();
        for step in 0..40u128 {
            let client = step * 7 % 5 + 1;
            if step % 3 == 2 {
                members.leave(key(), client);
            } else {
                members.join(key(), client, 7, 10, || true);
            }
            let mut all: Vec<u32> = assigned(&members).concat();
            all.sort_unstable();
            assert!(all == [0, 1, 2, 3, 4, 5, 6] || members.of(key()).is_empty(), "{all:?} after step {step}");
        }
    }

    #[test]
    fn a_group_takes_no_more_members_than_it_may() {
        let members = Members::default();
        assert!(
            members.join(key(), 1, 1, 2, || true)
                && members.join(key(), 2, 1, 2, || true)
                && !members.join(key(), 3, 1, 2, || true)
        );
        assert_eq!(members.groups_of(2), [key()]);
        members.remove_topic(key().0);
        assert_eq!(members.groups_of(2), []);
    }
}
