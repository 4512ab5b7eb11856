//! Random frames that decode: a buffer that makes up what the decoder reads from it, and keeps a record.

use bytes::buf::Buf;
use bytes::{Bytes, TryGetError};
use milena_wire::kafka_protocol::protocol::Decodable;
use milena_wire::kafka_protocol::protocol::buf::{ByteBuf, NotEnoughBytesError};

/// A small generator of numbers (splitmix64), so that a seed is the whole test case.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end.max(1)).unwrap()).unwrap()
    }
}

/// A frame body that decodes, and where its numbers stand.
pub(crate) struct Invented {
    pub(crate) body: Vec<u8>,
    /// Places of `i32` fields and counts.
    pub(crate) int32s: Vec<usize>,
    /// Places of single bytes: booleans, and varints of one byte.
    pub(crate) bytes: Vec<usize>,
}

struct Inventor {
    numbers: Numbers,
    out: Invented,
}

/// Longest body that is made up; behind it every number is zero and arrays stay empty.
const LONG: usize = 4_000;

impl Inventor {
    fn pick<const N: usize>(&mut self, weighted: [i64; N]) -> i64 {
        if self.out.body.len() > LONG { 1 } else { weighted[self.numbers.below(N)] }
    }

    fn push<const N: usize>(&mut self, bytes: [u8; N]) -> [u8; N] {
        self.out.body.extend_from_slice(&bytes);
        bytes
    }
}

impl Buf for Inventor {
    fn remaining(&self) -> usize {
        usize::MAX
    }
    fn chunk(&self) -> &[u8] {
        unreachable!("every read is made up")
    }
    fn advance(&mut self, _: usize) {
        unreachable!("every read is made up")
    }
    fn try_copy_to_slice(&mut self, dst: &mut [u8]) -> Result<(), TryGetError> {
        dst.fill(7);
        self.out.body.extend_from_slice(dst);
        Ok(())
    }
    fn try_get_u8(&mut self) -> Result<u8, TryGetError> {
        self.out.bytes.push(self.out.body.len());
        let value = u8::try_from(self.pick([1, 1, 1, 1, 1, 2, 2, 3, 0])).unwrap();
        Ok(self.push([value])[0])
    }
    fn try_get_i8(&mut self) -> Result<i8, TryGetError> {
        let value = i8::try_from(self.pick([-1, 1, 1, 2])).unwrap();
        Ok(i8::from_be_bytes(self.push(value.to_be_bytes())))
    }
    fn try_get_u16(&mut self) -> Result<u16, TryGetError> {
        let value = u16::try_from(self.pick([0, 1, 9092])).unwrap();
        Ok(u16::from_be_bytes(self.push(value.to_be_bytes())))
    }
    fn try_get_i16(&mut self) -> Result<i16, TryGetError> {
        let value = i16::try_from(self.pick([0, 1, 2, 3, 3, 3, -1])).unwrap();
        Ok(i16::from_be_bytes(self.push(value.to_be_bytes())))
    }
    fn try_get_u32(&mut self) -> Result<u32, TryGetError> {
        Ok(u32::from_be_bytes(self.push([1, 2, 3, 4])))
    }
    fn try_get_i32(&mut self) -> Result<i32, TryGetError> {
        self.out.int32s.push(self.out.body.len());
        let value = i32::try_from(self.pick([0, 1, 1, 2, 2, 3])).unwrap();
        Ok(i32::from_be_bytes(self.push(value.to_be_bytes())))
    }
    fn try_get_i64(&mut self) -> Result<i64, TryGetError> {
        let value = self.pick([-1, 0, i64::MAX, 1_700_000_000_000]);
        Ok(i64::from_be_bytes(self.push(value.to_be_bytes())))
    }
    fn try_get_f64(&mut self) -> Result<f64, TryGetError> {
        Ok(f64::from_be_bytes(self.push(1.5_f64.to_be_bytes())))
    }
}

impl ByteBuf for Inventor {
    fn peek_bytes(&mut self, _: std::ops::Range<usize>) -> Bytes {
        unreachable!("no decoder looks ahead")
    }
    fn get_bytes(&mut self, _: usize) -> Bytes {
        unreachable!("decoders only try")
    }
    fn try_get_bytes(&mut self, size: usize) -> Result<Bytes, NotEnoughBytesError> {
        let letters = vec![b'a' + u8::try_from(self.numbers.below(26)).unwrap(); size.min(LONG)];
        self.out.body.extend_from_slice(&letters);
        if letters.len() == size { Ok(letters.into()) } else { Err(NotEnoughBytesError) }
    }
}

/// A body that `T` decodes from, if one was found in a few attempts.
pub(crate) fn invent<T: Decodable>(version: i16, seed: u64) -> Option<Invented> {
    (0..20).find_map(|attempt| {
        let out = Invented { body: Vec::new(), int32s: Vec::new(), bytes: Vec::new() };
        let mut inventor = Inventor { numbers: Numbers(seed ^ (attempt << 56)), out };
        T::decode(&mut inventor, version).ok().map(|_| inventor.out)
    })
}
