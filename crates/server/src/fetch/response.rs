//! The response frame of Fetch, versions 4 to 17.
//!
//! Written here and not through the schema crate, because that puts the whole frame together in one buffer, and megabytes
//! of fresh memory cost more than encoding the records did: here they go to the socket from where they were encoded, as
//! pieces of the frame. A test compares every version with the schema crate, byte for byte.

use bytes::{BufMut, Bytes};
use milena_wire::WireError;
use milena_wire::kafka_protocol::ResponseError;

use super::arena::Frozen;
use super::reader::Answer;
use super::want::{TopicKey, Want};

/// First version whose strings, arrays and bytes are compact and that has tagged fields.
const FLEXIBLE: i16 = 12;
/// First version that names topics by id.
const BY_ID: i16 = 13;
/// First version with an error code and a session id of the whole response.
const SESSIONS: i16 = 7;
/// First version with a log start offset.
const LOG_START: i16 = 5;
/// First version that tells where a replica's log diverges, in a tagged field.
const DIVERGING: i16 = FLEXIBLE;
/// Bytes of that field: epoch, offset, and no tagged fields of its own.
const DIVERGING_BYTES: u8 = 4 + 8 + 1;
/// First version with a preferred read replica.
const PREFERRED_REPLICA: i16 = 11;

/// Bytes of a partition beside its records, at most.
const PARTITION_BYTES: usize = 48;

/// Records of a partition up to this size are copied into the frame: to hand them on as a piece of their own costs more.
const COPIED_BYTES_MAX: usize = 2048;

/// What stands in front of the partitions.
#[derive(Debug, Clone, Copy)]
pub struct Head {
    /// Version of the request.
    pub version: i16,
    /// Correlation id of the request.
    pub correlation_id: i32,
    /// Error of the whole request, 0 none.
    pub error_code: i16,
    /// Session id, 0 none.
    pub session_id: i32,
    /// True when the client reads committed records only: it then gets a list of aborted transactions, which is empty.
    /// For others the list is null but for partitions that are not known, as Kafka does.
    pub read_committed: bool,
}

/// A whole response frame, length prefix included, in pieces. `partitions` are the answers to write, in order; neighbours
/// of one topic share its entry.
///
/// # Errors
/// When the frame passes 2 GiB.
pub fn write_frame(head: &Head, partitions: &[(&Want, &Answer)], records: &Frozen) -> Result<Vec<Bytes>, WireError> {
    let runs: Vec<&[(&Want, &Answer)]> =
        partitions.chunk_by(|(left, _), (right, _)| left.key.topic == right.key.topic).collect();
    let names: usize = runs.iter().filter_map(|run| run.first()).map(|(want, _)| topic_bytes(want)).sum();
    let sizes = partitions.iter().map(|(_, answer)| answer.records.len());
    let copied: usize = sizes.filter(|size| *size <= COPIED_BYTES_MAX).sum();
    let mut frame = Frame {
        out: Vec::with_capacity(32 + names + partitions.len() * PARTITION_BYTES + copied),
        between: Vec::new(),
        records_bytes: 0,
        version: head.version,
        flexible: head.version >= FLEXIBLE,
    };
    frame.out.put_i32(0);
    frame.out.put_i32(head.correlation_id);
    frame.tags();
    frame.out.put_i32(0); // throttle time
    if head.version >= SESSIONS {
        frame.out.put_i16(head.error_code);
        frame.out.put_i32(head.session_id);
    }
    frame.length(runs.len());
    for run in runs {
        frame.topic(run, head.read_committed, records);
    }
    frame.tags();
    frame.finish()
}

fn topic_bytes(want: &Want) -> usize {
    match &want.key.topic {
        TopicKey::Name(name) => name.len() + 12,
        TopicKey::Id(_) => 16 + 12,
    }
}

struct Frame {
    /// All of the frame but the records that are pieces of their own.
    out: Vec<u8>,
    /// Those records, and how much of `out` comes before them.
    between: Vec<(usize, Bytes)>,
    /// Bytes of those records.
    records_bytes: usize,
    version: i16,
    flexible: bool,
}

