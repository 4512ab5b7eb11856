//! Settings of a topic as the server's options, and back.
//!
//! Servers of one protocol generation differ in the options that a topic can be created with, and refuse what they do
//! not know. So the server is asked for its keys once, and only those are sent.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use iggy_binary_protocol::WireOptions;
use iggy_common::{
    Durability as Policy, HeaderKey, IggyByteSize, IggyDuration, IggyError, IggyExpiry, MaxTopicSize, OptionSpec,
    ResourceOptions, TopicCreateOptions, TopicUpdateOptions,
};
use milena_store::{Durability, INTERNAL_STREAM, TopicSettings};

use crate::config::AckDurability;
use crate::limits;

const DURABILITY: &str = "durability";
const ENFORCE_FSYNC: &str = "enforce_fsync";
const MESSAGES_REQUIRED_TO_SAVE: &str = "messages_required_to_save";
const SEGMENT_SIZE: &str = "segment_size";

/// Segments of Milena's own topics: small, so that what a snapshot stands for can be removed.
const STATE_SEGMENT_BYTES: u64 = 16 << 20;

/// Largest expiry that a server takes, in seconds.
const EXPIRY_SECONDS_MAX: u64 = u32::MAX as u64;

/// The option keys that a server takes when a topic is created.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keys(HashSet<String>);

impl Keys {
    pub(crate) fn new(specs: &[OptionSpec]) -> Self {
        Self(specs.iter().map(|spec| spec.key.clone()).collect())
    }

    fn has(&self, key: &str) -> bool {
        self.0.contains(key)
    }

    /// True when this server can be told to keep acknowledged messages.
    pub(crate) fn can_persist(&self) -> bool {
        self.has(DURABILITY) || self.has(MESSAGES_REQUIRED_TO_SAVE)
    }
}

/// The options for a topic of `stream` that is created with `settings`.
///
/// # Errors
/// When the SDK cannot write them.
pub(crate) fn creation(
    stream: &str,
    partitions: u32,
    settings: &TopicSettings,
    default: AckDurability,
    keys: &Keys,
) -> Result<WireOptions, IggyError> {
    // Commits and the like of Milena's own survive the server also where records need not.
    let own = stream == INTERNAL_STREAM && default == AckDurability::Fast;
    let ack = ack_durability(settings, if own { AckDurability::Persisted } else { default });
    let mut raw = BTreeMap::new();
    if ack == AckDurability::Flushed && keys.has(ENFORCE_FSYNC) {
        raw.insert(ENFORCE_FSYNC.to_owned(), "true".to_owned());
    }
    let persisted = ack != AckDurability::Fast;
    let options = TopicCreateOptions {
        message_expiry: expiry(settings).filter(|_| keys.has("message_expiry")),
        max_topic_size: topic_size(settings, partitions).filter(|_| keys.has("max_topic_size")),
        segment_size: segment_bytes(stream, settings).filter(|_| keys.has(SEGMENT_SIZE)).map(IggyByteSize::from),
        durability: if persisted { Policy::Persisted } else { Policy::Replicated },
        messages_required_to_save: (persisted && keys.has(MESSAGES_REQUIRED_TO_SAVE) && !keys.has(DURABILITY))
            .then_some(1),
        raw,
        ..TopicCreateOptions::default()
    };
    options.to_explicit_wire(|key| key == DURABILITY && persisted && keys.has(DURABILITY))
}

/// The options that change a topic to `settings`: the server can change these two only.
pub(crate) fn update(partitions: u32, settings: &TopicSettings) -> TopicUpdateOptions {
    TopicUpdateOptions {
        message_expiry: expiry(settings),
        max_topic_size: topic_size(settings, partitions),
        ..TopicUpdateOptions::default()
    }
}

/// What an acknowledgement means for a topic of these settings.
pub(crate) fn ack_durability(settings: &TopicSettings, default: AckDurability) -> AckDurability {
    match settings.durability {
        None => default,
        Some(Durability::Os | Durability::Interval { .. }) => AckDurability::Persisted,
        Some(Durability::Always) => AckDurability::Flushed,
    }
}

