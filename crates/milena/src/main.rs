//! The `milena` command: the gateway, and small clients for people.
//!
//! - [`cli`]: the command line
//! - [`config`]: file, environment and flags, and what they mean
//! - [`commands`]: topics, produce, consume, groups; check, repair and copy a data folder
//! - [`serve`]: the server process, from its first line to its last
//! - [`logging`], [`files`]: the log; how many files the process may open
//! - [`manual`]: completions and manual pages
//! - [`failure`]: how a command ends when it cannot do what it was asked

mod cli;
mod commands;
mod config;
mod door;
mod failure;
mod files;
mod logging;
mod manual;
mod passwords;
mod serve;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::config::Sources;
use crate::failure::Failure;

// A fresh buffer for every megabyte batch costs several times as much with the allocator of glibc, which gives the
// memory back each time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let outcome = run(Cli::parse());
    let Err(failure) = outcome else { return ExitCode::SUCCESS };
    // Nobody may be reading; there is nowhere else to say it.
    if !matches!(failure, Failure::OutputClosed) {
        let _ = writeln!(std::io::stderr(), "{failure}");
    }
    failure.exit_code()
}

fn run(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        None => serve::serve(&cli.serve.sources()),
        Some(Command::Serve(args)) => serve::serve(&args.sources()),
        Some(Command::CheckConfig(args)) => check_config(&args.sources()),
        Some(Command::Topics(args)) => commands::block_on(commands::topics::run(args)),
        Some(Command::Produce(args)) => commands::block_on(commands::produce::run(args)),
        Some(Command::Consume(args)) => commands::block_on(commands::consume::run(args)),
        Some(Command::Groups(args)) => commands::block_on(commands::groups::run(args)),
        Some(Command::Users(args)) => commands::users::run(&args),
        Some(Command::Offsets(args)) => commands::offsets::run(&args),
        Some(Command::Backup(args)) => commands::data::run_backup(&args),
        Some(Command::CheckData(args)) => commands::data::run_check(&args),
        Some(Command::Repair(args)) => commands::data::run_repair(&args),
        Some(Command::Completions { shell }) => manual::completions(shell),
        Some(Command::Man { out }) => manual::pages(out.as_deref()),
    }
}

fn check_config(sources: &Sources) -> Result<(), Failure> {
    let loaded = config::load(sources)?;
    failure::print(&config::show(&loaded))?;
    for warning in &loaded.warnings {
        // Beside the configuration, which stays a valid file.
        let _ = writeln!(std::io::stderr(), "warning: {warning}");
    }
    Ok(())
}
