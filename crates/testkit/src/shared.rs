//! What several gateways of one test have behind them.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;

use crate::child::Builder;
use crate::{ChosenStore, DoorChild};

/// An Iggy server for several gateways: a door of the test's own, or streams of its own on the server that `TEST_IGGY` names.
#[derive(Debug)]
pub struct SharedIggy {
    door: Option<DoorChild>,
    streams: String,
    first: u16,
}

impl SharedIggy {
    /// The server that the environment chooses, or a door of that binary.
    #[must_use]
    pub fn start(binary: impl AsRef<Path>) -> Self {
        match ChosenStore::get() {
            ChosenStore::Server(_) => Self::with(None),
            _ => Self::of_door(DoorChild::start(binary)),
        }
    }

    /// That door, whatever the environment chooses.
    #[must_use]
    pub fn of_door(door: DoorChild) -> Self {
        Self::with(Some(door))
    }

    fn with(door: Option<DoorChild>) -> Self {
        // Access tokens on a server are named by the numbers of gateways, and other tests may use it too.
        let number = RandomState::new().build_hasher().finish();
        let first = if door.is_some() { 1 } else { u16::try_from(number % 30_000).unwrap_or(0) * 2 + 1 };
        Self { door, streams: format!("shared-{number:016x}"), first }
    }

    /// Number of the gateway that is the `index`-th of its test, from 0 on.
    #[must_use]
    pub fn instance(&self, index: u16) -> u16 {
        self.first.saturating_add(index)
    }

    /// Keeps the data of the `index`-th gateway there.
    #[must_use]
    pub fn hold(&self, index: u16, gateway: Builder) -> Builder {
        let gateway = match (&self.door, ChosenStore::get()) {
            (Some(door), _) => gateway.over(door),
            (None, ChosenStore::Server(url)) => {
                let topics = format!("topic_mapping.default_stream={}-topics", self.streams);
                gateway.over_server(&url).env("MILENA_IGGY_STATE_STREAM", &self.streams).args(["--set", &topics])
            }
            (None, _) => unreachable!("a door or a server"),
        };
        gateway.env("MILENA_INSTANCE_ID", &self.instance(index).to_string())
    }
}
