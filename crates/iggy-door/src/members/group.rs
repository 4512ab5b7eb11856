//! The members of one group and their partitions. The rules are the server's, so that members see the same on both.

use std::collections::{HashMap, HashSet};

use tokio::time::Instant;

/// A member as it is described.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// Number within the group, the smallest that was free.
    pub(crate) id: u32,
    /// The client that it is.
    pub(crate) client: u128,
    /// Partitions that it has. Those that are to be handed over are still among them.
    pub(crate) partitions: Vec<u32>,
}

/// A partition that another member gets once its messages are committed, or after some time. Until then who has it does not
/// poll it any more, and commits what it was given.
#[derive(Debug, Clone, Copy)]
struct Handover {
    partition: u32,
    to: u128,
    until: Instant,
}

/// A group that has members.
#[derive(Debug, Default)]
pub(super) struct Group {
    generation: u64,
    /// Partitions of the topic, as last heard.
    partitions: u32,
    /// In the order of their numbers.
    members: Vec<Member>,
    /// The highest offset that was given to members, by partition.
    served: HashMap<u32, u64>,
    handovers: Vec<Handover>,
}

impl Group {
    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    pub(super) fn has(&self, client: u128) -> bool {
        self.member(client).is_some()
    }

    fn member(&self, client: u128) -> Option<&Member> {
        self.members.iter().find(|member| member.client == client)
    }

    /// Takes one more in.
    pub(super) fn add(&mut self, client: u128, until: Instant, committed: impl Fn(u32) -> Option<u64>) {
        let id = (0..).zip(&self.members).find(|(vacant, member)| *vacant != member.id);
        let at = id.map_or(self.members.len(), |(vacant, _)| vacant as usize);
        let member = Member { id: u32::try_from(at).unwrap_or(u32::MAX), client, partitions: Vec::new() };
        self.members.insert(at, member);
        self.admit(until, committed);
    }

    /// Lets one go; true when it was there.
    pub(super) fn remove(&mut self, client: u128) -> bool {
        let before = self.members.len();
        self.members.retain(|member| member.client != client);
        let was_there = self.members.len() < before;
        if was_there {
            self.deal();
        }
        was_there
    }

    pub(super) fn resize(&mut self, partitions: u32) {
        if self.partitions != partitions {
            self.partitions = partitions;
            self.served.retain(|partition, _| *partition < partitions);
            self.deal();
        }
    }

    pub(super) fn assignment(&self, client: u128) -> Option<(u64, Vec<u32>)> {
        let member = self.member(client)?;
        let polled = member.partitions.iter().filter(|partition| !self.is_leaving(**partition));
        Some((self.generation, polled.copied().collect()))
    }

    pub(super) fn owns(&self, client: u128, partition: u32) -> bool {
        self.member(client).is_some_and(|member| member.partitions.contains(&partition))
    }

    pub(super) fn polls(&self, client: u128, partition: u32) -> bool {
        self.owns(client, partition) && !self.is_leaving(partition)
    }

    pub(super) fn served(&mut self, client: u128, partition: u32, offset: u64) -> bool {
        let is_owner = self.owns(client, partition);
        if is_owner {
            let served = self.served.entry(partition).or_insert(offset);
            *served = offset.max(*served);
        }
        is_owner
    }

    pub(super) fn purged(&mut self) {
        self.served.clear();
        self.hand_over(|_| true);
    }

    pub(super) fn committed(&mut self, partition: u32, offset: u64) {
        let is_all = self.served.get(&partition).is_none_or(|served| *served <= offset);
        if is_all {
            self.hand_over(|handover| handover.partition == partition);
        }
    }

    /// Ends what has lasted too long.
    pub(super) fn settle(&mut self, now: Instant) {
        self.hand_over(|handover| handover.until <= now);
    }

    fn is_leaving(&self, partition: u32) -> bool {
        self.handovers.iter().any(|handover| handover.partition == partition)
    }

    fn hand_over(&mut self, is_due: impl Fn(&Handover) -> bool) {
        let due: Vec<_> = self.handovers.extract_if(.., |handover| is_due(handover)).collect();
        for Handover { partition, to, .. } in due {
            self.move_to(to, partition);
            self.generation += 1;
        }
    }

    fn move_to(&mut self, client: u128, partition: u32) {
        // Who has it now was given nothing of it.
        self.served.remove(&partition);
        for member in &mut self.members {
            if member.client == client {
                member.partitions.push(partition);
            } else {
                member.partitions.retain(|other| *other != partition);
            }
        }
    }

    /// Round robin over all members, from nothing. Who left cannot commit any more, so nothing waits for that: what it was
    /// given and did not commit is given again.
    fn deal(&mut self) {
        self.generation += 1;
        self.handovers.clear();
        let (members, partitions) = (self.members.len(), self.partitions);
        for (index, member) in self.members.iter_mut().enumerate() {
            let had = std::mem::take(&mut member.partitions);
            member.partitions = (0..partitions).skip(index).step_by(members.max(1)).collect();
            // What another member was given is not waited for when somebody joins either.
            for partition in member.partitions.iter().filter(|partition| !had.contains(partition)) {
                self.served.remove(partition);
            }
        }
    }

    /// Gives the newest member its share, and leaves the others what they have as far as that is fair: first what nobody
    /// has, then the highest partitions of those that have more than their share. Of these, the ones with messages that
    /// were given out and are not committed wait for that, at most until `until`.
    fn admit(&mut self, until: Instant, committed: impl Fn(u32) -> Option<u64>) {
        self.generation += 1;
        let read: HashSet<u32> = self.members.iter().flat_map(|member| member.partitions.iter().copied()).collect();
        let free = (0..self.partitions).filter(|partition| !read.contains(partition)).collect();
        self.give(free, |_, _| false, until);
        let excess = self.excess();
        let is_open = |served: &HashMap<u32, u64>, partition: u32| {
            let served = served.get(&partition);
            served.is_some_and(|served| committed(partition).is_none_or(|committed| committed < *served))
        };
        self.give(excess, is_open, until);
    }

    /// Gives partitions to those who have none and wait for none, in turn.
    fn give(&mut self, partitions: Vec<u32>, is_open: impl Fn(&HashMap<u32, u64>, u32) -> bool, until: Instant) {
        let waits = |client: u128| self.handovers.iter().any(|handover| handover.to == client);
        let is_idle = |member: &&Member| member.partitions.is_empty() && !waits(member.client);
        let takers: Vec<u128> = self.members.iter().filter(is_idle).map(|member| member.client).collect();
        for (partition, to) in partitions.into_iter().zip(takers.iter().copied().cycle()) {
            if is_open(&self.served, partition) {
                self.handovers.push(Handover { partition, to, until });
            } else {
                self.move_to(to, partition);
            }
        }
    }

    /// What members have above their share, and keep for now, the highest partition of each first.
    fn excess(&self) -> Vec<u32> {
        let (members, partitions) = (self.members.len().max(1), self.partitions as usize);
        let (fair, mut remainder) = (partitions / members, partitions % members);
        let mut above = Vec::new();
        for member in &self.members {
            let mut stay: Vec<u32> = member.partitions.clone();
            stay.retain(|partition| !self.is_leaving(*partition));
            let extra = usize::from(remainder > 0 && stay.len() > fair);
            remainder -= extra;
            let kept = stay.len().min(fair + extra);
            above.extend(stay.split_off(kept).into_iter().rev());
        }
        above
    }
}
