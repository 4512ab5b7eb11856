//! Appends and reads of the embedded store next to the bare system calls for the same bytes, in the same rounds.
//!
//! `cargo bench -p milena-store-embedded` prints one line per case: the median over the rounds of bare / store time, the
//! rates of that round, and the ratio of the fastest rounds. The disk and the neighbours of a machine vary more than what is compared here, which is why
//! only ratios within a round count.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    missing_docs,
    reason = "a benchmark reports by printing and ends by panicking"
)]

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use milena_store::frame::frame_header;
use milena_store::{AppendBatch, Durability, PartitionRef, ReadLimit, Store, TopicSettings};
use milena_store_embedded::{EmbeddedConfig, open};
use tokio::runtime::Runtime;

const SEGMENT_BYTES: u64 = 256 * 1024 * 1024;
const ROUNDS: usize = 9;
/// Bytes of a message's payload.
const PAYLOAD_BYTES: usize = 1000;

fn main() {
    // Run as a test, it is only built.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let runtime = Runtime::new().unwrap();
    append(&runtime, "append, 100 KB, os", 100_000, 200 << 20);
    append(&runtime, "append, 16 KB, os", 16_000, 128 << 20);
    append(&runtime, "append, 168 B, os", 168, 16 << 20);
    flushed(&runtime);
    read(&runtime, "read, 1 MB of 100 KB", 100_000, 1 << 20);
    read(&runtime, "read, 1 MB of 16 KB", 16_000, 1 << 20);
}

/// A batch of about so many bytes.
fn batch(bytes: usize) -> AppendBatch {
    let payload = vec![0x6d; PAYLOAD_BYTES.min(bytes - 32)];
    let count = (bytes / (payload.len() + 32)).max(1);
    let mut frames = Vec::with_capacity(bytes);
    for _ in 0..count {
        frames.extend_from_slice(&frame_header(7, 1, u32::try_from(payload.len()).unwrap(), 0));
        frames.extend_from_slice(&payload);
    }
    AppendBatch {
        frames: Bytes::from(frames),
        count: u32::try_from(count).unwrap(),
        origin_min_micros: 1,
        origin_max_micros: 1,
        has_untimed: false,
        producer: None,
    }
}

fn open_store(dir: &Path, durability: Durability) -> (Arc<dyn Store>, PartitionRef) {
    let dir = Some(dir.to_owned());
    let store = open(&EmbeddedConfig { dir, durability, segment_bytes: SEGMENT_BYTES, ..EmbeddedConfig::default() });
    let store = store.unwrap();
    let info = pollster::block_on(store.create_topic("bench", "t", 1, &TopicSettings::default())).unwrap();
    (store, info.topic.partition(0))
}

fn append_all(runtime: &Runtime, store: &Arc<dyn Store>, at: &PartitionRef, batch: &AppendBatch, count: usize) {
    let (store, at, batch) = (store.clone(), at.clone(), batch.clone());
    let work = async move {
        for _ in 0..count {
            store.append(&at, batch.clone()).await.unwrap();
        }
    };
    runtime.block_on(runtime.spawn(work)).unwrap();
}

/// The same bytes with write(2), into segments of the same size.
fn write_all(dir: &Path, bytes: &[u8], count: usize) {
    let mut written = u64::MAX;
    let mut file = None;
    for _ in 0..count {
        if written.saturating_add(bytes.len() as u64) > SEGMENT_BYTES {
            let name = dir.join(format!("{}", std::fs::read_dir(dir).unwrap().count()));
            file = Some(OpenOptions::new().create_new(true).append(true).open(name).unwrap());
            written = 0;
        }
        file.as_mut().unwrap().write_all(bytes).unwrap();
        written += bytes.len() as u64;
    }
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn append(runtime: &Runtime, name: &str, batch_bytes: usize, total: usize) {
    let batch = batch(batch_bytes);
    let count = total / batch.frames.len();
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        let dir = tempfile::tempdir().unwrap();
        let bare = || {
            let dir = tempfile::tempdir().unwrap();
            timed(|| write_all(dir.path(), &batch.frames, count))
        };
        let (store, at) = open_store(dir.path(), Durability::Os);
        let stored = || timed(|| append_all(runtime, &store, &at, &batch, count));
        rounds.push(if round % 2 == 0 {
            let bare = bare();
            (stored(), bare)
        } else {
            let stored = stored();
            (stored, bare())
        });
    }
    report(name, count, count * batch.frames.len(), rounds);
}

