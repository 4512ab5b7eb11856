//! An Apache Iggy server as a child process.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use milena_testkit::ReservedPort;
use tempfile::TempDir;

use crate::Result;

/// Name and password of its only user.
pub const USER: &str = "iggy";
/// As [`USER`].
pub const PASSWORD: &str = "iggyiggy";

/// Longest time in which it gets ready.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server. Dropping it kills it and removes its data.
#[derive(Debug)]
pub struct IggyServer {
    process: Child,
    _folder: TempDir,
    port: ReservedPort,
}

impl IggyServer {
    /// Starts the server on an empty folder and waits until it listens. `config` is the configuration file that comes with
    /// it; one shard, and TCP alone.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(binary: &Path, config: &Path) -> Result<Self> {
        let (folder, port) = (TempDir::with_prefix("iggy-")?, ReservedPort::take());
        let process = Command::new(binary)
            .env("IGGY_CONFIG_PATH", config)
            .env("IGGY_SYSTEM_PATH", folder.path().join("data"))
            .env("IGGY_TCP_ADDRESS", format!("127.0.0.1:{}", port.number()))
            .env("IGGY_HTTP_ENABLED", "false")
            .env("IGGY_QUIC_ENABLED", "false")
            .env("IGGY_WEBSOCKET_ENABLED", "false")
            .env("IGGY_ROOT_USERNAME", USER)
            .env("IGGY_ROOT_PASSWORD", PASSWORD)
            .env("IGGY_SYSTEM_SHARDING_CPU_ALLOCATION", "1")
            .env("IGGY_SYSTEM_SHARDING_PIN_CORES", "false")
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{}: {error}", binary.display()))?;
        let mut server = Self { process, _folder: folder, port };
        let start = Instant::now();
        while TcpStream::connect(server.address()).is_err() {
            if let Some(status) = server.process.try_wait()? {
                return Err(format!("the Iggy server ended with {status}").into());
            }
            if start.elapsed() > PATIENCE {
                return Err("the Iggy server does not get ready".into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port.number()))
    }

    /// Process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for IggyServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
