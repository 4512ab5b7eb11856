//! Incremental fetch sessions (KIP-227).
//!
//! A consumer of many partitions names them once; the session keeps the list, later requests carry only what changed,
//! and answers carry only partitions with news. Requests of a session are numbered by epochs:
//!
//! - epoch 0 asks for a new session (and closes the one whose id is sent along), epoch -1 asks for none
//! - epoch n > 0 continues a session. A wrong number means that an answer was lost: `INVALID_FETCH_SESSION_EPOCH` (71);
//!   an unknown id, `FETCH_SESSION_ID_NOT_FOUND` (70). After either the client starts over with epoch 0.
//! - a session is by name or by id; continuing it the other way is `FETCH_SESSION_TOPIC_ID_ERROR` (106)
//!
//! Sessions are bounded in number and in partitions held by all of them, where a long name counts like further partitions. At the bound a new session takes the place of
//! one that was idle for two minutes, else of a smaller one that is older than that; else there is none (id 0), which
//! costs the client only the savings. No fetch comes from a replica here, so no session is privileged.
//!
//! A partition that got data goes to the end of the order: a busy partition at the front never starves the others of the
//! byte budget.
//!
//! Pure: `now_ms` and ids are arguments, nothing is read here.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

use super::want::{PartitionKey, Want};

/// Age, and idle time, from which a session may have to make room.
const EVICTION_MS: u64 = 120_000;

/// Memory that a partition of a session takes, about.
const PARTITION_BYTES: usize = 200;

/// Session id of no session.
pub const NO_SESSION: i32 = 0;

/// Session epoch that asks for a new session.
pub const EPOCH_NEW: i32 = 0;

/// Session epoch that asks for none, and closes the session whose id is sent along.
pub const EPOCH_NONE: i32 = -1;

/// Why a request does not fit its session. The whole request is answered with the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// `FETCH_SESSION_ID_NOT_FOUND` (70).
    #[error("no such fetch session")]
    NotFound,
    /// `INVALID_FETCH_SESSION_EPOCH` (71).
    #[error("the request is not the next one of its fetch session")]
    Epoch,
    /// `FETCH_SESSION_TOPIC_ID_ERROR` (106).
    #[error("the fetch session names topics the other way")]
    TopicIds,
}

/// What a request says to its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// True when topics are named by id (version 13 on).
    pub by_id: bool,
    /// Session id as sent.
    pub session_id: i32,
    /// Session epoch as sent.
    pub epoch: i32,
    /// Partitions of the request, in its order.
    pub wants: Vec<Want>,
    /// Partitions to take out of the session.
    pub forgotten: Vec<PartitionKey>,
}

/// What to read for a request.
pub struct Plan {
    /// Partitions in the order in which they may use the byte budget.
    pub wants: Vec<Want>,
    kind: Kind,
}

impl Plan {
    /// True when no session keeps the order of the partitions for the next request.
    #[must_use]
    pub fn is_sessionless(&self) -> bool {
        matches!(self.kind, Kind::Sessionless)
    }
}

enum Kind {
    Sessionless,
    New { by_id: bool },
    Continued { session: Arc<Mutex<Session>>, id: i32, epoch: i32, places: Vec<u64> },
}

/// What a session has to know of the answer of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// The partition is answered with an error, or with where the reader's log diverges.
    pub failed: bool,
    /// Records are returned for it.
    pub has_records: bool,
    /// High watermark in the answer.
    pub high_watermark: i64,
    /// Log start offset in the answer.
    pub log_start: i64,
}

/// How the answer is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// Session id of the answer.
    pub session_id: i32,
    /// Which of the plan's partitions are in the answer; `None` is all of them.
    pub included: Option<Vec<bool>>,
}

/// All sessions.
pub struct Sessions {
    sessions_max: usize,
    partitions_max: usize,
    index: Mutex<Index>,
}

#[derive(Default)]
struct Index {
    sessions: HashMap<i32, Listed>,
    by_use: BTreeSet<(u64, i32)>,
    /// Sessions older than `EVICTION_MS`, by size.
    aged: BTreeSet<(usize, i32)>,
    partitions: usize,
}

struct Listed {
    session: Arc<Mutex<Session>>,
    created_ms: u64,
    used_ms: u64,
    size: usize,
}

struct Session {
    by_id: bool,
    epoch: i32,
    order: BTreeMap<u64, Cached>,
    places: HashMap<PartitionKey, u64>,
    next_place: u64,
}

struct Cached {
    want: Want,
    high_watermark: i64,
    log_start: i64,
}

/// The epoch behind `epoch`; it wraps to 1, since 0 asks for a new session.
fn next_epoch(epoch: i32) -> i32 {
    epoch.checked_add(1).unwrap_or(1)
}

