//! Compression, for consumers of topics with a `compression.type` and for the client side.

use std::io::Write;

use crate::compress::Codec;

/// Block size of the xerial framing as snappy-java writes it.
const XERIAL_BLOCK_BYTES: usize = 32 * 1024;
const XERIAL_HEADER: [u8; 16] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1];
/// The level of the reference command line: faster ones hardly are, on records.
const ZSTD_LEVEL: i32 = 3;

/// Compresses `records`; `None` for [`Codec::None`], or when the codec fails, which leaves them as they are.
///
/// snappy comes in the framing of snappy-java and lz4 in independent blocks of 64 KiB, the forms every client reads.
#[must_use]
pub fn compress(codec: Codec, records: &[u8]) -> Option<Vec<u8>> {
    match codec {
        Codec::None => None,
        Codec::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(records).ok()?;
            encoder.finish().ok()
        }
        Codec::Snappy => snappy(records),
        Codec::Lz4 => {
            let info = lz4_flex::frame::FrameInfo::new()
                .block_size(lz4_flex::frame::BlockSize::Max64KB)
                .block_mode(lz4_flex::frame::BlockMode::Independent);
            let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
            encoder.write_all(records).ok()?;
            encoder.finish().ok()
        }
        Codec::Zstd => zstd::bulk::compress(records, ZSTD_LEVEL).ok(),
    }
}

fn snappy(records: &[u8]) -> Option<Vec<u8>> {
    let mut out = XERIAL_HEADER.to_vec();
    let mut encoder = snap::raw::Encoder::new();
    for block in records.chunks(XERIAL_BLOCK_BYTES) {
        let compressed = encoder.compress_vec(block).ok()?;
        out.extend_from_slice(&u32::try_from(compressed.len()).ok()?.to_be_bytes());
        out.extend_from_slice(&compressed);
    }
    Some(out)
}
