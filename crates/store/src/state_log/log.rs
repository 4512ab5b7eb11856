//! The writer: claims, appends, snapshots, and what is done about an append in doubt.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::lock::Mutex;

use super::codec::{Body, Message, Stamp};
use super::port::{Port, StateLogOptions};
use super::reader::StateLogReader;
use super::replay::{Replay, StateEvent};
use crate::engine::Store;
use crate::error::StoreError;
use crate::types::{Bounds, Durability, PartitionRef};

/// How often `open` tries to get its claim in behind messages of a predecessor that still land.
const CLAIM_ROUNDS_MAX: usize = 8;

/// A log of state records with snapshots. See the [module](super) for its rules.
pub struct StateLog {
    port: Port,
    writer: Mutex<Writer>,
    bytes_since: AtomicU64,
    bytes_due: AtomicU64,
}

/// What the writer knows of the log. Changed before an append is sent, so that a future that is dropped on the way
/// leaves the append in doubt instead of forgotten.
#[derive(Clone)]
struct Writer {
    /// Everything below was read or written by us.
    end: u64,
    /// Term in force; ours if `claimed`.
    term: u64,
    /// Highest term that we ever put into a claim.
    term_used: u64,
    /// Sequence of the last message that counted in this term.
    seq: u64,
    /// Highest sequence that we ever used in this term.
    seq_used: u64,
    claimed: bool,
    /// The append whose outcome is not known.
    doubt: Option<Stamp>,
    /// Set when somebody else wrote: the table no longer is what the log says.
    overtaken: bool,
    /// What the newest whole snapshot covers; 0 when there is none.
    covers: u64,
}

