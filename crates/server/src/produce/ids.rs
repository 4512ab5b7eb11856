//! Producer ids: instance number (16 bits) and counter (47 bits), never given out twice.
//!
//! Deduplication keys on these ids, so one that came back would make a new producer's records look like copies of an
//! old one's, and they would be acknowledged without being stored. The counter is therefore taken in blocks whose end
//! is durable before the first id of the block is used; after a restart the rest of the last block is lost.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};

use milena_store::StoreError;
use parking_lot::RwLock;
use tokio::time::{Duration, Instant, sleep_until};

/// Ids per block: one durable write for so many producers.
const BLOCK: u64 = 1_000;
const COUNTER_BITS: u32 = 47;
/// Counters of one instance.
const COUNTERS: u64 = 1 << COUNTER_BITS;

/// Future of a [`Marks`] call.
pub type MarksFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Where the ends of taken blocks are kept.
pub trait Marks: Send + Sync + 'static {
    /// End of the last block of every instance, as far as it was read: no counter of our own instance at or above it was
    /// ever given out.
    fn load(&self) -> MarksFuture<'_, HashMap<u16, u64>>;
    /// The same as it is now, with what other instances took in the meantime; `None` when nothing changed. Of our own
    /// instance it may tell less than [`Marks::load`].
    fn follow(&self) -> MarksFuture<'_, Option<HashMap<u16, u64>>>;
    /// How long a block may have been taken before [`Marks::follow`] tells of it.
    fn age(&self) -> Duration;
    /// Makes the end of a new block durable. An error when a block was taken meanwhile that `load` did not tell of.
    fn store(&self, instance: u16, end: u64) -> MarksFuture<'_, ()>;
}

/// Why there is no producer id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdError {
    /// All ids of this instance are spent.
    #[error("all producer ids of instance {instance} are spent")]
    Spent {
        /// The instance number.
        instance: u16,
    },
    /// The new block could not be made durable.
    #[error("the next block of producer ids could not be stored: {0}")]
    Store(#[from] StoreError),
}

/// Gives out producer ids.
pub struct ProducerIds {
    instance: u16,
    marks: Box<dyn Marks>,
    /// Ends of the blocks of other instances.
    others: RwLock<HashMap<u16, u64>>,
    /// First counter of those that this process gives out without a gap.
    began: AtomicU64,
    next: AtomicU64,
    block_end: tokio::sync::Mutex<u64>,
    /// When the marks of others were last asked for. One question at a time; whoever waited for it uses its answer.
    asked: tokio::sync::Mutex<Option<Instant>>,
}

impl ProducerIds {
    /// Goes on behind the last block of `instance`.
    ///
    /// # Errors
    /// When the ends of blocks cannot be read: without them every id could be one that was given out before.
    pub async fn open(instance: u16, marks: Box<dyn Marks>) -> Result<Self, StoreError> {
        let mut others = marks.load().await?;
        let began = others.remove(&instance).unwrap_or(0);
        Ok(Self {
            instance,
            marks,
            others: RwLock::new(others),
            began: AtomicU64::new(began),
            next: AtomicU64::new(began),
            block_end: tokio::sync::Mutex::new(began),
            asked: tokio::sync::Mutex::new(None),
        })
    }

    /// Looks at what other gateways gave out, until all of these ids are known or are known to have been given out by nobody
    /// before this was called.
    ///
    /// Ids that a client made up cost the same as others: calls that come at once share a look, and each look is one
    /// question to the store as long as nobody takes a block.
    ///
    /// # Errors
    /// When the store does not answer: whose the ids are is not known then.
    pub async fn learn(&self, ids: &[u64]) -> Result<(), StoreError> {
        let arrived = Instant::now();
        // What is asked from then on is not answered with what was so before this call.
        let needed = arrived + self.marks.age();
        loop {
            let mut asked = self.asked.lock().await;
            let known = || ids.iter().all(|id| self.was_given_out(*id));
            if known() || asked.is_some_and(|at| at >= needed) {
                return Ok(());
            }
            let now = Instant::now();
            if now < needed && asked.is_some_and(|at| at >= arrived) {
                drop(asked);
                sleep_until(needed).await;
                continue;
            }
            if let Some(mut ends) = self.marks.follow().await? {
                ends.remove(&self.instance);
                *self.others.write() = ends;
            }
            *asked = Some(now);
        }
    }

