//! `catchup inspect`.

use std::io::Write;
use std::ops::Range;
use std::time::Duration;

use clap::Args;
use milena_catchup::{Checkpoint, Checkpointed, Inspected, NotCounted, inspect};

use crate::{Client, Failure};

/// How many ranges are named; more are counted.
const NAMED_MAX: usize = 8;

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    client: Client,
    /// The group
    group: String,
    /// Topics; all that the group has offsets for, without one
    topics: Vec<String>,
    /// Look at the finished ranges in this topic too
    #[arg(long, value_name = "TOPIC")]
    checkpoint_topic: Option<String>,
    /// How long to wait for an answer
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = humantime::parse_duration)]
    timeout: Duration,
}

pub(crate) fn run(args: &InspectArgs) -> Result<(), Failure> {
    let checkpoint = args.checkpoint_topic.clone().map_or(Checkpoint::Metadata, Checkpoint::Topic);
    let all = inspect(&args.client.config(&args.group), &args.topics, &checkpoint, args.timeout)?;
    let mut out = std::io::stdout().lock();
    if all.is_empty() {
        writeln!(out, "no committed offsets")?;
    }
    for one in &all {
        write_one(&mut out, one, args.checkpoint_topic.is_some())?;
    }
    Ok(())
}

fn write_one(out: &mut impl Write, one: &Inspected, topic: bool) -> std::io::Result<()> {
    let Inspected { partition, floor, low, high, checkpoint, .. } = one;
    let pieces = one.pieces();
    let left: u64 = pieces.iter().map(|piece| piece.end.abs_diff(piece.start)).sum();
    writeln!(out, "{partition}: floor {floor}, log {low}..{high}, {left} left in {}", counted(pieces.len(), "piece"))?;
    match &one.ahead {
        Ok(ahead) if !ahead.is_empty() => {
            writeln!(out, "  finished ahead: {}", named(ahead.iter(), ahead.len()))?;
        }
        Err(NotCounted::Foreign) if one.metadata_bytes == 0 => {}
        Ok(_) => {}
        Err(why) => writeln!(out, "  finished ahead: nothing that counts, {why}")?,
    }
    writeln!(out, "  left: {}", named(pieces.iter().cloned(), pieces.len()))?;
    writeln!(out, "  metadata: {} bytes", one.metadata_bytes)?;
    match checkpoint {
        Some(Checkpointed { base, ahead: Ok(ahead) }) => {
            writeln!(out, "  checkpoint topic: base {base}, finished {}", named(ahead.iter(), ahead.len()))?;
        }
        Some(Checkpointed { ahead: Err(why), .. }) => {
            writeln!(out, "  checkpoint topic: nothing that counts, {why}")?;
        }
        None if topic => writeln!(out, "  checkpoint topic: nothing")?,
        None => {}
    }
    if !one.user.is_empty() {
        writeln!(out, "  user metadata: {}", one.user)?;
    }
    Ok(())
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn named(ranges: impl Iterator<Item = Range<i64>>, count: usize) -> String {
    let mut text: Vec<_> = ranges.take(NAMED_MAX).map(|range| format!("{}..{}", range.start, range.end)).collect();
    if count > NAMED_MAX {
        text.push(format!("and {} more", count - NAMED_MAX));
    }
    if text.is_empty() { "nothing".to_owned() } else { text.join(", ") }
}
