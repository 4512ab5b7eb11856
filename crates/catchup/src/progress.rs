//! What is finished of a partition, and its form in the metadata of a committed offset.
//!
//! ```text
//! "cu1" . base64url without padding of:
//!           8 bytes   hash of the log: cluster id, topic, partition (big-endian)
//!           varint    floor
//!           varint    number of ranges
//!           per range varint distance from the end of the one before (of the first: from the floor), varint length
//!           4 bytes   CRC-32 (ISO-HDLC, the one of zlib) of all of the above (big-endian)
//!       . optional: one space, then the metadata of the user
//! ```
//!
//! Varints are unsigned LEB128. With nothing ahead of the floor and no metadata of the user the string is empty.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use xxhash_rust::xxh3::xxh3_64;

use crate::RangeSet;

const PREFIX: &str = "cu1";
const LOG_BYTES: usize = 8;
const CRC_BYTES: usize = 4;
/// Of a 64-bit number.
const VARINT_BYTES_MAX: usize = 10;

/// Which log an offset belongs to. Tools that copy committed offsets to another cluster or topic keep the metadata
/// string, and its ranges would name records there that nobody has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LogId(pub u64);

impl LogId {
    /// The identity of one partition: XXH3-64 over the parts, each with its length before it. `topic` is the topic's
    /// id where the client knows it, else its name.
    #[must_use]
    pub fn of(cluster: &str, topic: &str, partition: i32) -> Self {
        let mut parts = Vec::with_capacity(cluster.len() + topic.len() + 20);
        for part in [cluster.as_bytes(), topic.as_bytes(), &partition.to_be_bytes()] {
            parts.extend_from_slice(&(part.len() as u64).to_be_bytes());
            parts.extend_from_slice(part);
        }
        Self(xxh3_64(&parts))
    }
}

/// What is finished of one partition: everything below `floor`, and `ahead` of it some ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The log that the offsets belong to.
    pub log: LogId,
    /// The committed offset in Kafka's meaning: the next one to read.
    pub floor: i64,
    /// Finished ranges at or above the floor; what lies below is not written.
    pub ahead: RangeSet,
}

/// Why ranges in the metadata of a committed offset do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotCounted {
    /// It does not begin like a progress: empty, or another program's.
    #[error("not written by a catch-up consumer")]
    Foreign,
    /// It begins like a progress and is none: cut off or changed.
    #[error("damaged")]
    Damaged,
    /// It is the progress of another partition, topic or cluster.
    #[error("it belongs to another log")]
    OtherLog,
    /// It was written beside another committed offset.
    #[error("it belongs to the committed offset {0}")]
    OtherFloor(i64),
}

/// A progress in its written form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// The string to commit: as long as it was allowed to be, or shorter.
    pub metadata: String,
    /// The ranges that are in it.
    pub ahead: RangeSet,
    /// How many ranges did not fit.
    pub dropped: usize,
}

impl Progress {
    /// Finished up to `floor`, and nothing ahead of it.
    #[must_use]
    pub fn new(log: LogId, floor: i64) -> Self {
        Self { log, floor, ahead: RangeSet::new() }
    }

    /// Keeps what lies in `low..high` of the log, and moves the floor over what it reaches then: the invariant is that
    /// `ahead` begins above the floor.
    pub fn clip(&mut self, log: Range<i64>) {
        self.floor = self.floor.max(log.start);
        self.ahead.clip(self.floor..log.end);
        if let Some(range) = self.ahead.at(self.floor) {
            self.floor = range.end;
            self.ahead.remove(range);
        }
    }

    /// Length of [`Progress::encode`]'s string in characters (and bytes: without the user's part it is ASCII).
    #[must_use]
    pub fn encoded_len(&self, user: &str) -> usize {
        encoded_len(self.floor, &self.ahead, user)
    }

