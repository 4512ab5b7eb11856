//! `milena consume`: records become lines of standard output.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use milena::client::{At, Client, FetchSettings, Listed};
use milena_records::client::Record;

use super::ConnectArgs;
use super::record_line::{self, NO_TIMESTAMP};
use crate::failure::{Failure, output};

/// Stands for a key or value that is null.
const NULL: &str = "(null)";

#[derive(Debug, Args)]
pub(crate) struct ConsumeArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    /// Name of the topic
    topic: String,
    /// Read this partition only; may be given several times
    #[arg(long, short, value_parser = clap::value_parser!(i32).range(0..))]
    partition: Vec<i32>,
    /// Begin with the first record that is there; the default unless --follow is given
    #[arg(long, conflicts_with_all = ["offset", "since"])]
    from_beginning: bool,
    /// Begin at this offset; below zero, so many records before the end
    #[arg(long, allow_hyphen_values = true, conflicts_with = "since")]
    offset: Option<i64>,
    /// Begin with the first record of this time or later: 2026-01-31T12:00:00Z, or a time ago like 10m
    #[arg(long, value_name = "TIME", value_parser = time_ms)]
    since: Option<i64>,
    /// End after so many records
    #[arg(long, short = 'n')]
    count: Option<u64>,
    /// Wait for records to come, instead of ending where the topic ends now
    #[arg(long, short)]
    follow: bool,
    /// Print the key before the value
    #[arg(long, short)]
    keys: bool,
    /// Print the headers
    #[arg(long, short = 'H')]
    headers: bool,
    /// Print partition and offset
    #[arg(long, short = 'o')]
    offsets: bool,
    /// Print the timestamp
    #[arg(long, short)]
    timestamps: bool,
    /// What stands between the parts of a line
    #[arg(long, value_name = "TEXT", default_value = "\t")]
    separator: String,
    /// One JSON object per record, with everything; `milena produce --json` reads it back
    #[arg(long, conflicts_with_all = ["keys", "headers", "offsets", "timestamps", "separator"])]
    json: bool,
}

/// Runs the command.
pub(crate) async fn run(args: ConsumeArgs) -> Result<(), Failure> {
    let mut client = args.connect.connect().await?;
    let ends = offsets(client.list_offsets(&args.topic, &args.partition, At::Latest).await?);
    let positions = args.positions(&mut client, &ends).await?;
    let mut fetcher = client.fetcher(&args.topic, positions.clone(), FetchSettings::default()).await?;
    if !args.follow {
        for (partition, end) in &ends {
            if positions.get(partition).is_none_or(|position| position >= end) {
                fetcher.finish(*partition);
            }
        }
    }
    let mut out = BufWriter::new(io::stdout().lock());
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 && !fetcher.positions().is_empty() {
        for fetched in fetcher.poll().await? {
            let end = ends.get(&fetched.partition).copied().filter(|_| !args.follow);
            let wanted = fetched.records.iter().filter(|record| end.is_none_or(|end| record.offset < end));
            for record in wanted {
                if left == 0 {
                    break;
                }
                args.write(&mut out, fetched.partition, record).map_err(|error| output(&error))?;
                left -= 1;
            }
            let position = fetcher.positions().get(&fetched.partition).copied();
            if end.is_some_and(|end| position.is_none_or(|position| position >= end)) {
                fetcher.finish(fetched.partition);
            }
        }
        out.flush().map_err(|error| output(&error))?;
    }
    Ok(())
}

fn offsets(listed: BTreeMap<i32, Listed>) -> BTreeMap<i32, i64> {
    listed.into_iter().filter_map(|(partition, listed)| Some((partition, listed.offset?))).collect()
}

impl ConsumeArgs {
    /// Where each partition begins.
    async fn positions(&self, client: &mut Client, ends: &BTreeMap<i32, i64>) -> Result<BTreeMap<i32, i64>, Failure> {
        if let Some(time) = self.since {
            let mut positions = offsets(client.list_offsets(&self.topic, &self.partition, At::Time(time)).await?);
            for (partition, end) in ends {
                // Nothing is that late yet.
                positions.entry(*partition).or_insert(*end);
            }
            return Ok(positions);
        }
        if self.follow && self.offset.is_none() && !self.from_beginning {
            return Ok(ends.clone());
        }
        let starts = offsets(client.list_offsets(&self.topic, &self.partition, At::Earliest).await?);
        let Some(offset) = self.offset else { return Ok(starts) };
        let position = |(partition, end): (&i32, &i64)| {
            let start = starts.get(partition).copied().unwrap_or(0);
            let position = if offset < 0 { end.saturating_add(offset).max(start) } else { offset };
            (*partition, position)
        };
        Ok(ends.iter().map(position).collect())
    }

