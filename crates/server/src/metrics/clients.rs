//! Connections by the software that their clients say they are (KIP-511).

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::limits::CLIENT_SOFTWARE_MAX;

/// What clients beyond the bound are counted as.
pub const OTHER: &str = "other";

/// Open connections by name and version of the client's software.
#[derive(Debug, Default)]
pub struct ClientMetrics {
    open: Mutex<BTreeMap<Software, u64>>,
}

/// Name and version, each as the client writes it, shortened and printable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Software {
    /// For instance `apache-kafka-java`.
    pub name: Box<str>,
    /// For instance `4.1.0`.
    pub version: Box<str>,
}

impl ClientMetrics {
    /// Counts a connection in, until the answer is dropped. What is not among the first few kinds that are connected at a
    /// time counts as [`OTHER`].
    pub(crate) fn enter(self: &Arc<Self>, software: Software) -> Entered {
        let mut open = self.open.lock();
        let software = if open.len() < CLIENT_SOFTWARE_MAX || open.contains_key(&software) {
            software
        } else {
            Software { name: OTHER.into(), version: OTHER.into() }
        };
        *open.entry(software.clone()).or_default() += 1;
        Entered { all: Arc::clone(self), software }
    }

    /// Open connections of each kind.
    #[must_use]
    pub fn open(&self) -> Vec<(Software, u64)> {
        self.open.lock().iter().map(|(software, count)| (software.clone(), *count)).collect()
    }
}

/// A connection that is counted.
#[derive(Debug)]
pub(crate) struct Entered {
    all: Arc<ClientMetrics>,
    software: Software,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut open = self.all.open.lock();
        if let Some(count) = open.get_mut(&self.software) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.software);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn software(name: &str) -> Software {
        Software { name: name.into(), version: "1".into() }
    }

    #[test]
    fn a_kind_beyond_the_bound_is_other_until_there_is_room() {
        let clients = Arc::new(ClientMetrics::default());
        let first: Vec<_> = (0..CLIENT_SOFTWARE_MAX).map(|n| clients.enter(software(&n.to_string()))).collect();
        let known = clients.enter(software("0"));
        let (late, later) = (clients.enter(software("late")), clients.enter(software("later")));
        let count =
            |name: &str| clients.open().into_iter().find(|(software, _)| &*software.name == name).map(|(_, n)| n);
        assert_eq!((count("0"), count("late"), count(OTHER)), (Some(2), None, Some(2)));
        drop((first, known, late));
        assert_eq!((clients.open().len(), count(OTHER)), (1, Some(1)));
        let fresh = clients.enter(software("late"));
        assert_eq!(count("late"), Some(1));
        drop((later, fresh));
        assert_eq!(clients.open(), []);
    }
}
