//! Topics that a group reads, as far as its members' metadata tells.
//!
//! Metadata is opaque to the coordinator, except here: offsets of topics that somebody reads must be neither deleted
//! nor expired. Members of the type `consumer` begin their metadata with a version and an array of topic names, in
//! every version of Kafka's consumer protocol. Whatever cannot be read counts as "reads everything".

use std::collections::HashSet;

use crate::group::{Group, Phase};

const CONSUMER: &str = "consumer";

/// Who could miss offsets of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readers {
    /// The group has no members.
    Nobody,
    /// A consumer group between two generations, with the topics that it reads; `None` when that is not known.
    Unsettled(Option<HashSet<String>>),
    /// A stable consumer group with the topics that it reads; `None` when that is not known.
    Settled(Option<HashSet<String>>),
    /// Members that are no consumers: what they read cannot be known.
    Others,
}

impl Readers {
    /// True when somebody would miss offsets of `topic`, as far as it is known.
    #[must_use]
    pub fn read(&self, topic: &str) -> bool {
        match self {
            Self::Nobody => false,
            Self::Unsettled(topics) | Self::Settled(topics) => topics.as_ref().is_none_or(|t| t.contains(topic)),
            Self::Others => true,
        }
    }
}

impl Group {
    pub(crate) fn readers(&self) -> Readers {
        if self.members.is_empty() {
            return Readers::Nobody;
        }
        if self.protocol_type.as_deref() != Some(CONSUMER) {
            return Readers::Others;
        }
        match self.phase {
            Phase::Stable { .. } => Readers::Settled(self.subscribed_topics()),
            Phase::Empty | Phase::Preparing(_) | Phase::Completing { .. } => {
                Readers::Unsettled(self.subscribed_topics())
            }
        }
    }

    /// The topics of all members, under whatever protocol they name them.
    fn subscribed_topics(&self) -> Option<HashSet<String>> {
        let mut topics = HashSet::new();
        for protocol in self.members.iter().flat_map(|m| &m.protocols) {
            topics.extend(topics_of(&protocol.metadata)?.into_iter().map(str::to_owned));
        }
        Some(topics)
    }
}

/// The topic names at the beginning of a consumer's metadata.
fn topics_of(metadata: &[u8]) -> Option<Vec<&str>> {
    let (_version, rest) = metadata.split_first_chunk::<2>()?;
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    let count = usize::try_from(i32::from_be_bytes(*count)).ok()?;
    // Each name takes two bytes at least, so a wrong count cannot make this large.
    let mut topics = Vec::with_capacity(count.min(rest.len() / 2));
    for _ in 0..count {
        let (len, after) = rest.split_first_chunk::<2>()?;
        let (name, after) = after.split_at_checked(usize::try_from(i16::from_be_bytes(*len)).ok()?)?;
        topics.push(std::str::from_utf8(name).ok()?);
        rest = after;
    }
    Some(topics)
}

#[cfg(test)]
mod tests {
    use super::topics_of;

    #[test]
    fn the_topics_of_a_consumer_are_read_whatever_follows_them() {
        let blob = b"\0\x01\0\0\0\x02\0\x01a\0\x02bcowned partitions and user data";
        assert_eq!(topics_of(blob), Some(vec!["a", "bc"]));
    }

    #[test]
    fn metadata_that_is_cut_off_or_lies_tells_nothing() {
        let blob = b"\0\x01\0\0\0\x02\0\x01a\0\x02bc";
        for end in 0..blob.len() {
            assert_eq!(topics_of(&blob[..end]), None, "{end}");
        }
        assert_eq!(topics_of(b"\0\0\xff\xff\xff\xff"), None);
        assert_eq!(topics_of(b"\0\0\x7f\xff\xff\xff\0\x01a"), None);
        assert_eq!(topics_of(b"\0\0\0\0\0\x01\0\x01\xff"), None);
        assert_eq!(topics_of(b"\0\0\0\0\0\x01\xff\xff"), None);
    }

    #[test]
    fn a_consumer_that_subscribes_to_nothing_reads_nothing() {
        assert_eq!(topics_of(b"\0\0\0\0\0\0"), Some(Vec::new()));
    }
}
