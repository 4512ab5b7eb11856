//! The table in memory.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::record::{ConsumerKey, Incarnation, Record};

/// A stream as clients see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) created_at_micros: u64,
}

/// A change of the name of a stream that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Renaming {
    pub(super) name: String,
    /// The store's number of the stream.
    pub(super) of: u32,
}

/// A personal access token, without the token itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) hash: String,
    pub(crate) expires_at_micros: Option<u64>,
}

#[derive(Debug, Default)]
struct TopicState {
    /// Numbers of groups are never given twice, so that a new group does not inherit the offsets of an old one.
    next_group: u32,
    groups: BTreeMap<u32, String>,
    offsets: HashMap<(u32, ConsumerKey), u64>,
}

/// All that the door keeps.
#[derive(Debug, Default)]
pub(crate) struct Table {
    streams: BTreeMap<u32, Stream>,
    stream_ids: HashMap<String, u32>,
    renaming: BTreeMap<u32, Renaming>,
    topics: HashMap<Incarnation, TopicState>,
    tokens: BTreeMap<String, Token>,
    password: Option<String>,
    offsets: usize,
}

impl Table {
    pub(super) fn apply(&mut self, record: Record) {
        match record {
            Record::Stream { id, name, created_at_micros } => {
                self.drop_stream(id);
                // Names are the store's: another number with this one was given while it was in doubt whose it is.
                if let Some(other) = self.stream_ids.get(&name).copied() {
                    self.drop_stream(other);
                }
                self.stream_ids.insert(name.clone(), id);
                self.streams.insert(id, Stream { id, name, created_at_micros });
            }
            Record::DropStream { id } => self.drop_stream(id),
            Record::Rename { id, name, of } => {
                self.renaming.insert(id, Renaming { name, of });
            }
            Record::Group { of, id, name } => {
                let topic = self.topics.entry(of).or_default();
                topic.next_group = topic.next_group.max(id.saturating_add(1));
                topic.groups.insert(id, name);
            }
            Record::NextGroup { of, id } => {
                let topic = self.topics.entry(of).or_default();
                topic.next_group = topic.next_group.max(id);
            }
            Record::DropGroup { of, id } => self.drop_group(of, id),
            Record::Offset { of, partition, who, offset } => self.set_offset(of, partition, who, offset),
            Record::DropOffsets { of } => {
                if let Some(topic) = self.topics.get_mut(&of) {
                    self.offsets -= topic.offsets.len();
                    topic.offsets.clear();
                }
            }
            Record::DropPartitions { of, from } => {
                if let Some(topic) = self.topics.get_mut(&of) {
                    let before = topic.offsets.len();
                    topic.offsets.retain(|(partition, _), _| *partition < from);
                    self.offsets -= before - topic.offsets.len();
                }
            }
            Record::Ends { of, ends } => self.cut_offsets(of, &ends),
            Record::Forget { of } => {
                if let Some(topic) = self.topics.remove(&of) {
                    self.offsets -= topic.offsets.len();
                }
            }
            Record::Token { name, hash, expires_at_micros } => {
                self.tokens.insert(name, Token { hash, expires_at_micros });
            }
            Record::Password { hash } => self.password = Some(hash),
            Record::DropToken { name } => {
                self.tokens.remove(&name);
            }
        }
    }

    fn drop_stream(&mut self, id: u32) {
        self.renaming.remove(&id);
        if let Some(stream) = self.streams.remove(&id) {
            self.stream_ids.remove(&stream.name);
        }
    }

    fn drop_group(&mut self, of: Incarnation, id: u32) {
        let Some(topic) = self.topics.get_mut(&of) else { return };
        let name = topic.groups.remove(&id);
        let before = topic.offsets.len();
        topic.offsets.retain(|(_, who), _| match who {
            ConsumerKey::Group(group) => *group != id,
            ConsumerKey::GroupName(group) => Some(group) != name.as_ref(),
            ConsumerKey::Number(_) | ConsumerKey::Name(_) => true,
        });
        self.offsets -= before - topic.offsets.len();
    }

    fn set_offset(&mut self, of: Incarnation, partition: u32, who: ConsumerKey, offset: Option<u64>) {
        let topic = self.topics.entry(of).or_default();
        match offset {
            Some(offset) => {
                if topic.offsets.insert((partition, who), offset).is_none() {
                    self.offsets += 1;
                }
            }
            None => {
                if topic.offsets.remove(&(partition, who)).is_some() {
                    self.offsets -= 1;
                }
            }
        }
    }

    fn cut_offsets(&mut self, of: Incarnation, ends: &[(u32, u64)]) {
        let Some(topic) = self.topics.get_mut(&of) else { return };
        let before = topic.offsets.len();
        topic.offsets.retain(|(partition, _), offset| {
            let at = ends.binary_search_by_key(partition, |(partition, _)| *partition);
            let Some((_, end)) = at.ok().and_then(|at| ends.get(at)) else { return true };
            *offset = (*offset).min(end.saturating_sub(1));
            *end > 0
        });
        self.offsets -= before - topic.offsets.len();
    }

    /// True when the new name of the stream was not settled.
    pub(crate) fn is_renaming(&self, id: u32) -> bool {
        self.renaming.contains_key(&id)
    }

