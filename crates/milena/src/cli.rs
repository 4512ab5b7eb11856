//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::commands::consume::ConsumeArgs;
use crate::commands::data::{BackupArgs, CheckArgs, RepairArgs};
use crate::commands::groups::GroupsArgs;
use crate::commands::offsets::OffsetsArgs;
use crate::commands::produce::ProduceArgs;
use crate::commands::topics::TopicsArgs;
use crate::commands::users::UsersArgs;
use crate::config::{Assignment, Sources};

/// A Kafka wire-protocol gateway: Kafka clients connect to it unchanged.
///
/// Without a command it serves. Configuration comes from a TOML file, environment variables (`MILENA_...`) and
/// flags; a variable is above the file, a flag above both. `milena check-config` shows what is in force, and why.
#[derive(Debug, Parser)]
#[command(name = "milena", version, args_conflicts_with_subcommands = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve Kafka clients until SIGINT or SIGTERM; what `milena` does by itself
    Serve(ServeArgs),
    /// Print the effective configuration as TOML, each value with its source, and exit
    CheckConfig(ServeArgs),
    /// List, create, describe, delete and grow topics
    Topics(TopicsArgs),
    /// Store lines of standard input as records
    Produce(ProduceArgs),
    /// Print records as lines
    Consume(ConsumeArgs),
    /// List, describe and delete consumer groups, and set where they go on
    Groups(GroupsArgs),
    /// Move committed offsets from one place to another, without a server
    Offsets(OffsetsArgs),
    /// Add, remove and list users that may log in, in a file of them
    Users(UsersArgs),
    /// Copy the data folder, while a server uses it or not
    Backup(BackupArgs),
    /// Verify every checksum of a data folder that no server uses
    CheckData(CheckArgs),
    /// Cut damaged messages out of a data folder that no server uses
    Repair(RepairArgs),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, or write the pages of all commands
    Man {
        /// Folder to write the pages to
        #[arg(long, value_name = "FOLDER")]
        out: Option<PathBuf>,
    },
}

/// Flags of the server. There are none for secrets: other users of the machine can read a command line.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ServeArgs {
    /// Configuration file; else that of MILENA_CONFIG, else ./milena.toml if it is there
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Listen here; may be given several times. HOST is what clients are told, and is needed for 0.0.0.0 and [::]
    #[arg(long, value_name = "[NAME=]ADDRESS:PORT[@HOST[:PORT]]")]
    listen: Vec<String>,
    /// Also listen here for clients that speak Iggy's own protocol
    #[arg(long, value_name = "ADDRESS:PORT")]
    iggy_listen: Option<String>,
    /// Folder of the store, or `memory://`
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<String>,
    /// Keep everything on this Iggy server instead; its password comes from the configuration, a file or
    /// MILENA_IGGY_PASSWORD
    #[cfg(feature = "iggy")]
    #[arg(long, value_name = "iggy://USER@HOST:PORT", conflicts_with = "data_dir")]
    iggy: Option<String>,
    /// What an acknowledged record survives: os, interval or always
    #[arg(long, value_name = "LEVEL")]
    durability: Option<String>,
    /// Number of this server
    #[arg(long, value_name = "NUMBER")]
    instance_id: Option<String>,
    /// Create topics that clients ask for: true or false
    #[arg(long, value_name = "BOOL")]
    auto_create_topics: Option<String>,
    /// Partitions of a topic whose creator does not say
    #[arg(long, value_name = "NUMBER")]
    num_partitions: Option<String>,
    /// What is logged: error, warn, info, debug, trace
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Form of the log: text or json
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Set any other key of the configuration, like limits.max_connections=500; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_and_value)]
    set: Vec<(String, String)>,
}

impl ServeArgs {
    /// What the configuration is made from.
    pub(crate) fn sources(&self) -> Sources {
        let mut flags = Vec::new();
        let mut add = |path: &str, flag: &str, value: &str| {
            let (path, value, source) = (path.to_owned(), value.to_owned(), flag.to_owned());
            flags.push(Assignment { path, value, source });
        };
        for (path, value) in &self.set {
            add(path, "--set", value);
        }
        for listener in &self.listen {
            add("listeners", "--listen", listener);
        }
        let named = [
            ("iggy_door.listen", "--iggy-listen", &self.iggy_listen),
            ("data_dir", "--data-dir", &self.data_dir),
            ("durability", "--durability", &self.durability),
            ("instance_id", "--instance-id", &self.instance_id),
            ("auto_create_topics", "--auto-create-topics", &self.auto_create_topics),
            ("num_partitions", "--num-partitions", &self.num_partitions),
            ("logging.level", "--log-level", &self.log_level),
            ("logging.format", "--log-format", &self.log_format),
        ];
        #[cfg(feature = "iggy")]
        if let Some(url) = &self.iggy {
            add("iggy.url", "--iggy", url);
        }
        for (path, flag, value) in named {
            if let Some(value) = value {
                add(path, flag, value);
            }
        }
        Sources::of_process(self.config.clone(), flags)
    }
}

fn key_and_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("it must be KEY=VALUE")?;
    let is_key = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if key.split('.').all(is_key) {
        Ok((key.to_owned(), value.to_owned()))
    } else {
        Err("it must be KEY=VALUE".to_owned())
    }
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
    fn the_server_takes_its_flags_with_and_without_its_command() {
        for line in [vec!["milena", "--data-dir", "/d"], vec!["milena", "serve", "--data-dir", "/d"]] {
            let cli = Cli::try_parse_from(line).unwrap();
            let args = match cli.command {
                Some(Command::Serve(args)) => args,
                _ => cli.serve,
            };
            let flags = args.sources().flags;
            let expected =
                Assignment { path: "data_dir".to_owned(), value: "/d".to_owned(), source: "--data-dir".to_owned() };
            assert_eq!(flags, [expected]);
        }
    }

    #[test]
    fn a_named_flag_is_above_a_set_of_the_same_key() {
        let cli = Cli::try_parse_from(["milena", "--num-partitions", "3", "--set", "num_partitions=2"]).unwrap();
        let values: Vec<String> = cli.serve.sources().flags.into_iter().map(|flag| flag.value).collect();
        assert_eq!(values, ["2", "3"]);
    }

    #[test]
    fn a_set_without_a_value_or_with_an_odd_key_is_refused() {
        for text in ["limits", "=5", "limits.=5", "a b=5", ".x=1"] {
            assert!(Cli::try_parse_from(["milena", "--set", text]).is_err(), "{text}");
        }
    }
}
