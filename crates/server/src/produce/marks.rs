//! Where the ends of taken blocks of producer ids are kept: the internal topic `producers`, as a state log.
//!
//! A record is 11 bytes: version 1, instance number (u16 little-endian), end of the block (u64 little-endian). The
//! largest end of an instance counts. A snapshot has one record per instance.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use milena_store::state_log::{StateEvent, StateLog, StateLogOptions, StateLogReader};
use milena_store::{Store, StoreError};
use parking_lot::Mutex;

use super::ids::{Marks, MarksFuture};
use crate::opening::open_log;

/// Topic of the internal stream.
pub(crate) const TOPIC: &str = "producers";
const VERSION: u8 = 1;

/// Attempts to read a log that its writer trims at the same time.
const FOLLOW_ROUNDS_MAX: usize = 3;

/// Attempts to store a mark while other gateways store theirs.
const ROUNDS_MAX: usize = 8;

/// Marks in the state log of a store.
///
/// All gateways of a store share the log, which has one writer at a time: who finds that another one took it over reads it
/// again and goes on. Blocks are rare, so they hardly ever meet.
pub struct LogMarks {
    store: Arc<dyn Store>,
    instance: u16,
    log: tokio::sync::Mutex<StateLog>,
    /// Apart from the log, so that a look does not wait for a block that is being stored.
    reader: tokio::sync::Mutex<StateLogReader>,
    ends: Mutex<HashMap<u16, u64>>,
}

impl LogMarks {
    /// Opens the log and reads all of it.
    ///
    /// # Errors
    /// As [`StateLog::open`]; [`StoreError::Broken`] when a record is none of ours.
    pub async fn open(store: Arc<dyn Store>, instance: u16) -> Result<Self, StoreError> {
        let (log, ends) = read(&store, instance).await?;
        let mut reader = log.reader();
        reader.knows_to(log.end().await);
        Ok(Self {
            store,
            instance,
            log: tokio::sync::Mutex::new(log),
            reader: tokio::sync::Mutex::new(reader),
            ends: Mutex::new(ends),
        })
    }

    /// Takes the log back from another gateway.
    ///
    /// # Errors
    /// As [`LogMarks::open`]; [`StoreError::Busy`] when there is a block of this instance that is not known here: one of our
    /// own that was in doubt, or that of another process. Its end is known from then on, so that the next block lies behind
    /// it.
    async fn reopen(&self, log: &mut StateLog) -> Result<(), StoreError> {
        let (reopened, read) = read(&self.store, self.instance).await?;
        *log = reopened;
        let end_of = |ends: &HashMap<u16, u64>| ends.get(&self.instance).copied().unwrap_or(0);
        let mut ends = self.ends.lock();
        let unknown = end_of(&read) > end_of(&ends);
        *ends = read;
        if unknown {
            let reason = format!("producer ids of instance {} were taken that are not known here", self.instance);
            return Err(StoreError::Busy { reason });
        }
        Ok(())
    }
}

impl Marks for LogMarks {
    fn load(&self) -> MarksFuture<'_, HashMap<u16, u64>> {
        Box::pin(async { Ok(self.ends.lock().clone()) })
    }

    fn follow(&self) -> MarksFuture<'_, Option<HashMap<u16, u64>>> {
        Box::pin(async {
            let mut reader = self.reader.lock().await;
            let mut rounds = 0;
            loop {
                let mut ends = HashMap::new();
                let mut unread = None;
                // It moves on with what could be read only. Else the next call would find nothing new, and take ids for made up
                // that somebody gave out.
                let mut ahead = reader.clone();
                let followed = ahead.follow(|event| take(&mut ends, &mut unread, event)).await;
                rounds += 1;
                match followed {
                    Ok(false) => return Ok(None),
                    Ok(true) => {
                        check(unread)?;
                        *reader = ahead;
                        return Ok(Some(ends));
                    }
                    // The log may have been trimmed while it was read.
                    Err(StoreError::OutOfRange { .. } | StoreError::Broken { .. }) if rounds < FOLLOW_ROUNDS_MAX => {}
                    Err(error) => return Err(error),
                }
            }
        })
    }

    fn age(&self) -> Duration {
        self.store.capabilities().bounds_age
    }

    fn store(&self, instance: u16, end: u64) -> MarksFuture<'_, ()> {
        Box::pin(async move {
            let mut log = self.log.lock().await;
            for _ in 0..ROUNDS_MAX {
                let stored = log.update(encode(instance, end), |_| raise(&mut self.ends.lock(), instance, end)).await;
                match stored {
                    Ok(()) => break,
                    Err(_) if log.is_overtaken().await => self.reopen(&mut log).await?,
                    Err(error) => return Err(error),
                }
            }
            if self.ends.lock().get(&instance).is_none_or(|stored| *stored < end) {
                return Err(StoreError::Busy { reason: "other gateways take producer ids all the time".to_owned() });
            }
            if log.snapshot_due() {
                let records = || self.ends.lock().iter().map(|(instance, end)| encode(*instance, *end)).collect();
                // The block is durable; a snapshot that fails now is made with a later block.
                if let Err(error) = log.snapshot_with(records).await {
                    tracing::warn!(%error, "no snapshot of the log of producer ids could be made");
                }
            }
            Ok(())
        })
    }
}

