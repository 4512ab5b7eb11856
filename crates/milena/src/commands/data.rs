//! `milena check-data`, `milena repair` and `milena backup`: work on the data folder itself, not through a server.

use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;
use milena_store_embedded::{CheckReport, backup, check_data, repair_data};

use crate::config::{Assignment, MEMORY, Sources, load};
use crate::failure::{Failure, note, print};

/// Problems that are printed; what is wrong with one segment is often wrong with many.
const PROBLEMS_SHOWN: usize = 1_000;

/// Which data folder.
#[derive(Debug, Clone, Args)]
struct FolderArgs {
    /// Configuration file that names the folder; else that of MILENA_CONFIG, else ./milena.toml if it is there
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder of the store
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<String>,
}

impl FolderArgs {
    fn folder(&self) -> Result<PathBuf, Failure> {
        let flags = self.data_dir.iter().map(|folder| Assignment {
            path: "data_dir".to_owned(),
            value: folder.clone(),
            source: "--data-dir".to_owned(),
        });
        let settings = load(&Sources::of_process(self.config.clone(), flags.collect()))?.settings;
        #[cfg(feature = "iggy")]
        if settings.iggy.is_on() && self.data_dir.is_none() {
            return Err(Failure::Usage(format!("the data is on an Iggy server ({})", settings.iggy.place())));
        }
        match settings.data_dir.as_str() {
            MEMORY => Err(Failure::Usage(format!("`{MEMORY}` has no folder"))),
            folder => Ok(PathBuf::from(folder)),
        }
    }
}

/// `milena check-data`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    folder: FolderArgs,
}

/// `milena repair`.
#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    /// Do it; without this it is only shown
    #[arg(long)]
    execute: bool,
    #[command(flatten)]
    folder: FolderArgs,
}

/// `milena backup`.
#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// Folder to make; it must not exist yet
    #[arg(value_name = "TO")]
    to: PathBuf,
    /// Do not verify the copy
    #[arg(long)]
    no_check: bool,
    #[command(flatten)]
    folder: FolderArgs,
}

pub(crate) fn run_check(args: &CheckArgs) -> Result<(), Failure> {
    let folder = args.folder.folder()?;
    let report = check_data(&folder).map_err(|error| Failure::Failed(error.to_string()))?;
    print(&text(&report))?;
    if report.is_sound() {
        return Ok(());
    }
    let damaged = report.problems.iter().filter(|problem| !problem.torn_tail).count();
    Err(Failure::Failed(format!("{damaged} places of {} are damaged", folder.display())))
}

pub(crate) fn run_repair(args: &RepairArgs) -> Result<(), Failure> {
    let folder = args.folder.folder()?;
    let time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let report = repair_data(&folder, args.execute, &time).map_err(|error| Failure::Failed(error.to_string()))?;
    print(&report.repairs.iter().map(|repair| format!("{repair}\n")).collect::<String>())?;
    let left = report.left();
    match (report.repairs.len() - left, args.execute) {
        (0, _) if left == 0 => print("nothing to repair\n")?,
        (0, _) => {}
        (done, true) => print(&format!(
            "{done} repairs made; the files are kept as they were in {}\n",
            folder.join("repaired").display()
        ))?,
        (_, false) => note("nothing was changed; give --execute to do it"),
    }
    if left > 0 {
        return Err(Failure::Failed(format!("{left} damaged places cannot be repaired but from a backup")));
    }
    Ok(())
}

pub(crate) fn run_backup(args: &BackupArgs) -> Result<(), Failure> {
    let folder = args.folder.folder()?;
    let report = backup(&folder, &args.to, milena_server::backup_rank)
        .map_err(|error| Failure::Failed(format!("the backup failed: {error}")))?;
    print(&format!(
        "{} topics, {} partitions, {} segments, {} bytes copied to {}\n",
        report.topics,
        report.partitions,
        report.segments,
        report.bytes,
        args.to.display()
    ))?;
    if args.no_check {
        return Ok(());
    }
    let check = check_data(&args.to).map_err(|error| Failure::Failed(error.to_string()))?;
    if check.is_sound() {
        return print("every checksum of the copy is right\n");
    }
    print(&text(&check))?;
    let place = args.to.display();
    Err(Failure::Failed(format!("the copy {place} has damaged places, as the folder has that it was made from")))
}

fn text(report: &CheckReport) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for problem in report.problems.iter().take(PROBLEMS_SHOWN) {
        let offset = problem.offset.map(|offset| format!(", offset {offset}")).unwrap_or_default();
        let note = if problem.torn_tail { " (a torn end, which the next start cuts off)" } else { "" };
        let (partition, path, position) = (&problem.partition, problem.path.display(), problem.position);
        // Writing to a string does not fail.
        let _ = writeln!(text, "{partition}{offset}: {}{note}\n  in {path} at byte {position}", problem.what);
    }
    if let Some(more) = report.problems.len().checked_sub(PROBLEMS_SHOWN).filter(|more| *more > 0) {
        let _ = writeln!(text, "and {more} more");
    }
    let CheckReport { topics, partitions, segments, entries, messages, bytes, cut_out, .. } = report;
    let _ = writeln!(
        text,
        "{topics} topics, {partitions} partitions, {segments} segments, {entries} entries, {messages} messages, {bytes} bytes read"
    );
    if *cut_out > 0 {
        let _ = writeln!(text, "{cut_out} messages were cut out by earlier repairs");
    }
    text
}