impl StateLog {
    /// Opens the log in topic `topic` of the internal stream, creating it when it is missing, and tells `apply` all
    /// that it holds: the newest whole snapshot and the records behind it.
    ///
    /// # Errors
    /// Whatever the store answers; [`StoreError::Broken`] when a message cannot be read, since a table with a hole is
    /// worse than none. A full or busy device does not prevent opening where nobody else writes: the claim is then made by the
    /// first append.
    pub async fn open(
        store: Arc<dyn Store>,
        topic: &str,
        options: StateLogOptions,
        apply: impl FnMut(StateEvent<'_>),
    ) -> Result<Self, StoreError> {
        let port = Port::open(store, topic, options).await?;
        let bounds = port.bounds().await?;
        let mut replay = Replay::new(bounds.start, apply);
        port.scan(bounds, |offset, message| replay.message(offset, message)).await?;
        let mut writer = Writer {
            end: bounds.end,
            term: replay.term,
            term_used: replay.term,
            seq: replay.seq,
            seq_used: replay.seq,
            claimed: false,
            doubt: None,
            overtaken: false,
            covers: 0,
        };
        writer.claim_at_open(&port, &mut replay).await?;
        replay.finish()?;
        writer.covers = replay.covers.unwrap_or(0);
        let bytes_due = port.options.snapshot_bytes.max(replay.snapshot_bytes);
        Ok(Self {
            port,
            writer: Mutex::new(writer),
            bytes_since: AtomicU64::new(replay.bytes_since),
            bytes_due: AtomicU64::new(bytes_due),
        })
    }

    /// Appends one record; it is durable when this returns. Appends are stored in the order in which they are called.
    ///
    /// A caller that keeps a table and takes snapshots wants [`StateLog::update`], which leaves no gap between the
    /// append and the change of the table.
    ///
    /// # Errors
    /// Every error means that the record does not count, except that after [`StoreError::InDoubt`] it does when the
    /// process ends before the next append or snapshot. [`StoreError::Busy`] after another writer took the log over:
    /// it must be opened again.
    pub async fn append(&self, payload: Vec<u8>) -> Result<(), StoreError> {
        self.update(payload, |_| ()).await
    }

    /// Appends one record and then applies it, before any other append or snapshot can come between.
    ///
    /// `apply` gets the record back; it is not called when the append fails.
    ///
    /// # Errors
    /// As [`StateLog::append`].
    pub async fn update<T>(&self, payload: Vec<u8>, apply: impl FnOnce(&[u8]) -> T) -> Result<T, StoreError> {
        let mut writer = self.writer.lock().await;
        let payload = Bytes::from(payload);
        writer.write(&self.port, Body::Record(payload.clone())).await?;
        self.bytes_since.fetch_add(payload.len() as u64, Ordering::Relaxed);
        Ok(apply(&payload))
    }

    /// True when enough was appended since the last snapshot that a new one is worth its bytes.
    #[must_use]
    pub fn snapshot_due(&self) -> bool {
        self.bytes_since.load(Ordering::Relaxed) >= self.bytes_due.load(Ordering::Relaxed)
    }

    /// Writes a snapshot that stands for everything appended so far, and trims what it covers.
    ///
    /// `records` must hold the effect of every append that returned: the caller must hold off appends from before it
    /// collects them until this returns. [`StateLog::snapshot_with`] does that by itself.
    ///
    /// # Errors
    /// As [`StateLog::append`]. The snapshot is then ignored and the one before it still stands.
    pub async fn snapshot(&self, records: Vec<Vec<u8>>) -> Result<(), StoreError> {
        self.snapshot_with(|| records).await
    }

    /// As [`StateLog::snapshot`], with records that `build` collects while appends are held off. Consistent with a
    /// table that changes only within [`StateLog::update`].
    ///
    /// # Errors
    /// As [`StateLog::snapshot`].
    pub async fn snapshot_with(&self, build: impl FnOnce() -> Vec<Vec<u8>>) -> Result<(), StoreError> {
        let mut writer = self.writer.lock().await;
        writer.settle(&self.port).await?;
        let covers = writer.end;
        let records: Vec<Bytes> = build().into_iter().map(Bytes::from).collect();
        let bytes: u64 = records.iter().map(|record| record.len() as u64).sum();
        for body in chunks(covers, records, self.port.chunk_bytes()) {
            writer.write(&self.port, body).await?;
        }
        self.bytes_since.store(0, Ordering::Relaxed);
        self.bytes_due.store(self.port.options.snapshot_bytes.max(bytes), Ordering::Relaxed);
        let flushed = matches!(self.port.options.durability, Some(Durability::Always));
        let trim_to = if flushed { covers } else { writer.covers };
        writer.covers = covers;
        // The snapshot stands whatever becomes of the trim; the next one trims again.
        let _ = self.port.store.trim(&self.port.at, trim_to).await;
        Ok(())
    }

    /// True when another writer took the log over. Whatever is appended is refused then; the log must be opened again, and
    /// the table with it.
    pub async fn is_overtaken(&self) -> bool {
        self.writer.lock().await.overtaken
    }

    /// True while the outcome of the last append is not known. It is settled by the next one.
    pub async fn is_in_doubt(&self) -> bool {
        self.writer.lock().await.doubt.is_some()
    }

    /// Everything below was read when the log was opened, or appended by this writer since.
    pub async fn end(&self) -> u64 {
        self.writer.lock().await.end
    }

    /// A reader of the same log, which also sees what other writers append.
    #[must_use]
    pub fn reader(&self) -> StateLogReader {
        StateLogReader::new(self.port.clone())
    }

    /// The partition that holds the log.
    #[must_use]
    pub fn partition(&self) -> &PartitionRef {
        &self.port.at
    }
}

impl Writer {
    async fn claim_at_open<A: FnMut(StateEvent<'_>)>(
        &mut self,
        port: &Port,
        replay: &mut Replay<A>,
    ) -> Result<(), StoreError> {
        for _ in 0..CLAIM_ROUNDS_MAX {
            self.term_used = replay.term + 1;
            let stamp = Stamp { term: self.term_used, seq: 0 };
            let body = Body::Claim { writer: port.options.writer, follows: replay.term, voids: None };
            let claimed = port.send(stamp, &body).await;
            // Whatever a predecessor's append in flight put before the claim is part of the table.
            let bounds = port.bounds().await?;
            let unread = Bounds { start: self.end, end: bounds.end };
            port.scan(unread, |offset, message| replay.message(offset, message)).await?;
            self.end = bounds.end;
            (self.term, self.seq, self.seq_used) = (replay.term, replay.seq, replay.seq);
            if replay.term == stamp.term && replay.owner == port.options.writer {
                self.claimed = true;
                return Ok(());
            }
            match claimed {
                Ok(_) => {}
                // Where the appends of a dead process may still land, only a claim says what the log holds.
                Err(error) if port.store.capabilities().foreign_writers => return Err(error),
                // Otherwise the first append claims, and says what is wrong if it still is.
                Err(_) => return Ok(()),
            }
        }
        Err(overtaken())
    }

