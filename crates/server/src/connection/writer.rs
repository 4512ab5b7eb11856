//! Answers to bytes.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::time::Duration;

use bytes::{Buf, Bytes};
use milena_tls::Sink;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::end::End;
use crate::dispatch::Pieces;
use crate::metrics::Counter;

/// Answers up to this size wait for the next one if that is at hand, so that one system call and one packet carry
/// several. Larger ones are not copied.
const SMALL_BYTES: usize = 4096;

/// Answers that wait at most, because the first of them should not wait for the computing of many others.
const HELD_MAX: usize = 16;

/// Pieces that one system call takes at most.
const PIECES_AT_ONCE: usize = 64;

/// Writes answers in the order in which it gets them.
pub(super) struct Writer<'a, W> {
    sink: W,
    /// Time in which some part of an answer must be taken.
    stalled_after: Duration,
    bytes_out: &'a Counter,
    held: Vec<u8>,
    answers_held: usize,
}

impl<'a, W: Sink> Writer<'a, W> {
    pub(super) fn new(sink: W, stalled_after: Duration, bytes_out: &'a Counter) -> Self {
        Self { sink, stalled_after, bytes_out, held: Vec::new(), answers_held: 0 }
    }

    /// True when an answer waits for [`Writer::flush`].
    pub(super) fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// Takes an answer; it is written now or at the next flush.
    pub(super) async fn answer(&mut self, answer: &[u8]) -> Result<(), End> {
        if answer.len() > SMALL_BYTES {
            self.flush().await?;
            return self.write(answer).await;
        }
        self.held.extend_from_slice(answer);
        self.answers_held += 1;
        if self.answers_held < HELD_MAX { Ok(()) } else { self.flush().await }
    }

    /// As [`Writer::answer`]. What is written is let go of piece by piece.
    pub(super) async fn answer_in_pieces(&mut self, answer: Pieces) -> Result<(), End> {
        let Pieces { bytes, held: _room } = answer;
        if let [whole] = &bytes[..] {
            return self.answer(whole).await;
        }
        self.flush().await?;
        let mut pieces = VecDeque::from(bytes);
        while !pieces.is_empty() {
            let mut slices = [IoSlice::new(&[]); PIECES_AT_ONCE];
            let filled = slices.iter_mut().zip(&pieces).map(|(slice, piece)| *slice = IoSlice::new(piece)).count();
            let slices = slices.get(..filled).unwrap_or_default();
            let writing = timeout(self.stalled_after, self.sink.write_vectored(slices));
            let written = writing.await.map_err(|_| End::WriteStalled)??;
            if written == 0 {
                return Err(End::ByClient);
            }
            self.bytes_out.add(written as u64);
            let_go(&mut pieces, written);
        }
        self.push().await
    }

    /// Writes what is held, and keeps no memory for it.
    pub(super) async fn flush(&mut self) -> Result<(), End> {
        self.answers_held = 0;
        let held = std::mem::take(&mut self.held);
        self.write(&held).await
    }

    async fn write(&mut self, mut bytes: &[u8]) -> Result<(), End> {
        while !bytes.is_empty() {
            let writing = timeout(self.stalled_after, self.sink.write(bytes));
            let written = writing.await.map_err(|_| End::WriteStalled)??;
            if written == 0 {
                return Err(End::ByClient);
            }
            self.bytes_out.add(written as u64);
            bytes = bytes.get(written..).unwrap_or_default();
        }
        self.push().await
    }

    /// Sends what the sink keeps back of what it took.
    async fn push(&mut self) -> Result<(), End> {
        let pushed = milena_tls::push(&mut self.sink, self.stalled_after).await;
        Ok(pushed.map_err(|_| End::WriteStalled)??)
    }
}

/// Takes the first `written` bytes away, and the empty pieces in front of what is left.
fn let_go(pieces: &mut VecDeque<Bytes>, mut written: usize) {
    while let Some(first) = pieces.front_mut() {
        let taken = written.min(first.len());
        first.advance(taken);
        written -= taken;
        if !first.is_empty() {
            return;
        }
        pieces.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncReadExt;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn pieces_arrive_in_their_order_behind_what_was_held(
            small in prop::collection::vec(0..200usize, 0..4),
            sizes in prop::collection::vec(prop_oneof![0..3usize, 1..5_000usize], 1..150),
            room in prop_oneof![1..40usize, 4_000..70_000usize],
        ) {
            let piece = |(number, size): (u8, &usize)| Bytes::from(vec![number; *size]);
            let held: Vec<Bytes> = (200..).zip(&small).map(piece).collect();
            let bytes: Vec<Bytes> = (0..).zip(&sizes).map(piece).collect();
            let expected = [held.concat(), bytes.concat()].concat();
            let counter = Counter::default();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let arrived = runtime.block_on(async {
                let (server, mut client) = tokio::io::duplex(room);
                let writing = async {
                    let mut writer = Writer::new(server, Duration::from_secs(60), &counter);
                    for answer in &held {
                        writer.answer(answer).await.unwrap();
                    }
                    writer.answer_in_pieces(Pieces { bytes, held: Default::default() }).await.unwrap();
                    writer.flush().await.unwrap();
                };
                let mut arrived = Vec::new();
                let reading = async { client.read_to_end(&mut arrived).await.unwrap() };
                tokio::join!(writing, reading);
                arrived
            });
            prop_assert_eq!(counter.get(), expected.len() as u64);
            prop_assert_eq!(arrived, expected);
        }
    }
}
