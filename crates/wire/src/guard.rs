//! The buffer that the schema decoders read from, which keeps declared counts from reserving memory.
//!
//! The decoders of `kafka-protocol` reserve an array's memory as soon as they have read its count, so a frame of four
//! bytes can ask for hundreds of gigabytes, and an allocation that fails aborts the process. The decoders are generic
//! over the buffer, so the buffer is where a count can be seen before it is believed:
//!
//! - In flexible versions a count is an unsigned varint, which is read byte by byte. The first byte of a long one makes
//!   the guard look at the whole varint; a value that no field can have fails the decode.
//! - In the older versions a count is an `i32`, and so are many plain values. One that is too large to be a count is
//!   served as the smallest count that cannot be satisfied either. If the decode succeeds all the same, it was no count,
//!   and the caller decodes once more with clamping off.
//! - A length of bytes can be larger than any count. It is told apart by what follows: the decoder asks for exactly that
//!   many bytes at once, and then gets the true number.
//!
//! "Too large" is more than the bytes that are left (each element takes one at least) and more than the reads that are
//! left (each element takes one at least). The number of reads is bounded because a truthful frame still grows up to a
//! hundred times in memory.

use bytes::buf::Buf;
use bytes::{Bytes, TryGetError};
use kafka_protocol::protocol::buf::{ByteBuf, NotEnoughBytesError};

use crate::error::WireError;

/// Values up to this are believed whatever is left: tags of tagged fields are varints too, and many plain values of the
/// older versions are `i32`. 32 Ki elements of the largest type are 9 MB.
const BELIEVED: usize = 32 << 10;
const BELIEVED_I32: i32 = 32 << 10;

/// Which reads can be counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counts {
    /// Flexible version: unsigned varints.
    Varint,
    /// Older version: `i32`.
    Int32,
    /// Not known to the caller.
    Either,
    /// As `Either`, with every `i32` believed: for the second decode.
    VarintOfEither,
    /// As `Int32`, with every `i32` believed: for the second decode.
    Nothing,
}

/// What the next read has to be, after a number was served that is not in the frame.
#[derive(Debug, Clone, Copy)]
enum Trap {
    /// Nothing was replaced; no reads are left.
    Unset,
    /// Inside a varint that is replaced: what is still to be served of it (7 bits a byte), and in how many bytes.
    Varint { rest: u32, bytes: u8, served: usize, real: usize },
    /// A varint was replaced: only a request for that many bytes can follow.
    LengthOnly { served: usize, real: usize },
    /// An `i32` was replaced: if a request for that many bytes follows it was a length, otherwise count or value.
    Perhaps { served: usize, real: usize },
}

/// A frame, read under the guard.
#[derive(Debug)]
pub(crate) struct GuardedBuf {
    frame: Bytes,
    /// Zero sends every read down the slow path, where a trap may be waiting.
    reads_left: usize,
    /// The true number while a trap is set.
    reads_kept: usize,
    reads_max: usize,
    trap: Trap,
    counts: Counts,
    /// True when an `i32` was served clamped: the decoded value is wrong and the decode has to be repeated.
    clamped: bool,
    refused: Option<WireError>,
}

impl GuardedBuf {
    pub(crate) fn new(frame: Bytes, counts: Counts, reads_max: usize) -> Self {
        Self {
            frame,
            reads_left: reads_max,
            reads_kept: 0,
            reads_max,
            trap: Trap::Unset,
            counts,
            clamped: false,
            refused: None,
        }
    }

    /// Bytes not read yet.
    pub(crate) fn left(&self) -> usize {
        self.frame.len()
    }

    /// True when the decoded value has to be thrown away and the frame decoded with [`Counts::after_clamping`].
    pub(crate) fn clamped(&self) -> bool {
        // A clamped number can be the last one of the frame, with no read behind it that would spring the trap.
        self.clamped || matches!(self.trap, Trap::Perhaps { .. })
    }

    /// What was not read, for a caller that read a header.
    pub(crate) fn into_rest(self) -> Bytes {
        self.frame
    }

    /// The guard's own reason for a failed decode.
    pub(crate) fn refusal(&mut self) -> Option<WireError> {
        self.refused.take()
    }

    /// Counts one read. Most reads pay for this one comparison only.
    #[inline(always)]
    fn step(&mut self, requested: usize) -> Result<(), TryGetError> {
        match self.reads_left.checked_sub(1) {
            Some(left) => {
                self.reads_left = left;
                Ok(())
            }
            None => self.spring(requested),
        }
    }

