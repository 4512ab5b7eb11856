//! Kafka record batch v2 to and from stored messages: bytes in, bytes out. No I/O, no store, no clock.
//!
//! One Kafka record is one stored message in the engine's own format, so that native and Kafka clients read what the
//! other side wrote. Produce: [`check_batch`] judges the bytes of one partition entry, [`map_batch`] writes its
//! records as a frame block. Fetch: [`encode_entries`] writes stored entries as record batches, whatever they hold.
//!
//! - [`batch`]: header of a batch, the checks in their order, [`Refusal`]
//! - [`compress`]: the four codecs under a [`Budget`], and compression for consumers
//! - [`produce`]: Kafka batch to frame block
//! - [`fetch`]: stored entries to Kafka batches
//! - [`user_headers`]: the raw user-header block and the `kafka.*` names in it
//! - [`envelope`]: the payload of records that a plain message cannot hold
//! - [`message_id`]: message ids that carry producer state
//! - [`client`]: the other side of the wire, for tools and tests
//!
//! It is not a general Kafka library: message sets of format 0 and 1, transactions and control records are refused.

pub mod batch;
mod bytes_out;
pub mod client;
pub mod compress;
pub mod envelope;
pub mod fetch;
#[doc(hidden)]
pub mod fuzzing;
pub mod message_id;
pub mod produce;
mod record;
mod stored;
pub mod user_headers;
mod varint;

pub use batch::{BatchHeader, BatchLimits, CheckedBatch, Refusal, check_batch, peek_producer_id};
pub use compress::{Budget, Codec, Compression};
pub use fetch::{Encoded, FetchOptions, TimestampType, encode_empty, encode_entries, record_timestamp_ms};
pub use message_id::{MessageIds, ProducerSequence};
pub use produce::{Mapped, ProduceRules, Scratch, map_batch};
