//! `milena produce`: lines of standard input become records.

use std::io::{self, BufRead, Read};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use milena::client::{Acknowledged, Client, ClientError, NewTopic, Producer, ProducerSettings};
use milena_records::Codec;
use milena_records::client::Record;
use milena_wire::kafka_protocol::ResponseError;
use tokio::sync::mpsc;

use super::ConnectArgs;
use super::record_line::{self, NO_TIMESTAMP};
use super::topics::name_and_value;
use crate::failure::{Failure, print};

/// Longest line of input, in bytes. Kafka's topics take records of 1 MiB unless configured otherwise.
const LINE_BYTES_MAX: u64 = 64 << 20;
/// Lines that are read ahead of what is sent.
const LINES_AHEAD: usize = 1_024;

#[derive(Debug, Args)]
pub(crate) struct ProduceArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    /// Name of the topic; it is created when it is missing
    topic: String,
    /// Partition; else the key decides, and records without a key are spread
    #[arg(long, short, value_parser = clap::value_parser!(i32).range(0..))]
    partition: Option<i32>,
    /// Key of every record
    #[arg(long, short, conflicts_with_all = ["key_separator", "json"])]
    key: Option<String>,
    /// What stands between key and value in a line; a line without it has no key
    #[arg(long, short = 'K', value_name = "TEXT", conflicts_with = "json")]
    key_separator: Option<String>,
    /// A header of every record; may be given several times
    #[arg(long, short = 'H', value_name = "NAME=VALUE", value_parser = name_and_value)]
    header: Vec<(String, String)>,
    /// Timestamp of every record, in milliseconds since 1970; else the time at which its line was read
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(i64).range(0..))]
    timestamp: Option<i64>,
    /// Lines are JSON, as `milena consume --json` writes them
    #[arg(long)]
    json: bool,
    /// Store each record in the partition that its line names, instead of letting the key decide
    #[arg(long, requires = "json", conflicts_with = "partition")]
    keep_partitions: bool,
    /// Send an empty line as a record without a value, which deletes its key from a compacted topic
    #[arg(long, conflicts_with = "json")]
    empty_is_null: bool,
    /// When a record counts as stored
    #[arg(long, value_enum, default_value_t = Acks::All)]
    acks: Acks,
    /// Compression of batches
    #[arg(long, short = 'z', value_enum, default_value_t = Compression::None)]
    compression: Compression,
    /// Print partition and offsets of what is stored
    #[arg(long, short = 'o')]
    offsets: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Acks {
    /// As the server promises
    All,
    /// By the leader
    #[value(name = "1")]
    One,
    /// Without waiting for an answer
    #[value(name = "0")]
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Compression {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

/// Runs the command.
pub(crate) async fn run(args: ProduceArgs) -> Result<(), Failure> {
    let mut client = args.connect.connect().await?;
    make_sure_of_topic(&mut client, &args.topic).await?;
    let settings = ProducerSettings {
        acks: match args.acks {
            Acks::All => -1,
            Acks::One => 1,
            Acks::None => 0,
        },
        codec: match args.compression {
            Compression::None => Codec::None,
            Compression::Gzip => Codec::Gzip,
            Compression::Snappy => Codec::Snappy,
            Compression::Lz4 => Codec::Lz4,
            Compression::Zstd => Codec::Zstd,
        },
        // Sequence numbers are promised with full acknowledgement only.
        idempotent: args.acks == Acks::All,
        ..ProducerSettings::default()
    };
    let mut producer = client.producer(&args.topic, settings).await?;
    let mut lines = read_lines();
    let sent = send_lines(&mut producer, &mut lines, &args).await;
    // What was taken from the input is stored, also when a later line is bad.
    let flushed = producer.flush().await.map_err(Failure::from).and_then(|stored| args.report(&stored));
    sent.and(flushed)
}

async fn send_lines(
    producer: &mut Producer<'_>,
    lines: &mut mpsc::Receiver<io::Result<Vec<u8>>>,
    args: &ProduceArgs,
) -> Result<(), Failure> {
    let mut number = 0u64;
    loop {
        let line = match lines.try_recv() {
            Ok(line) => line,
            Err(_) => {
                // Nothing more for now: a person who typed a line wants it stored.
                args.report(&producer.flush().await?)?;
                let Some(line) = lines.recv().await else { return Ok(()) };
                line
            }
        };
        number += 1;
        let line = line.map_err(|error| Failure::Failed(format!("line {number} cannot be read: {error}")))?;
        let (record, partition) =
            args.record(line).map_err(|reason| Failure::Failed(format!("line {number} is no record: {reason}")))?;
        args.report(&producer.send(record, partition).await?)?;
    }
}

/// A topic that is missing is created, as clients do. Said on standard error, because it may be a slip of the pen.
async fn make_sure_of_topic(client: &mut Client, name: &str) -> Result<(), Failure> {
    match client.topic(name).await {
        Ok(_) => return Ok(()),
        Err(ClientError::NoTopic { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    match client.create_topic(&NewTopic { name: name.to_owned(), ..NewTopic::default() }).await {
        Ok(_) => {
            crate::failure::note(&format!("there was no topic `{name}`, so it was created"));
            Ok(())
        }
        Err(error) if error.code() == Some(ResponseError::TopicAlreadyExists) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Reads standard input on a thread of its own, a bounded number of lines ahead.
fn read_lines() -> mpsc::Receiver<io::Result<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel(LINES_AHEAD);
    std::thread::spawn(move || {
        let mut input = io::stdin().lock();
        // Ends with the input, or when nobody wants another line.
        while let Some(line) = next_line(&mut input).transpose() {
            let is_last = line.is_err();
            if sender.blocking_send(line).is_err() || is_last {
                return;
            }
        }
    });
    receiver
}

/// The next line without its end; `None` at the end of the input.
fn next_line(input: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    input.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() as u64 > LINE_BYTES_MAX {
        return Err(io::Error::other(format!("it is longer than {LINE_BYTES_MAX} bytes")));
    }
    Ok(Some(line))
}

impl ProduceArgs {
    /// The record of a line, and its partition if one is wanted.
    fn record(&self, line: Vec<u8>) -> Result<(Record, Option<i32>), String> {
        let (mut record, partition) =
            if self.json { record_line::read(&line)? } else { (self.record_of_text(line), None) };
        for (name, value) in &self.header {
            record.headers.push((name.clone(), Some(value.clone().into_bytes())));
        }
        if let Some(timestamp) = self.timestamp {
            record.timestamp_ms = timestamp;
        } else if record.timestamp_ms == NO_TIMESTAMP {
            record.timestamp_ms = now_ms();
        }
        Ok((record, self.partition.or(partition.filter(|_| self.keep_partitions))))
    }

    fn record_of_text(&self, line: Vec<u8>) -> Record {
        let separator = self.key_separator.as_deref().map(str::as_bytes).filter(|text| !text.is_empty());
        let at = separator.and_then(|separator| {
            let found = line.windows(separator.len()).position(|window| window == separator)?;
            Some((found, found + separator.len()))
        });
        let (key, value) = match at {
            Some((end, start)) => (line.get(..end).map(<[u8]>::to_vec), line.get(start..).unwrap_or_default().to_vec()),
            None => (self.key.clone().map(String::into_bytes), line),
        };
        let value = (!value.is_empty() || !self.empty_is_null).then_some(value);
        Record { offset: 0, timestamp_ms: NO_TIMESTAMP, key, value, headers: Vec::new() }
    }

    fn report(&self, stored: &[Acknowledged]) -> Result<(), Failure> {
        if !self.offsets {
            return Ok(());
        }
        for batch in stored {
            let (partition, records) = (batch.partition, batch.records);
            let text = match batch.base_offset {
                Some(first) if records == 1 => format!("{partition}@{first}\n"),
                Some(first) => {
                    let last = i64::try_from(records).map_or(first, |records| first + records - 1);
                    format!("{partition}@{first}..{last}\n")
                }
                None => format!("{partition}@? ({records} records)\n"),
            };
            print(&text)?;
        }
        Ok(())
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ProduceArgs,
    }

    fn record(flags: &[&str], line: &str) -> Record {
        let line_of_flags = ["produce", "topic"].iter().chain(flags);
        let args = Line::parse_from(line_of_flags).args;
        args.record(line.as_bytes().to_vec()).unwrap().0
    }

    fn key_and_value(flags: &[&str], line: &str) -> (Option<String>, Option<String>) {
        let record = record(flags, line);
        let text = |bytes: Option<Vec<u8>>| bytes.map(|bytes| String::from_utf8(bytes).unwrap());
        (text(record.key), text(record.value))
    }

    #[test]
    fn a_line_is_a_value_and_with_a_separator_a_key_and_a_value() {
        let pair = |key: Option<&str>, value: Option<&str>| (key.map(str::to_owned), value.map(str::to_owned));
        assert_eq!(key_and_value(&[], "a:b"), pair(None, Some("a:b")));
        assert_eq!(key_and_value(&["--key", "k"], "a:b"), pair(Some("k"), Some("a:b")));
        assert_eq!(key_and_value(&["-K", "::"], "a::b::c"), pair(Some("a"), Some("b::c")));
        assert_eq!(key_and_value(&["-K", ":"], "ab"), pair(None, Some("ab")));
        assert_eq!(key_and_value(&["-K", ":"], ":"), pair(Some(""), Some("")));
        assert_eq!(key_and_value(&["-K", ":", "--empty-is-null"], "a:"), pair(Some("a"), None));
        assert_eq!(key_and_value(&[], ""), pair(None, Some("")));
    }

    #[test]
    fn headers_and_timestamp_of_the_command_line_are_on_every_record() {
        let record = record(&["-H", "a=1", "-H", "a=", "--timestamp", "5"], "x");
        let header = |value: &[u8]| ("a".to_owned(), Some(value.to_vec()));
        assert_eq!((record.headers, record.timestamp_ms), (vec![header(b"1"), header(b"")], 5));
    }

    #[test]
    fn the_partition_of_a_line_counts_when_that_is_wanted() {
        for (flags, expected) in [(&["--json", "--keep-partitions"][..], Some(3)), (&["--json"][..], None)] {
            let args = Line::parse_from(["produce", "topic"].iter().chain(flags)).args;
            assert_eq!(args.record(br#"{"partition":3}"#.to_vec()).unwrap().1, expected);
        }
    }

    #[test]
    fn without_a_timestamp_a_record_has_the_time_of_its_line() {
        assert!(record(&[], "x").timestamp_ms > 1_600_000_000_000);
    }

    #[test]
    fn lines_end_at_a_newline_and_keep_everything_else() {
        let mut input: &[u8] = b"a\r\n\n\xff last";
        let mut lines = Vec::new();
        while let Some(line) = next_line(&mut input).unwrap() {
            lines.push(line);
        }
        assert_eq!(lines, [b"a\r".to_vec(), b"".to_vec(), b"\xff last".to_vec()]);
    }
}