    /// The read of a plain value after a trap was set, or after the last read that is allowed.
    #[cold]
    fn spring(&mut self, requested: usize) -> Result<(), TryGetError> {
        match self.trap {
            Trap::Perhaps { .. } => {
                self.clamped = true;
                self.disarm();
                self.step(requested)
            }
            Trap::Varint { real, .. } | Trap::LengthOnly { real, .. } => {
                Err(self.refuse(WireError::Overdeclared { declared: real, left: self.frame.len() }))
            }
            Trap::Unset => Err(self.refuse(WireError::TooManyFields(self.reads_max))),
        }
    }

    fn arm(&mut self, trap: Trap) {
        self.trap = trap;
        self.reads_kept = self.reads_left;
        self.reads_left = 0;
    }

    fn disarm(&mut self) {
        self.trap = Trap::Unset;
        self.reads_left = self.reads_kept;
    }

    fn refuse(&mut self, error: WireError) -> TryGetError {
        self.refused.get_or_insert(error);
        TryGetError { requested: usize::MAX, available: self.frame.len() }
    }

    /// Largest number that is taken for a count here.
    fn count_max(&self) -> usize {
        self.frame.len().min(self.reads_left).max(BELIEVED)
    }

    /// One byte that may be the first of a long varint. Looked at from every byte and without memory of the byte before:
    /// a boolean and the start of a varint look the same, and a guess about it could be exploited. The rest of a good
    /// varint is a smaller varint, so looking again does no harm. What is refused that a decoder alone would take: a
    /// varint that overflows, and a boolean that is neither 0 nor 1 in front of bytes that look like a large number.
    #[cold]
    fn long_varint(&mut self, first: u8) -> Result<u8, TryGetError> {
        let (real, bytes) = peek_varint(&self.frame);
        let real = usize::try_from(real).unwrap_or(usize::MAX);
        let left = self.frame.len();
        if real > left.max(BELIEVED) {
            return Err(self.refuse(WireError::Overdeclared { declared: real, left }));
        }
        // Counts and lengths are one more than what they count.
        let impossible = self.count_max().saturating_add(1);
        if real <= impossible {
            self.frame.advance(1);
            return Ok(first);
        }
        // More than an array can have, but a length of bytes that are there. The decoder gets a count it will fail on,
        // in as many bytes as the real one takes, and the true length if it asks for bytes.
        let rest = u32::try_from(impossible.saturating_add(1)).unwrap_or(u32::MAX);
        self.arm(Trap::Varint { rest, bytes, served: impossible, real: real.saturating_sub(1) });
        self.varint_byte()
    }

    /// The next byte of a replaced varint.
    #[cold]
    fn varint_byte(&mut self) -> Result<u8, TryGetError> {
        let Trap::Varint { rest, bytes, served, real } = self.trap else {
            self.step(1)?;
            return self.plain_u8();
        };
        self.frame.advance(1);
        self.reads_kept = self.reads_kept.saturating_sub(1);
        let low = u8::try_from(rest & 0x7f).unwrap_or(0x7f);
        if bytes > 1 {
            self.trap = Trap::Varint { rest: rest >> 7, bytes: bytes - 1, served, real };
            return Ok(low | 0x80);
        }
        self.trap = Trap::LengthOnly { served, real };
        Ok(low)
    }

    #[inline(always)]
    fn plain_u8(&mut self) -> Result<u8, TryGetError> {
        let Some(&byte) = self.frame.first() else {
            return Err(TryGetError { requested: 1, available: 0 });
        };
        if byte >= 0x80 && !matches!(self.counts, Counts::Int32 | Counts::Nothing) {
            return self.long_varint(byte);
        }
        self.frame.advance(1);
        Ok(byte)
    }

    /// An `i32` that is too large for a count, if it may be one.
    #[cold]
    fn large_i32(&mut self, value: i32) -> i32 {
        let real = usize::try_from(value).unwrap_or(0);
        let most = self.count_max();
        if real <= most || !matches!(self.counts, Counts::Int32 | Counts::Either) {
            return value;
        }
        let served = most.saturating_add(1);
        let Ok(instead) = i32::try_from(served) else { return value };
        self.arm(Trap::Perhaps { served, real });
        instead
    }

