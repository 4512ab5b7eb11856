//! lz4 with a level: a slower search for longer matches, in the same format.
//!
//! The reference library's high compression is C that nobody wraps any more, and its format needs no more than a list
//! of literals and matches. Blocks are independent and of 64 KiB, as everywhere here, so that positions take 16 bits and a
//! block never looks outside of itself.

/// Shortest match that the format can say.
const MATCH_MIN: usize = 4;
/// A block ends with literals, so many at least (lz4 block format, "end of block conditions").
const LAST_LITERALS: usize = 5;
/// No match begins closer to the end of a block than this.
const MATCH_START_MARGIN: usize = 12;
/// Input of a block; the frame's header says the same.
const BLOCK_BYTES: usize = 64 * 1024;
const HASH_BITS: u32 = 15;
/// No position: a block has fewer.
const NONE: u32 = u32::MAX;
/// Magic, version 1 with independent blocks and no checksums, blocks of 64 KiB, and the header's own checksum.
const FRAME_HEADER: [u8; 7] = [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82];
/// A block that is stored as it is carries this bit in its length.
const STORED: u32 = 1 << 31;
/// Most candidates that are looked at for one match: beyond, records get hardly smaller and a block of repetitions
/// takes seconds.
const CANDIDATES_MAX: u32 = 1 << 10;

/// The candidates of a level, which doubles with each as in the reference library.
fn candidates(level: u32) -> u32 {
    1u32.checked_shl(level.saturating_sub(1)).unwrap_or(CANDIDATES_MAX).clamp(1, CANDIDATES_MAX)
}

/// A frame of `records`, at a level from 1 up.
pub(super) fn compress(records: &[u8], level: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(FRAME_HEADER.len() + records.len() / 2);
    out.extend_from_slice(&FRAME_HEADER);
    let mut finder = Finder::new(candidates(level));
    let mut block = Vec::new();
    for plain in records.chunks(BLOCK_BYTES) {
        block.clear();
        finder.block(plain, &mut block);
        // Neither is longer than 64 KiB and a little.
        let (bytes, flag) = if block.len() < plain.len() { (block.as_slice(), 0) } else { (plain, STORED) };
        let length = u32::try_from(bytes.len()).unwrap_or(0);
        out.extend_from_slice(&(length | flag).to_le_bytes());
        out.extend_from_slice(bytes);
    }
    out.extend_from_slice(&0u32.to_le_bytes());
    out
}

/// Earlier positions by the hash of their four bytes, and from each to the one before with the same hash.
struct Finder {
    newest: Vec<u32>,
    before: Vec<u32>,
    candidates: u32,
}

/// Where a match lies and how far it reaches.
#[derive(Clone, Copy, Default)]
struct Match {
    from: usize,
    len: usize,
}

impl Finder {
    fn new(candidates: u32) -> Self {
        Self { newest: vec![NONE; 1 << HASH_BITS], before: vec![NONE; BLOCK_BYTES], candidates }
    }

    fn block(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        self.newest.fill(NONE);
        let starts_end = plain.len().saturating_sub(MATCH_START_MARGIN);
        let (mut at, mut literals_from) = (0, 0);
        while at < starts_end {
            let mut found = self.find(plain, at);
            self.remember(plain, at);
            if found.len < MATCH_MIN {
                at += 1;
                continue;
            }
            // A match that begins one byte later is taken when it is longer by more than the literal costs.
            if at + 1 < starts_end {
                let later = self.find(plain, at + 1);
                if later.len > found.len + 1 {
                    at += 1;
                    self.remember(plain, at);
                    found = later;
                }
            }
            let literals = plain.get(literals_from..at).unwrap_or_default();
            put_sequence(out, literals, Some((at - found.from, found.len)));
            let end = at + found.len;
            for inside in at + 1..end.min(starts_end) {
                self.remember(plain, inside);
            }
            (at, literals_from) = (end, end);
        }
        put_sequence(out, plain.get(literals_from..).unwrap_or_default(), None);
    }

    /// The longest match at `at`, among the newest positions with the same hash.
    fn find(&self, plain: &[u8], at: usize) -> Match {
        let mut best = Match::default();
        let here = plain.get(at..plain.len() - LAST_LITERALS).unwrap_or_default();
        let mut from = slot(plain, at).and_then(|slot| self.newest.get(slot)).copied().unwrap_or(NONE);
        for _ in 0..self.candidates {
            if from == NONE {
                break;
            }
            let place = from as usize;
            let there = plain.get(place..).unwrap_or_default();
            // What does not differ at the end of the best one is worth a whole look.
            if there.get(best.len) == here.get(best.len) {
                let len = common(there, here);
                if len > best.len {
                    best = Match { from: place, len };
                }
            }
            if best.len == here.len() {
                break;
            }
            from = self.before.get(place).copied().unwrap_or(NONE);
        }
        best
    }

