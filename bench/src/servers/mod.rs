//! What is measured.

#[cfg(feature = "iggy")]
pub mod iggy;

use std::path::Path;

use milena_testkit::{ChildServer, KafkaChild};

use crate::Result;
use crate::client::Connection;
use crate::usage::Usage;

/// Kafka's heap, as its own start script gives it.
const HEAP: &str = "1G";

/// A server under load.
#[derive(Debug)]
pub struct Target {
    /// Where clients connect.
    pub address: String,
    pid: Option<u32>,
    process: Process,
}

#[derive(Debug)]
enum Process {
    /// Somebody else's.
    Foreign,
    Milena(ChildServer),
    Kafka {
        _child: KafkaChild,
    },
}

impl Target {
    /// A server that runs already. Without its process id its CPU time and memory are not known.
    #[must_use]
    pub fn running(address: &str, pid: Option<u32>) -> Self {
        Self { address: address.to_owned(), pid, process: Process::Foreign }
    }

    /// Starts a Milena on an empty folder and a free port; `settings` are its `--set KEY=VALUE`.
    #[must_use]
    pub fn milena(binary: &Path, settings: &[String]) -> Self {
        Self::of(ChildServer::builder(binary), settings)
    }

    /// As [`Target::milena`], in front of the Iggy server at `address`.
    #[cfg(feature = "iggy")]
    #[must_use]
    pub fn milena_over_iggy(binary: &Path, settings: &[String], address: std::net::SocketAddr) -> Self {
        let url = format!("iggy://{}@{address}", iggy::USER);
        let child =
            ChildServer::builder(binary).no_args().args(["serve", "--listen", "127.0.0.1:{port}", "--iggy", &url]);
        Self::of(child.env("MILENA_IGGY_PASSWORD", iggy::PASSWORD), settings)
    }

    fn of(child: milena_testkit::child::Builder, settings: &[String]) -> Self {
        // Members must not wait for each other, and partitions are created by the thousand.
        let fixed = ["groups.initial_rebalance_delay=0s", "max_partitions_per_topic=100000", "logging.level=error"];
        let all = fixed.iter().map(|text| (*text).to_owned()).chain(settings.iter().cloned());
        let child = all.fold(child, |child, setting| child.args(["--set".to_owned(), setting]));
        let child = child.start();
        let (address, pid) = (child.bootstrap().to_owned(), Some(child.id()));
        Self { address, pid, process: Process::Milena(child) }
    }

    /// Starts a Kafka broker from a folder of its jars.
    ///
    /// # Errors
    /// When it does not start.
    pub fn kafka(jars: &Path) -> Result<Self> {
        let mut child = KafkaChild::builder().jars(jars).heap(HEAP).spawn()?;
        child.ready()?;
        let (address, pid) = (child.address().to_string(), Some(child.id()));
        Ok(Self { address, pid, process: Process::Kafka { _child: child } })
    }

    /// A new connection.
    ///
    /// # Errors
    /// When it does not listen.
    pub async fn connect(&self) -> Result<Connection> {
        Connection::open(&self.address).await
    }

    /// Its process id, if that is known.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.pid
    }

    /// What its process has used; `None` when that is not known.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn usage(&self) -> Result<Option<Usage>> {
        self.pid.map(Usage::of).transpose()
    }

    /// Kills it as `kill -9` does.
    ///
    /// # Errors
    /// When it is not a Milena that was started here.
    pub fn kill(&mut self) -> Result<()> {
        self.own()?.kill();
        Ok(())
    }

    /// Starts it again on its data, and waits until it answers.
    ///
    /// # Errors
    /// When it is not a Milena that was started here.
    pub fn restart(&mut self) -> Result<()> {
        let child = self.own()?;
        child.restart();
        self.pid = Some(child.id());
        Ok(())
    }

    fn own(&mut self) -> Result<&mut ChildServer> {
        match &mut self.process {
            Process::Milena(child) => Ok(child),
            Process::Foreign | Process::Kafka { .. } => {
                Err("only a Milena that was started here is started again".into())
            }
        }
    }
}
