//! An Apache Kafka broker as a child process, to compare with.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::ReservedPort;
use crate::child::{answers, collect};

/// Starts the broker, and says how in its head.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../compat/kafka");

/// How long a start may take: two Java machines on a busy one, and, where there are no jars yet, their download.
const PATIENCE: Duration = Duration::from_secs(300);

/// How a broker is started.
#[derive(Debug, Default)]
pub struct Builder {
    variables: Vec<(&'static str, OsString)>,
    properties: Vec<String>,
}

impl Builder {
    /// Takes Kafka's jars from that folder. Without it they are in `target/kafka`, fetched when they are not there.
    #[must_use]
    pub fn jars(mut self, folder: &Path) -> Self {
        self.variables.push(("KAFKA_JARS", folder.into()));
        self
    }

    /// Size of its heap, as Java's option takes it. 512m without it.
    #[must_use]
    pub fn heap(mut self, size: &str) -> Self {
        self.variables.push(("KAFKA_HEAP", size.into()));
        self
    }

    /// Sets a property of the broker.
    #[must_use]
    pub fn property(mut self, key: &str, value: &str) -> Self {
        self.properties.push(format!("{key}={value}"));
        self
    }

    /// Formats a new folder and starts a broker on it; it does not answer yet.
    ///
    /// # Errors
    /// When no process can be started.
    pub fn spawn(self) -> io::Result<KafkaChild> {
        let folder = TempDir::with_prefix("kafka-")?;
        let (port, controller) = (ReservedPort::take(), ReservedPort::take());
        let mut process = Command::new(PathBuf::from(SCRIPT))
            .arg(port.number().to_string())
            .arg(folder.path())
            .args(self.properties)
            .envs(self.variables)
            .env("KAFKA_CONTROLLER_PORT", controller.number().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let output = Arc::default();
        if let (Some(out), Some(err)) = (process.stdout.take(), process.stderr.take()) {
            collect(out, &output);
            collect(err, &output);
        }
        Ok(KafkaChild { process, output, port, _controller: controller, _folder: folder })
    }
}

/// A running broker. Dropping it kills it and removes its data.
#[derive(Debug)]
pub struct KafkaChild {
    process: Child,
    output: Arc<Mutex<String>>,
    port: ReservedPort,
    _controller: ReservedPort,
    _folder: TempDir,
}

impl KafkaChild {
    /// A broker with Kafka's defaults, but for what one node needs.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Waits until it answers.
    ///
    /// # Errors
    /// When it ends, or takes too long; with what it has written.
    pub fn ready(&mut self) -> io::Result<()> {
        let start = Instant::now();
        while !answers(self.address()) {
            let ended = self.process.try_wait()?;
            if ended.is_some() || start.elapsed() > PATIENCE {
                return Err(io::Error::other(format!("Kafka does not get ready: {}", self.output())));
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port.number()))
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// What it has written so far.
    #[must_use]
    pub fn output(&self) -> String {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for KafkaChild {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