    /// A producer id that nobody had before. Never negative as an `i64`.
    ///
    /// # Errors
    /// When the ids are spent, or a new block cannot be stored.
    pub async fn allocate(&self) -> Result<u64, IdError> {
        let mut block_end = self.block_end.lock().await;
        let mut counter = self.next.load(Ordering::Acquire);
        if counter >= *block_end {
            let ends = self.marks.load().await?;
            let taken = ends.get(&self.instance).copied().unwrap_or(0);
            if taken > counter {
                // A block of another process, or one of ours that was in doubt. If its ids were given out, then not here.
                self.began.store(taken, Ordering::Release);
                self.next.store(taken, Ordering::Release);
                (counter, *block_end) = (taken, taken);
            }
        }
        if counter >= COUNTERS {
            return Err(IdError::Spent { instance: self.instance });
        }
        if counter >= *block_end {
            let end = (counter + BLOCK).min(COUNTERS);
            self.marks.store(self.instance, end).await?;
            *block_end = end;
        }
        self.next.store(counter + 1, Ordering::Release);
        Ok(u64::from(self.instance) << COUNTER_BITS | counter)
    }

    /// True when the id was given out, by this process or, as far as known, by another one.
    #[must_use]
    pub fn was_given_out(&self, producer_id: u64) -> bool {
        let (instance, counter) = split(producer_id);
        if instance == u64::from(self.instance) {
            return counter < self.next.load(Ordering::Acquire);
        }
        let Ok(instance) = u16::try_from(instance) else { return false };
        self.others.read().get(&instance).is_some_and(|end| counter < *end)
    }

    /// True when the id was given out by this very process. Ids from before a gap are left out: they are then taken for those
    /// of a predecessor, which costs a look at the log.
    #[must_use]
    pub fn began_here(&self, producer_id: u64) -> bool {
        let (instance, counter) = split(producer_id);
        // In this order: `began` is moved first, so no id of a gap is seen between the two.
        let given_out = instance == u64::from(self.instance) && counter < self.next.load(Ordering::Acquire);
        given_out && counter >= self.began.load(Ordering::Acquire)
    }
}