async fn read(store: &Arc<dyn Store>, instance: u16) -> Result<(StateLog, HashMap<u16, u64>), StoreError> {
    let mut ends = HashMap::new();
    let mut unread = None;
    let options = StateLogOptions { writer: u64::from(instance), ..StateLogOptions::default() };
    let log = open_log(Arc::clone(store), TOPIC, options, |event| take(&mut ends, &mut unread, event)).await?;
    check(unread)?;
    Ok((log, ends))
}

fn take(ends: &mut HashMap<u16, u64>, unread: &mut Option<usize>, event: StateEvent<'_>) {
    match event {
        StateEvent::Reset => ends.clear(),
        StateEvent::Record(record) => match decode(record) {
            Some((instance, end)) => raise(ends, instance, end),
            None => *unread = Some(record.len()),
        },
    }
}

fn check(unread: Option<usize>) -> Result<(), StoreError> {
    let broken = |bytes| format!("the log of producer ids holds a record of {bytes} bytes that cannot be read");
    unread.map_or(Ok(()), |bytes| Err(StoreError::Broken { context: broken(bytes) }))
}

fn raise(ends: &mut HashMap<u16, u64>, instance: u16, end: u64) {
    let known = ends.entry(instance).or_insert(end);
    *known = end.max(*known);
}

fn encode(instance: u16, end: u64) -> Vec<u8> {
    let mut record = vec![VERSION];
    record.extend_from_slice(&instance.to_le_bytes());
    record.extend_from_slice(&end.to_le_bytes());
    record
}

fn decode(record: &[u8]) -> Option<(u16, u64)> {
    let ([VERSION], rest) = record.split_first_chunk::<1>()? else { return None };
    let (instance, rest) = rest.split_first_chunk::<2>()?;
    let end: [u8; 8] = rest.try_into().ok()?;
    Some((u16::from_le_bytes(*instance), u64::from_le_bytes(end)))
}

#[cfg(test)]
mod tests {
    use milena_store::testing::{Fault, MemoryStore};

    use super::*;
    use crate::produce::ids::ProducerIds;

    async fn ids(store: &MemoryStore, instance: u16) -> ProducerIds {
        let marks = LogMarks::open(Arc::new(store.clone()), instance).await.unwrap();
        ProducerIds::open(instance, Box::new(marks)).await.unwrap()
    }

    #[test]
    fn a_record_is_stored_as_documented() {
        assert_eq!(encode(0x0102, 1_000), [1, 2, 1, 0xe8, 3, 0, 0, 0, 0, 0, 0]);
        assert_eq!(decode(&encode(7, u64::MAX)), Some((7, u64::MAX)));
        assert_eq!(decode(&[2; 11]), None);
        assert_eq!(decode(&[1; 12]), None);
    }

    #[tokio::test]
    async fn ids_go_on_behind_the_last_block_after_a_restart() {
        let store = MemoryStore::new();
        assert_eq!(ids(&store, 0).await.allocate().await, Ok(0));
        assert_eq!(ids(&store.again(), 0).await.allocate().await, Ok(1_000));
    }

    #[tokio::test]
    async fn marks_of_other_instances_are_known() {
        let store = MemoryStore::new();
        let theirs = ids(&store, 5).await.allocate().await.unwrap();
        let ours = ids(&store.again(), 0).await;
        assert!(ours.was_given_out(theirs));
        assert!(!ours.began_here(theirs));
    }

