//! Bytes to frames.
//!
//! An idle connection holds no buffer: the first bytes of a frame are read into the stack. A large frame is read into
//! one buffer that grows as bytes arrive and ends at exactly the frame's length, so that record batches can stay
//! slices of it all the way to the store.

use std::io;
use std::pin::Pin;

use bytes::{BufMut, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::time::{Instant, timeout, timeout_at};

use super::end::End;
use super::slot::{Frame, Slot, is_produce};
use crate::authentication::TOKEN_BYTES_MAX;
use crate::authentication::session::{Gate, Session};
use crate::limits::Limits;
use crate::memory::{Charge, Memory, decoded_bytes};

/// Bytes of the length prefix.
const PREFIX_BYTES: usize = 4;

/// Shortest request: api key, version, correlation id.
const HEADER_BYTES_MIN: usize = 8;

/// Bytes read at once while no large frame is under way. Small requests arrive whole in one read.
const HEAD_BYTES: usize = 2048;

/// Bytes of each frame that are read without asking the budget, so that small requests get through when it is spent.
const FREE_BYTES: usize = 16 << 10;

/// Bytes by which the charge runs ahead of what has arrived.
const CHARGE_STEP: usize = 64 << 10;

/// Size of the buffer once a frame has passed `FREE_BYTES`. Pages nothing was read into cost address space only.
const BUFFER_STEP: usize = 4 << 20;

/// Reads frames.
pub(super) struct Reader<'a, R> {
    source: R,
    limits: &'a Limits,
    /// The budgets of those who are let in and of strangers.
    memory: &'a Memory,
    strangers: &'a Memory,
    slot: &'a Slot,
    /// Where clients are asked who they are.
    session: Option<&'a Session>,
    /// Bytes that were read behind the last frame; fewer than `HEAD_BYTES`.
    carry: Vec<u8>,
}