fn split(producer_id: u64) -> (u64, u64) {
    (producer_id >> COUNTER_BITS, producer_id & (COUNTERS - 1))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const AGE: Duration = Duration::from_millis(5);

    #[derive(Default)]
    struct MemoryMarks {
        ends: parking_lot::Mutex<HashMap<u16, u64>>,
        follows: AtomicU64,
    }

    impl Marks for MemoryMarks {
        fn load(&self) -> MarksFuture<'_, HashMap<u16, u64>> {
            Box::pin(async { Ok(self.ends.lock().clone()) })
        }

        fn follow(&self) -> MarksFuture<'_, Option<HashMap<u16, u64>>> {
            self.follows.fetch_add(1, Ordering::Relaxed);
            Box::pin(async { Ok(Some(self.ends.lock().clone())) })
        }

        fn age(&self) -> Duration {
            AGE
        }

        fn store(&self, instance: u16, end: u64) -> MarksFuture<'_, ()> {
            Box::pin(async move {
                self.ends.lock().insert(instance, end);
                Ok(())
            })
        }
    }

    #[derive(Default, Clone)]
    struct Disk(Arc<MemoryMarks>);

    impl Marks for Disk {
        fn load(&self) -> MarksFuture<'_, HashMap<u16, u64>> {
            self.0.load()
        }
        fn follow(&self) -> MarksFuture<'_, Option<HashMap<u16, u64>>> {
            self.0.follow()
        }
        fn age(&self) -> Duration {
            self.0.age()
        }
        fn store(&self, instance: u16, end: u64) -> MarksFuture<'_, ()> {
            self.0.store(instance, end)
        }
    }

    struct Failing;

    impl Marks for Failing {
        fn load(&self) -> MarksFuture<'_, HashMap<u16, u64>> {
            Box::pin(async { Ok(HashMap::new()) })
        }
        fn follow(&self) -> MarksFuture<'_, Option<HashMap<u16, u64>>> {
            Box::pin(async { Err(StoreError::Closed) })
        }
        fn age(&self) -> Duration {
            Duration::ZERO
        }
        fn store(&self, _instance: u16, _end: u64) -> MarksFuture<'_, ()> {
            Box::pin(async { Err(StoreError::Closed) })
        }
    }

    async fn open(instance: u16, disk: &Disk) -> ProducerIds {
        ProducerIds::open(instance, Box::new(disk.clone())).await.unwrap()
    }

    #[tokio::test]
    async fn a_restart_goes_on_behind_the_last_block() {
        let disk = Disk::default();
        let ids = open(0, &disk).await;
        assert_eq!(ids.allocate().await, Ok(0));
        assert_eq!(ids.allocate().await, Ok(1));
        let ids = open(0, &disk).await;
        assert_eq!(ids.allocate().await, Ok(BLOCK));
    }

    #[tokio::test]
    async fn the_end_of_a_block_is_stored_before_its_first_id_is_used() {
        let ids = ProducerIds::open(0, Box::new(Failing)).await.unwrap();
        assert_eq!(ids.allocate().await, Err(IdError::Store(StoreError::Closed)));
        assert!(!ids.was_given_out(0));
    }

    #[tokio::test]
    async fn a_block_is_stored_once_for_all_its_ids() {
        let disk = Disk::default();
        let ids = open(0, &disk).await;
        for _ in 0..BLOCK {
            ids.allocate().await.unwrap();
        }
        assert_eq!(disk.load().await.unwrap().get(&0), Some(&BLOCK));
        assert_eq!(ids.allocate().await, Ok(BLOCK));
        assert_eq!(disk.load().await.unwrap().get(&0), Some(&(2 * BLOCK)));
    }

    #[tokio::test]
    async fn instances_never_share_an_id_and_no_id_is_negative() {
        let disk = Disk::default();
        let first = open(0, &disk).await.allocate().await.unwrap();
        let last = open(u16::MAX, &disk).await.allocate().await.unwrap();
        assert_ne!(first, last);
        assert!(i64::try_from(last).is_ok());
    }

    #[tokio::test]
    async fn spent_ids_are_an_error_and_not_a_repetition() {
        let disk = Disk::default();
        disk.store(3, COUNTERS - 1).await.unwrap();
        let ids = open(3, &disk).await;
        assert!(ids.allocate().await.is_ok());
        assert_eq!(ids.allocate().await, Err(IdError::Spent { instance: 3 }));
    }

    #[tokio::test]
    async fn only_ids_below_the_mark_of_their_instance_count_as_given_out() {
        let disk = Disk::default();
        open(1, &disk).await.allocate().await.unwrap();
        let ids = open(0, &disk).await;
        assert!(ids.was_given_out((1 << COUNTER_BITS) + BLOCK - 1));
        assert!(!ids.was_given_out((1 << COUNTER_BITS) + BLOCK));
        assert!(!ids.was_given_out(2 << COUNTER_BITS));
        assert!(!ids.was_given_out(0));
        let id = ids.allocate().await.unwrap();
        assert!(ids.was_given_out(id) && ids.began_here(id));
        assert!(!ids.began_here((1 << COUNTER_BITS) + 1));
    }

    #[tokio::test(start_paused = true)]
    async fn ids_that_another_gateway_gives_out_later_are_learned_when_they_are_met() {
        let disk = Disk::default();
        let (ours, theirs) = (open(0, &disk).await, open(1, &disk).await);
        let id = theirs.allocate().await.unwrap();
        assert!(!ours.was_given_out(id));
        ours.learn(&[id]).await.unwrap();
        assert!(ours.was_given_out(id) && !ours.began_here(id));
        ours.learn(&[id, id + 1]).await.unwrap();
        assert_eq!(disk.0.follows.load(Ordering::Relaxed), 1, "a block is learned once for all its ids");
    }

    #[tokio::test(start_paused = true)]
    async fn ids_that_nobody_gave_out_cost_two_looks_however_many_ask() {
        let disk = Disk::default();
        let ids = open(0, &disk).await;
        let invented: Vec<_> = (0..100).map(|instance| instance << COUNTER_BITS | 5).collect();
        let before = Instant::now();
        futures_util::future::join_all(invented.iter().map(|id| ids.learn(std::slice::from_ref(id)))).await;
        assert!(invented.iter().all(|id| !ids.was_given_out(*id)));
        assert_eq!((disk.0.follows.load(Ordering::Relaxed), before.elapsed()), (2, AGE));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_may_be_older_than_the_question_is_not_the_last_word() {
        let disk = Disk::default();
        let ids = open(0, &disk).await;
        let wanted = [1 << COUNTER_BITS];
        let late = async {
            tokio::time::sleep(AGE / 2).await;
            disk.store(1, BLOCK).await.unwrap();
        };
        tokio::join!(ids.learn(&wanted), late).0.unwrap();
        assert!(ids.was_given_out(wanted[0]));
    }

    #[tokio::test]
    async fn when_the_store_does_not_answer_nobody_says_whose_an_id_is() {
        let ids = ProducerIds::open(0, Box::new(Failing)).await.unwrap();
        assert_eq!(ids.learn(&[1 << COUNTER_BITS]).await, Err(StoreError::Closed));
    }
}
