//! Who coordinates a group: the seam between one gateway and several.
//!
//! Committed offsets and membership need one writer. Which gateway that is, is decided outside of this crate's groups:
//! whoever knows implements [`Coordinators`], and everything here follows. FindCoordinator answers from it, each request
//! for a group that is not coordinated here is answered with 16, and the offsets are loaded and given up as it says.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// Where the coordinator of a group is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Coordinator {
    /// This gateway.
    Here,
    /// Another one. Clients are told its address.
    At(Arc<Node>),
    /// Nobody is known now. Clients are told 15, and ask again.
    Unknown,
}

/// Another gateway, as clients are told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Node id: its instance number.
    pub id: i32,
    /// Its addresses; none means that clients cannot be sent there.
    pub endpoints: Vec<Endpoint>,
}

/// An address of a gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// Name of the listener that it belongs to. A client of the listener of that name here reaches that one there.
    pub listener: String,
    /// Host that clients are told.
    pub host: String,
    /// Port that clients are told.
    pub port: u16,
}

impl Node {
    /// The address for a client that came in through `listener`, else the first one.
    #[must_use]
    pub fn endpoint(&self, listener: &str) -> Option<&Endpoint> {
        self.endpoints.iter().find(|endpoint| endpoint.listener == listener).or_else(|| self.endpoints.first())
    }
}

/// Knows who coordinates which group.
pub trait Coordinators: fmt::Debug + Send + Sync {
    /// Who coordinates `group`, as far as is known now. Every group request asks, so it must return at once, from memory.
    ///
    /// When this gateway may have lost its mandate, for instance because it could not be renewed in time, the answer is no
    /// longer [`Coordinator::Here`], even before [`Coordinators::mandate`] says so.
    fn coordinator_of(&self, group: &str) -> Coordinator;

    /// True while groups are coordinated here. The offsets are loaded when it becomes true, and given up with all members
    /// when it becomes false. Every change counts, even from true to true: in between, another gateway may have written.
    ///
    /// When its sender is gone, it stays as it is.
    fn mandate(&self) -> watch::Receiver<bool>;

    /// The other gateways in front of the same store that are alive, as far as is known. Clients are told of them as brokers.
    fn others(&self) -> Vec<Arc<Node>> {
        Vec::new()
    }
}

/// Of a gateway that has nobody beside it: every group is coordinated here.
#[derive(Debug, Clone, Copy, Default)]
pub struct Alone;

impl Coordinators for Alone {
    fn coordinator_of(&self, _group: &str) -> Coordinator {
        Coordinator::Here
    }

    fn mandate(&self) -> watch::Receiver<bool> {
        watch::channel(true).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_sent_to_the_listener_of_its_own_name_else_to_the_first() {
        let endpoint =
            |listener: &str, port| Endpoint { listener: listener.to_owned(), host: "kafka.example".to_owned(), port };
        let node = Node { id: 7, endpoints: vec![endpoint("inside", 1), endpoint("outside", 2)] };
        assert_eq!(node.endpoint("outside").map(|found| found.port), Some(2));
        assert_eq!(node.endpoint("another").map(|found| found.port), Some(1));
        assert_eq!(Node { endpoints: Vec::new(), ..node }.endpoint("inside"), None);
    }
}
