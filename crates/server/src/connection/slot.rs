//! The place between reading and answering: it holds the one request that was read ahead.
//!
//! Both halves of a connection are polled by one task, in turn, until neither can go on. So nobody is woken here: a
//! half that waits for the other one is simply polled again.

use std::future::poll_fn;
use std::task::Poll;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::end::End;
use crate::memory::Charge;

/// A whole frame without its length prefix, and what it holds of the memory budget.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) bytes: Bytes,
    pub(super) charge: Charge,
}

/// True for a Produce, whose records are the one thing that the schema decoders leave alone.
pub(super) fn is_produce(frame: &[u8]) -> bool {
    frame.starts_with(&[0, 0])
}

/// One frame between the reading and the answering half of a connection.
#[derive(Debug)]
pub(super) struct Slot {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    frame: Option<Frame>,
    end: Option<End>,
    answering: Answering,
    active_at: Instant,
}

/// What the answering half does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answering {
    /// It has a request.
    Busy,
    /// It waits for one.
    Waiting,
    /// It lets the reading half look for one, and goes on in any case.
    Yielding,
}

impl Slot {
    pub(super) fn new() -> Self {
        let state = State { frame: None, end: None, answering: Answering::Waiting, active_at: Instant::now() };
        Self { state: Mutex::new(state) }
    }

    /// Resolves when there is room for a frame. The next frame is not read before that: one request is being answered
    /// and one is read, the rest waits in the socket, where TCP slows the client down.
    pub(super) async fn vacant(&self) {
        poll_fn(|_| if self.state.lock().frame.is_none() { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// Puts a frame in. There must be room.
    pub(super) fn put(&self, frame: Frame) {
        let mut state = self.state.lock();
        state.active_at = Instant::now();
        state.frame = Some(frame);
    }

    /// No frame follows. What was put in is still taken; only then does the connection end, for the first `end` given.
    pub(super) fn finish(&self, end: End) {
        self.state.lock().end.get_or_insert(end);
    }

    /// The next frame, if it is there or the reading half has it at hand.
    pub(super) async fn take_ready(&self) -> Option<Frame> {
        let mut yielded = false;
        poll_fn(|_| {
            let mut state = self.state.lock();
            let frame = state.take();
            if frame.is_some() || yielded {
                state.answering = Answering::Busy;
                return Poll::Ready(frame);
            }
            yielded = true;
            state.answering = Answering::Yielding;
            Poll::Pending
        })
        .await
    }

    /// The next frame; the one before is answered.
    pub(super) async fn take(&self) -> Result<Frame, End> {
        poll_fn(|_| {
            let mut state = self.state.lock();
            if let Some(frame) = state.take() {
                return Poll::Ready(Ok(frame));
            }
            if let Some(end) = state.end.take() {
                return Poll::Ready(Err(end));
            }
            if state.answering != Answering::Waiting {
                state.answering = Answering::Waiting;
                state.active_at = Instant::now();
            }
            Poll::Pending
        })
        .await
    }

    /// True when the answering half can go on although nothing wakes it.
    pub(super) fn is_answering_due(&self) -> bool {
        let state = self.state.lock();
        match state.answering {
            Answering::Busy => false,
            Answering::Waiting => state.frame.is_some() || state.end.is_some(),
            Answering::Yielding => true,
        }
    }

    /// A large frame makes progress.
    pub(super) fn touch(&self) {
        self.state.lock().active_at = Instant::now();
    }

    /// Since when nothing was asked; `None` while a request is answered or waits.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let state = self.state.lock();
        (state.answering != Answering::Busy && state.frame.is_none()).then_some(state.active_at)
    }
}

impl State {
    fn take(&mut self) -> Option<Frame> {
        let frame = self.frame.take();
        if frame.is_some() {
            self.answering = Answering::Busy;
        }
        frame
    }
}
