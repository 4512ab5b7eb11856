//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::scenarios::{cold_start, idle_groups, joins, load, offsets, process, start};
use crate::servers::{Launch, Target};
use crate::{Error, Result};

/// Measures Kafka brokers over the wire, several of them in turn, and prints medians and ratios.
///
/// Ratios are of the first server to each other one. CPU time and memory come from /proc.
#[derive(Debug, Parser)]
#[command(name = "milena-bench", max_term_width = 100)]
pub struct Cli {
    /// What is measured about which servers.
    #[command(flatten)]
    pub servers: Servers,
    /// Times that each server is measured, in turn; medians are printed
    #[arg(long, global = true, default_value_t = 3)]
    pub rounds: usize,
    /// Times that each server is measured before, which do not count
    #[arg(long, global = true, default_value_t = 1)]
    pub warm_ups: usize,
    /// Threads of this client
    #[arg(long, global = true, default_value_t = 1)]
    pub threads: usize,
    /// Write every round to this file
    #[arg(long, global = true, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// What is measured.
    #[command(subcommand)]
    pub scenario: Scenario,
}

/// What is measured.
#[derive(Debug, Clone, Subcommand)]
pub enum Scenario {
    /// Consumers that commit all the time, and heartbeats of others beside them
    Offsets(offsets::Options),
    /// Time until a large group is stable
    Joins(joins::Options),
    /// Memory of groups that do nothing
    IdleGroups(idle_groups::Options),
    /// Time of a start with many stored offsets (Milena alone)
    Start(start::Options),
    /// Produce, fetch, and the way from one to the other
    Load(load::Options),
    /// Produce and fetch through librdkafka
    #[cfg(feature = "librdkafka")]
    Librdkafka(crate::scenarios::librdkafka::Options),
    /// Milena in front of an Iggy server, and Iggy's SDK through a proxy
    #[cfg(feature = "iggy")]
    Iggy(crate::scenarios::iggy::Options),
    /// Iggy's SDK at an Iggy server, and at Milena on its embedded store
    #[cfg(feature = "iggy")]
    Door(crate::scenarios::iggy::DoorOptions),
    /// Copy bytes to another address and back
    #[cfg(feature = "iggy")]
    #[command(hide = true)]
    Proxy(crate::scenarios::iggy::ProxyOptions),
    /// From the start of the process to the first metadata and the first stored record
    ColdStart(cold_start::Options),
    /// Start on an empty folder, idle memory, idle connections (Milena alone)
    Process(process::Options),
}

/// The servers. Those that are started here get an empty folder, and are stopped at the end.
#[derive(Debug, Clone, Default, Args)]
pub struct Servers {
    /// Start this Milena; may be given several times, to compare two builds
    #[arg(long, global = true, value_name = "BINARY")]
    pub milena: Vec<PathBuf>,
    /// Setting of a Milena that is started here; may be given several times
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// A server that runs already; may be given several times
    #[arg(long, global = true, value_name = "ADDRESS[,PID]")]
    pub bootstrap: Vec<String>,
    /// A Kafka broker: its address, or a folder with its jars to start one
    #[arg(long, global = true, value_name = "FOLDER|ADDRESS[,PID]")]
    pub kafka: Option<String>,
}

impl Servers {
    /// Starts those that have to be started.
    ///
    /// # Errors
    /// When one does not start, or there is none.
    pub async fn start(&self) -> Result<Vec<(String, Target)>> {
        let mut targets = Vec::new();
        for (number, binary) in self.milena.iter().enumerate() {
            targets.push((milena_name(number), Target::milena(binary, &self.set)));
        }
        for text in &self.bootstrap {
            let (address, pid) = address_and_pid(text)?;
            let target = Target::running(&address, pid);
            targets.push((address, target));
        }
        if let Some(text) = &self.kafka {
            let folder = PathBuf::from(text);
            let target = if folder.is_dir() {
                Target::kafka(&folder)?
            } else {
                let (address, pid) = address_and_pid(text)?;
                Target::running(&address, pid)
            };
            targets.push(("kafka".to_owned(), target));
        }
        if targets.is_empty() {
            return Err("name a server: --milena BINARY, --bootstrap ADDRESS or --kafka FOLDER".into());
        }
        Ok(targets)
    }

    /// The Milenas, for a scenario that starts them itself.
    ///
    /// # Errors
    /// When there is none.
    pub fn binaries(&self) -> Result<Vec<(String, PathBuf)>> {
        if self.milena.is_empty() {
            return Err("name a server to start: --milena BINARY".into());
        }
        Ok(self.milena.iter().enumerate().map(|(number, binary)| (milena_name(number), binary.clone())).collect())
    }
}

impl Servers {
    /// Those that a scenario starts by itself, again and again: Milenas, and Kafka from a folder.
    ///
    /// # Errors
    /// When there is none.
    pub fn launches(&self) -> Result<Vec<(String, Launch)>> {
        let milena = |(number, binary): (usize, &PathBuf)| {
            (milena_name(number), Launch::Milena(binary.clone(), self.set.clone()))
        };
        let kafka = self.kafka.as_ref().map(PathBuf::from).filter(|folder| folder.is_dir());
        let kafka = kafka.map(|folder| ("kafka".to_owned(), Launch::Kafka(folder)));
        let launches: Vec<_> = self.milena.iter().enumerate().map(milena).chain(kafka).collect();
        if launches.is_empty() {
            return Err("name a server to start: --milena BINARY or --kafka FOLDER".into());
        }
        Ok(launches)
    }
}

fn milena_name(number: usize) -> String {
    if number == 0 { "milena".to_owned() } else { format!("milena {}", number + 1) }
}

fn address_and_pid(text: &str) -> Result<(String, Option<u32>)> {
    let wrong = || Error::from(format!("{text} is not ADDRESS[,PID], as 127.0.0.1:9092,4711"));
    let (address, pid) = text.split_once(',').map_or((text, None), |(address, pid)| (address, Some(pid)));
    let address: SocketAddr = address.parse().map_err(|_| wrong())?;
    let pid = pid.map(str::parse).transpose().map_err(|_| wrong())?;
    Ok((address.to_string(), pid))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_server_that_runs_has_an_address_and_perhaps_a_process() {
        assert_eq!(address_and_pid("127.0.0.1:9092,7").unwrap(), ("127.0.0.1:9092".to_owned(), Some(7)));
        assert_eq!(address_and_pid("127.0.0.1:9092").unwrap().1, None);
        assert!(address_and_pid("localhost").is_err());
    }
}