    fn write(&self, out: &mut impl Write, partition: i32, record: &Record) -> io::Result<()> {
        if self.json {
            return writeln!(out, "{}", record_line::write(partition, record));
        }
        let separator = self.separator.as_bytes();
        if self.offsets {
            write!(out, "{partition}@{}", record.offset)?;
            out.write_all(separator)?;
        }
        if self.timestamps {
            out.write_all(time_text(record.timestamp_ms).as_bytes())?;
            out.write_all(separator)?;
        }
        if self.headers {
            for (index, (name, value)) in record.headers.iter().enumerate() {
                write!(out, "{}{name}=", if index == 0 { "" } else { "," })?;
                out.write_all(value.as_deref().unwrap_or(NULL.as_bytes()))?;
            }
            out.write_all(separator)?;
        }
        if self.keys {
            out.write_all(record.key.as_deref().unwrap_or(NULL.as_bytes()))?;
            out.write_all(separator)?;
        }
        out.write_all(record.value.as_deref().unwrap_or(NULL.as_bytes()))?;
        out.write_all(b"\n")
    }
}

/// RFC 3339 in UTC with milliseconds; the number itself where no calendar has it.
fn time_text(ms: i64) -> String {
    if ms == NO_TIMESTAMP {
        return "-".to_owned();
    }
    // The last year that RFC 3339 can write.
    const MS_MAX: u64 = 253_402_300_799_999;
    match u64::try_from(ms).ok().filter(|ms| *ms <= MS_MAX) {
        Some(ms) => humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(ms)).to_string(),
        None => ms.to_string(),
    }
}

/// Reads a time as RFC 3339, or as a time ago.
pub(super) fn time_ms(text: &str) -> Result<i64, String> {
    let ago = || SystemTime::now().checked_sub(humantime::parse_duration(text).ok()?);
    let time = humantime::parse_rfc3339_weak(text).ok().or_else(ago);
    let ms = time.and_then(|time| i64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok());
    ms.ok_or_else(|| "it must be a time like 2026-01-31T12:00:00Z, or a time ago like 10m".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ConsumeArgs,
    }

    fn line(flags: &[&str], record: &Record) -> String {
        let args = Line::parse_from(["consume", "topic"].iter().chain(flags)).args;
        let mut out = Vec::new();
        args.write(&mut out, 2, record).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn example() -> Record {
        Record {
            offset: 7,
            timestamp_ms: 1_700_000_000_123,
            key: Some(b"k".to_vec()),
            value: Some(b"v".to_vec()),
            headers: vec![("a".to_owned(), Some(b"1".to_vec())), ("b".to_owned(), None)],
        }
    }

    #[test]
    fn a_line_has_the_parts_that_were_asked_for_in_one_order() {
        assert_eq!(line(&[], &example()), "v\n");
        assert_eq!(line(&["-k"], &example()), "k\tv\n");
        let all = "2@7|2023-11-14T22:13:20.123Z|a=1,b=(null)|k|v\n";
        assert_eq!(line(&["-k", "-o", "-t", "-H", "--separator", "|"], &example()), all);
    }

    #[test]
    fn what_is_missing_is_shown_as_missing() {
        let empty = Record { timestamp_ms: NO_TIMESTAMP, ..Record::default() };
        assert_eq!(line(&["-k", "-t", "-H"], &empty), "-\t\t(null)\t(null)\n");
    }

    #[test]
    fn a_time_out_of_every_calendar_is_shown_as_its_number() {
        assert_eq!(time_text(i64::MAX), i64::MAX.to_string());
        assert_eq!(time_text(-2), "-2");
        assert_eq!(time_text(0), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn a_time_is_a_date_or_a_while_ago() {
        assert_eq!(time_ms("1970-01-01T00:00:01Z"), Ok(1_000));
        let ago = time_ms("1h").unwrap();
        let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
        assert!((3_599_000..3_700_000).contains(&(now - ago)));
        assert!(time_ms("yesterday").is_err());
    }

    #[test]
    fn an_offset_may_be_below_zero() {
        let args = Line::parse_from(["consume", "topic", "--offset", "-5"]).args;
        assert_eq!(args.offset, Some(-5));
    }
}