/// Group commit: as many appends wait at once as there are writers, against the same writers that each write and
/// flush a file of their own.
fn flushed(runtime: &Runtime) {
    const WRITERS: usize = 16;
    const APPENDS: usize = 40;
    let batch = batch(1000);
    let mut rounds = Vec::new();
    for _ in 0..3 {
        let dir = tempfile::tempdir().unwrap();
        let (store, at) = open_store(dir.path(), Durability::Always);
        let stored = timed(|| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|_| {
                    let (store, at, batch) = (store.clone(), at.clone(), batch.clone());
                    runtime.spawn(async move {
                        for _ in 0..APPENDS {
                            store.append(&at, batch.clone()).await.unwrap();
                        }
                    })
                })
                .collect();
            writers.into_iter().for_each(|writer| runtime.block_on(writer).unwrap());
        });
        let bare = timed(|| {
            std::thread::scope(|scope| {
                for writer in 0..WRITERS {
                    let (path, batch) = (dir.path().join(format!("bare{writer}")), &batch);
                    scope.spawn(move || {
                        let mut file = File::create(path).unwrap();
                        for _ in 0..APPENDS {
                            file.write_all(&batch.frames).unwrap();
                            file.sync_data().unwrap();
                        }
                    });
                }
            });
        });
        rounds.push((stored, bare));
    }
    report("append, 1 KB, always", WRITERS * APPENDS, WRITERS * APPENDS * batch.frames.len(), rounds);
}

fn read(runtime: &Runtime, name: &str, batch_bytes: usize, limit: usize) {
    const TOTAL: usize = 200 << 20;
    let batch = batch(batch_bytes);
    let count = TOTAL / batch.frames.len();
    let dir = tempfile::tempdir().unwrap();
    let (store, at) = open_store(dir.path(), Durability::Os);
    append_all(runtime, &store, &at, &batch, count);
    let bare_path = dir.path().join("bare");
    let mut bare_file = File::create(&bare_path).unwrap();
    (0..count).for_each(|_| bare_file.write_all(&batch.frames).unwrap());
    let bare_file = File::open(&bare_path).unwrap();
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let (reader, at) = (store.clone(), at.clone());
        let stored = timed(|| {
            let work = async move {
                let (mut from, mut bytes) = (0, 0);
                loop {
                    let entries = reader.read(&at, from, ReadLimit { bytes: limit, at_least_one: true }).await.unwrap();
                    let Some(last) = entries.last() else { return bytes };
                    from = last.base_offset + u64::from(last.count);
                    bytes += entries.iter().map(|entry| entry.frames.len()).sum::<usize>();
                }
            };
            let bytes = runtime.block_on(runtime.spawn(work)).unwrap();
            assert_eq!(bytes, count * batch.frames.len());
        });
        let bare = timed(|| {
            let mut buffer = vec![0; limit];
            let mut at = 0;
            loop {
                let read = bare_file.read_at(&mut buffer, at).unwrap();
                if read == 0 {
                    break;
                }
                at += read as u64;
            }
        });
        rounds.push((stored, bare));
    }
    report(name, TOTAL / limit, count * batch.frames.len(), rounds);
}

fn report(name: &str, calls: usize, bytes: usize, mut rounds: Vec<(Duration, Duration)>) {
    let fastest = |times: &mut dyn Iterator<Item = Duration>| times.min().unwrap_or_default().as_secs_f64();
    let (fast, fast_bare) =
        (fastest(&mut rounds.iter().map(|round| round.0)), fastest(&mut rounds.iter().map(|round| round.1)));
    rounds.sort_by(|left, right| ratio(left).total_cmp(&ratio(right)));
    let (stored, bare) = rounds[rounds.len() / 2];
    let rate = |time: Duration| bytes as f64 / time.as_secs_f64() / 1e6;
    let calls_rate = calls as f64 / stored.as_secs_f64();
    println!(
        "{name:24} {:.2} of bare  ({:.0} MB/s, {calls_rate:.0} calls/s; bare {:.0} MB/s; {:.2} to {:.2}; fastest {:.2})",
        ratio(&rounds[rounds.len() / 2]),
        rate(stored),
        rate(bare),
        ratio(&rounds[0]),
        ratio(&rounds[rounds.len() - 1]),
        fast_bare / fast,
    );
}

fn ratio((stored, bare): &(Duration, Duration)) -> f64 {
    bare.as_secs_f64() / stored.as_secs_f64()
}
