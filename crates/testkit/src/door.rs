//! The `milena` binary as a child process that serves Iggy's protocol.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::{ChildServer, ReservedPort, SOON};

/// User of every door of tests.
pub const USER: &str = "iggy";
/// Its password.
pub const PASSWORD: &str = "secret";

/// A child that serves Iggy's protocol over an embedded store in a folder of its own, which can be killed and started again.
#[derive(Debug)]
pub struct DoorChild {
    child: ChildServer,
    port: ReservedPort,
}

impl DoorChild {
    /// Starts that binary and waits until Iggy clients are served.
    #[must_use]
    pub fn start(binary: impl AsRef<Path>) -> Self {
        Self::on(binary, ReservedPort::take())
    }

    /// As [`DoorChild::start`], on a port that somebody may know already.
    #[must_use]
    pub fn on(binary: impl AsRef<Path>, port: ReservedPort) -> Self {
        Self::with(binary, port, &[])
    }

    /// As [`DoorChild::start`], with consumer offsets that anybody may set to anything.
    #[must_use]
    pub fn with_free_offsets(binary: impl AsRef<Path>) -> Self {
        Self::with(binary, ReservedPort::take(), &["--set", "iggy_door.offset_rules=free"])
    }

    fn with(binary: impl AsRef<Path>, port: ReservedPort, args: &[&str]) -> Self {
        let child = ChildServer::builder(binary)
            .behind_a_door()
            .args(["--set", "groups.initial_rebalance_delay=0s"])
            .args(["--iggy-listen", &format!("127.0.0.1:{}", port.number())])
            .args(args.iter().copied())
            .env("MILENA_IGGY_DOOR_PASSWORD", PASSWORD)
            .start();
        let door = Self { child, port };
        door.ready();
        door
    }

    /// Where Iggy clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port.number()))
    }

    /// The same as the store of a gateway is configured with it, user and password included.
    #[must_use]
    pub fn url(&self) -> String {
        format!("iggy://{USER}:{PASSWORD}@{}", self.address())
    }

    /// The process: its own Kafka port is there too.
    #[must_use]
    pub fn child(&self) -> &ChildServer {
        &self.child
    }

    /// Kills it without a warning.
    pub fn kill(&mut self) {
        self.child.kill();
    }

    /// Starts it again on its data and its ports. Kills it first if it runs.
    pub fn restart(&mut self) {
        self.child.restart();
        self.ready();
    }

    /// Waits until somebody listens.
    fn ready(&self) {
        let start = Instant::now();
        while TcpStream::connect(self.address()).is_err() {
            assert!(start.elapsed() < SOON, "Iggy clients are not served: {}", self.child.output());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
