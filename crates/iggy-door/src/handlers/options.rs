//! Options of topics: what they are, and how they become settings of the store.
//!
//! The catalog holds the keys of both servers of this protocol: the older one has `enforce_fsync`, the newer one
//! `durability` in its place. A client asks which there are and takes what it knows.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use iggy_binary_protocol::consensus::Operation;
use iggy_binary_protocol::requests::system::{
    DescribeOptionsRequest, OPTIONS_SCOPE_STREAM, OPTIONS_SCOPE_TOPIC, OPTIONS_SCOPE_USER,
};
use iggy_binary_protocol::responses::system::describe_options::{DescribeOptionsResponse, OptionDescriptor};
use iggy_binary_protocol::{WireDecode, WireName, WireOptions};
use milena_store::{Durability, TopicSettings};

use super::Answer;
use crate::codes::{Code, Refusal};
use crate::frame::{Reply, malformed};

/// Kinds of values, as user headers number them.
const STRING: u8 = 2;
const BOOL: u8 = 3;
const UINT32: u8 = 11;
const UINT64: u8 = 12;

/// In numbers for expiry and size: what the server has by default, and no bound at all.
const DEFAULT: u64 = 0;
const UNLIMITED: u64 = u64::MAX;

/// Bounds of a segment, as the server has them.
const SEGMENT_MIN: u64 = 1 << 20;
const SEGMENT_MAX: u64 = 1 << 30;
const SEGMENT_STEP: u64 = 512;

const COMPRESSION: &str = "compression_algorithm";
const EXPIRY: &str = "message_expiry";
const SIZE: &str = "max_topic_size";
const SEGMENT: &str = "segment_size";
const DURABILITY: &str = "durability";
const OFFSET_DURABILITY: &str = "consumer_offset_durability";
const FSYNC: &str = "enforce_fsync";
const SAVE_MESSAGES: &str = "messages_required_to_save";
const SAVE_BYTES: &str = "size_of_messages_required_to_save";
const PREALLOCATE: &str = "preallocate_segments";

/// Key, kind of its typed value, and what it does here.
const CATALOG: &[(&str, u8, &str)] = &[
    (COMPRESSION, STRING, "Only none: messages are stored as they come"),
    (
        EXPIRY,
        UINT64,
        "Age in microseconds, or a time like 7 days, after which whole segments are removed; 0 is the store's own",
    ),
    (
        SIZE,
        UINT64,
        "Bytes of the topic, or a size like 1 GiB, above which the oldest segments are removed, in equal shares for its partitions; 0 is the store's own",
    ),
    (SEGMENT, UINT64, "Bytes of a segment, or a size like 128 MiB; a multiple of 512 from 1 MiB to 1 GiB"),
    (
        DURABILITY,
        STRING,
        "replicated is the durability of the store; persisted flushes to the device before the answer",
    ),
    (OFFSET_DURABILITY, STRING, "replicated or persisted; consumer offsets are as durable as the store either way"),
    (FSYNC, BOOL, "true flushes to the device before the answer"),
    (SAVE_MESSAGES, UINT32, "Any number: messages are always written before the answer"),
    (SAVE_BYTES, UINT64, "Any number: messages are always written before the answer"),
    (PREALLOCATE, BOOL, "Taken and not used: the store decides"),
];

/// Keys that can change after the creation.
const UPDATABLE: &[&str] = &[COMPRESSION, EXPIRY, SIZE];

pub(super) fn describe(body: &Bytes) -> Answer {
    let request = DescribeOptionsRequest::decode_from(body).map_err(malformed)?;
    let entries = match request.scope {
        OPTIONS_SCOPE_TOPIC => CATALOG.iter().filter_map(descriptor).collect(),
        OPTIONS_SCOPE_STREAM | OPTIONS_SCOPE_USER => Vec::new(),
        _ => return Err(Refusal::Denied(Code::INVALID_COMMAND)),
    };
    Ok(Reply::of(Operation::NonReplicated, &DescribeOptionsResponse { entries }))
}