    /// Makes the log ours again if it is not, and settles what is in doubt.
    async fn settle(&mut self, port: &Port) -> Result<(), StoreError> {
        if self.overtaken {
            return Err(overtaken());
        }
        if self.claimed && self.doubt.is_none() {
            return Ok(());
        }
        self.claimed = false;
        self.term_used += 1;
        let stamp = Stamp { term: self.term_used, seq: 0 };
        let body = Body::Claim { writer: port.options.writer, follows: self.term, voids: self.doubt };
        let base = port.send(stamp, &body).await?;
        self.catch_up(port, base, Message { stamp, body }).await?;
        if self.claimed && !self.overtaken {
            self.doubt = None;
            return Ok(());
        }
        self.overtaken = true;
        Err(overtaken())
    }

    async fn write(&mut self, port: &Port, body: Body) -> Result<(), StoreError> {
        self.settle(port).await?;
        self.seq_used += 1;
        let stamp = Stamp { term: self.term, seq: self.seq_used };
        self.doubt = Some(stamp);
        let base = match port.send(stamp, &body).await {
            Ok(base) => base,
            Err(error @ StoreError::InDoubt { .. }) => return Err(error),
            Err(error) => {
                self.doubt = None;
                return Err(error);
            }
        };
        if self.catch_up(port, base, Message { stamp, body }).await? {
            self.doubt = None;
            return Ok(());
        }
        self.overtaken = true;
        Err(overtaken())
    }

    /// After the append of `sent` was acknowledged at `base`: takes note of it, and of whatever landed before it.
    ///
    /// True when `sent` counts.
    async fn catch_up(&mut self, port: &Port, base: Option<u64>, sent: Message) -> Result<bool, StoreError> {
        let us = port.options.writer;
        if base == Some(self.end) {
            self.end += 1;
            return Ok(self.take(us, &sent));
        }
        let bounds = port.bounds().await.map_err(in_doubt)?;
        let unread = Bounds { start: self.end, end: bounds.end };
        let (mut found, mut counts) = (false, false);
        let mut unconfirmed = self.clone();
        let scanned = port.scan(unread, |_, message| {
            let counted = unconfirmed.take(us, &message);
            found |= message == sent;
            counts |= counted && message == sent;
        });
        scanned.await.map_err(in_doubt)?;
        *self = unconfirmed;
        self.end = bounds.end;
        if found {
            return Ok(counts);
        }
        Err(StoreError::InDoubt { reason: "an acknowledged state record cannot be found".to_owned() })
    }

    /// Takes note of a message behind the known end; true when it counts. What counts and is not ours was written by
    /// somebody who overtook us.
    fn take(&mut self, us: u64, message: &Message) -> bool {
        let stamp = message.stamp;
        if let Body::Claim { writer, follows, voids } = message.body {
            let counts = follows == self.term && stamp.term > self.term;
            if counts {
                // An earlier attempt of ours is as good as the last one, since it voids the same append.
                self.claimed = writer == us && stamp.term <= self.term_used && voids == self.doubt;
                self.overtaken |= !self.claimed;
                (self.term, self.seq, self.seq_used) = (stamp.term, 0, 0);
            }
            return counts;
        }
        let counts = stamp.term == self.term && stamp.seq > self.seq;
        if counts {
            self.overtaken |= Some(stamp) != self.doubt;
            self.seq = stamp.seq;
        }
        counts
    }
}

/// An append was acknowledged, but where it landed could not be read: it may count.
#[expect(clippy::needless_pass_by_value, reason = "the signature of map_err")]
fn in_doubt(error: StoreError) -> StoreError {
    StoreError::InDoubt { reason: format!("a state record was stored, but its place cannot be read: {error}") }
}

fn overtaken() -> StoreError {
    StoreError::Busy { reason: "another writer took this state log over; it must be opened again".to_owned() }
}

fn chunks(covers: u64, records: Vec<Bytes>, chunk_bytes: usize) -> Vec<Body> {
    let mut groups = vec![Vec::new()];
    let mut size = 0;
    for record in records {
        let record_bytes = record.len() + 4;
        if size > 0 && size + record_bytes > chunk_bytes {
            groups.push(Vec::new());
            size = 0;
        }
        size += record_bytes;
        if let Some(group) = groups.last_mut() {
            group.push(record);
        }
    }
    let count = groups.len();
    (0u32..)
        .zip(groups)
        .map(|(index, records)| Body::Chunk { covers, index, last: index as usize + 1 == count, records })
        .collect()
}
