//! Logins, tokens, and requests that are not what they should be: the SDK, and frames of our own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod common;

use std::time::Duration;

use common::raw::{Raw, command, credentials, large_message, operation, ping, poll_first, register};
use common::{PASSWORD, TestDoor, USER, id, topic};
use iggy::prelude::*;
use iggy_binary_protocol::codes::{GET_STREAMS_CODE, LOGIN_USER_CODE};
use iggy_binary_protocol::consensus::{Command, EvictionReason, HEADER_SIZE, Operation, RequestHeader, result_code};
use iggy_binary_protocol::requests::streams::CreateStreamRequest;
use iggy_binary_protocol::version::{IGGY_PROTOCOL_VERSION, pack_protocol_version};
use iggy_binary_protocol::{WireEncode, WireName, WireOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn code<T: std::fmt::Debug>(result: Result<T, IggyError>) -> u32 {
    result.unwrap_err().as_code()
}

fn create_stream(name: &str) -> Vec<u8> {
    CreateStreamRequest { name: WireName::new(name).unwrap(), options: WireOptions::empty() }.to_bytes().to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_refused_and_a_right_one_after_it_is_not() {
    let door = TestDoor::open().await;
    let client = door.anonymous().await;
    client.ping().await.unwrap();
    assert_eq!(code(client.login_user(USER, "wrong").await), 42);
    client.login_user(USER, PASSWORD).await.unwrap();
    assert!(client.get_streams().await.unwrap().is_empty());
}

/// Whoever guesses learns nothing of which names there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_name_and_a_wrong_password_are_refused_alike() {
    let door = TestDoor::open().await;
    let mut refusals = Vec::new();
    for (name, password) in [(USER, "guess"), ("eve-of-sales", "guess"), ("eve-of-sales", PASSWORD)] {
        let mut raw = Raw::connect(&door).await;
        raw.send(register(7), &credentials(IGGY_PROTOCOL_VERSION, name, password)).await;
        refusals.push(raw.receive().await);
    }
    assert_eq!(refusals[0].0[60], Command::Eviction as u8);
    assert!(refusals.iter().all(|refusal| *refusal == refusals[0]), "{refusals:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guessing_passwords_costs_a_connection_each_time() {
    let door = TestDoor::with(|config| config.limits.login_failures_max = 2).await;
    let mut raw = Raw::connect(&door).await;
    for _ in 0..2 {
        raw.send(register(7), &credentials(IGGY_PROTOCOL_VERSION, USER, "guess")).await;
        assert_eq!(raw.evicted().await, EvictionReason::InvalidCredentials);
    }
    assert!(raw.is_closed().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_made_listed_used_and_taken_back() {
    let door = TestDoor::open().await;
    let client = door.client().await;
    let make = |name: &'static str, expiry| client.create_personal_access_token(name, expiry);
    let token = make("one", PersonalAccessTokenExpiry::NeverExpire).await.unwrap().token;
    assert_eq!(code(make("one", PersonalAccessTokenExpiry::NeverExpire).await), 51);
    let soon = PersonalAccessTokenExpiry::ExpireDuration(IggyDuration::from(1));
    let expired = make("two", soon).await.unwrap().token;
    let names: Vec<_> =
        client.get_personal_access_tokens().await.unwrap().into_iter().map(|token| token.name).collect();
    assert_eq!(names, ["one", "two"]);
    let other = door.anonymous().await;
    assert_eq!(code(other.login_with_personal_access_token(&expired).await), 53);
    assert_eq!(code(other.login_with_personal_access_token("made-up-token").await), 53);
    other.login_with_personal_access_token(&token).await.unwrap();
    client.delete_personal_access_token("one").await.unwrap();
    assert_eq!(code(client.delete_personal_access_token("one").await), 20);
    let third = door.anonymous().await;
    assert_eq!(code(third.login_with_personal_access_token(&token).await), 53);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_another_generation_is_told_so_before_its_credentials_are_looked_at() {
    let door = TestDoor::open().await;
    for version in [pack_protocol_version(0, 12, 2), pack_protocol_version(0, 10, 0)] {
        // Newer ones have another checksum.
        for request_checksum in [0, 1] {
            let mut raw = Raw::connect(&door).await;
            let header = RequestHeader { request_checksum, ..register(7) };
            raw.send(header, &credentials(version, USER, "wrong")).await;
            assert_eq!(raw.evicted().await, EvictionReason::IncompatibleProtocol);
        }
    }
    let mut raw = Raw::connect(&door).await;
    let header = RequestHeader { request_checksum: 1, ..register(7) };
    raw.send(header, &credentials(IGGY_PROTOCOL_VERSION, USER, PASSWORD)).await;
    assert_eq!(raw.status().await, 4, "the checksum of this generation is another one");
    let mut raw = Raw::connect(&door).await;
    raw.send(register(7), b"x").await;
    assert_eq!(raw.evicted().await, EvictionReason::MalformedLogin);
    raw.send(command(LOGIN_USER_CODE), b"").await;
    assert_eq!(raw.evicted().await, EvictionReason::MalformedLogin);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_login_only_a_ping_is_answered() {
    let door = TestDoor::open().await;
    let mut raw = Raw::connect(&door).await;
    raw.send(command(GET_STREAMS_CODE), b"").await;
    assert_eq!(raw.status().await, 40);
    raw.send(operation(Operation::CreateStream, 1), &create_stream("s")).await;
    assert_eq!(raw.evicted().await, EvictionReason::NoSession);
    raw.send(command(1), b"").await;
    assert_eq!(raw.status().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_login_of_one_client_number_fences_the_first_connection() {
    let door = TestDoor::open().await;
    let (mut first, mut second) = (Raw::connect(&door).await, Raw::connect(&door).await);
    let before = first.login(7).await;
    assert!(second.login(7).await > before);
    first.send(command(GET_STREAMS_CODE), b"").await;
    assert_eq!(first.evicted().await, EvictionReason::NoSession);
    second.send(command(GET_STREAMS_CODE), b"").await;
    assert_eq!(second.status().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_metadata_operation_that_is_sent_again_is_answered_again_and_done_once() {
    let door = TestDoor::open().await;
    let mut raw = Raw::connect(&door).await;
    raw.login(7).await;
    let mut answers = Vec::new();
    for request in [5, 5, 6] {
        answers.push(raw.result(Operation::CreateStream, request, &create_stream("s")).await);
    }
    assert_eq!(answers, [Some(0), Some(0), Some(1012)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_only_looks_like_the_one_before_is_done() {
    let door = TestDoor::open().await;
    let mut raw = Raw::connect(&door).await;
    raw.login(7).await;
    let create = create_stream("s");
    assert_eq!(raw.result(Operation::CreateStream, 1, &create).await, Some(0));
    raw.login(7).await;
    assert_eq!(raw.result(Operation::CreateStream, 1, &create).await, Some(1012), "after a login");
    let name = iggy_binary_protocol::WireIdentifier::named("s").unwrap().to_bytes();
    assert_eq!(raw.result(Operation::PurgeStream, 2, &name).await, Some(0));
    assert_eq!(raw.result(Operation::DeleteStream, 2, &name).await, Some(0), "another operation");
    assert_eq!(raw.result(Operation::CreateStream, 3, &create).await, Some(0), "the stream is gone");
    raw.send(operation(Operation::Logout, 4), b"").await;
    raw.receive().await;
    raw.login(7).await;
    assert_eq!(raw.result(Operation::CreateStream, 3, &create).await, Some(1012), "after a logout");
    for expected in [Some(0), Some(1012)] {
        raw.send(operation(Operation::CreateStream, 5), &create_stream("unstamped")).await;
        assert_eq!(result_code(&raw.receive().await.1), expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_operation_that_is_sent_again_is_tried_again() {
    let door = TestDoor::open().await;
    let mut raw = Raw::connect(&door).await;
    raw.login(7).await;
    door.memory.plan(milena_store::testing::Fault::Busy);
    assert_eq!(raw.result(Operation::CreateStream, 1, &create_stream("s")).await, Some(58));
    assert_eq!(raw.result(Operation::CreateStream, 1, &create_stream("s")).await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_pings_nor_trickling_bytes_extend_the_time_to_log_in() {
    let door = TestDoor::with(|config| config.limits.login_timeout = Duration::from_millis(500)).await;
    for bytes in [bytemuck::bytes_of(&ping()).to_vec(), vec![0]] {
        let mut raw = Raw::connect(&door).await;
        let began = std::time::Instant::now();
        while raw.0.write_all(&bytes).await.is_ok() {
            assert!(began.elapsed() < Duration::from_secs(20), "{} bytes at a time", bytes.len());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    assert_eq!(door.door.metrics().closed_idle.get(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_logout_there_is_time_to_log_in_again() {
    let door = TestDoor::with(|config| config.limits.login_timeout = Duration::from_secs(1)).await;
    let mut raw = Raw::connect(&door).await;
    raw.login(7).await;
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    raw.send(operation(Operation::Logout, 1), b"").await;
    raw.receive().await;
    raw.login(7).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_its_checksum_was_not_made_of_is_refused() {
    let door = TestDoor::open().await;
    let mut raw = Raw::connect(&door).await;
    raw.login(7).await;
    let header = RequestHeader { request_checksum: 1, ..operation(Operation::CreateStream, 1) };
    raw.send(header, &create_stream("s")).await;
    assert_eq!(raw.status().await, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_do_not_decode_are_refused_and_the_connection_goes_on() {
    let door = TestDoor::open().await;
    let mut raw = Raw::connect(&door).await;
    raw.login(7).await;
    let operations = [
        Operation::CreateTopic,
        Operation::SendMessages,
        Operation::StoreConsumerOffset,
        Operation::JoinConsumerGroup,
        Operation::DeleteSegments,
        Operation::CreatePersonalAccessToken,
    ];
    for (request, one) in (1..).zip(operations) {
        raw.send(operation(one, request), b"\xff\xff\xff").await;
        assert_eq!(raw.status().await, 3, "{one:?}");
    }
    for code in [100, 120, 200, 300, 600, 606] {
        raw.send(command(code), b"\xff").await;
        assert_eq!(raw.status().await, 3, "{code}");
    }
    raw.send(command(9_999), b"").await;
    assert_eq!(raw.status().await, 3);
    raw.send(command(11), b"").await;
    assert_eq!(raw.status().await, 5);
    raw.send(operation(Operation::CreateUser, 90), b"").await;
    assert_eq!(raw.status().await, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_request_closes_the_connection() {
    let door = TestDoor::with(|config| config.limits.login_frame_bytes_max = 1_000).await;
    let mut raw = Raw::connect(&door).await;
    raw.0.write_all(&[b'G'; HEADER_SIZE]).await.unwrap();
    assert!(raw.is_closed().await, "a size of 1,195,853,639 bytes");
    let mut raw = Raw::connect(&door).await;
    raw.0.write_all(&[0; HEADER_SIZE]).await.unwrap();
    assert!(raw.is_closed().await, "a size below that of a header");
    let mut raw = Raw::connect(&door).await;
    raw.send(register(0), b"").await;
    assert!(raw.is_closed().await, "no client number");
    let mut raw = Raw::connect(&door).await;
    raw.send(register(7), &[0; 745]).await;
    assert!(raw.is_closed().await, "a login of 1,001 bytes");
    assert_eq!(door.door.metrics().closed_protocol.get(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_has_to_log_in_and_to_finish_what_it_begins() {
    let door = TestDoor::with(|config| {
        config.limits.login_timeout = Duration::from_millis(200);
        config.limits.read_timeout = Duration::from_millis(200);
    })
    .await;
    let mut raw = Raw::connect(&door).await;
    assert!(raw.is_closed().await, "no login");
    let mut raw = Raw::connect(&door).await;
    raw.login(7).await;
    raw.0.write_all(&[1; 100]).await.unwrap();
    assert!(raw.is_closed().await, "half a header");
    let mut raw = Raw::connect(&door).await;
    raw.login(8).await;
    let header = RequestHeader { command: Command::Request, size: 1 << 20, ..operation(Operation::SendMessages, 1) };
    raw.0.write_all(bytemuck::bytes_of(&header)).await.unwrap();
    assert!(raw.is_closed().await, "a header without its body");
    assert_eq!((door.door.metrics().closed_idle.get(), door.door.metrics().closed_stalled.get()), (1, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_is_closed_and_one_too_many_is_not_let_in() {
    let door = TestDoor::with(|config| {
        config.limits.idle_timeout = Duration::from_millis(300);
        config.limits.connections_max = 1;
    })
    .await;
    let mut raw = Raw::connect(&door).await;
    raw.login(7).await;
    let mut refused = Raw::connect(&door).await;
    assert!(refused.is_closed().await);
    assert!(raw.is_closed().await, "idle");
    assert_eq!((door.door.metrics().refused.get(), door.door.metrics().closed_idle.get()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_is_closed() {
    let door = TestDoor::with(|config| config.limits.write_timeout = Duration::from_millis(300)).await;
    let client = door.client().await;
    large_message(&client).await;
    let mut raw = Raw::connect(&door).await;
    raw.login(9).await;
    raw.send(command(100), &poll_first()).await;
    for _ in 0..1_000 {
        if door.door.metrics().closed_stalled.get() == 1 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("a client that does not read keeps its connection");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_keeps_room_from_others_for_a_bounded_time() {
    let door = TestDoor::with(|config| {
        config.limits.write_timeout = Duration::from_secs(3);
        config.limits.write_rate_min = 1 << 30;
        config.limits.poll_wait = Duration::from_millis(200);
        config.limits.polls_mib_max = 8;
    })
    .await;
    let client = door.client().await;
    large_message(&client).await;
    let mut raw = Raw::connect(&door).await;
    raw.login(9).await;
    raw.send(command(100), &poll_first()).await;
    raw.0.read_exact(&mut [0; 1_000]).await.unwrap();
    let poll = || common::poll(&client, PollingStrategy::first(), 1);
    assert!(poll().await.unwrap().messages.is_empty(), "all room is taken, by one answer");
    let (mut read, mut piece) = (0, vec![0; 64 << 10]);
    while read < 20 << 20
        && let Ok(more @ 1..) = raw.0.read(&mut piece).await
    {
        read += more;
        if door.door.metrics().closed_stalled.get() == 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    assert!(read < 20 << 20, "it never stalled, and was given all the time that it took");
    assert_eq!(door.door.metrics().closed_stalled.get(), 1);
    assert_eq!(poll().await.unwrap().messages.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_closes_idle_connections_and_the_store_stays_open() {
    let door = TestDoor::open().await;
    let mut raw = Raw::connect(&door).await;
    raw.login(7).await;
    let TestDoor { door, store, .. } = door;
    door.shutdown().await;
    assert!(raw.is_closed().await);
    assert!(store.topics().await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_login_of_one_client_number_inherits_no_membership() {
    use iggy_binary_protocol::WireIdentifier;
    use iggy_binary_protocol::requests::consumer_groups::JoinConsumerGroupRequest;
    let door = TestDoor::open().await;
    let client = door.client().await;
    topic(&client, 1).await;
    client.create_consumer_group(&id("s"), &id("t"), "g").await.unwrap();
    let named = |name| WireIdentifier::named(name).unwrap();
    let join = JoinConsumerGroupRequest { stream_id: named("s"), topic_id: named("t"), group_id: named("g") };
    let members =
        || async { client.get_consumer_group(&id("s"), &id("t"), &id("g")).await.unwrap().unwrap().members_count };
    let (mut first, mut second) = (Raw::connect(&door).await, Raw::connect(&door).await);
    first.login(7).await;
    assert_eq!(first.result(Operation::JoinConsumerGroup, 1, &join.to_bytes()).await, Some(0));
    assert_eq!(members().await, 1);
    second.login(7).await;
    assert_eq!(members().await, 0);
}