    /// Writes it in at most `bytes_max` bytes (of UTF-8; the ranges are ASCII). What does not fit is left out, the
    /// shortest ranges first, because they cost the fewest duplicates; the user's part goes only when it does not
    /// fit even alone. A floor below zero is written as zero.
    #[must_use]
    pub fn encode(&self, user: &str, bytes_max: usize) -> Encoded {
        if self.ahead.first().is_some_and(|first| first.start < self.floor) {
            let mut above = self.clone();
            above.ahead.remove(i64::MIN..self.floor);
            return above.encode(user, bytes_max);
        }
        let nothing = |dropped| Encoded { metadata: String::new(), ahead: RangeSet::new(), dropped };
        let all = self.ahead.len();
        if self.encoded_len(user) <= bytes_max {
            return if all == 0 && user.is_empty() { nothing(0) } else { self.write(user, self.ahead.clone(), 0) };
        }
        let mut longest: Vec<Range<i64>> = self.ahead.iter().collect();
        longest.sort_by_key(|range| (std::cmp::Reverse(range.end.abs_diff(range.start)), range.start));
        // A sorted list and no set: it is made often, of up to some hundred thousand ranges.
        let keep = |count: usize| {
            let mut kept: Vec<Range<i64>> = longest.iter().take(count).cloned().collect();
            kept.sort_unstable_by_key(|range| range.start);
            kept.into_iter()
        };
        let fits = |count: usize| written_len(self.floor, keep(count), user) <= bytes_max;
        // One range more never makes the string shorter, so the most that fit can be found by halving.
        let (mut fit, mut too_many) = (0, all);
        while too_many - fit > 1 {
            let middle = fit + (too_many - fit) / 2;
            if fits(middle) { fit = middle } else { too_many = middle }
        }
        match (fit, user) {
            (0, "") => nothing(all),
            (0, _) if !fits(0) => self.encode("", bytes_max),
            _ => self.write(user, keep(fit).collect(), all - fit),
        }
    }

    /// As [`Progress::encode`] without a user's part, but never empty: it also says that nothing is ahead of the floor.
    pub(crate) fn encode_always(&self, bytes_max: usize) -> Encoded {
        let encoded = self.encode("", bytes_max);
        if encoded.metadata.is_empty() { self.write("", RangeSet::new(), encoded.dropped) } else { encoded }
    }

    fn write(&self, user: &str, ahead: RangeSet, dropped: usize) -> Encoded {
        let mut plain = Vec::with_capacity(plain_len(self.floor, ahead.iter()));
        plain.extend_from_slice(&self.log.0.to_be_bytes());
        put_varint(&mut plain, distance(0, self.floor));
        put_varint(&mut plain, ahead.len() as u64);
        let mut end = self.floor;
        for range in ahead.iter() {
            put_varint(&mut plain, distance(end, range.start));
            put_varint(&mut plain, distance(range.start, range.end));
            end = range.end;
        }
        let mut metadata = sealed(&plain);
        if !user.is_empty() {
            metadata.push(' ');
            metadata.push_str(user);
        }
        Encoded { metadata, ahead, dropped }
    }

    /// Reads what [`Progress::encode`] wrote, without a look at the log or the committed offset: for tools.
    ///
    /// # Errors
    ///
    /// [`NotCounted::Foreign`] or [`NotCounted::Damaged`].
    pub fn decode(metadata: &str) -> Result<Self, NotCounted> {
        let text = metadata.strip_prefix(PREFIX).ok_or(NotCounted::Foreign)?;
        let text = text.split_once(' ').map_or(text, |(ours, _)| ours);
        let plain = URL_SAFE_NO_PAD.decode(text).map_err(|_| NotCounted::Damaged)?;
        parse(&plain).ok_or(NotCounted::Damaged)
    }

