//! What the benches share: shapes of records, and the way of a batch through the mapping.

use bytes::Bytes;
use milena_records::client::{ProducerStamp, Record, build_batch};
use milena_records::{
    BatchLimits, Budget, Codec, FetchOptions, MessageIds, ProduceRules, ProducerSequence, Scratch, TimestampType,
    check_batch, encode_entries, map_batch,
};
use milena_store::Entry;

pub(crate) const BATCH_BYTES: usize = 1_000_000;

pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) value_len: usize,
    pub(crate) key_len: usize,
    pub(crate) headers: usize,
}

pub(crate) const SHAPES: [Shape; 4] = [
    Shape { name: "value_1024", value_len: 1024, key_len: 0, headers: 0 },
    Shape { name: "value_100", value_len: 100, key_len: 0, headers: 0 },
    Shape { name: "value_100_key_8", value_len: 100, key_len: 8, headers: 0 },
    Shape { name: "value_100_key_8_headers_3", value_len: 100, key_len: 8, headers: 3 },
];

pub(crate) fn records(shape: &Shape, count: usize) -> Vec<Record> {
    (0..count)
        .map(|index| Record {
            offset: 0,
            // A few records a millisecond, as from a busy producer.
            timestamp_ms: 1_700_000_000_000 + i64::try_from(index / 4).unwrap(),
            key: (shape.key_len != 0).then(|| format!("{index:0width$}", width = shape.key_len).into_bytes()),
            value: Some((0..shape.value_len).map(|at| b'a' + u8::try_from((at * 7 + index) % 26).unwrap()).collect()),
            headers: (0..shape.headers)
                .map(|header| (format!("header-{header}"), Some(format!("value-{header}-{index:06}").into_bytes())))
                .collect(),
        })
        .collect()
}

pub(crate) fn batch(shape: &Shape, count: usize, codec: Codec) -> Vec<u8> {
    let stamp = ProducerStamp { producer_id: 4711, epoch: 0, base_sequence: 0 };
    build_batch(&records(shape, count), codec, Some(stamp))
}

pub(crate) fn rules() -> ProduceRules {
    ProduceRules {
        timestamp_span_micros: Some(u64::from(u32::MAX)),
        payload_bytes_max: 64_000_000,
        header_bytes_max: 100_000,
        key_required: false,
        timestamps_ms: 0..=i64::MAX,
    }
}

/// Everything that is reused from batch to batch.
#[derive(Default)]
pub(crate) struct Buffers {
    pub(crate) scratch: Scratch,
    pub(crate) frames: Vec<u8>,
    pub(crate) response: Vec<u8>,
}

pub(crate) fn map(batch: &[u8], rules: &ProduceRules, buffers: &mut Buffers) -> u32 {
    let limits = BatchLimits { max_message_bytes: usize::MAX, zstd_allowed: true };
    let checked = check_batch(batch, &limits).unwrap();
    let ids = MessageIds::Producer(ProducerSequence {
        producer_id: checked.header.producer_id.cast_unsigned(),
        epoch: 0,
        sequence: 0,
    });
    buffers.frames.clear();
    let mut budget = Budget::new(64 << 20);
    map_batch(&checked, rules, ids, &mut budget, &mut buffers.scratch, &mut buffers.frames).unwrap().count
}

pub(crate) fn encode(count: u32, buffers: &mut Buffers, codec: Codec) -> usize {
    let frames = Bytes::from(std::mem::take(&mut buffers.frames));
    let entries = [Entry { base_offset: 1_000_000, count, append_time_micros: 1, frames }];
    let options = FetchOptions {
        from: 0,
        max_bytes: usize::MAX,
        at_least_one: true,
        timestamp_type: TimestampType::CreateTime,
        compression: codec.into(),
        leader_epoch: 0,
    };
    buffers.response.clear();
    let encoded = encode_entries(&entries, &options, &mut buffers.response);
    let [entry] = entries;
    buffers.frames = Vec::from(entry.frames);
    encoded.bytes
}
