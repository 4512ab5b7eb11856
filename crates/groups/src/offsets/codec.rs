//! The stored form of a record.
//!
//! ```text
//! record   := version (u8, 1) kind (u8) body
//! store    := group flags at topics(key partition-writes)      kind 1; flags bit 0: by a member
//! remove   := group topics(key partitions)                     kind 2
//! group    := group                                            kind 3: a group goes
//! topic    := key                                              kind 4: a topic goes
//! mark     := group (0 | 1 | 2 since)                          kind 5: never had members, has, has none since
//! key      := name id (16 bytes, big endian)
//! write    := partition flags [offset] [epoch] [metadata] [commit time] [expires]
//! ```
//!
//! Numbers are varints, signed ones in zigzag; texts and lists have their length before them. Flags of a write: 1 an
//! offset is set (else it is taken away, and nothing follows), 2 a leader epoch, 4 metadata, 8 a commit time other
//! than
//! `at`, 16 an expiry of its own; both times as the difference to `at`. A version or kind that is not known is an
//! error: to skip what a newer Milena wrote would lose offsets.

use std::fmt;
use std::sync::Arc;

use super::record::{Change, Mark, Store, Write};
use super::table::{Committed, TopicKey};
use super::varint::{Reader, put_signed, put_text, put_unsigned};
use crate::types::{Timestamp, TopicId};

const VERSION: u8 = 1;

const STORE: u8 = 1;
const REMOVE: u8 = 2;
const REMOVE_GROUP: u8 = 3;
const REMOVE_TOPIC: u8 = 4;
const MARK: u8 = 5;

const BY_MEMBER: u8 = 1;

const IS_SET: u8 = 1;
const HAS_EPOCH: u8 = 2;
const HAS_METADATA: u8 = 4;
const HAS_TIME: u8 = 8;
const HAS_EXPIRY: u8 = 16;

/// Why bytes are no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CodecError {
    /// A format that this version does not know.
    Version(u8),
    /// A kind of record that this version does not know.
    Kind(u8),
    /// Flags that this version does not know.
    Flags(u8),
    /// It ends too early.
    Truncated,
    /// Something follows.
    Trailing,
    /// A text is not UTF-8.
    NotText,
    /// A number is larger than what it stands for.
    OutOfRange,
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(f, "offset record of unknown version {version}"),
            Self::Kind(kind) => write!(f, "offset record of unknown kind {kind}"),
            Self::Flags(flags) => write!(f, "offset record with unknown flags {flags:#x}"),
            Self::Truncated => f.write_str("offset record ends too early"),
            Self::Trailing => f.write_str("offset record is too long"),
            Self::NotText => f.write_str("offset record holds a text that is not UTF-8"),
            Self::OutOfRange => f.write_str("offset record holds a number that is out of range"),
        }
    }
}

impl std::error::Error for CodecError {}

/// The stored form.
pub(crate) fn encode(change: &Change) -> Vec<u8> {
    let mut out = vec![VERSION];
    match change {
        Change::Store(store) => {
            out.push(STORE);
            put_text(&mut out, &store.group);
            out.push(if store.by_member { BY_MEMBER } else { 0 });
            put_signed(&mut out, store.at.0);
            put_unsigned(&mut out, store.topics.len() as u64);
            for (key, writes) in &store.topics {
                put_key(&mut out, key);
                put_unsigned(&mut out, writes.len() as u64);
                for write in writes {
                    put_write(&mut out, write, store.at);
                }
            }
        }
        Change::Remove { group, topics } => {
            out.push(REMOVE);
            put_text(&mut out, group);
            put_unsigned(&mut out, topics.len() as u64);
            for (key, partitions) in topics {
                put_key(&mut out, key);
                put_unsigned(&mut out, partitions.len() as u64);
                for partition in partitions {
                    put_signed(&mut out, i64::from(*partition));
                }
            }
        }
        Change::RemoveGroup { group } => {
            out.push(REMOVE_GROUP);
            put_text(&mut out, group);
        }
        Change::RemoveTopic { topic } => {
            out.push(REMOVE_TOPIC);
            put_key(&mut out, topic);
        }
        Change::Mark { group, mark } => {
            out.push(MARK);
            put_text(&mut out, group);
            match mark {
                Mark::Never => out.push(0),
                Mark::Occupied => out.push(1),
                Mark::EmptySince(since) => {
                    out.push(2);
                    put_signed(&mut out, since.0);
                }
            }
        }
    }
    out
}

fn put_key(out: &mut Vec<u8>, key: &TopicKey) {
    put_text(out, &key.name);
    out.extend_from_slice(&key.id.0.to_be_bytes());
}

