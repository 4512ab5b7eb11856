//! Compression, for consumers of topics with a `compression.type` and for the client side.

use std::io::Write;

use crate::compress::{Codec, lz4_high};

/// Block size of the xerial framing as snappy-java writes it.
const XERIAL_BLOCK_BYTES: usize = 32 * 1024;
const XERIAL_HEADER: [u8; 16] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1];
/// The level of the reference command line: faster ones hardly are, on records.
const ZSTD_LEVEL: i32 = 3;
/// Higher levels of zstd look further back than 4 MiB, and need memory of 20 times that: a gigabyte, for the largest answers.
const ZSTD_WIDE_LEVEL: i32 = 16;
/// 4 MiB, more than which a usual answer does not have.
const ZSTD_WINDOW_LOG_MAX: u32 = 22;
/// What asks gzip for its own default level.
const GZIP_DEFAULT: i32 = -1;
/// The level at which Kafka writes lz4 with the fast compressor, whose name it is; all others search (KIP-390).
const LZ4_FAST: i32 = 9;

/// A codec, and how much work it puts into small output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compression {
    /// The codec.
    pub codec: Codec,
    /// Its level, as `compression.<codec>.level` numbers it: gzip -1 and 1 to 9, lz4 1 to 17, zstd -131072 to 22.
    /// `None` is the codec's default; snappy has no levels.
    pub level: Option<i32>,
}

impl Compression {
    /// No compression.
    pub const NONE: Self = Self { codec: Codec::None, level: None };

    /// True when the level is one that takes no longer than usual.
    #[must_use]
    pub fn is_usual(self) -> bool {
        let Some(level) = self.level else { return true };
        match self.codec {
            Codec::None | Codec::Snappy => true,
            Codec::Gzip => level <= 6,
            Codec::Lz4 => level == LZ4_FAST || level <= 4,
            Codec::Zstd => level <= ZSTD_LEVEL,
        }
    }
}

impl From<Codec> for Compression {
    fn from(codec: Codec) -> Self {
        Self { codec, level: None }
    }
}

/// Compresses `records`; `None` for [`Codec::None`], or when the codec fails, which leaves them as they are.
///
/// snappy comes in the framing of snappy-java and lz4 in independent blocks of 64 KiB, the forms every client reads. A
/// level outside of its codec's range counts as the nearest in it.
#[must_use]
pub fn compress(compression: impl Into<Compression>, records: &[u8]) -> Option<Vec<u8>> {
    let Compression { codec, level } = compression.into();
    match codec {
        Codec::None => None,
        Codec::Gzip => {
            let level = level.filter(|level| *level != GZIP_DEFAULT).map(|level| level.clamp(1, 9).unsigned_abs());
            let level = level.map_or_else(flate2::Compression::default, flate2::Compression::new);
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(records).ok()?;
            encoder.finish().ok()
        }
        Codec::Snappy => snappy(records),
        Codec::Lz4 => match level {
            None | Some(LZ4_FAST) => lz4_fast(records),
            Some(level) => Some(lz4_high::compress(records, level.max(1).unsigned_abs())),
        },
        Codec::Zstd => {
            let levels = zstd::compression_level_range();
            zstd_at(level.unwrap_or(ZSTD_LEVEL).clamp(*levels.start(), *levels.end()), records)
        }
    }
}

fn zstd_at(level: i32, records: &[u8]) -> Option<Vec<u8>> {
    let mut compressor = zstd::bulk::Compressor::new(level).ok()?;
    if level > ZSTD_WIDE_LEVEL {
        compressor.set_parameter(zstd::zstd_safe::CParameter::WindowLog(ZSTD_WINDOW_LOG_MAX)).ok()?;
    }
    compressor.compress(records).ok()
}

fn lz4_fast(records: &[u8]) -> Option<Vec<u8>> {
    let info = lz4_flex::frame::FrameInfo::new()
        .block_size(lz4_flex::frame::BlockSize::Max64KB)
        .block_mode(lz4_flex::frame::BlockMode::Independent);
    let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(records).ok()?;
    encoder.finish().ok()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::{Budget, Decoders};

    fn lines() -> Vec<u8> {
        let line =
            |n: u32| format!("{{\"id\":{},\"user\":\"user-{}\",\"path\":\"/api/{}\"}}\n", n * 7919, n % 17, n % 5);
        (0..3_000).flat_map(|n| line(n).into_bytes()).collect()
    }

    fn size(codec: Codec, level: Option<i32>) -> usize {
        let plain = lines();
        let compressed = compress(Compression { codec, level }, &plain).unwrap();
        let (mut back, mut budget) = (Vec::new(), Budget::new(1 << 24));
        Decoders::default().decompress(codec, &compressed, 1, &mut budget, &mut back).unwrap();
        assert_eq!(back, plain, "{codec:?} {level:?}");
        compressed.len()
    }

    #[test]
    fn every_codec_comes_back_at_the_ends_of_its_levels_and_beyond() {
        let levels = [i32::MIN, -131_072, -1, 0, 1, 9, 17, 22, i32::MAX];
        for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            for level in levels.map(Some) {
                size(codec, level);
            }
        }
    }

    #[test]
    fn a_level_is_what_decides_on_the_size() {
        for (codec, low, high) in [(Codec::Gzip, 1, 9), (Codec::Lz4, 1, 12), (Codec::Zstd, -50, 19)] {
            assert!(size(codec, Some(high)) < size(codec, Some(low)), "{codec:?}");
        }
    }

    #[test]
    fn without_a_level_a_codec_has_the_one_that_kafka_gives_it() {
        for (codec, level) in [(Codec::Gzip, -1), (Codec::Gzip, 6), (Codec::Lz4, 9), (Codec::Zstd, 3)] {
            assert_eq!(size(codec, None), size(codec, Some(level)), "{codec:?}");
        }
    }

    #[test]
    fn levels_that_take_longer_are_told_from_usual_ones() {
        let usual = |codec, level| Compression { codec, level: Some(level) }.is_usual();
        assert!(usual(Codec::Gzip, -1) && usual(Codec::Lz4, 9) && usual(Codec::Zstd, 3) && usual(Codec::Snappy, 9));
        assert!(!usual(Codec::Gzip, 9) && !usual(Codec::Lz4, 10) && !usual(Codec::Zstd, 4));
    }
}