    fn remember(&mut self, plain: &[u8], at: usize) {
        let newest = slot(plain, at).and_then(|slot| self.newest.get_mut(slot));
        if let (Some(newest), Some(before)) = (newest, self.before.get_mut(at)) {
            *before = std::mem::replace(newest, u32::try_from(at).unwrap_or(NONE));
        }
    }
}

/// The place of the four bytes at `at` in the table.
fn slot(plain: &[u8], at: usize) -> Option<usize> {
    let four = plain.get(at..)?.first_chunk::<4>()?;
    Some((u32::from_le_bytes(*four).wrapping_mul(2_654_435_761) >> (32 - HASH_BITS)) as usize)
}

/// Length of the common beginning.
fn common(one: &[u8], other: &[u8]) -> usize {
    let mut len = 0;
    while let (Some(a), Some(b)) =
        (one.get(len..).and_then(<[u8]>::first_chunk::<8>), other.get(len..).and_then(<[u8]>::first_chunk::<8>))
    {
        let differs = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differs != 0 {
            return len + (differs.trailing_zeros() / 8) as usize;
        }
        len += 8;
    }
    let rest = one.get(len..).unwrap_or_default().iter().zip(other.get(len..).unwrap_or_default());
    len + rest.take_while(|(a, b)| a == b).count()
}

/// Literals, and a match behind them: its distance and length.
fn put_sequence(out: &mut Vec<u8>, literals: &[u8], matched: Option<(usize, usize)>) {
    let over = matched.map_or(0, |(_, len)| len - MATCH_MIN);
    let nibble = |len: usize| u8::try_from(len.min(15)).unwrap_or(15);
    out.push(nibble(literals.len()) << 4 | nibble(over));
    put_rest(out, literals.len());
    out.extend_from_slice(literals);
    if let Some((distance, _)) = matched {
        out.extend_from_slice(&u16::try_from(distance).unwrap_or(u16::MAX).to_le_bytes());
        put_rest(out, over);
    }
}

/// What of a length does not fit into the four bits of its token.
fn put_rest(out: &mut Vec<u8>, len: usize) {
    let Some(mut rest) = len.checked_sub(15) else { return };
    while rest >= 255 {
        out.push(255);
        rest -= 255;
    }
    out.push(u8::try_from(rest).unwrap_or(0));
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use proptest::prelude::*;

    use super::*;

    /// Reads with the library, which has nothing in common with the writer above.
    fn read(frame: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        lz4_flex::frame::FrameDecoder::new(frame).read_to_end(&mut plain).unwrap();
        plain
    }

    fn lines(count: u32) -> Vec<u8> {
        let line =
            |n: u32| format!("{{\"id\":{},\"user\":\"user-{}\",\"path\":\"/api/{}\"}}\n", n * 7919, n % 17, n % 5);
        (0..count).flat_map(|n| line(n).into_bytes()).collect()
    }

    #[test]
    fn every_level_comes_back_exactly() {
        let plain = lines(4_000);
        for level in 1..=17 {
            assert_eq!(read(&compress(&plain, level)), plain, "level {level}");
        }
    }

    #[test]
    fn a_higher_level_makes_records_smaller() {
        let plain = lines(4_000);
        let sizes: Vec<usize> = [1, 3, 6, 9, 12].map(|level| compress(&plain, level).len()).into();
        assert!(sizes.is_sorted_by(|low, high| low >= high) && sizes[4] * 10 < sizes[0] * 9, "{sizes:?}");
    }

    #[test]
    fn lengths_around_the_ends_of_blocks_come_back() {
        for len in (0..40).chain(BLOCK_BYTES - 14..BLOCK_BYTES + 14) {
            for plain in [vec![b'a'; len], lines(2_000)[..len].to_vec()] {
                assert_eq!(read(&compress(&plain, 9)), plain, "{len}");
            }
        }
    }

    #[test]
    fn what_does_not_compress_is_stored() {
        let noise: Vec<u8> =
            (0..70_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).rotate_left(n % 31).to_le_bytes()).collect();
        let frame = compress(&noise, 9);
        assert!(frame.len() <= noise.len() + 100, "{} of {}", frame.len(), noise.len());
        assert_eq!(read(&frame), noise);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn any_bytes_come_back(level in 1u32..=17, plain in prop::collection::vec(0u8..4, 0..3_000), times in 1usize..40) {
            let plain = plain.repeat(times);
            prop_assert_eq!(read(&compress(&plain, level)), plain);
        }
    }
}