    /// The ranges that count beside a committed offset of a log.
    ///
    /// # Errors
    ///
    /// The reason why none do: any [`NotCounted`].
    pub fn ahead_of(metadata: &str, log: LogId, committed: i64) -> Result<RangeSet, NotCounted> {
        let progress = Self::decode(metadata)?;
        if progress.log != log {
            return Err(NotCounted::OtherLog);
        }
        if progress.floor != committed {
            return Err(NotCounted::OtherFloor(progress.floor));
        }
        Ok(progress.ahead)
    }
}

/// The user's part of a metadata string. All of it, when the string is no progress.
#[must_use]
pub fn user_metadata(metadata: &str) -> &str {
    if Progress::decode(metadata) == Err(NotCounted::Foreign) {
        return metadata;
    }
    metadata.split_once(' ').map_or("", |(_, user)| user)
}

pub(crate) fn encoded_len(floor: i64, ahead: &RangeSet, user: &str) -> usize {
    if ahead.is_empty() && user.is_empty() {
        return 0;
    }
    written_len(floor, ahead.iter(), user)
}

fn written_len(floor: i64, ranges: impl Iterator<Item = Range<i64>>, user: &str) -> usize {
    PREFIX.len() + base64_len(plain_len(floor, ranges)) + user_len(user)
}

/// The written form around these bytes.
pub(crate) fn sealed(plain: &[u8]) -> String {
    let mut whole = Vec::with_capacity(plain.len() + CRC_BYTES);
    whole.extend_from_slice(plain);
    whole.extend_from_slice(&crc32(plain).to_be_bytes());
    let mut metadata = String::with_capacity(PREFIX.len() + base64_len(whole.len()));
    metadata.push_str(PREFIX);
    URL_SAFE_NO_PAD.encode_string(&whole, &mut metadata);
    metadata
}

fn parse(plain: &[u8]) -> Option<Progress> {
    let (body, crc) = plain.split_last_chunk::<CRC_BYTES>()?;
    if crc32(body) != u32::from_be_bytes(*crc) {
        return None;
    }
    let (log, mut rest) = body.split_first_chunk::<LOG_BYTES>()?;
    let mut number = || {
        let (value, behind) = varint(rest)?;
        rest = behind;
        i64::try_from(value).ok()
    };
    let mut progress = Progress::new(LogId(u64::from_be_bytes(*log)), number()?);
    // The count is not used to reserve memory: each range takes bytes that are really there, or the reading ends.
    let mut end = progress.floor;
    for _ in 0..number()? {
        let start = end.checked_add(number()?)?;
        end = start.checked_add(number().filter(|&length| length > 0)?)?;
        progress.ahead.insert(start..end);
    }
    rest.is_empty().then_some(progress)
}

fn distance(from: i64, to: i64) -> u64 {
    if to > from { to.abs_diff(from) } else { 0 }
}

fn plain_len(floor: i64, ranges: impl Iterator<Item = Range<i64>>) -> usize {
    let (mut count, mut bytes, mut end) = (0_u64, 0, floor);
    for range in ranges {
        count += 1;
        bytes += varint_len(distance(end, range.start)) + varint_len(distance(range.start, range.end));
        end = range.end;
    }
    LOG_BYTES + varint_len(distance(0, floor)) + varint_len(count) + bytes + CRC_BYTES
}

fn base64_len(bytes: usize) -> usize {
    bytes.saturating_mul(4).div_ceil(3)
}

fn user_len(user: &str) -> usize {
    if user.is_empty() { 0 } else { 1 + user.len() }
}

fn crc32(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iso_hdlc(bytes)
}

fn varint_len(value: u64) -> usize {
    (value.max(1).ilog2() as usize) / 7 + 1
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    for (at, byte) in bytes.iter().take(VARINT_BYTES_MAX).enumerate() {
        value |= u64::from(byte & 0x7f).checked_shl(7 * u32::try_from(at).ok()?)?;
        if byte & 0x80 == 0 {
            return Some((value, bytes.get(at + 1..)?));
        }
    }
    None
}
