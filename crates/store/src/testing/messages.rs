//! Blocks of messages for tests.

use bytes::Bytes;

use crate::frame::frame_header;
use crate::types::AppendBatch;

/// One message to put into a block.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TestMessage {
    /// Message id.
    pub id: u128,
    /// Origin timestamp in microseconds; 0 is none.
    pub origin_micros: u64,
    /// Payload.
    pub payload: Vec<u8>,
    /// User-header block, any bytes.
    pub headers: Vec<u8>,
}

impl TestMessage {
    /// A message with id `id` and payload `payload`, without time and headers.
    #[must_use]
    pub fn new(id: u128, payload: &[u8]) -> Self {
        Self { id, payload: payload.to_vec(), ..Self::default() }
    }

    /// The same message with an origin timestamp.
    #[must_use]
    pub fn at(self, origin_micros: u64) -> Self {
        Self { origin_micros, ..self }
    }
}

/// The block of `messages`, with its summary filled in.
#[must_use]
pub fn batch_of(messages: &[TestMessage]) -> AppendBatch {
    let mut frames = Vec::new();
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    for message in messages {
        let (payload, headers) = (&message.payload, &message.headers);
        frames.extend_from_slice(&frame_header(message.id, message.origin_micros, length(payload), length(headers)));
        frames.extend_from_slice(payload);
        frames.extend_from_slice(headers);
    }
    let timed = || messages.iter().map(|message| message.origin_micros).filter(|micros| *micros > 0);
    AppendBatch {
        frames: Bytes::from(frames),
        count: u32::try_from(messages.len()).unwrap_or(u32::MAX),
        origin_min_micros: timed().min().unwrap_or(0),
        origin_max_micros: timed().max().unwrap_or(0),
        has_untimed: messages.iter().any(|message| message.origin_micros == 0),
        producer: None,
    }
}