fn descriptor((key, kind, description): &(&str, u8, &str)) -> Option<OptionDescriptor> {
    let default_value = match *key {
        COMPRESSION => Bytes::from_static(b"none"),
        DURABILITY | OFFSET_DURABILITY => Bytes::from_static(b"replicated"),
        SEGMENT | EXPIRY | SIZE => Bytes::copy_from_slice(&DEFAULT.to_le_bytes()),
        SAVE_BYTES => Bytes::copy_from_slice(&1u64.to_le_bytes()),
        SAVE_MESSAGES => Bytes::copy_from_slice(&1u32.to_le_bytes()),
        _ => Bytes::from_static(&[0]),
    };
    let key = WireName::new(*key).ok()?;
    Some(OptionDescriptor { key, kind: *kind, default_value, description: (*description).to_owned() })
}

/// The settings of a new topic.
pub(super) fn settings(options: &WireOptions, partitions: u32) -> Result<TopicSettings, Code> {
    let mut settings = TopicSettings::default();
    apply(&mut settings, options, partitions, |_| true)?;
    Ok(settings)
}

/// The settings of a topic after an update: what is not named stays.
pub(super) fn changed(settings: &TopicSettings, options: &WireOptions, partitions: u32) -> Result<TopicSettings, Code> {
    let mut changed = settings.clone();
    apply(&mut changed, options, partitions, |key| UPDATABLE.contains(&key))?;
    Ok(changed)
}

fn apply(
    settings: &mut TopicSettings,
    options: &WireOptions,
    partitions: u32,
    is_allowed: impl Fn(&str) -> bool,
) -> Result<(), Code> {
    let mut total = None;
    for entry in options {
        let key = std::str::from_utf8(entry.key).map_err(|_| Code::UNSUPPORTED_OPTION)?;
        if !is_allowed(key) {
            return Err(Code::UNSUPPORTED_OPTION);
        }
        let value = Value { kind: entry.value_kind.0, bytes: entry.value };
        match key {
            COMPRESSION => value.word(&["none"]).map(drop),
            EXPIRY => value.expiry().map(|expiry| settings.retention = expiry),
            SIZE => value.size().map(|size| {
                settings.retention_bytes = share(size, partitions);
                total = Some(size);
            }),
            SEGMENT => value.segment().map(|bytes| settings.segment_bytes = bytes),
            DURABILITY => value.word(&["replicated", "persisted"]).map(|word| persist(settings, word == "persisted")),
            OFFSET_DURABILITY => value.word(&["replicated", "persisted"]).map(drop),
            FSYNC => value.flag().map(|fsync| persist(settings, fsync)),
            PREALLOCATE => value.flag().map(drop),
            SAVE_MESSAGES => value.number(UINT32).filter(|number| *number > 0).map(drop),
            SAVE_BYTES => value.size().map(drop),
            _ => return Err(Code::UNSUPPORTED_OPTION),
        }
        .ok_or(Code::INVALID_OPTION)?;
    }
    // Whole segments are removed, and the one that is written to never is.
    let least = settings.segment_bytes.unwrap_or(SEGMENT_MIN);
    let is_bound = |size: &u64| ![DEFAULT, UNLIMITED].contains(size);
    if total.filter(is_bound).is_some_and(|size| size < least) { Err(Code::INVALID_TOPIC_SIZE) } else { Ok(()) }
}

/// One of two options may ask for it, and the other must not take it back.
fn persist(settings: &mut TopicSettings, persisted: bool) {
    if persisted {
        settings.durability = Some(Durability::Always);
    }
}

/// The share of one partition, rounded up.
fn share(size: u64, partitions: u32) -> Option<Option<u64>> {
    match size {
        DEFAULT => None,
        UNLIMITED => Some(None),
        bytes => Some(Some(bytes.div_ceil(u64::from(partitions.max(1))))),
    }
}

/// The expiry of a topic in microseconds.
pub(super) fn expiry_of(settings: &TopicSettings) -> u64 {
    match settings.retention {
        None => DEFAULT,
        Some(None) => UNLIMITED,
        Some(Some(retention)) => u64::try_from(retention.as_micros()).unwrap_or(UNLIMITED),
    }
}

/// The size of a topic: that of a partition, as often as there are partitions.
pub(super) fn size_of(settings: &TopicSettings, partitions: u32) -> u64 {
    match settings.retention_bytes {
        None => DEFAULT,
        Some(None) => UNLIMITED,
        Some(Some(bytes)) => bytes.saturating_mul(u64::from(partitions)),
    }
}

