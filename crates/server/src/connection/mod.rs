//! One connection: frames are read, handled strictly in order and answered in order.
//!
//! A connection is one task. Its reading half reads the next request while the answering half waits for a handler; a
//! third, mostly sleeping part watches for idleness. A handler runs to its end even when the client goes away
//! meanwhile, so an append is never given up half-way; only the end of the drain time at shutdown cuts it off.

mod end;
mod reader;
mod slot;
mod transport;
mod writer;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use milena_tls::Sink;
use tokio::io::AsyncRead;
use tokio::time::sleep_until;

use crate::broker::Broker;
use crate::dispatch::{self, Connection, Outcome};
use crate::lifecycle::Phase;
use crate::listener::Held;
pub(crate) use end::End;
use reader::Reader;
use slot::{Frame, Slot, is_produce};
pub(crate) use transport::Transport;
use writer::Writer;

/// Requests above this size are handled with the runtime told that the thread is blocked, so that decoding them delays
/// no other connection of the same thread: a body of this size holds some thousand names or partitions, which take a
/// millisecond or more. For smaller ones the hand-over costs more. Produce is not among them: its
/// handler knows better what takes long, and moves that elsewhere.
const BLOCKING_FROM: usize = 32 << 10;

/// Requests after which a connection that has more of them at hand lets other tasks run.
const TURNS_MAX: usize = 32;