impl Frame {
    fn topic(&mut self, run: &[(&Want, &Answer)], read_committed: bool, records: &Frozen) {
        match run.first().map(|(want, _)| &want.key.topic) {
            Some(TopicKey::Name(name)) if self.version < BY_ID => self.string(name),
            Some(TopicKey::Id(id)) if self.version >= BY_ID => self.out.put_slice(id.as_bytes()),
            // A session is by name or by id, and the version was checked against it: nothing else comes here.
            _ if self.version >= BY_ID => self.out.put_slice(&[0; 16]),
            _ => self.string(""),
        }
        self.length(run.len());
        for (want, answer) in run {
            self.partition(want, answer, read_committed, records);
        }
        self.tags();
    }

    fn partition(&mut self, want: &Want, answer: &Answer, read_committed: bool, records: &Frozen) {
        self.out.put_i32(want.key.partition);
        self.out.put_i16(answer.error.map_or(0, |error| error.code()));
        self.out.put_i64(answer.high_watermark);
        // The last stable offset: without transactions everything is stable.
        self.out.put_i64(answer.high_watermark);
        if self.version >= LOG_START {
            self.out.put_i64(answer.log_start);
        }
        // What is not known has an empty list in Kafka's answers, whatever was asked for.
        let unknown =
            matches!(answer.error, Some(ResponseError::UnknownTopicOrPartition | ResponseError::UnknownTopicId));
        if read_committed || unknown {
            self.length(0);
        } else {
            self.null_array();
        }
        if self.version >= PREFERRED_REPLICA {
            self.out.put_i32(-1);
        }
        self.length(answer.records.len());
        let records = records.get(&answer.records);
        if records.len() > COPIED_BYTES_MAX {
            self.records_bytes += records.len();
            self.between.push((self.out.len(), records));
        } else {
            self.out.put_slice(&records);
        }
        match answer.diverging {
            Some((epoch, end)) if self.version >= DIVERGING => {
                // One tagged field, number 0, its length.
                self.out.put_slice(&[1, 0, DIVERGING_BYTES]);
                self.out.put_i32(epoch);
                self.out.put_i64(end);
                self.tags();
            }
            _ => self.tags(),
        }
    }

    /// Length of an array or of bytes.
    fn length(&mut self, length: usize) {
        if self.flexible {
            self.unsigned_varint(length + 1);
        } else {
            // A length that does not fit belongs to a frame that `finish` refuses.
            self.out.put_i32(i32::try_from(length).unwrap_or(i32::MAX));
        }
    }

    fn null_array(&mut self) {
        if self.flexible { self.out.put_u8(0) } else { self.out.put_i32(-1) }
    }

    fn string(&mut self, text: &str) {
        if self.flexible {
            self.unsigned_varint(text.len() + 1);
        } else {
            // The name came as a string of the same layout, so its length fits.
            self.out.put_i16(i16::try_from(text.len()).unwrap_or(i16::MAX));
        }
        self.out.put_slice(text.as_bytes());
    }

    fn unsigned_varint(&mut self, mut value: usize) {
        while value >= 0x80 {
            self.out.put_u8(u8::try_from(value & 0x7F).unwrap_or_default() | 0x80);
            value >>= 7;
        }
        self.out.put_u8(u8::try_from(value).unwrap_or_default());
    }

    fn tags(&mut self) {
        if self.flexible {
            self.out.put_u8(0);
        }
    }

    fn finish(mut self) -> Result<Vec<Bytes>, WireError> {
        let length = self.out.len() - 4 + self.records_bytes;
        let length = i32::try_from(length).map_err(|_| WireError::Encode("over 2 GiB".to_owned()))?;
        if let Some(prefix) = self.out.first_chunk_mut::<4>() {
            *prefix = length.to_be_bytes();
        }
        let mut out = Bytes::from(self.out);
        let mut pieces = Vec::with_capacity(self.between.len() * 2 + 1);
        let mut written = 0;
        for (before, records) in self.between {
            pieces.push(out.split_to(before - written));
            pieces.push(records);
            written = before;
        }
        pieces.push(out);
        Ok(pieces)
    }
}

#[cfg(test)]
#[path = "response_tests.rs"]
mod tests;
