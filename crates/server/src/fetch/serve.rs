//! The life of one fetch: read, and while there is too little, sleep and read again.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use milena_store::Store;
use milena_wire::kafka_protocol::ResponseError;
use tokio::time::{Instant, sleep_until};

use super::arena::BufferPool;
use super::compressors::Compressors;
use super::purgatory::Purgatory;
use super::reader::{self, Memory, Pass, PassLimits, Target};
use super::room::Room;
use super::want::Want;
use crate::metrics::FetchMetrics;

/// How long to wait for how much.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Longest wait.
    pub wait: Duration,
    /// Bytes of records below which the answer may wait.
    pub bytes_min: usize,
    /// Bytes of records in the answer, but for the first record.
    pub bytes_max: usize,
    /// True when the client would take more than `bytes_max`.
    pub ends_early: bool,
}

/// What a fetch reads from, and where it waits.
pub struct Source<'a> {
    /// The engine.
    pub store: &'a dyn Store,
    /// The partition that is read first, counted round and round.
    pub first: usize,
    /// Where fetches wait.
    pub purgatory: &'a Purgatory,
    /// Buffers of responses.
    pub buffers: &'a Arc<BufferPool>,
    /// Room for answers.
    pub room: &'a Room,
    /// Places of those that compress much.
    pub compressors: &'a Compressors,
    /// Counters.
    pub metrics: &'a FetchMetrics,
    /// True on a multi-thread runtime, where a thread may say that it is busy.
    pub threads_can_block: bool,
}

/// Answers the wanted partitions: at once when there is enough, an error, or nothing to wait for; else as soon as
/// `bytes_min` are there or a topic is deleted or renamed, and always when the wait is over or `ending` resolves, which
/// says that nobody should wait for this client any more.
pub async fn serve(
    source: &Source<'_>,
    wants: &[Want],
    targets: &[Result<Target, ResponseError>],
    patience: Patience,
    ending: impl Future<Output = ()>,
) -> Pass {
    let over = sleep_until(Instant::now() + patience.wait);
    let fetch = Fetch { source, wants, targets, patience };
    let mut pass = fetch.read().await;
    if patience.wait.is_zero() || wants.is_empty() || fetch.missing(&pass) == 0 {
        return pass;
    }
    let partitions = targets.iter().filter_map(|target| target.as_ref().ok()).map(|target| target.at.clone());
    let parked = source.purgatory.register(partitions.collect());
    source.metrics.parked.add(1);
    let (mut over, mut ending) = (pin!(over), pin!(ending));
    let (mut mark, mut slept) = (0, Duration::ZERO);
    // What was appended before the registration is counted nowhere; the bounds tell whether there was any.
    if reader::moved(source.store, targets, &pass).await {
        mark = parked.mark();
        pass = fetch.read().await;
    }
    while let missing @ 1.. = fetch.missing(&pass) {
        let asleep = Instant::now();
        let goes_on = tokio::select! {
            () = parked.wait(mark, missing) => true,
            () = &mut over => false,
            () = &mut ending => false,
        };
        slept += asleep.elapsed();
        if goes_on || parked.mark() != mark {
            mark = parked.mark();
            pass = fetch.read().await;
        }
        if !goes_on || parked.is_nameless() {
            break;
        }
    }
    pass.slept = slept;
    pass
}

struct Fetch<'a> {
    source: &'a Source<'a>,
    wants: &'a [Want],
    targets: &'a [Result<Target, ResponseError>],
    patience: Patience,
}

impl Fetch<'_> {
    async fn read(&self) -> Pass {
        let Source { buffers: pool, room, compressors, .. } = *self.source;
        let memory = Memory { pool, room, compressors };
        let limits = PassLimits {
            first: self.source.first,
            bytes: self.patience.bytes_max,
            threads_can_block: self.source.threads_can_block,
        };
        reader::read(self.source.store, self.wants, self.targets, limits, memory).await
    }

    /// Bytes still to wait for; news does not wait.
    fn missing(&self, pass: &Pass) -> usize {
        if pass.has_news { 0 } else { self.patience.bytes_min.saturating_sub(pass.arena.len()) }
    }
}