/// Serves a connection to its end, and then gives back what it held of the bounds.
pub(crate) async fn run<T: Transport>(broker: Arc<Broker>, connection: Arc<Connection>, mut stream: T, _held: Held) {
    let slot = Slot::new();
    let (read, write) = stream.split();
    // Bytes of the last request, for the log.
    let frame_bytes = AtomicUsize::new(0);
    let end = {
        let mut answering = pin!(answer_all(&broker, &connection, &slot, write, &frame_bytes));
        let mut reading = pin!(read_all(&broker, &connection, &slot, read));
        let mut dropped = pin!(broker.lifecycle.reached(Phase::Dropping));
        let mut idle = pin!(until_idle(&slot, broker.config.limits.idle_timeout));
        let mut late = connection.session().map(|_| Box::pin(sleep_until(connection.authenticates_until(&broker))));
        let mut reads = true;
        poll_fn(|context| {
            for _ in 0..TURNS_MAX {
                if let Poll::Ready(end) = answering.as_mut().poll(context) {
                    return Poll::Ready(end);
                }
                reads = reads && reading.as_mut().poll(context).is_pending();
                if late.as_mut().is_some_and(|late| late.as_mut().poll(context).is_ready()) {
                    late = None;
                    if connection.session().is_some_and(|session| !session.is_authenticated()) {
                        return Poll::Ready(End::AuthenticationLate);
                    }
                }
                if !slot.is_answering_due() {
                    return if dropped.as_mut().poll(context).is_ready() {
                        Poll::Ready(if slot.idle_since().is_some() { End::Drained } else { End::Undrained })
                    } else {
                        idle.as_mut().poll(context).map(|()| End::Idle)
                    };
                }
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    };
    connection.end();
    // Of a request that was cut off.
    connection.release();
    note(&broker, &connection, &end, frame_bytes.into_inner());
    if matches!(end, End::Refused) {
        Box::pin(transport::until_it_goes(stream.split().0)).await;
    }
    if matches!(end, End::Drained | End::Refused) || end.is_protocol_error() {
        Box::pin(stream.part()).await;
    } else if !matches!(end, End::Io(_) | End::WriteStalled | End::Undrained) {
        Box::pin(stream.leave()).await;
    }
}

/// Reads requests until there are no more of them, and says so to the answering half.
async fn read_all(broker: &Broker, connection: &Connection, slot: &Slot, read: impl AsyncRead + Unpin) {
    let budgets = [&*broker.memory, &broker.strangers];
    let mut reader = Reader::new(read, &broker.config.limits, budgets, slot, connection.session());
    let mut draining = pin!(broker.lifecycle.reached(Phase::Draining));
    let end = loop {
        tokio::select! {
            biased;
            () = &mut draining => break End::Drained,
            frame = async { slot.vacant().await; reader.frame().await } => match frame {
                Ok(frame) => {
                    broker.metrics.connections.bytes_in.add(4 + frame.bytes.len() as u64);
                    slot.put(frame);
                }
                Err(end) => break end,
            },
        }
    };
    if matches!(end, End::ByClient | End::WithinFrame { .. } | End::Io(_)) {
        // A client that closed its sending side may still read, so what it asked is answered, but nobody waits for it.
        connection.end();
    }
    slot.finish(end);
}

/// Answers requests until none follows or the connection cannot go on.
async fn answer_all(
    broker: &Arc<Broker>,
    connection: &Arc<Connection>,
    slot: &Slot,
    write: impl Sink,
    frame_bytes: &AtomicUsize,
) -> End {
    let mut writer = Writer::new(write, broker.config.limits.write_timeout, &broker.metrics.connections.bytes_out);
    loop {
        let Frame { bytes, charge } = match next_frame(slot, &mut writer).await {
            Ok(frame) => frame,
            Err(end) => return end,
        };
        connection.hold(charge);
        frame_bytes.store(bytes.len(), Ordering::Relaxed);
        let blocking = broker.threads_can_block && bytes.len() >= BLOCKING_FROM && !is_produce(&bytes);
        let mut handled = pin!(dispatch::serve(broker, connection, bytes));
        let at_once = poll_fn(|context| Poll::Ready(poll_handler(handled.as_mut(), context, blocking))).await;
        let outcome = match at_once {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => {
                // Answers that are held do not wait for a handler that does, and the handler does not wait for them.
                let rest = poll_fn(|context| poll_handler(handled.as_mut(), context, blocking));
                let (outcome, flushed) = tokio::join!(rest, writer.flush());
                if let Err(end) = flushed {
                    return end;
                }
                outcome
            }
        };
        // The request is gone from memory; its answer is bounded by the request and waits for the client alone.
        connection.release();
        let end = match outcome {
            Ok(Outcome::Reply(answer)) => match writer.answer(&answer).await {
                Ok(()) => continue,
                Err(end) => end,
            },
            Ok(Outcome::Pieces(answer)) => match writer.answer_in_pieces(answer).await {
                Ok(()) => continue,
                Err(end) => end,
            },
            Ok(Outcome::Last(answer)) => match writer.answer(answer.as_deref().unwrap_or_default()).await {
                Ok(()) => End::Refused,
                Err(end) => end,
            },
            Ok(Outcome::Silent) => continue,
            Ok(Outcome::Close(error)) => error.into(),
            Err(end) => end,
        };
        // What was answered before is still the client's.
        return writer.flush().await.err().unwrap_or(end);
    }
}

/// The next frame. Answers that are held are written before it is waited for.
async fn next_frame<W: Sink>(slot: &Slot, writer: &mut Writer<'_, W>) -> Result<Frame, End> {
    if writer.holds_any() {
        if let Some(frame) = slot.take_ready().await {
            return Ok(frame);
        }
        writer.flush().await?;
    }
    slot.take().await
}

/// Polls a handler, as blocking work if it may take long. That needs a multi-thread runtime.
fn poll_handler<F: Future>(handler: Pin<&mut F>, context: &mut Context<'_>, blocking: bool) -> Poll<F::Output> {
    if blocking { tokio::task::block_in_place(|| handler.poll(context)) } else { handler.poll(context) }
}

/// Resolves when nothing was asked for as long as `after`. One timer per connection that is set again only when it fires.
async fn until_idle(slot: &Slot, after: Duration) {
    loop {
        let now = tokio::time::Instant::now();
        let deadline = slot.idle_since().unwrap_or(now) + after;
        if deadline <= now {
            return;
        }
        sleep_until(deadline).await;
    }
}

/// Counts and logs the end of a connection.
fn note(broker: &Broker, connection: &Connection, end: &End, frame_bytes: usize) {
    end.counter(&broker.metrics.connections).add(1);
    if !end.is_protocol_error() {
        tracing::debug!(connection = connection.id, peer = %connection.peer, reason = %end, "connection closed");
    } else if let Some(suppressed) = broker.quiet.admit(connection.peer.ip(), Instant::now()) {
        tracing::warn!(
            connection = connection.id,
            peer = %connection.peer,
            client = %connection.client(),
            reason = %end,
            frame_bytes,
            suppressed,
            "connection closed on a protocol error"
        );
    }
}
