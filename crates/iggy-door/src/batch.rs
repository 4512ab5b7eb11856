//! Messages of the protocol to frames of the store, and back.
//!
//! On the wire a batch is a header of 256 bytes and messages, each with a header of 48 bytes that holds its distance from
//! the batch in offset and time, and a checksum. In the store a message has a header of 32 bytes with its own time. Id,
//! payload and user headers are the same bytes on both sides.

use bytes::{BufMut, Bytes, BytesMut};
use iggy_binary_protocol::WireError;
use iggy_binary_protocol::batch::{
    BATCH_HEADER_SIZE, BATCH_MESSAGE_HEADER_SIZE, BatchHeader, BatchRef, MAX_TIMESTAMP_DELTA_MICROS,
    calculate_batch_checksum, decode_batch_slice,
};
use milena_store::frame::{FRAME_HEADER_BYTES, Frame, Frames, frame_header};
use milena_store::{AppendBatch, Entry};
use xxhash_rust::xxh3::xxh3_64;

use crate::codes::{Code, Refusal};
use crate::limits::{HEADERS_BYTES_MAX, PAYLOAD_BYTES_MAX};

/// Reads the batch of a send, which must fill `bytes` and hold `count` messages, with all its checksums.
///
/// # Errors
/// The code that says what is wrong with it.
pub fn decode(bytes: &[u8], count: u32) -> Result<AppendBatch, Refusal> {
    let batch = decode_batch_slice(bytes).map_err(|error| Refusal::Denied(code_of(&error)))?;
    let whole = batch.header.batch_length == bytes.len() as u64;
    if !whole || count == 0 || batch.message_count() != count {
        return Err(Refusal::Denied(Code::INVALID_COMMAND));
    }
    to_frames(&batch)
}

fn code_of(error: &WireError) -> Code {
    match error {
        WireError::InvalidBatchChecksum { .. } => Code::INVALID_BATCH_CHECKSUM,
        WireError::InvalidMessageChecksum { .. } => Code::INVALID_MESSAGE_CHECKSUM,
        WireError::InvalidMessageTimestampDelta(_) => Code::INVALID_TIMESTAMP_DELTA,
        _ => Code::INVALID_COMMAND,
    }
}

fn to_frames(batch: &BatchRef<'_>) -> Result<AppendBatch, Refusal> {
    let denied = |code| Err(Refusal::Denied(code));
    // A message of the store is smaller than one on the wire.
    let mut frames = Vec::with_capacity(batch.blob().len());
    let (mut timed_min, mut timed_max, mut has_untimed) = (u64::MAX, 0, false);
    for (index, message) in (0u32..).zip(batch) {
        let (payload, headers) = (message.payload, message.user_headers);
        if payload.is_empty() {
            return denied(Code::EMPTY_PAYLOAD);
        }
        if payload.len() > PAYLOAD_BYTES_MAX {
            return denied(Code::TOO_BIG_PAYLOAD);
        }
        if headers.len() > HEADERS_BYTES_MAX {
            return denied(Code::TOO_BIG_HEADERS);
        }
        let origin = batch.header.origin_timestamp.checked_add(u64::from(message.header.timestamp_delta));
        let Some(origin) = origin.filter(|_| message.header.offset_delta == index) else {
            return denied(Code::INVALID_COMMAND);
        };
        if origin == 0 {
            has_untimed = true;
        } else {
            timed_min = timed_min.min(origin);
            timed_max = timed_max.max(origin);
        }
        let (payload_length, headers_length) = (message.header.payload_length, message.header.user_headers_length);
        frames.extend_from_slice(&frame_header(message.header.id, origin, payload_length, headers_length));
        frames.extend_from_slice(payload);
        frames.extend_from_slice(headers);
    }
    Ok(AppendBatch {
        frames: Bytes::from(frames),
        count: batch.message_count(),
        origin_min_micros: if timed_max == 0 { 0 } else { timed_min },
        origin_max_micros: timed_max,
        has_untimed,
        producer: None,
    })
}

/// What a poll may still return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Messages.
    pub messages: u32,
    /// Bytes, with all headers. The first message of a poll is returned whatever its size.
    pub bytes: usize,
}

/// What [`encode`] wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Written {
    /// Messages.
    pub messages: u32,
    /// Offset of the last of them.
    pub last_offset: u64,
    /// True when there was no room for a message that is there.
    pub full: bool,
}

