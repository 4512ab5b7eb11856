//! Who is connected, and which of two connections with one client number is the one in force.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

/// A connection that has logged in.
#[derive(Debug)]
pub(crate) struct Session {
    /// The client's own number, which it chose.
    pub(crate) client: u128,
    /// Number of the session; a later one of the same client is higher, also after a restart.
    pub(crate) number: u64,
    /// Set when another connection logged in under the same client number.
    fenced: AtomicBool,
    /// Set when the client joined a group; it may have left since.
    member: AtomicBool,
}

impl Session {
    /// True when another connection took this client's place.
    pub(crate) fn is_fenced(&self) -> bool {
        self.fenced.load(Ordering::Acquire)
    }

    /// Notes that the client joined a group.
    pub(crate) fn joins(&self) {
        self.member.store(true, Ordering::Release);
    }

    /// True when the client ever joined a group.
    pub(crate) fn is_member(&self) -> bool {
        self.member.load(Ordering::Acquire)
    }
}

/// A connection as it is listed.
#[derive(Debug, Clone)]
pub(crate) struct Listed {
    pub(crate) id: u32,
    pub(crate) address: SocketAddr,
    pub(crate) session: Option<Arc<Session>>,
}

/// All connections.
#[derive(Debug)]
pub(crate) struct Clients {
    next_id: AtomicU32,
    commit: AtomicU64,
    connections: Mutex<HashMap<u32, Listed>>,
    sessions: Mutex<HashMap<u128, Arc<Session>>>,
}

impl Clients {
    pub(crate) fn new() -> Self {
        // Microseconds since the epoch: above every number of the process before, which gave fewer than one each.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let commit = u64::try_from(since.as_micros()).unwrap_or(1).max(1);
        Self {
            next_id: AtomicU32::new(1),
            commit: AtomicU64::new(commit),
            connections: Mutex::default(),
            sessions: Mutex::default(),
        }
    }

    /// Lists a connection, under a number that clients see.
    pub(crate) fn enter(&self, address: SocketAddr) -> u32 {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.connections.lock().insert(id, Listed { id, address, session: None });
        id
    }

    /// Takes a connection off the list.
    pub(crate) fn leave(&self, id: u32) {
        self.connections.lock().remove(&id);
    }

    /// Begins a session of connection `id`. An older session of the same client is fenced; true when there was one.
    pub(crate) fn login(&self, id: u32, client: u128) -> (Arc<Session>, bool) {
        let (fenced, member) = (AtomicBool::new(false), AtomicBool::new(false));
        let session = Arc::new(Session { client, number: self.next_commit(), fenced, member });
        let older = self.sessions.lock().insert(client, Arc::clone(&session));
        if let Some(older) = &older {
            older.fenced.store(true, Ordering::Release);
        }
        if let Some(listed) = self.connections.lock().get_mut(&id) {
            listed.session = Some(Arc::clone(&session));
        }
        (session, older.is_some())
    }

    /// Ends a session; true when it was the one in force.
    pub(crate) fn logout(&self, id: u32, session: &Arc<Session>) -> bool {
        if let Some(listed) = self.connections.lock().get_mut(&id) {
            listed.session = None;
        }
        let mut sessions = self.sessions.lock();
        let in_force = sessions.get(&session.client).is_some_and(|known| Arc::ptr_eq(known, session));
        if in_force {
            sessions.remove(&session.client);
        }
        in_force
    }

    /// A number above all before it, for what changes something.
    pub(crate) fn next_commit(&self) -> u64 {
        self.commit.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The highest number so far.
    pub(crate) fn commit(&self) -> u64 {
        self.commit.load(Ordering::Acquire)
    }

    /// All connections, by number.
    pub(crate) fn list(&self) -> Vec<Listed> {
        let mut all: Vec<_> = self.connections.lock().values().cloned().collect();
        all.sort_unstable_by_key(|listed| listed.id);
        all
    }

    /// The connection of that number.
    pub(crate) fn find(&self, id: u32) -> Option<Listed> {
        self.connections.lock().get(&id).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_login_of_one_client_fences_the_first() {
        let clients = Clients::new();
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let (one, two) = (clients.enter(address), clients.enter(address));
        let (first, first_fenced) = clients.login(one, 7);
        let (second, second_fenced) = clients.login(two, 7);
        assert!(!first_fenced && second_fenced);
        assert!(first.is_fenced() && !second.is_fenced());
        assert!(second.number > first.number);
        assert!(!clients.logout(one, &first), "it is no longer the one in force");
        assert!(clients.logout(two, &second));
    }

    #[test]
    fn a_connection_is_listed_from_its_beginning_to_its_end() {
        let clients = Clients::new();
        let id = clients.enter(SocketAddr::from(([127, 0, 0, 1], 1)));
        assert!(clients.find(id).is_some_and(|listed| listed.session.is_none()));
        clients.login(id, 1);
        assert_eq!(clients.list().len(), 1);
        clients.leave(id);
        assert!(clients.find(id).is_none());
    }
}