fn put_write(out: &mut Vec<u8>, write: &Write, at: Timestamp) {
    put_signed(out, i64::from(write.partition));
    let Some(value) = &write.value else {
        out.push(0);
        return;
    };
    let flag = |is: bool, flag: u8| if is { flag } else { 0 };
    out.push(
        IS_SET
            | flag(value.leader_epoch != -1, HAS_EPOCH)
            | flag(value.metadata.is_some(), HAS_METADATA)
            | flag(value.commit_time != at, HAS_TIME)
            | flag(value.expires.is_some(), HAS_EXPIRY),
    );
    put_signed(out, value.offset);
    if value.leader_epoch != -1 {
        put_signed(out, i64::from(value.leader_epoch));
    }
    if let Some(metadata) = &value.metadata {
        put_text(out, metadata);
    }
    if value.commit_time != at {
        put_signed(out, value.commit_time.0.wrapping_sub(at.0));
    }
    if let Some(expires) = value.expires {
        put_signed(out, expires.0.wrapping_sub(at.0));
    }
}

/// Reads the stored form.
pub(crate) fn decode(record: &[u8]) -> Result<Change, CodecError> {
    let mut reader = Reader::new(record);
    let version = reader.byte()?;
    if version != VERSION {
        return Err(CodecError::Version(version));
    }
    let change = match reader.byte()? {
        STORE => Change::Store(get_store(&mut reader)?),
        REMOVE => {
            let group = Arc::from(reader.text()?);
            let topics = get_topics(&mut reader, |reader| narrow(reader.signed()?))?;
            Change::Remove { group, topics }
        }
        REMOVE_GROUP => Change::RemoveGroup { group: Arc::from(reader.text()?) },
        REMOVE_TOPIC => Change::RemoveTopic { topic: get_key(&mut reader)? },
        MARK => {
            let group = Arc::from(reader.text()?);
            let mark = match reader.byte()? {
                0 => Mark::Never,
                1 => Mark::Occupied,
                2 => Mark::EmptySince(Timestamp(reader.signed()?)),
                other => return Err(CodecError::Flags(other)),
            };
            Change::Mark { group, mark }
        }
        kind => return Err(CodecError::Kind(kind)),
    };
    reader.end()?;
    Ok(change)
}

fn get_store(reader: &mut Reader<'_>) -> Result<Store, CodecError> {
    let group = Arc::from(reader.text()?);
    let flags = reader.byte()?;
    if flags & !BY_MEMBER != 0 {
        return Err(CodecError::Flags(flags));
    }
    let at = Timestamp(reader.signed()?);
    let topics = get_topics(reader, |reader| get_write(reader, at))?;
    Ok(Store { group, by_member: flags & BY_MEMBER != 0, at, topics })
}

fn get_topics<T>(
    reader: &mut Reader<'_>,
    mut get: impl FnMut(&mut Reader<'_>) -> Result<T, CodecError>,
) -> Result<Vec<(TopicKey, Vec<T>)>, CodecError> {
    let count = reader.count()?;
    // Grows as it is filled, since an entry in memory is much larger than the byte that vouches for it.
    let mut topics = Vec::new();
    for _ in 0..count {
        let key = get_key(reader)?;
        let count = reader.count()?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(get(reader)?);
        }
        topics.push((key, items));
    }
    Ok(topics)
}

fn get_key(reader: &mut Reader<'_>) -> Result<TopicKey, CodecError> {
    let name = Arc::from(reader.text()?);
    Ok(TopicKey { name, id: TopicId(u128::from_be_bytes(reader.sixteen()?)) })
}

fn get_write(reader: &mut Reader<'_>, at: Timestamp) -> Result<Write, CodecError> {
    let partition = narrow(reader.signed()?)?;
    let flags = reader.byte()?;
    if flags & !(IS_SET | HAS_EPOCH | HAS_METADATA | HAS_TIME | HAS_EXPIRY) != 0 || (flags & IS_SET == 0 && flags != 0)
    {
        return Err(CodecError::Flags(flags));
    }
    if flags & IS_SET == 0 {
        return Ok(Write { partition, value: None });
    }
    let offset = reader.signed()?;
    let leader_epoch = if flags & HAS_EPOCH == 0 { -1 } else { narrow(reader.signed()?)? };
    let metadata = if flags & HAS_METADATA == 0 { None } else { Some(Box::from(reader.text()?)) };
    let mut time = |flag| -> Result<Option<Timestamp>, CodecError> {
        if flags & flag == 0 { Ok(None) } else { Ok(Some(Timestamp(at.0.wrapping_add(reader.signed()?)))) }
    };
    let commit_time = time(HAS_TIME)?.unwrap_or(at);
    let expires = time(HAS_EXPIRY)?;
    Ok(Write { partition, value: Some(Committed { offset, leader_epoch, metadata, commit_time, expires }) })
}

fn narrow(value: i64) -> Result<i32, CodecError> {
    i32::try_from(value).map_err(|_| CodecError::OutOfRange)
}

#[cfg(test)]
mod tests;
