//! Produce: batches that are wrong, and rules of topics.

use milena_records::Codec;
use milena_records::client::build_batch;
use milena_wire::kafka_protocol::messages::ProduceRequest;

use super::produce::varied;
use super::words::{create, plain, produce, record, write};
use crate::duo::{Duo, versions};
use crate::normal::Memory;

/// First byte that the checksum covers.
const COVERED_FROM: usize = 21;

/// Each batch in each version.
pub async fn run(duo: &mut Duo) {
    create(duo, "small", 1, &[("max.message.bytes", Some("500"))]).await;
    create(duo, "compacted", 1, &[("cleanup.policy", Some("compact"))]).await;
    let times =
        [("message.timestamp.before.max.ms", Some("7200000")), ("message.timestamp.after.max.ms", Some("3600000"))];
    create(duo, "timely", 1, &times).await;
    for version in versions::<ProduceRequest>() {
        headers(duo, version).await;
        whole(duo, version).await;
        rules(duo, version).await;
    }
}

/// Writes to a topic of the step's own, so that what one server takes and the other does not moves no other step's offsets.
async fn judge(duo: &mut Duo, version: i16, records: impl Fn(&Memory) -> Vec<u8>) {
    let name = duo.step_name().replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
    if !duo.knows_topic(&name) {
        create_for_step(duo, &name).await;
    }
    write(duo, version, &name, records).await;
}

async fn create_for_step(duo: &mut Duo, name: &str) {
    let step = duo.step_name().to_owned();
    create(duo, name, 1, &[]).await;
    duo.step(&step);
}

/// A batch with some bytes of its header replaced, under a checksum that is right.
fn with(mut batch: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    batch[at..at + bytes.len()].copy_from_slice(bytes);
    let sum = crc_fast::crc32_iscsi(&batch[COVERED_FROM..]);
    batch[17..21].copy_from_slice(&sum.to_be_bytes());
    batch
}

async fn headers(duo: &mut Duo, version: i16) {
    for (step, at, bytes) in [
        ("a base offset that is not 0", 0, &7_i64.to_be_bytes()[..]),
        ("a negative base offset", 0, &(-1_i64).to_be_bytes()),
        ("a length that is too large", 8, &9999_i32.to_be_bytes()),
        ("a length that is too small", 8, &10_i32.to_be_bytes()),
        ("a negative length", 8, &(-1_i32).to_be_bytes()),
        ("a leader epoch", 12, &5_i32.to_be_bytes()),
        ("magic 3", 16, &[3]),
        ("a negative magic", 16, &[0xff]),
        ("codec 5", 21, &5_i16.to_be_bytes()),
        ("codec 7", 21, &7_i16.to_be_bytes()),
        ("time of the append", 21, &8_i16.to_be_bytes()),
        ("a transaction without a producer", 21, &16_i16.to_be_bytes()),
        ("a control batch", 21, &32_i16.to_be_bytes()),
        ("an attribute that nobody knows", 21, &256_i16.to_be_bytes()),
        ("a last offset that is too large", 23, &9_i32.to_be_bytes()),
        ("a last offset that is too small", 23, &0_i32.to_be_bytes()),
        ("a negative last offset", 23, &(-1_i32).to_be_bytes()),
        ("a largest time below the records'", 35, &0_i64.to_be_bytes()),
        ("no largest time", 35, &(-1_i64).to_be_bytes()),
        ("no base time", 27, &(-1_i64).to_be_bytes()),
        ("a count that is too large", 57, &9_i32.to_be_bytes()),
        ("a count that is too small", 57, &2_i32.to_be_bytes()),
        ("a count of 0", 57, &0_i32.to_be_bytes()),
        ("a negative count", 57, &(-1_i32).to_be_bytes()),
        ("a producer without an epoch", 43, &7_i64.to_be_bytes()),
        ("an epoch without a producer", 51, &3_i16.to_be_bytes()),
        ("a sequence without a producer", 53, &3_i32.to_be_bytes()),
    ] {
        duo.step(step);
        judge(duo, version, |memory| with(build_batch(&varied(memory), Codec::None, None), at, bytes)).await;
    }
}