    /// How many bytes to take where the decoder asks for `size`.
    #[cold]
    fn true_length(&mut self, size: usize) -> Result<usize, TryGetError> {
        match self.trap {
            Trap::Perhaps { served, real } if size == served => {
                self.disarm();
                Ok(real)
            }
            Trap::LengthOnly { served, real } if size == served => {
                self.disarm();
                Ok(real)
            }
            // The size of a tagged field is not one more than what it counts.
            Trap::LengthOnly { served, real } if size == served.saturating_add(1) => {
                self.disarm();
                Ok(real.saturating_add(1))
            }
            _ => {
                self.spring(size)?;
                Ok(size)
            }
        }
    }

    #[inline(always)]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], TryGetError> {
        self.step(N)?;
        let Some(&bytes) = self.frame.first_chunk::<N>() else {
            return Err(TryGetError { requested: N, available: self.frame.len() });
        };
        self.frame.advance(N);
        Ok(bytes)
    }
}

impl Counts {
    /// What is believed in the second decode, which follows a first one that succeeded with clamped numbers.
    pub(crate) fn after_clamping(self) -> Self {
        match self {
            Self::Int32 | Self::Nothing => Self::Nothing,
            Self::Varint => Self::Varint,
            Self::Either | Self::VarintOfEither => Self::VarintOfEither,
        }
    }
}

/// The unsigned varint at the start of `bytes` and how many bytes it takes, read as the decoder reads it: five bytes at
/// most, of which the last one may overflow or ask for a sixth without harm.
fn peek_varint(bytes: &[u8]) -> (u32, u8) {
    let mut value = 0_u32;
    let mut taken = 0_u8;
    for &byte in bytes.iter().take(5) {
        value |= u32::from(byte & 0x7f) << (7 * u32::from(taken));
        taken += 1;
        if byte < 0x80 {
            break;
        }
    }
    (value, taken)
}

impl Buf for GuardedBuf {
    fn remaining(&self) -> usize {
        self.frame.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.frame.chunk()
    }

    fn advance(&mut self, cnt: usize) {
        self.frame.advance(cnt);
    }

    fn try_copy_to_slice(&mut self, dst: &mut [u8]) -> Result<(), TryGetError> {
        self.step(dst.len())?;
        self.frame.try_copy_to_slice(dst)
    }

    #[inline]
    fn try_get_u8(&mut self) -> Result<u8, TryGetError> {
        let Some(left) = self.reads_left.checked_sub(1) else {
            return self.varint_byte();
        };
        self.reads_left = left;
        self.plain_u8()
    }

    #[inline]
    fn try_get_i8(&mut self) -> Result<i8, TryGetError> {
        self.array().map(i8::from_be_bytes)
    }

    #[inline]
    fn try_get_u16(&mut self) -> Result<u16, TryGetError> {
        self.array().map(u16::from_be_bytes)
    }

    #[inline]
    fn try_get_i16(&mut self) -> Result<i16, TryGetError> {
        self.array().map(i16::from_be_bytes)
    }

    #[inline]
    fn try_get_u32(&mut self) -> Result<u32, TryGetError> {
        self.array().map(u32::from_be_bytes)
    }

    #[inline]
    fn try_get_i32(&mut self) -> Result<i32, TryGetError> {
        let value = self.array().map(i32::from_be_bytes)?;
        // A negative number is no count: -1 is null, and the decoder refuses the others.
        if value > BELIEVED_I32 { Ok(self.large_i32(value)) } else { Ok(value) }
    }

    #[inline]
    fn try_get_u64(&mut self) -> Result<u64, TryGetError> {
        self.array().map(u64::from_be_bytes)
    }

    #[inline]
    fn try_get_i64(&mut self) -> Result<i64, TryGetError> {
        self.array().map(i64::from_be_bytes)
    }

    #[inline]
    fn try_get_f64(&mut self) -> Result<f64, TryGetError> {
        self.array().map(f64::from_be_bytes)
    }
}

impl ByteBuf for GuardedBuf {
    fn peek_bytes(&mut self, range: std::ops::Range<usize>) -> Bytes {
        self.frame.peek_bytes(range)
    }

    fn get_bytes(&mut self, size: usize) -> Bytes {
        self.frame.split_to(size)
    }

    #[inline]
    fn try_get_bytes(&mut self, size: usize) -> Result<Bytes, NotEnoughBytesError> {
        let size = if let Some(left) = self.reads_left.checked_sub(1) {
            self.reads_left = left;
            size
        } else {
            self.true_length(size).map_err(|_| NotEnoughBytesError)?
        };
        // Slices share the frame: records are not copied.
        if size > self.frame.len() { Err(NotEnoughBytesError) } else { Ok(self.frame.split_to(size)) }
    }
}
