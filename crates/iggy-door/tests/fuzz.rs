//! Any bytes into the door: nothing panics, and other clients are served.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::BytesMut;
use common::{PASSWORD, TestDoor, USER, poll, send, topic};
use iggy::prelude::*;
use iggy_binary_protocol::consensus::{Command, HEADER_SIZE, Operation, RequestHeader};
use iggy_binary_protocol::requests::messages::{PollMessagesRequest, RawMessage, SendMessagesEncoder};
use iggy_binary_protocol::requests::topics::CreateTopicRequest;
use iggy_binary_protocol::version::IGGY_PROTOCOL_VERSION;
use iggy_binary_protocol::{
    ClientVersionInfo, WireConsumer, WireEncode, WireIdentifier, WireName, WireOptions, WirePartitioning,
    WirePollingStrategy,
};
use milena_iggy_door::fuzzing::frame;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn request(operation: Operation, code: u32, body: &[u8]) -> Vec<u8> {
    let size = u32::try_from(HEADER_SIZE + body.len()).unwrap();
    let session = u64::from(operation != Operation::Register);
    let mut header = RequestHeader {
        command: Command::Request,
        operation,
        size,
        client: 7,
        request: session,
        session,
        ..RequestHeader::default()
    };
    header.reserved[..4].copy_from_slice(&code.to_le_bytes());
    [bytemuck::bytes_of(&header), body].concat()
}

fn login() -> Vec<u8> {
    let text = |text: &str| WireName::new(text).unwrap();
    let info =
        ClientVersionInfo { protocol_version: IGGY_PROTOCOL_VERSION, sdk_name: text("fuzz"), sdk_version: text("1") };
    let body = [&info.to_bytes()[..], &text(USER).to_bytes(), &text(PASSWORD).to_bytes(), &[0; 4]].concat();
    request(Operation::Register, 0, &body)
}

/// Good requests of many kinds; the rest is made from them.
fn corpus() -> Vec<Vec<u8>> {
    let named = |name: &str| WireIdentifier::named(name).unwrap();
    let message =
        |payload| RawMessage { id: 1, origin_timestamp: 5, headers: Some(b"\x02\x01\0\0\0k\x01\x01\0\0\0v"), payload };
    let mut batch = BytesMut::new();
    let to = WirePartitioning::PartitionId(0);
    SendMessagesEncoder::encode(&mut batch, &named("s"), &named("t"), &to, &[message(b"one"), message(b"two")])
        .unwrap();
    let poll = PollMessagesRequest {
        consumer: WireConsumer::consumer(WireIdentifier::numeric(1)),
        stream_id: named("s"),
        topic_id: named("t"),
        partition_id: Some(0),
        strategy: WirePollingStrategy::first(),
        count: 10,
        auto_commit: true,
    };
    let create = CreateTopicRequest {
        stream_id: named("s"),
        partitions_count: 2,
        name: WireName::new("new").unwrap(),
        options: WireOptions::from_slice(b"\x02\x0c\0\0\0segment_size\x02\x05\0\0\x001 MiB").unwrap(),
    };
    let ids = [named("s").to_bytes(), named("t").to_bytes(), named("g").to_bytes()].concat();
    let mut corpus = vec![
        login(),
        request(Operation::SendMessages, 0, &batch),
        request(Operation::CreateTopic, 0, &create.to_bytes()),
        request(Operation::NonReplicated, 100, &poll.to_bytes()),
    ];
    corpus.extend([600, 601, 606, 300, 200, 120].map(|code| request(Operation::NonReplicated, code, &ids)));
    let operations = [Operation::JoinConsumerGroup, Operation::DeleteConsumerGroup, Operation::PurgeTopic];
    corpus.extend(operations.map(|operation| request(operation, 0, &ids)));
    corpus
}

fn mutated(noise: &mut StdRng, seed: &[u8], keep: usize) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..noise.random_range(1..6) {
        let at = noise.random_range(keep..bytes.len().max(keep + 1));
        match noise.random_range(0..4) {
            0 => bytes.truncate(at.max(keep)),
            1 => bytes.splice(at.min(bytes.len())..at.min(bytes.len()), [0xff, 0xff]).for_each(drop),
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = noise.random();
                }
            }
        }
    }
    bytes
}

#[test]
fn good_requests_and_changed_ones_panic_nowhere() {
    let mut noise = StdRng::seed_from_u64(1);
    for seed in corpus() {
        frame(&seed);
        for cut in 0..seed.len() {
            frame(&seed[..cut]);
        }
        for _ in 0..2_000 {
            frame(&mutated(&mut noise, &seed, 0));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn random_bytes_panic_nowhere(bytes in prop::collection::vec(any::<u8>(), 0..700)) {
        frame(&bytes);
    }
}

/// Bodies are changed and sizes put right, so that requests get as far as the handlers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_requests_hurt_neither_the_door_nor_another_client() {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        report(panic);
    }));
    let door = TestDoor::with(|config| config.limits.read_timeout = std::time::Duration::from_millis(50)).await;
    let client = door.client().await;
    topic(&client, 1).await;
    let mut noise = StdRng::seed_from_u64(2);
    for seed in corpus().into_iter().skip(1) {
        let mut stream = TcpStream::connect(door.door.address()).await.unwrap();
        stream.write_all(&login()).await.unwrap();
        read_answer(&mut stream).await.unwrap();
        for _ in 0..60 {
            let mut bytes = mutated(&mut noise, &seed, HEADER_SIZE);
            let size = u32::try_from(bytes.len()).unwrap();
            bytes[48..52].copy_from_slice(&size.to_le_bytes());
            stream.write_all(&bytes).await.unwrap();
            read_answer(&mut stream).await.expect("a whole request is answered");
        }
        let broken = mutated(&mut noise, &seed, 0);
        let _ = stream.write_all(&broken).await;
    }
    send(&client, 0, &["still here"]).await.unwrap();
    assert!(!poll(&client, PollingStrategy::last(), 1).await.unwrap().messages.is_empty());
    assert_eq!(PANICS.load(Ordering::Relaxed), 0);
}

async fn read_answer(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut header = vec![0; HEADER_SIZE];
    stream.read_exact(&mut header).await?;
    let size = u32::from_le_bytes(header[48..52].try_into().unwrap()) as usize;
    let mut body = vec![0; size - HEADER_SIZE];
    stream.read_exact(&mut body).await?;
    Ok(body)
}