/// Writes the messages of `entry` from offset `from` on as batches of the protocol.
///
/// The append time of an entry is that of its batches. An entry whose messages' origin times lie further apart than one
/// batch can say, which no Iggy client writes but Kafka clients do, becomes several batches.
pub fn encode(to: &mut BytesMut, partition: u32, entry: &Entry, from: u64, room: Room, first: bool) -> Written {
    let mut written = Written::default();
    let mut left = room;
    let mut run = Run::default();
    let messages = (entry.base_offset..).zip(Frames::new(&entry.frames)).skip_while(|(offset, _)| *offset < from);
    for (offset, frame) in messages {
        let is_first = first && written.messages == 0;
        let fits_run = run.takes(&frame);
        let header = if fits_run { 0 } else { BATCH_HEADER_SIZE };
        let bytes = header + BATCH_MESSAGE_HEADER_SIZE + frame.payload.len() + frame.headers.len();
        if left.messages == 0 || (bytes > left.bytes && !is_first) {
            written.full = true;
            break;
        }
        if !fits_run {
            run.write(to, partition, entry.append_time_micros);
            run = Run::default();
        }
        run.add(offset, frame);
        left = Room { messages: left.messages - 1, bytes: left.bytes.saturating_sub(bytes) };
        written.messages += 1;
        written.last_offset = offset;
    }
    run.write(to, partition, entry.append_time_micros);
    written
}

/// Messages that one batch can hold.
#[derive(Default)]
struct Run<'a> {
    base_offset: u64,
    origin_min: u64,
    origin_max: u64,
    frames: Vec<Frame<'a>>,
}

impl<'a> Run<'a> {
    fn takes(&self, frame: &Frame<'_>) -> bool {
        let min = self.origin_min.min(frame.origin_micros);
        let max = self.origin_max.max(frame.origin_micros);
        !self.frames.is_empty() && max - min <= MAX_TIMESTAMP_DELTA_MICROS
    }

    fn add(&mut self, offset: u64, frame: Frame<'a>) {
        if self.frames.is_empty() {
            self.base_offset = offset;
            self.origin_min = frame.origin_micros;
        }
        self.origin_min = self.origin_min.min(frame.origin_micros);
        self.origin_max = self.origin_max.max(frame.origin_micros);
        self.frames.push(frame);
    }

    fn write(&self, to: &mut BytesMut, partition: u32, append_time_micros: u64) {
        let Ok(count) = u32::try_from(self.frames.len()) else { return };
        if count == 0 {
            return;
        }
        let header_at = to.len();
        to.put_bytes(0, BATCH_HEADER_SIZE);
        let blob_at = to.len();
        for (index, frame) in (0u32..).zip(&self.frames) {
            write_message(to, index, frame, self.origin_min);
        }
        let length = (to.len() - header_at) as u64;
        let mut header = BatchHeader::new(u64::from(partition), self.origin_min, length, count);
        header.base_offset = self.base_offset;
        header.base_timestamp = append_time_micros;
        header.batch_checksum = calculate_batch_checksum(&header, to.get(blob_at..).unwrap_or_default());
        if let Some(place) = to.get_mut(header_at..blob_at) {
            header.encode_into(place);
        }
    }
}

fn write_message(to: &mut BytesMut, index: u32, frame: &Frame<'_>, origin_min: u64) {
    let at = to.len();
    to.reserve(BATCH_MESSAGE_HEADER_SIZE + frame.encoded_len() - FRAME_HEADER_BYTES);
    to.put_u64_le(0);
    to.put_u128_le(frame.id);
    to.put_u32_le(index);
    // A run holds what fits.
    to.put_u32_le(u32::try_from(frame.origin_micros.saturating_sub(origin_min)).unwrap_or(u32::MAX));
    // Lengths came from 32 bits.
    to.put_u32_le(u32::try_from(frame.headers.len()).unwrap_or(u32::MAX));
    to.put_u32_le(u32::try_from(frame.payload.len()).unwrap_or(u32::MAX));
    to.put_u64_le(0);
    to.put_slice(frame.payload);
    to.put_slice(frame.headers);
    let checksum = to.get(at + 8..).map_or(0, xxh3_64);
    if let Some(place) = to.get_mut(at..at + 8) {
        place.copy_from_slice(&checksum.to_le_bytes());
    }
}

#[cfg(test)]
mod tests;
