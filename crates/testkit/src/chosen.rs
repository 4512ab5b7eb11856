//! The store that the environment chooses for the servers of tests.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

/// What was printed already: a test may start many servers.
static PRINTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// What servers of tests keep their data in, where a test does not say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChosenStore {
    /// Memory, a folder: what the test has.
    Embedded,
    /// The embedded store behind Iggy's protocol, with a door for each server.
    Door,
    /// An Iggy server that runs already, at this address with user and password.
    Server(String),
}

impl ChosenStore {
    /// `TEST_IGGY=iggy://user:password@host:port` is a server; else `TEST_STORE` is `embedded` or `door`, or not set.
    #[must_use]
    pub fn get() -> Self {
        if let Ok(url) = std::env::var("TEST_IGGY") {
            return Self::Server(url);
        }
        match std::env::var("TEST_STORE").as_deref() {
            Err(_) | Ok("embedded") => Self::Embedded,
            Ok("door") => Self::Door,
            Ok(other) => panic!("TEST_STORE is `embedded` or `door`, and not {other}"),
        }
    }

    /// [`ChosenStore::get`] for a server that can only be over its own store, for that reason. The reason is printed when something
    /// else was chosen, also where the harness keeps the output of tests that pass.
    pub(crate) fn unless(reason: Option<&str>) -> Self {
        let chosen = Self::get();
        let Some(reason) = reason.filter(|_| chosen != Self::Embedded) else { return chosen };
        let thread = std::thread::current();
        let line = format!("not over Iggy: {}: {reason}\n", thread.name().unwrap_or("a test"));
        let mut printed = PRINTED.lock().unwrap_or_else(PoisonError::into_inner);
        if !printed.contains(&line) {
            // One write, so that lines of tests that run side by side stay whole.
            let _ = std::io::stderr().write_all(line.as_bytes());
            printed.insert(line);
        }
        Self::Embedded
    }
}
