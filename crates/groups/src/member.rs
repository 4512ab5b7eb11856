//! One member of a group.

use std::sync::Arc;

use crate::join::JoinRequest;
use crate::limits::GroupConfig;
use crate::protocol::Protocol;
use crate::types::{Blob, MemberId, Moment, Token};

/// A join that waits for the barrier.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ParkedJoin {
    pub(crate) token: Token,
}

/// A member. All of it is copied out of the request, so that no frame is held by a group that lives for weeks.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) id: MemberId,
    pub(crate) instance_id: Option<Arc<str>>,
    pub(crate) client_id: Arc<str>,
    pub(crate) client_host: Arc<str>,
    pub(crate) session_timeout_ms: u32,
    pub(crate) rebalance_timeout_ms: u32,
    pub(crate) protocols: Vec<Protocol>,
    pub(crate) assignment: Blob,
    pub(crate) join: Option<ParkedJoin>,
    pub(crate) sync: Option<Token>,
    /// It was told a generation and has not asked for its assignment yet.
    pub(crate) sync_due: bool,
    /// Until its first join is answered, it does not know its name, if it did not bring one. So it cannot come back,
    /// and a lost connection ends it.
    pub(crate) nameless: bool,
    /// When an unanswered first join is given up.
    pub(crate) new_until: Option<Moment>,
    /// What is kept of its last join.
    pub(crate) bytes: usize,
    heard: Moment,
}

impl Member {
    pub(crate) fn new(id: MemberId, request: &JoinRequest<'_>, config: &GroupConfig, now: Moment) -> Self {
        Self {
            nameless: request.member_id.is_empty(),
            bytes: request.bytes_as(&id),
            id,
            instance_id: request.instance().map(Arc::from),
            client_id: Arc::from(request.client_id),
            client_host: Arc::from(request.client_host),
            session_timeout_ms: request.session_timeout_ms.unsigned_abs(),
            rebalance_timeout_ms: request.rebalance_timeout(),
            protocols: request.protocols.iter().map(|(name, metadata)| Protocol::new(name, metadata)).collect(),
            assignment: Blob::from([]),
            join: None,
            sync: None,
            sync_due: false,
            new_until: Some(now.plus(u64::from(config.new_member_join_timeout_ms))),
            heard: now,
        }
    }

    /// Takes over what a client says of itself when it joins again.
    pub(crate) fn update(&mut self, request: &JoinRequest<'_>) {
        self.client_id = Arc::from(request.client_id);
        self.client_host = Arc::from(request.client_host);
        self.session_timeout_ms = request.session_timeout_ms.unsigned_abs();
        self.rebalance_timeout_ms = request.rebalance_timeout();
        self.protocols = request.protocols.iter().map(|(name, metadata)| Protocol::new(name, metadata)).collect();
        self.bytes = request.bytes_as(&self.id);
    }

    /// The session starts anew.
    pub(crate) fn refresh(&mut self, now: Moment) {
        self.heard = now;
    }

    /// When it is evicted if it stays silent. A member whose request waits here cannot send anything, so its session
    /// rests; a new one that waits is given up after a time, because it may have gone without a trace.
    pub(crate) fn session_ends(&self) -> Option<Moment> {
        if self.join.is_some() {
            return self.new_until;
        }
        if self.sync.is_some() {
            return None;
        }
        Some(self.heard.plus(u64::from(self.session_timeout_ms)))
    }

    /// The metadata for a protocol.
    pub(crate) fn metadata(&self, protocol: &str) -> Option<&Blob> {
        self.protocols.iter().find(|p| &*p.name == protocol).map(|p| &p.metadata)
    }

    /// True when a join says the same protocols in the same order with the same metadata.
    pub(crate) fn says_the_same(&self, request: &JoinRequest<'_>) -> bool {
        self.protocols.len() == request.protocols.len()
            && self
                .protocols
                .iter()
                .zip(request.protocols)
                .all(|(mine, (name, metadata))| &*mine.name == *name && &*mine.metadata == *metadata)
    }
}