impl Sessions {
    /// No session yet; `sessions_max` of them at most, with `partitions_max` partitions in all.
    #[must_use]
    pub fn new(sessions_max: usize, partitions_max: usize) -> Self {
        Self { sessions_max, partitions_max, index: Mutex::default() }
    }

    /// Sessions held now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.lock().sessions.len()
    }

    /// True when no session is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Partitions held by all sessions, and what their names count.
    #[must_use]
    pub fn partitions(&self) -> usize {
        self.index.lock().partitions
    }

    /// Takes a request into its session, if it has one, and says what to read.
    ///
    /// # Errors
    /// When the request does not fit the session it names; nothing is changed then.
    pub fn begin(&self, ask: Ask, now_ms: u64) -> Result<Plan, SessionError> {
        if ask.epoch == EPOCH_NEW || ask.epoch == EPOCH_NONE {
            self.index.lock().remove(ask.session_id);
            let kind = if ask.epoch == EPOCH_NEW { Kind::New { by_id: ask.by_id } } else { Kind::Sessionless };
            return Ok(Plan { wants: distinct(ask.wants), kind });
        }
        let session = self.index.lock().get(ask.session_id).ok_or(SessionError::NotFound)?;
        let mut open = session.lock();
        if open.epoch != ask.epoch {
            return Err(SessionError::Epoch);
        }
        if open.by_id != ask.by_id {
            return Err(SessionError::TopicIds);
        }
        open.update(ask.wants, &ask.forgotten);
        open.epoch = next_epoch(ask.epoch);
        let (places, wants) = open.snapshot();
        let epoch = open.epoch;
        drop(open);
        let kept = self.index.lock().touch(ask.session_id, weight(&wants), self.partitions_max, now_ms);
        let kind =
            if kept { Kind::Continued { session, id: ask.session_id, epoch, places } } else { Kind::Sessionless };
        Ok(Plan { wants, kind })
    }

    /// Takes the answers (one per want of the plan, in its order) into the session. `fresh_id` draws candidates for the
    /// id of a new session.
    ///
    /// # Errors
    /// [`SessionError::Epoch`] when another request of the same session went past this one while it waited.
    pub fn finish(
        &self,
        plan: &Plan,
        answers: &[Summary],
        now_ms: u64,
        fresh_id: impl FnMut() -> i32,
    ) -> Result<Finished, SessionError> {
        match &plan.kind {
            Kind::Sessionless => Ok(Finished { session_id: NO_SESSION, included: None }),
            Kind::New { by_id } => {
                let session_id = self.create(*by_id, &plan.wants, answers, now_ms, fresh_id);
                Ok(Finished { session_id, included: None })
            }
            Kind::Continued { session, id, epoch, places } => {
                let mut session = session.lock();
                if session.epoch != *epoch {
                    return Err(SessionError::Epoch);
                }
                let included = places.iter().zip(answers).map(|(place, answer)| session.note(*place, answer)).collect();
                Ok(Finished { session_id: *id, included: Some(included) })
            }
        }
    }

    fn create(
        &self,
        by_id: bool,
        wants: &[Want],
        answers: &[Summary],
        now_ms: u64,
        mut fresh_id: impl FnMut() -> i32,
    ) -> i32 {
        let weight = weight(wants);
        let mut index = self.index.lock();
        if wants.is_empty() || !index.make_room(weight, self.sessions_max, self.partitions_max, now_ms) {
            return NO_SESSION;
        }
        // A few draws find a free id as long as ids are much rarer than numbers; none is no error, only no session.
        let free = (0..16).map(|_| fresh_id()).find(|id| *id > 0 && !index.sessions.contains_key(id));
        let Some(id) = free else { return NO_SESSION };
        let session = Session::new(by_id, wants, answers);
        index.insert(id, weight, session, now_ms);
        id
    }
}

/// What a session of these partitions counts: one for each, and one for as many bytes of names as a partition takes. A
/// name that does not exist may have 32 KiB, and a session would keep it although it can never be read.
fn weight(wants: &[Want]) -> usize {
    let names = wants.chunk_by(|one, next| one.key.topic == next.key.topic).filter_map(<[Want]>::first);
    let name_bytes: usize = names.map(|want| want.key.topic.name_bytes()).sum();
    wants.len() + name_bytes / PARTITION_BYTES
}

/// Keeps the first place and the last position of a partition that is named twice, as Kafka does.
fn distinct(wants: Vec<Want>) -> Vec<Want> {
    if wants.len() < 2 {
        return wants;
    }
    let mut places: HashMap<PartitionKey, usize> = HashMap::with_capacity(wants.len());
    let mut kept: Vec<Want> = Vec::with_capacity(wants.len());
    for want in wants {
        let place = *places.entry(want.key.clone()).or_insert(kept.len());
        match kept.get_mut(place) {
            Some(earlier) => *earlier = want,
            None => kept.push(want),
        }
    }
    kept
}

