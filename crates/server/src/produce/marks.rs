//! Where the ends of taken blocks of producer ids are kept: the internal topic `producers`, as a state log.
//!
//! A record is 11 bytes: version 1, instance number (u16 little-endian), end of the block (u64 little-endian). The
//! largest end of an instance counts. A snapshot has one record per instance.

use std::collections::HashMap;
use std::sync::Arc;

use milena_store::state_log::{StateEvent, StateLog, StateLogOptions};
use milena_store::{Store, StoreError};
use parking_lot::Mutex;

use super::ids::{Marks, MarksFuture};
use crate::opening::open_log;

/// Topic of the internal stream.
const TOPIC: &str = "producers";
const VERSION: u8 = 1;

/// Marks in the state log of a store.
pub struct LogMarks {
    log: StateLog,
    ends: Mutex<HashMap<u16, u64>>,
}

impl LogMarks {
    /// Opens the log and reads all of it.
    ///
    /// # Errors
    /// As [`StateLog::open`]; [`StoreError::Broken`] when a record is none of ours.
    pub async fn open(store: Arc<dyn Store>, instance: u16) -> Result<Self, StoreError> {
        let mut ends = HashMap::new();
        let mut unread = None;
        let options = StateLogOptions { writer: u64::from(instance), ..StateLogOptions::default() };
        let log = open_log(store, TOPIC, options, |event| match event {
            StateEvent::Reset => ends.clear(),
            StateEvent::Record(record) => match decode(record) {
                Some((instance, end)) => raise(&mut ends, instance, end),
                None => unread = Some(record.len()),
            },
        })
        .await?;
        if let Some(bytes) = unread {
            let context = format!("the log of producer ids holds a record of {bytes} bytes that cannot be read");
            return Err(StoreError::Broken { context });
        }
        Ok(Self { log, ends: Mutex::new(ends) })
    }
}

impl Marks for LogMarks {
    fn load(&self) -> MarksFuture<'_, HashMap<u16, u64>> {
        Box::pin(async { Ok(self.ends.lock().clone()) })
    }

    fn store(&self, instance: u16, end: u64) -> MarksFuture<'_, ()> {
        Box::pin(async move {
            self.log.update(encode(instance, end), |_| raise(&mut self.ends.lock(), instance, end)).await?;
            if self.log.snapshot_due() {
                let records = || self.ends.lock().iter().map(|(instance, end)| encode(*instance, *end)).collect();
                // The block is durable; a snapshot that fails now is made with a later block.
                if let Err(error) = self.log.snapshot_with(records).await {
                    tracing::warn!(%error, "no snapshot of the log of producer ids could be made");
                }
            }
            Ok(())
        })
    }
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
    async fn no_id_is_given_out_when_its_block_is_not_stored() {
        let store = MemoryStore::new();
        let ids = ids(&store, 0).await;
        store.plan(Fault::Full);
        assert!(ids.allocate().await.is_err());
        assert_eq!(ids.allocate().await, Ok(0));
    }
}