    /// True when that is the new name of some stream, and not settled.
    pub(crate) fn is_renaming_to(&self, name: &str) -> bool {
        self.renaming.values().any(|renaming| renaming.name == name)
    }

    /// Streams whose new name was not settled.
    pub(super) fn renaming(&self) -> Vec<(Stream, Renaming)> {
        let with_stream = |(id, renaming): (&u32, &Renaming)| Some((self.streams.get(id)?.clone(), renaming.clone()));
        self.renaming.iter().filter_map(with_stream).collect()
    }

    /// Topics that have groups or offsets, or had some.
    pub(super) fn known(&self) -> HashSet<Incarnation> {
        self.topics.keys().copied().collect()
    }

    pub(super) fn forget(&mut self, topics: &HashSet<Incarnation>) {
        self.topics.retain(|of, _| !topics.contains(of));
        self.offsets = self.topics.values().map(|topic| topic.offsets.len()).sum();
    }

    /// The records that make an empty table this one.
    pub(super) fn records(&self) -> Vec<Vec<u8>> {
        let streams = self.streams.values().map(|stream| Record::Stream {
            id: stream.id,
            name: stream.name.clone(),
            created_at_micros: stream.created_at_micros,
        });
        let renaming = self.renaming.iter().map(|(id, Renaming { name, of })| Record::Rename {
            id: *id,
            name: name.clone(),
            of: *of,
        });
        let tokens = self.tokens.iter().map(|(name, token)| Record::Token {
            name: name.clone(),
            hash: token.hash.clone(),
            expires_at_micros: token.expires_at_micros,
        });
        let topics = self.topics.iter().flat_map(|(of, topic)| topic_records(*of, topic));
        let password = self.password.iter().map(|hash| Record::Password { hash: hash.clone() });
        streams.chain(renaming).chain(tokens).chain(password).chain(topics).map(|record| record.encode()).collect()
    }

    /// All streams by number.
    pub(crate) fn streams(&self) -> impl Iterator<Item = &Stream> {
        self.streams.values()
    }

    pub(crate) fn stream(&self, id: u32) -> Option<&Stream> {
        self.streams.get(&id)
    }

    pub(crate) fn stream_named(&self, name: &str) -> Option<&Stream> {
        self.stream_ids.get(name).and_then(|id| self.streams.get(id))
    }

    /// The smallest number that no stream has: numbers of streams are given again, as on the server.
    pub(crate) fn vacant_stream(&self) -> u32 {
        (0..)
            .zip(self.streams.keys())
            .find(|(vacant, taken)| vacant != *taken)
            .map_or_else(|| u32::try_from(self.streams.len()).unwrap_or(u32::MAX), |(vacant, _)| vacant)
    }

    /// Groups of a topic by number.
    pub(crate) fn groups(&self, of: Incarnation) -> impl Iterator<Item = (u32, &str)> {
        self.topics.get(&of).into_iter().flat_map(|topic| topic.groups.iter().map(|(id, name)| (*id, name.as_str())))
    }

    pub(crate) fn next_group(&self, of: Incarnation) -> u32 {
        self.topics.get(&of).map_or(0, |topic| topic.next_group)
    }

    pub(crate) fn groups_count(&self) -> usize {
        self.topics.values().map(|topic| topic.groups.len()).sum()
    }

    pub(crate) fn offset(&self, of: Incarnation, partition: u32, who: &ConsumerKey) -> Option<u64> {
        self.topics.get(&of)?.offsets.get(&(partition, who.clone())).copied()
    }

    /// The highest stored offset of each partition that has some.
    pub(super) fn highest_offsets(&self) -> HashMap<Incarnation, BTreeMap<u32, u64>> {
        let of_topic = |(of, topic): (&Incarnation, &TopicState)| {
            let mut highest = BTreeMap::new();
            for ((partition, _), offset) in &topic.offsets {
                let known = highest.entry(*partition).or_insert(*offset);
                *known = (*known).max(*offset);
            }
            (*of, highest)
        };
        self.topics.iter().filter(|(_, topic)| !topic.offsets.is_empty()).map(of_topic).collect()
    }

    /// Stored offsets in all.
    pub(crate) fn offsets_count(&self) -> usize {
        self.offsets
    }

    pub(crate) fn knows(&self, of: Incarnation) -> bool {
        self.topics.contains_key(&of)
    }

    /// Digest of the password that was made up.
    pub(crate) fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// Tokens by name.
    pub(crate) fn tokens(&self) -> &BTreeMap<String, Token> {
        &self.tokens
    }
}

fn topic_records(of: Incarnation, topic: &TopicState) -> impl Iterator<Item = Record> + '_ {
    let next = (topic.next_group > 0).then_some(Record::NextGroup { of, id: topic.next_group });
    let groups = topic.groups.iter().map(move |(id, name)| Record::Group { of, id: *id, name: name.clone() });
    let offsets = topic.offsets.iter().map(move |((partition, who), offset)| Record::Offset {
        of,
        partition: *partition,
        who: who.clone(),
        offset: Some(*offset),
    });
    next.into_iter().chain(groups).chain(offsets)
}
