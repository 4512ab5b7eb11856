//! Bounds of what is kept and of what is waited for: what is at them is served, what is beyond has its answer.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod common;

use std::time::{Duration, Instant};

use common::{TestDoor, id, send, topic};
use iggy::prelude::*;
use iggy_binary_protocol::consensus::Operation;
use milena_iggy_door::faults::{Fault, On};

fn code<T: std::fmt::Debug>(result: Result<T, IggyError>) -> u32 {
    result.unwrap_err().as_code()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_are_taken_up_to_their_bound_and_again_when_one_goes() {
    let door = TestDoor::with(|config| config.limits.streams_max = 1).await;
    let client = door.client().await;
    client.create_stream("one").await.unwrap();
    assert_eq!(code(client.create_stream("two").await), 1020);
    client.delete_stream(&id("one")).await.unwrap();
    client.create_stream("two").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_and_members_are_taken_up_to_their_bounds() {
    let door = TestDoor::with(|config| {
        config.limits.groups_max = 1;
        config.limits.members_max = 1;
    })
    .await;
    let (client, other) = (door.client().await, door.client().await);
    topic(&client, 1).await;
    client.create_consumer_group(&id("s"), &id("t"), "one").await.unwrap();
    assert_eq!(code(client.create_consumer_group(&id("s"), &id("t"), "two").await), 5007);
    client.join_consumer_group(&id("s"), &id("t"), &id("one")).await.unwrap();
    assert_eq!(code(other.join_consumer_group(&id("s"), &id("t"), &id("one")).await), 5007);
    client.leave_consumer_group(&id("s"), &id("t"), &id("one")).await.unwrap();
    other.join_consumer_group(&id("s"), &id("t"), &id("one")).await.unwrap();
    client.delete_consumer_group(&id("s"), &id("t"), &id("one")).await.unwrap();
    client.create_consumer_group(&id("s"), &id("t"), "two").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumer_offsets_are_taken_up_to_their_bound_and_those_that_are_there_still_move() {
    let door = TestDoor::with(|config| config.limits.offsets_max = 1).await;
    let client = door.client().await;
    topic(&client, 1).await;
    send(&client, 0, &["a", "b"]).await.unwrap();
    let store = async |name: &str, offset| {
        client.store_consumer_offset(&Consumer::new(id(name)), &id("s"), &id("t"), Some(0), offset).await
    };
    store("one", 0).await.unwrap();
    assert_eq!(code(store("two", 0).await), 3024);
    store("one", 1).await.unwrap();
    client.delete_consumer_offset(&Consumer::new(id("one")), &id("s"), &id("t"), Some(0)).await.unwrap();
    store("two", 0).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_made_up_to_their_bound() {
    let door = TestDoor::with(|config| config.limits.tokens_max = 1).await;
    let client = door.client().await;
    let create = async |name: &str| {
        client.create_personal_access_token(name, PersonalAccessTokenExpiry::NeverExpire).await.map(drop)
    };
    create("one").await.unwrap();
    assert_eq!(code(create("two").await), 52);
    client.delete_personal_access_token("one").await.unwrap();
    create("two").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_beyond_the_largest_one_closes_its_connection_and_no_other() {
    let door = TestDoor::with(|config| config.limits.frame_bytes_max = 4_000).await;
    let (client, other) = (door.client().await, door.client().await);
    topic(&client, 1).await;
    send(&client, 0, &[&"x".repeat(3_000)]).await.unwrap();
    let error = send(&client, 0, &[&"x".repeat(5_000)]).await.unwrap_err();
    assert!(matches!(error, IggyError::Disconnected), "{error}");
    send(&other, 0, &["x"]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_waits_for_a_request_as_long_as_it_may_and_no_longer() {
    const DRAIN: Duration = Duration::from_millis(300);
    let door = TestDoor::with(|config| config.limits.shutdown_drain = DRAIN).await;
    let client = door.client().await;
    topic(&client, 1).await;
    let never = Fault::DelayBefore(Duration::from_secs(600));
    door.door.faults().plan(On::Operation(Operation::SendMessages), never);
    let sending = tokio::spawn(async move { send(&client, 0, &["x"]).await });
    while door.door.faults().left() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let begun = Instant::now();
    door.door.shutdown().await;
    let took = begun.elapsed();
    assert!(took >= DRAIN && took < Duration::from_secs(30), "{took:?}");
    assert!(sending.await.unwrap().is_err());
}
