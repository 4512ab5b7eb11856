//! `catchup`: a consumer for the shell that gets new records at once while old ones are caught up, and a look at what such consumers
//! have committed.

mod consume;
mod inspect;

use std::io::Write;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use rdkafka::config::ClientConfig;

/// Consume a topic with new records first, or see how far a group is.
#[derive(Debug, Parser)]
#[command(name = "catchup", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print what is committed for a group, and what its checkpoint topic has: floor, finished ranges, what is left
    Inspect(inspect::InspectArgs),
    /// Print records as JSON lines, new ones beside old ones, and commit what is finished
    Consume(consume::ConsumeArgs),
}

/// How to reach the brokers.
#[derive(Debug, Args)]
struct Client {
    /// Brokers to ask first, HOST:PORT, separated by commas
    #[arg(long, short, env = "CATCHUP_BOOTSTRAP", value_name = "ADDRESSES")]
    bootstrap: String,
    /// A property of librdkafka, such as security.protocol=ssl; may be given several times
    #[arg(short = 'X', value_name = "KEY=VALUE", value_parser = property)]
    properties: Vec<(String, String)>,
}

impl Client {
    fn config(&self, group: &str) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.bootstrap).set("group.id", group);
        for (key, value) in &self.properties {
            config.set(key, value);
        }
        config
    }
}

fn property(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    let ended = match Cli::parse().command {
        Command::Inspect(args) => {
            tokio::task::spawn_blocking(move || inspect::run(&args)).await.unwrap_or_else(|error| Err(error.into()))
        }
        Command::Consume(args) => consume::run(args).await,
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to be told where this cannot be written.
            let _ = writeln!(std::io::stderr(), "catchup: {error}");
            ExitCode::FAILURE
        }
    }
}