impl<'a, R: AsyncRead + Unpin> Reader<'a, R> {
    pub(super) fn new(
        source: R,
        limits: &'a Limits,
        [memory, strangers]: [&'a Memory; 2],
        slot: &'a Slot,
        session: Option<&'a Session>,
    ) -> Self {
        Self { source, limits, memory, strangers, slot, session, carry: Vec::new() }
    }

    /// Shortest and longest frame now, and the name of the longest. What strangers send is small, and may be a token
    /// without a header.
    fn bounds(&self) -> (usize, usize, &'static str) {
        let max = self.limits.max_frame_bytes;
        match self.session {
            Some(_) if self.is_stranger() => (0, TOKEN_BYTES_MAX.min(max), "before authentication"),
            Some(session) if session.gate() == Gate::BareToken => (0, TOKEN_BYTES_MAX.min(max), "of a token"),
            _ => (HEADER_BYTES_MIN, max, "max_frame_bytes"),
        }
    }

    fn is_stranger(&self) -> bool {
        self.session.is_some_and(|session| !session.is_authenticated())
    }

    /// The next frame, whole and charged.
    pub(super) async fn frame(&mut self) -> Result<Frame, End> {
        let len = self.prefix().await?;
        let whole = PREFIX_BYTES + len;
        if let Some(bytes) = self.carry.get(PREFIX_BYTES..whole) {
            let bytes = Bytes::copy_from_slice(bytes);
            self.carry.drain(..whole);
            if self.carry.is_empty() {
                self.carry = Vec::new();
            }
            return Ok(Frame { bytes, charge: Charge::default() });
        }
        // Boxed, so that an idle connection does not hold its state.
        Box::pin(self.large(len)).await
    }

    /// Reads until the length prefix is there. Waiting for its first byte has no bound here: that is idleness.
    async fn prefix(&mut self) -> Result<usize, End> {
        loop {
            if let Some(prefix) = self.carry.first_chunk::<PREFIX_BYTES>() {
                let declared = i32::from_be_bytes(*prefix);
                let len = usize::try_from(declared).map_err(|_| End::BadLength(declared))?;
                let (min, max, bound) = self.bounds();
                return match len {
                    _ if len < min => Err(End::BadLength(declared)),
                    _ if len > max && milena_tls::begins_with_tls(prefix) => Err(End::TlsClient),
                    _ if len > max => Err(End::FrameTooLarge { declared: len, bound, limit: max }),
                    _ => Ok(len),
                };
            }
            let read = if self.carry.is_empty() {
                read_head(&mut self.source, &mut self.carry).await?
            } else {
                timeout(self.limits.read_timeout, read_head(&mut self.source, &mut self.carry))
                    .await
                    .map_err(|_| End::ReadStalled)??
            };
            match read {
                0 if self.carry.is_empty() => return Err(End::ByClient),
                0 => return Err(End::WithinFrame { missing: PREFIX_BYTES - self.carry.len() }),
                _ => {}
            }
        }
    }

    /// A frame of which only the beginning is in `carry`.
    async fn large(&mut self, len: usize) -> Result<Frame, End> {
        // Those who are let in never wait for what strangers hold.
        let memory = if self.is_stranger() { self.strangers } else { self.memory };
        let mut charge = Charge::default();
        let mut overdrawn_until = None;
        let mut charged = FREE_BYTES;
        let mut buffer = Vec::with_capacity(len.min(FREE_BYTES));
        buffer.extend_from_slice(self.carry.get(PREFIX_BYTES..).unwrap_or_default());
        self.carry = Vec::new();
        while buffer.len() < len {
            if buffer.len() >= charged.min(len) {
                memory.extend(&mut charge, CHARGE_STEP.min(len - charged)).await;
                charged += CHARGE_STEP;
                self.slot.touch();
            }
            if buffer.len() == buffer.capacity() {
                let capacity = len.min(BUFFER_STEP.max(buffer.capacity() * 2));
                buffer.reserve_exact(capacity - buffer.len());
            }
            if charge.is_overdraft() && overdrawn_until.is_none() {
                // Everybody waits for this frame, so it may not trickle.
                overdrawn_until = Some(Instant::now() + self.limits.read_timeout);
            }
            let room = (charged.min(len) - buffer.len()).min(buffer.capacity() - buffer.len());
            let mut target = (&mut buffer).limit(room);
            let read = self.source.read_buf(&mut target);
            let read = match overdrawn_until {
                Some(deadline) => timeout_at(deadline, read).await,
                None => timeout(self.limits.read_timeout, read).await,
            };
            if read.map_err(|_| End::ReadStalled)?? == 0 {
                return Err(End::WithinFrame { missing: len - buffer.len() });
            }
        }
        memory.extend(&mut charge, decoded_bytes(is_produce(&buffer), len)).await;
        Ok(Frame { bytes: Bytes::from(buffer), charge })
    }
}

/// Reads what is there, up to `HEAD_BYTES`, and appends it to `carry`. The buffer lives on the stack of one poll, so a
/// connection that waits here holds none.
async fn read_head<R: AsyncRead + Unpin>(source: &mut R, carry: &mut Vec<u8>) -> io::Result<usize> {
    std::future::poll_fn(|context| {
        let mut head = [0u8; HEAD_BYTES];
        let mut head = ReadBuf::new(&mut head);
        std::task::ready!(Pin::new(&mut *source).poll_read(context, &mut head))?;
        carry.extend_from_slice(head.filled());
        std::task::Poll::Ready(Ok(head.filled().len()))
    })
    .await
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt;

    use super::*;

    /// Frames of the given sizes, each filled with its own number.
    fn frames(sizes: &[usize]) -> Vec<Vec<u8>> {
        (1..).zip(sizes).map(|(number, size)| vec![number; *size]).collect()
    }

    async fn read_back(frames: &[Vec<u8>], writes: &[usize], budget: usize) -> Vec<Bytes> {
        let limits = Limits::default();
        let memory = Memory::new(budget);
        let slot = Slot::new();
        let (mut client, server) = tokio::io::duplex(4096);
        let stream: Vec<u8> = frames
            .iter()
            .flat_map(|frame| [&u32::try_from(frame.len()).expect("small").to_be_bytes(), &frame[..]].concat())
            .collect();
        let writing = async {
            let mut rest = &stream[..];
            let mut lengths = writes.iter().cycle();
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(*lengths.next().expect("never empty")));
                client.write_all(now).await.expect("the reader reads");
                rest = later;
            }
            drop(client);
        };
        let reading = async {
            let mut reader = Reader::new(server, &limits, [&memory, &memory], &slot, None);
            let mut read = Vec::new();
            loop {
                match reader.frame().await {
                    Ok(frame) => read.push(frame.bytes),
                    Err(End::ByClient) => return read,
                    Err(end) => panic!("{end}"),
                }
            }
        };
        tokio::join!(writing, reading).1
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn frames_are_read_as_they_were_sent_however_they_are_cut(
            sizes in prop::collection::vec(prop_oneof![8..64usize, 1900..2200usize, 16_000..200_000usize], 1..12),
            writes in prop::collection::vec(1..5000usize, 1..8),
            budget in prop_oneof![Just(1000usize), Just(1 << 30)],
        ) {
            let frames = frames(&sizes);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
            let read = runtime.block_on(read_back(&frames, &writes, budget));
            prop_assert_eq!(read, frames);
        }
    }
}
