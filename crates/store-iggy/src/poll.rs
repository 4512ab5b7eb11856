//! The reply to a poll, as entries.
//!
//! The reply is a stream of batches as they are stored; the first and the last may be cut at message boundaries. Each
//! batch has one append time, so what is taken of it becomes one entry. Every message's checksum is verified: the
//! server passes on what is in its files.

use bytes::Bytes;
use iggy_binary_protocol::batch::{BatchIntegrity, BatchRef, decode_batch_slice_with};
use iggy_binary_protocol::codec::WireDecode;
use iggy_binary_protocol::responses::messages::PollMessagesResponseHeader;
use milena_store::frame::{FRAME_HEADER_BYTES, frame_header};
use milena_store::{Entry, ReadLimit};
use xxhash_rust::xxh3::xxh3_64;

/// One message, however large.
pub(crate) const ONE: ReadLimit = ReadLimit { bytes: 0, at_least_one: true };

/// Bytes of a reply before its batches.
const PREFIX_BYTES: usize = 16;

/// A reply, decoded.
#[derive(Debug, Default)]
pub(crate) struct Polled {
    /// Consecutive messages.
    pub(crate) entries: Vec<Entry>,
    /// Offset of the last message of the partition; 0 also when it never had one, and when it could not be read.
    pub(crate) current_offset: u64,
    /// Offset of the first message in the reply that is not below the wanted one, whether or not the limit allows it.
    pub(crate) first: Option<u64>,
    /// Messages and frame bytes in the reply, also what was left over: the size of messages is learned from them.
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// Frame bytes of the largest of them.
    pub(crate) largest: u64,
    /// Why the reply cannot be read any further, if that is so.
    pub(crate) damage: Option<String>,
    /// True when messages of the reply were left out because of the limit.
    pub(crate) cut: bool,
}

impl Polled {
    /// True when the reply says that the partition ends there or later. A fault of the server's disk, a read that had to wait
    /// too long and a partition that is still being built are answered like an empty partition, but name no end.
    pub(crate) fn names_end(&self, end: u64) -> bool {
        self.damage.is_none() && self.current_offset.saturating_add(1) >= end
    }
}

/// Where an entry's frames lie in the block.
struct Run {
    base_offset: u64,
    count: u32,
    append_time_micros: u64,
    start: usize,
}

struct Builder {
    from: u64,
    limit: ReadLimit,
    block: Vec<u8>,
    runs: Vec<Run>,
    next: Option<u64>,
    polled: Polled,
}

/// Decodes the reply to a poll for messages from `from` on, up to `limit`.
pub(crate) fn decode(body: &Bytes, from: u64, limit: ReadLimit) -> Polled {
    let capacity = body.len().min(limit.bytes.saturating_add(FRAME_HEADER_BYTES));
    let (Some(mut rest), Ok((header, _))) = (body.get(PREFIX_BYTES..), PollMessagesResponseHeader::decode(body)) else {
        return Polled { damage: Some("the reply to a poll is too short".to_owned()), ..Polled::default() };
    };
    let polled = Polled { current_offset: header.current_offset, ..Polled::default() };
    let mut builder =
        Builder { from, limit, block: Vec::with_capacity(capacity), runs: Vec::new(), next: None, polled };
    while !rest.is_empty() && builder.polled.damage.is_none() {
        match decode_batch_slice_with(rest, BatchIntegrity::LayoutOnly) {
            Ok(batch) => {
                builder.batch(&batch);
                rest = rest.get(batch.header.total_size()..).unwrap_or_default();
            }
            Err(error) => builder.polled.damage = Some(format!("a batch cannot be read: {error}")),
        }
    }
    builder.finish()
}

impl Builder {
    fn batch(&mut self, batch: &BatchRef<'_>) {
        let header = &batch.header;
        let mut fresh = true;
        for framed in batch.iter_with_offsets() {
            let message = framed.message;
            let offset = header.base_offset.saturating_add(u64::from(message.header.offset_delta));
            let size = FRAME_HEADER_BYTES + message.payload.len() + message.user_headers.len();
            self.polled.messages += 1;
            self.polled.bytes += size as u64;
            self.polled.largest = self.polled.largest.max(size as u64);
            if offset < self.from || self.polled.cut {
                continue;
            }
            self.polled.first.get_or_insert(offset);
            let hashed = batch.blob().get(framed.start + size_of::<u64>()..framed.end).unwrap_or_default();
            if xxh3_64(hashed) != message.header.checksum {
                self.polled.damage = Some(format!("the checksum of the message at offset {offset} is wrong"));
                return;
            }
            if self.next.is_some_and(|next| next != offset) {
                self.polled.damage = Some(format!("the reply to a poll has a gap before offset {offset}"));
                return;
            }
            if self.block.len() + size > self.limit.bytes && !(self.block.is_empty() && self.limit.at_least_one) {
                self.polled.cut = true;
                continue;
            }
            if fresh {
                let (start, append_time_micros) = (self.block.len(), header.base_timestamp);
                self.runs.push(Run { base_offset: offset, count: 0, append_time_micros, start });
                fresh = false;
            }
            let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let origin = header.origin_timestamp.saturating_add(u64::from(message.header.timestamp_delta));
            let (payload, headers) = (message.payload, message.user_headers);
            self.block.extend_from_slice(&frame_header(message.header.id, origin, length(payload), length(headers)));
            self.block.extend_from_slice(payload);
            self.block.extend_from_slice(headers);
            if let Some(run) = self.runs.last_mut() {
                run.count += 1;
            }
            self.next = Some(offset.saturating_add(1));
        }
    }

    fn finish(self) -> Polled {
        let block = Bytes::from(self.block);
        let ends = self.runs.iter().skip(1).map(|run| run.start).chain([block.len()]).collect::<Vec<_>>();
        let entries = self.runs.iter().zip(ends).map(|(run, end)| Entry {
            base_offset: run.base_offset,
            count: run.count,
            append_time_micros: run.append_time_micros,
            frames: block.slice(run.start..end),
        });
        Polled { entries: entries.collect(), ..self.polled }
    }
}

#[cfg(test)]
mod tests;