    #[tokio::test]
    async fn marks_that_other_instances_set_later_are_followed_and_the_log_is_not_claimed() {
        let store = MemoryStore::new();
        let (one, two) = (ids(&store, 1).await, ids(&store, 2).await);
        let marks = LogMarks::open(Arc::new(store.clone()), 3).await.unwrap();
        assert_eq!(marks.follow().await, Ok(None));
        let (first, second) = (one.allocate().await.unwrap(), two.allocate().await.unwrap());
        let ends = marks.follow().await.unwrap();
        assert_eq!(ends, Some(HashMap::from([(1, 1_000), (2, 1_000)])));
        let end = store.bounds(marks.log.lock().await.partition()).await.unwrap().end;
        one.learn(&[second]).await.unwrap();
        two.learn(&[first]).await.unwrap();
        assert!(one.was_given_out(second) && two.was_given_out(first));
        assert_eq!(store.bounds(marks.log.lock().await.partition()).await.unwrap().end, end);
    }

    #[tokio::test]
    async fn a_record_that_cannot_be_read_is_an_error_for_as_long_as_it_is_there() {
        let store = MemoryStore::new();
        let marks = LogMarks::open(Arc::new(store.clone()), 3).await.unwrap();
        let two = LogMarks::open(Arc::new(store.clone()), 2).await.unwrap();
        two.log.lock().await.append(vec![VERSION + 1; 11]).await.unwrap();
        for _ in 0..2 {
            assert!(matches!(marks.follow().await, Err(StoreError::Broken { .. })));
        }
        let ids = ProducerIds::open(3, Box::new(marks)).await.unwrap();
        for _ in 0..2 {
            assert!(ids.learn(&[2 << 47]).await.is_err(), "it may be one that was given out");
        }
    }

    #[tokio::test]
    async fn no_id_is_given_out_when_its_block_is_not_stored() {
        let store = MemoryStore::new();
        let ids = ids(&store, 0).await;
        store.plan(Fault::Full);
        assert!(ids.allocate().await.is_err());
        assert_eq!(ids.allocate().await, Ok(0));
    }

    #[tokio::test]
    async fn gateways_that_share_the_log_take_turns_and_no_block_is_given_twice() {
        let store = MemoryStore::new();
        let (one, two) = (ids(&store, 1).await, ids(&store, 2).await);
        let mut all = std::collections::HashSet::new();
        for _ in 0..2_500 {
            assert!(all.insert(one.allocate().await.unwrap()));
            assert!(all.insert(two.allocate().await.unwrap()));
        }
        assert_eq!(LogMarks::open(Arc::new(store.clone()), 3).await.unwrap().load().await.unwrap().len(), 2);
    }

    #[tokio::test]
    async fn a_block_that_lands_late_behind_that_of_another_gateway_does_not_count() {
        let store = MemoryStore::new();
        let (one, two) = (ids(&store, 1).await, ids(&store, 2).await);
        assert_eq!(one.allocate().await, Ok(1 << 47));
        store.plan(Fault::InDoubtLate { appends: 9 });
        assert!(one.allocate().await.is_ok(), "from the block that is there");
        assert!(two.allocate().await.is_err(), "in doubt");
        assert_eq!(two.allocate().await, Ok(2 << 47));
        store.land_late();
        let ends = LogMarks::open(Arc::new(store.clone()), 3).await.unwrap().load().await.unwrap();
        assert_eq!(ends, HashMap::from([(1, 1_000), (2, 1_000)]));
    }

    #[tokio::test]
    async fn ids_go_on_behind_a_block_in_doubt_that_landed_before_that_of_another_gateway() {
        let store = MemoryStore::new();
        let one = ids(&store, 1).await;
        store.plan(Fault::InDoubtApplied);
        assert!(one.allocate().await.is_err(), "in doubt");
        let two = ids(&store, 2).await;
        assert_eq!(two.allocate().await, Ok(2 << 47));
        assert!(one.allocate().await.is_err(), "the block may be that of another process");
        let first = 1 << 47;
        assert_eq!(one.allocate().await, Ok(first + 1_000));
        assert!(one.was_given_out(first) && !one.began_here(first));
        assert!(one.began_here(first + 1_000));
    }

    #[tokio::test]
    async fn two_processes_of_one_number_never_give_out_the_same_id() {
        let store = MemoryStore::new();
        let (one, two) = (ids(&store, 1).await, ids(&store, 1).await);
        let mut all = std::collections::HashSet::new();
        let mut refused = 0;
        for _ in 0..1_500 {
            for ids in [&one, &two] {
                match ids.allocate().await {
                    Ok(id) => assert!(all.insert(id), "{id} twice"),
                    Err(_) => refused += 1,
                }
            }
        }
        assert!((1..100).contains(&refused), "each goes on behind the other's blocks: {refused}");
    }
}
