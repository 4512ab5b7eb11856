//! What is measured.

#[cfg(feature = "iggy")]
pub mod iggy;

use std::path::{Path, PathBuf};
use std::time::Duration;

use milena_testkit::{ChildServer, KafkaChild};
use tokio::time::{Instant, sleep};

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
    Kafka(KafkaChild),
}

/// A server that a scenario starts by itself, on an empty folder.
#[derive(Debug, Clone)]
pub enum Launch {
    /// A binary of Milena, and its `--set KEY=VALUE`.
    Milena(PathBuf, Vec<String>),
    /// A folder with Kafka's jars.
    Kafka(PathBuf),
}

/// Longest preparation of a Kafka broker: formatting its folder takes a Java machine of its own.
const PREPARATION: Duration = Duration::from_secs(120);

impl Launch {
    /// Starts it without waiting until it answers, and tells when the process of the server itself began.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn spawn(&self) -> Result<(Target, Instant)> {
        match self {
            Self::Milena(binary, settings) => {
                let child = Target::configured(ChildServer::builder(binary), settings);
                let start = Instant::now();
                Ok((Target::of(child.spawn()), start))
            }
            Self::Kafka(jars) => {
                let target = Target::of_kafka(KafkaChild::builder().jars(jars).heap(HEAP).spawn()?);
                let start = target.becomes("java", PREPARATION).await?;
                Ok((target, start))
            }
        }
    }
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
        Self::of(Self::configured(ChildServer::builder(binary), settings).start())
    }

    /// As [`Target::milena`], in front of the Iggy server at `address`.
    #[cfg(feature = "iggy")]
    #[must_use]
    pub fn milena_over_iggy(binary: &Path, settings: &[String], address: std::net::SocketAddr) -> Self {
        let url = format!("iggy://{}@{address}", iggy::USER);
        let child =
            ChildServer::builder(binary).no_args().args(["serve", "--listen", "127.0.0.1:{port}", "--iggy", &url]);
        Self::of(Self::configured(child.env("MILENA_IGGY_PASSWORD", iggy::PASSWORD), settings).start())
    }

    /// As [`Target::milena`], with Iggy clients served at `address`.
    #[cfg(feature = "iggy")]
    #[must_use]
    pub fn milena_with_door(binary: &Path, settings: &[String], address: std::net::SocketAddr) -> Self {
        let child = ChildServer::builder(binary).args(["--iggy-listen", &address.to_string()]);
        Self::of(Self::configured(child.env("MILENA_IGGY_DOOR_PASSWORD", iggy::PASSWORD), settings).start())
    }

    fn configured(child: milena_testkit::child::Builder, settings: &[String]) -> milena_testkit::child::Builder {
        // Members must not wait for each other, and partitions are created by the thousand.
        let fixed = ["groups.initial_rebalance_delay=0s", "max_partitions_per_topic=100000", "logging.level=error"];
        let all = fixed.iter().map(|text| (*text).to_owned()).chain(settings.iter().cloned());
        all.fold(child, |child, setting| child.args(["--set".to_owned(), setting]))
    }

    fn of(child: ChildServer) -> Self {
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
        Ok(Self::of_kafka(child))
    }

    fn of_kafka(child: KafkaChild) -> Self {
        let (address, pid) = (child.address().to_string(), Some(child.id()));
        Self { address, pid, process: Process::Kafka(child) }
    }

    /// The time at which its process, a script so far, becomes that program.
    async fn becomes(&self, program: &str, patience: Duration) -> Result<Instant> {
        let path = format!("/proc/{}/exe", self.pid.unwrap_or_default());
        let start = Instant::now();
        while std::fs::read_link(&path)?.file_name().is_none_or(|name| name != program) {
            if start.elapsed() > patience {
                return Err(format!("{} does not get as far as {program}{}", self.address, self.last_words()).into());
            }
            sleep(Duration::from_millis(1)).await;
        }
        Ok(Instant::now())
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
            Process::Foreign | Process::Kafka(_) => Err("only a Milena that was started here is started again".into()),
        }
    }

    /// What it wrote, behind a colon, to show why it does not answer.
    #[must_use]
    pub fn last_words(&self) -> String {
        match &self.process {
            Process::Kafka(child) => format!(": {}", child.output()),
            Process::Milena(child) => format!(": {}", child.output()),
            Process::Foreign => String::new(),
        }
    }
}