impl Session {
    fn new(by_id: bool, wants: &[Want], answers: &[Summary]) -> Self {
        let mut session = Self {
            by_id,
            epoch: next_epoch(EPOCH_NEW),
            order: BTreeMap::new(),
            places: HashMap::with_capacity(wants.len()),
            next_place: 0,
        };
        for want in wants {
            session.add(want.clone());
        }
        for (place, answer) in (0..).zip(answers) {
            session.note(place, answer);
        }
        session
    }

    fn add(&mut self, want: Want) {
        self.places.insert(want.key.clone(), self.next_place);
        // What no answer was sent for yet differs from any answer.
        self.order.insert(self.next_place, Cached { want, high_watermark: -1, log_start: -1 });
        self.next_place += 1;
    }

    fn update(&mut self, wants: Vec<Want>, forgotten: &[PartitionKey]) {
        for want in wants {
            match self.places.get(&want.key).and_then(|place| self.order.get_mut(place)) {
                Some(cached) => cached.want.position = want.position,
                None => self.add(want),
            }
        }
        for key in forgotten {
            if let Some(place) = self.places.remove(key) {
                self.order.remove(&place);
            }
        }
    }

    fn snapshot(&self) -> (Vec<u64>, Vec<Want>) {
        self.order.iter().map(|(place, cached)| (*place, cached.want.clone())).unzip()
    }

    /// Takes an answer in; true when the client has to be told.
    fn note(&mut self, place: u64, answer: &Summary) -> bool {
        let Some(cached) = self.order.get_mut(&place) else { return true };
        let changed = cached.high_watermark != answer.high_watermark || cached.log_start != answer.log_start;
        // After an error the next good answer is news, whatever it holds.
        cached.high_watermark = if answer.failed { -1 } else { answer.high_watermark };
        cached.log_start = answer.log_start;
        if answer.has_records {
            self.move_to_the_end(place);
        }
        answer.has_records || answer.failed || changed
    }

    fn move_to_the_end(&mut self, place: u64) {
        if let Some(cached) = self.order.remove(&place) {
            self.places.insert(cached.want.key.clone(), self.next_place);
            self.order.insert(self.next_place, cached);
            self.next_place += 1;
        }
    }
}

impl Index {
    fn get(&self, id: i32) -> Option<Arc<Mutex<Session>>> {
        self.sessions.get(&id).map(|listed| Arc::clone(&listed.session))
    }

    fn insert(&mut self, id: i32, size: usize, session: Session, now_ms: u64) {
        let session = Arc::new(Mutex::new(session));
        self.sessions.insert(id, Listed { session, created_ms: now_ms, used_ms: now_ms, size });
        self.by_use.insert((now_ms, id));
        self.partitions += size;
    }

    fn remove(&mut self, id: i32) {
        if let Some(listed) = self.sessions.remove(&id) {
            self.by_use.remove(&(listed.used_ms, id));
            self.aged.remove(&(listed.size, id));
            self.partitions -= listed.size;
        }
    }

    /// Notes a use. False when the session is closed by it: it is empty, grew past the bound on partitions, or was
    /// evicted meanwhile.
    fn touch(&mut self, id: i32, size: usize, partitions_max: usize, now_ms: u64) -> bool {
        let Some(listed) = self.sessions.get_mut(&id) else { return false };
        self.by_use.remove(&(listed.used_ms, id));
        self.aged.remove(&(listed.size, id));
        self.partitions = self.partitions - listed.size + size;
        listed.used_ms = now_ms;
        listed.size = size;
        self.by_use.insert((now_ms, id));
        if now_ms.saturating_sub(listed.created_ms) > EVICTION_MS {
            self.aged.insert((size, id));
        }
        let kept = size > 0 && self.partitions <= partitions_max;
        if !kept {
            self.remove(id);
        }
        kept
    }

    /// Evicts until a session of `size` partitions fits; false when nobody has to give way to it.
    fn make_room(&mut self, size: usize, sessions_max: usize, partitions_max: usize, now_ms: u64) -> bool {
        if size > partitions_max || sessions_max == 0 {
            return false;
        }
        while self.sessions.len() >= sessions_max || self.partitions + size > partitions_max {
            let idle = self.by_use.first().filter(|(used_ms, _)| now_ms.saturating_sub(*used_ms) > EVICTION_MS);
            let smaller = self.aged.first().filter(|(theirs, _)| *theirs < size);
            let Some(id) = idle.map(|(_, id)| *id).or(smaller.map(|(_, id)| *id)) else {
                return false;
            };
            self.remove(id);
        }
        true
    }
}

#[cfg(test)]
#[path = "sessions_tests.rs"]
mod tests;