fn expiry(settings: &TopicSettings) -> Option<IggyExpiry> {
    if settings.keep_forever {
        return Some(IggyExpiry::NeverExpire);
    }
    settings.retention.map(|retention| match retention {
        Some(age) if age.as_secs() < EXPIRY_SECONDS_MAX => {
            // The server reads 0 as its own default.
            IggyExpiry::ExpireDuration(IggyDuration::from(age.max(Duration::from_micros(1))))
        }
        Some(_) | None => IggyExpiry::NeverExpire,
    })
}

/// The server divides the size of a topic among its partitions, and counts none below one segment.
fn topic_size(settings: &TopicSettings, partitions: u32) -> Option<MaxTopicSize> {
    if settings.keep_forever {
        return Some(MaxTopicSize::Unlimited);
    }
    settings.retention_bytes.map(|bytes| match bytes {
        Some(bytes) => {
            let segment = clamped_segment(settings.segment_bytes.unwrap_or(limits::SEGMENT_BYTES_MAX));
            let topic = bytes.max(segment).saturating_mul(u64::from(partitions.max(1)));
            MaxTopicSize::Custom(IggyByteSize::from(topic.min(u64::MAX - 1)))
        }
        None => MaxTopicSize::Unlimited,
    })
}

fn segment_bytes(stream: &str, settings: &TopicSettings) -> Option<u64> {
    let own = (stream == INTERNAL_STREAM).then_some(STATE_SEGMENT_BYTES);
    settings.segment_bytes.or(own).map(clamped_segment)
}

fn clamped_segment(bytes: u64) -> u64 {
    let bytes = bytes.clamp(limits::SEGMENT_BYTES_MIN, limits::SEGMENT_BYTES_MAX);
    bytes - bytes % limits::SEGMENT_BYTES_STEP
}

/// What the server says of a topic's settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Facts {
    pub(crate) expiry: IggyExpiry,
    pub(crate) max_size: MaxTopicSize,
    pub(crate) partitions: u32,
    pub(crate) segment_bytes: Option<u64>,
    /// False when the server may acknowledge messages that it holds in memory only; `None` when it does not say.
    pub(crate) persists: Option<bool>,
}

impl Facts {
    pub(crate) fn new(expiry: IggyExpiry, max_size: MaxTopicSize, partitions: u32, options: &ResourceOptions) -> Self {
        let text = |key: &str| {
            let key: HeaderKey = key.parse().ok()?;
            Some(options.get(&key)?.value.to_string_value())
        };
        let number = |key: &str| text(key)?.parse::<u64>().ok();
        let persists = match (text(DURABILITY), number(MESSAGES_REQUIRED_TO_SAVE)) {
            (Some(policy), _) => Some(policy.eq_ignore_ascii_case("persisted")),
            (None, Some(messages)) => Some(messages <= 1),
            (None, None) => None,
        };
        Self { expiry, max_size, partitions, segment_bytes: number(SEGMENT_SIZE), persists }
    }

    /// The settings of this topic: those that were asked for through a gateway, as long as the server still has
    /// what follows from them; otherwise what the server says.
    pub(crate) fn settings(&self, recorded: Option<&TopicSettings>) -> TopicSettings {
        let Some(recorded) = recorded else { return self.derived() };
        let mut settings = recorded.clone();
        let derived = self.derived();
        if expiry(recorded).is_some_and(|wanted| wanted != self.expiry) {
            (settings.retention, settings.keep_forever) = (derived.retention, false);
        }
        if topic_size(recorded, self.partitions).is_some_and(|wanted| wanted != self.max_size) {
            (settings.retention_bytes, settings.keep_forever) = (derived.retention_bytes, false);
        }
        settings
    }

    fn derived(&self) -> TopicSettings {
        TopicSettings {
            retention: match self.expiry {
                IggyExpiry::ServerDefault => None,
                IggyExpiry::NeverExpire => Some(None),
                IggyExpiry::ExpireDuration(age) => Some(Some(age.get_duration())),
            },
            retention_bytes: match self.max_size {
                MaxTopicSize::ServerDefault => None,
                MaxTopicSize::Unlimited => Some(None),
                MaxTopicSize::Custom(bytes) => Some(Some(bytes.as_bytes_u64() / u64::from(self.partitions.max(1)))),
            },
            segment_bytes: self.segment_bytes,
            ..TopicSettings::default()
        }
    }
}

#[cfg(test)]
mod tests;
