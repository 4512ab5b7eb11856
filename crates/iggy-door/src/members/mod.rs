//! Who reads which partitions of a consumer group. Members are connections, so nothing of this is stored.

mod group;

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::state::Incarnation;
use group::Group;
pub(crate) use group::Member;

/// A group: its topic, and its number within it.
pub(crate) type GroupKey = (Incarnation, u32);

/// Who wants to join a group, and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Joining {
    /// The client's own number.
    pub(crate) client: u128,
    /// Partitions of the topic.
    pub(crate) partitions: u32,
    /// Members that the group may have.
    pub(crate) max: usize,
    /// The time.
    pub(crate) now: Instant,
    /// Until then partitions may stay with who was given messages of them and has not committed these.
    pub(crate) until: Instant,
}

/// All groups that have members.
#[derive(Debug, Default)]
pub(crate) struct Members {
    all: Mutex<All>,
}

#[derive(Debug, Default)]
struct All {
    groups: HashMap<GroupKey, Group>,
    /// The groups of each member: it is looked up with every request.
    of_client: HashMap<u128, Vec<GroupKey>>,
}

impl Members {
    /// Takes a client in, unless there are as many members as there may be; true when it is a member then. One that is
    /// already stays as it is. `committed` is the stored offset of the group in a partition.
    ///
    /// `is_in_force` is asked under the lock that [`Self::leave_all`] takes: whoever ends a session first says so and then
    /// calls that, so a join of the session comes before it and is undone, or after it and is refused.
    pub(crate) fn join(
        &self,
        key: GroupKey,
        who: Joining,
        committed: impl Fn(u32) -> Option<u64>,
        is_in_force: impl FnOnce() -> bool,
    ) -> bool {
        let mut all = self.all.lock();
        if !is_in_force() {
            return false;
        }
        let All { groups, of_client } = &mut *all;
        let group = groups.entry(key).or_default();
        group.resize(who.partitions);
        group.settle(who.now);
        if group.has(who.client) {
            return true;
        }
        if group.members().len() >= who.max {
            return false;
        }
        group.add(who.client, who.until, committed);
        of_client.entry(who.client).or_default().push(key);
        true
    }

    /// Lets `client` go; true when it was a member. What it read is dealt out anew.
    pub(crate) fn leave(&self, key: GroupKey, client: u128) -> bool {
        self.all.lock().leave(key, client)
    }

    /// Deals the partitions of a topic out anew if their number has changed.
    pub(crate) fn resize(&self, of: Incarnation, partitions: u32) {
        let mut all = self.all.lock();
        all.groups.iter_mut().filter(|(key, _)| key.0 == of).for_each(|(_, group)| group.resize(partitions));
    }

    /// Lets a client leave every group that it is in.
    pub(crate) fn leave_all(&self, client: u128) {
        let mut all = self.all.lock();
        for key in all.groups_of(client) {
            all.leave(key, client);
        }
    }

    /// Forgets a group.
    pub(crate) fn remove(&self, key: GroupKey) {
        self.all.lock().remove(key);
    }

    /// Forgets the groups of a topic.
    pub(crate) fn remove_topic(&self, of: Incarnation) {
        let mut all = self.all.lock();
        let gone: Vec<_> = all.groups.keys().filter(|key| key.0 == of).copied().collect();
        gone.into_iter().for_each(|key| all.remove(key));
    }

    /// Nobody has messages of the topic any more that a commit could be awaited for.
    pub(crate) fn purged(&self, of: Incarnation) {
        let mut all = self.all.lock();
        all.groups.iter_mut().filter(|(key, _)| key.0 == of).for_each(|(_, group)| group.purged());
    }

    /// The members of a group.
    pub(crate) fn of(&self, key: GroupKey, now: Instant) -> Vec<Member> {
        self.all.lock().group(key, now).map_or_else(Vec::new, |group| group.members().to_vec())
    }

    /// The groups that `client` is a member of.
    pub(crate) fn groups_of(&self, client: u128) -> Vec<GroupKey> {
        self.all.lock().groups_of(client)
    }

    /// True when `client` is a member of any group.
    pub(crate) fn is_member(&self, client: u128) -> bool {
        self.all.lock().of_client.contains_key(&client)
    }

    /// Generation of a member, and the partitions that it polls; `None` for who is none. `partitions` are those that the
    /// topic has now.
    pub(crate) fn assignment(
        &self,
        key: GroupKey,
        client: u128,
        partitions: u32,
        now: Instant,
    ) -> Option<(u64, Vec<u32>)> {
        let mut all = self.all.lock();
        let group = all.group(key, now)?;
        group.resize(partitions);
        group.assignment(client)
    }

    /// True when `client` is the member that has `partition`, and commits what it read of it.
    pub(crate) fn owns(&self, key: GroupKey, client: u128, partition: u32, now: Instant) -> bool {
        self.all.lock().group(key, now).is_some_and(|group| group.owns(client, partition))
    }

    /// True when `client` is the member that polls `partition`.
    pub(crate) fn polls(&self, key: GroupKey, client: u128, partition: u32, now: Instant) -> bool {
        self.all.lock().group(key, now).is_some_and(|group| group.polls(client, partition))
    }

    /// Notes that `client` is given the messages of `partition` up to `offset`; false when it has the partition no more.
    pub(crate) fn served(&self, key: GroupKey, client: u128, partition: u32, offset: u64) -> bool {
        self.all.lock().groups.get_mut(&key).is_some_and(|group| group.served(client, partition, offset))
    }

    /// Notes that the group has read `partition` up to `offset`: if that is all that it was given, and another member waits
    /// for the partition, that one has it now.
    pub(crate) fn committed(&self, key: GroupKey, partition: u32, offset: u64) {
        if let Some(group) = self.all.lock().groups.get_mut(&key) {
            group.committed(partition, offset);
        }
    }
}

impl All {
    /// The group as it is now.
    fn group(&mut self, key: GroupKey, now: Instant) -> Option<&mut Group> {
        let group = self.groups.get_mut(&key)?;
        group.settle(now);
        Some(group)
    }

    fn groups_of(&self, client: u128) -> Vec<GroupKey> {
        self.of_client.get(&client).cloned().unwrap_or_default()
    }

    fn leave(&mut self, key: GroupKey, client: u128) -> bool {
        let Some(group) = self.groups.get_mut(&key) else { return false };
        if !group.remove(client) {
            return false;
        }
        if group.members().is_empty() {
            self.groups.remove(&key);
        }
        self.forget(key, client);
        true
    }

    fn remove(&mut self, key: GroupKey) {
        for member in self.groups.remove(&key).iter().flat_map(Group::members) {
            self.forget(key, member.client);
        }
    }

    fn forget(&mut self, key: GroupKey, client: u128) {
        if let Some(keys) = self.of_client.get_mut(&client) {
            keys.retain(|known| *known != key);
            if keys.is_empty() {
                self.of_client.remove(&client);
            }
        }
    }
}

#[cfg(test)]
mod tests;