async fn whole(duo: &mut Duo, version: i16) {
    duo.step("a checksum that is wrong");
    judge(duo, version, |memory| {
        let mut batch = plain(memory, 1, "wrong");
        batch[17] ^= 1;
        batch
    })
    .await;
    duo.step("cut off");
    for left in [1, 11, 17, 60, 65] {
        judge(duo, version, |memory| plain(memory, 1, "cut off")[..left].to_vec()).await;
    }
    duo.step("a batch and a half");
    judge(duo, version, |memory| {
        let batch = plain(memory, 1, "half");
        [&batch[..], &batch[..30]].concat()
    })
    .await;
    duo.step("two batches");
    judge(duo, version, |memory| [plain(memory, 1, "one"), plain(memory, 2, "two")].concat()).await;
    for codec in [1_i16, 2, 3, 4] {
        duo.step(&format!("what is not compressed as codec {codec}"));
        if codec < 4 || version >= 7 {
            judge(duo, version, |memory| with(plain(memory, 1, "plain"), 21, &codec.to_be_bytes())).await;
        }
    }
    for magic in [0, 1] {
        duo.step(&format!("a message of magic {magic}"));
        judge(duo, version, |memory| old_message(magic, memory.time(0))).await;
    }
    duo.step("bytes behind the last record");
    judge(duo, version, |memory| {
        let mut batch = plain(memory, 1, "more");
        batch.extend([0, 0]);
        let len = i32::try_from(batch.len() - 12).expect("a length");
        with(batch, 8, &len.to_be_bytes())
    })
    .await;
    duo.step("an offset of a record that is wrong");
    judge(duo, version, |memory| {
        // Length, attributes, a time of one byte, the offset.
        with(plain(memory, 1, "offset"), 61 + 3, &[4])
    })
    .await;
    duo.step("attributes of a record");
    judge(duo, version, |memory| with(plain(memory, 1, "attributes"), 61 + 1, &[1])).await;
}

async fn rules(duo: &mut Duo, version: i16) {
    duo.step("as large as may be, and larger");
    for len in [430, 431, 432, 600] {
        write(duo, version, "small", |memory| plain(memory, 1, &"v".repeat(len))).await;
    }
    duo.step("compressed below what may be, plain above it");
    write(duo, version, "small", |memory| {
        build_batch(&[record(memory.time(1), None, Some(&"v".repeat(5000)))], Codec::Gzip, None)
    })
    .await;
    duo.step("a key, and none, where records are compacted");
    for key in [Some("k"), Some(""), None] {
        write(duo, version, "compacted", |memory| build_batch(&[record(memory.time(1), key, None)], Codec::None, None))
            .await;
    }
    duo.step("some keys where records are compacted");
    write(duo, version, "compacted", |memory| build_batch(&varied(memory), Codec::Lz4, None)).await;
    for (step, ms) in
        [("a time in the bounds", 0), ("a time too long ago", -7_200_000), ("a time too far ahead", 3 * 3_600_000)]
    {
        duo.step(step);
        write(duo, version, "timely", |memory| plain(memory, ms, "timely")).await;
    }
    for (step, timestamp) in [("no time", -1), ("a negative time", -2), ("time 0", 0)] {
        duo.step(step);
        judge(duo, version, |_| build_batch(&[record(timestamp, None, Some("t"))], Codec::None, None)).await;
    }
    duo.step("one good partition beside a bad one");
    duo.ask(version, |memory| {
        let mut bad = plain(memory, 1, "bad");
        bad[17] ^= 1;
        produce(memory, version, "written-oddly", vec![(0, Some(bad)), (1, Some(plain(memory, 1, "good")))])
    })
    .await;
}

/// A message set of one message in the format of old.
fn old_message(magic: u8, timestamp: i64) -> Vec<u8> {
    let mut message = vec![magic, 0];
    if magic == 1 {
        message.extend(timestamp.to_be_bytes());
    }
    message.extend((-1_i32).to_be_bytes());
    message.extend(3_i32.to_be_bytes());
    message.extend(b"old");
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, &message);
    let sum = u32::try_from(sum).expect("32 bits").to_be_bytes();
    let len = i32::try_from(message.len() + 4).expect("a length").to_be_bytes();
    [&0_i64.to_be_bytes()[..], &len, &sum, &message].concat()
}