/// A flush after each message is as good, and is how the Kafka side says it.
fn is_persisted(settings: &TopicSettings) -> bool {
    settings.durability == Some(Durability::Always) || settings.flush_messages == Some(1)
}

/// What was set on a topic, as options.
pub(super) fn explicit(settings: &TopicSettings, partitions: u32) -> WireOptions {
    let mut block = BytesMut::new();
    let number = |number: u64| number.to_le_bytes().to_vec();
    let values = [
        (EXPIRY, UINT64, settings.retention.map(|_| number(expiry_of(settings)))),
        (SIZE, UINT64, settings.retention_bytes.map(|_| number(size_of(settings, partitions)))),
        (SEGMENT, UINT64, settings.segment_bytes.map(number)),
        (DURABILITY, STRING, is_persisted(settings).then(|| b"persisted".to_vec())),
    ];
    for (key, kind, value) in values {
        if let Some(value) = value {
            put(&mut block, STRING, key.as_bytes());
            put(&mut block, kind, &value);
        }
    }
    WireOptions::from_validated(block.freeze())
}

fn put(block: &mut BytesMut, kind: u8, bytes: &[u8]) {
    block.put_u8(kind);
    block.put_u32_le(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    block.put_slice(bytes);
}

/// A value as it was sent: typed, or as text.
struct Value<'a> {
    kind: u8,
    bytes: &'a [u8],
}

impl<'a> Value<'a> {
    fn text(&self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes).ok().filter(|_| self.kind == STRING)
    }

    fn word(&self, words: &[&'static str]) -> Option<&'static str> {
        let text = self.text()?.to_ascii_lowercase();
        words.iter().find(|word| **word == text).copied()
    }

    fn flag(&self) -> Option<bool> {
        match (self.kind, self.bytes) {
            (BOOL, [byte @ (0 | 1)]) => Some(*byte == 1),
            _ => self.text()?.parse().ok(),
        }
    }

    fn number(&self, kind: u8) -> Option<u64> {
        if self.kind != kind {
            return self.text()?.parse().ok();
        }
        match kind {
            UINT32 => self.bytes.try_into().ok().map(|bytes| u64::from(u32::from_le_bytes(bytes))),
            _ => self.bytes.try_into().ok().map(u64::from_le_bytes),
        }
    }

    fn expiry(&self) -> Option<Option<Option<Duration>>> {
        let micros = match self.text() {
            Some("unlimited" | "none" | "never_expire") => UNLIMITED,
            Some("default" | "server_default") => DEFAULT,
            Some(text) => u64::try_from(humantime::parse_duration(text).ok()?.as_micros()).ok()?,
            None => self.number(UINT64)?,
        };
        Some(match micros {
            DEFAULT => None,
            UNLIMITED => Some(None),
            micros => Some(Some(Duration::from_micros(micros))),
        })
    }

    fn size(&self) -> Option<u64> {
        match self.text() {
            Some("unlimited") => Some(UNLIMITED),
            Some("server_default") => Some(DEFAULT),
            Some(text) => byte_size(text),
            None => self.number(UINT64),
        }
    }

    /// 0 is the store's own size.
    fn segment(&self) -> Option<Option<u64>> {
        let bytes = self.size()?;
        let fits = (SEGMENT_MIN..=SEGMENT_MAX).contains(&bytes) && bytes.is_multiple_of(SEGMENT_STEP);
        if bytes == DEFAULT { Some(None) } else { fits.then_some(Some(bytes)) }
    }
}

/// A number of bytes with or without a unit.
fn byte_size(text: &str) -> Option<u64> {
    const UNITS: &[(&str, u64)] = &[
        ("", 1),
        ("b", 1),
        ("kb", 1_000),
        ("mb", 1_000_000),
        ("gb", 1_000_000_000),
        ("tb", 1_000_000_000_000),
        ("kib", 1 << 10),
        ("mib", 1 << 20),
        ("gib", 1 << 30),
        ("tib", 1 << 40),
    ];
    let text = text.trim();
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    let unit = unit.trim().to_ascii_lowercase();
    let factor = UNITS.iter().find(|(name, _)| *name == unit)?.1;
    number.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests;
