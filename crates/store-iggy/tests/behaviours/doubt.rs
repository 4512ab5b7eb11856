//! Appends whose outcome is not told.

use std::time::{Duration, Instant};

use iggy_binary_protocol::consensus::Operation;
use milena_iggy_door::faults::{Fault, On};
use milena_testkit::RawClient;
use milena_testkit::proxy::Mode;
use milena_wire::kafka_protocol::messages::ProduceRequest;

use crate::case::{Case, Setup, TOPIC, eventually};
use crate::kafka::{Stamps, produce, produce_request, produce_until_stored, read_all};

const SEND: On = On::Operation(Operation::SendMessages);

/// A producer that has stored one record, so that what follows is nothing but its append.
async fn settled(case: &Case) -> (RawClient, Stamps) {
    let mut client = case.raw().await;
    let stamps = Stamps::new(&mut client).await;
    assert_eq!(produce(&mut client, stamps.batch(0, "first")).await.base_offset, 0);
    (client, stamps)
}

async fn values(client: &mut RawClient) -> Vec<String> {
    read_all(client).await.into_iter().map(|record| String::from_utf8(record.value.unwrap()).unwrap()).collect()
}

fn proxied() -> Setup {
    let iggy = |config: &mut milena_store_iggy::IggyConfig| config.call_timeout = Duration::from_secs(2);
    Setup { proxied: true, iggy, ..Setup::default() }
}

async fn b02_a_batch_whose_reply_was_cut_off_is_found_and_stored_once(case: Case) {
    let (mut client, stamps) = settled(&case).await;
    case.proxy().set(Mode::HoldReplies);
    client.send(9, &produce_request(TOPIC, 0, stamps.batch(1, "cut"), 20_000)).await;
    eventually("the server has it", async || case.native_poll().await.len() == 2).await;
    case.proxy().cut();
    case.proxy().set(Mode::Pass);
    let answer = client.receive::<ProduceRequest>().await;
    let answer = &answer.responses[0].partition_responses[0];
    assert_eq!((answer.error_code, answer.base_offset), (0, 1));
    assert_eq!(produce(&mut client, stamps.batch(2, "next")).await.base_offset, 2);
    assert_eq!(values(&mut client).await, ["first", "cut", "next"]);
}
shown!(b02_a_batch_whose_reply_was_cut_off_is_found_and_stored_once in door, one_node with proxied());

async fn b03_a_batch_that_was_cut_off_on_its_way_is_sent_again_and_stored_once(case: Case) {
    let (mut client, stamps) = settled(&case).await;
    case.proxy().set(Mode::LoseRequests);
    client.send(9, &produce_request(TOPIC, 0, stamps.batch(1, "lost"), 20_000)).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(case.native_poll().await.len(), 1);
    case.proxy().cut();
    case.proxy().set(Mode::Pass);
    let answer = client.receive::<ProduceRequest>().await;
    let answer = &answer.responses[0].partition_responses[0];
    assert_eq!((answer.error_code, answer.base_offset), (0, 1));
    assert_eq!(values(&mut client).await, ["first", "lost"]);
}
shown!(b03_a_batch_that_was_cut_off_on_its_way_is_sent_again_and_stored_once in door, one_node with proxied());

async fn b04_a_swallowed_reply_is_answered_within_the_clients_time_and_resolved_later(case: Case) {
    let (mut client, stamps) = settled(&case).await;
    case.proxy().set(Mode::LoseReplies);
    let started = Instant::now();
    let answer = client.request(9, &produce_request(TOPIC, 0, stamps.batch(1, "swallowed"), 3_000)).await;
    assert_eq!(answer.responses[0].partition_responses[0].error_code, 7);
    assert!(started.elapsed() < Duration::from_secs(15), "the SDK's own 30 seconds were waited for");
    case.proxy().set(Mode::Pass);
    assert_eq!(produce_until_stored(&mut client, &stamps.batch(1, "swallowed")).await, 1);
    assert_eq!(produce(&mut client, stamps.batch(2, "next")).await.base_offset, 2);
    assert_eq!(values(&mut client).await, ["first", "swallowed", "next"]);
}
shown!(b04_a_swallowed_reply_is_answered_within_the_clients_time_and_resolved_later in door, one_node with proxied());

async fn b05_a_batch_whose_client_hung_up_is_stored_and_keeps_its_sequence(case: Case) {
    let (mut client, stamps) = settled(&case).await;
    case.proxy().set(Mode::HoldReplies);
    client.send(9, &produce_request(TOPIC, 0, stamps.batch(1, "left"), 20_000)).await;
    eventually("the server has it", async || case.native_poll().await.len() == 2).await;
    drop(client);
    tokio::time::sleep(Duration::from_millis(200)).await;
    case.proxy().set(Mode::Pass);
    let mut client = case.raw().await;
    assert_eq!(produce_until_stored(&mut client, &stamps.batch(2, "next")).await, 2);
    assert_eq!(produce_until_stored(&mut client, &stamps.batch(1, "left")).await, 1, "a retry is known");
    assert_eq!(values(&mut client).await, ["first", "left", "next"]);
}
shown!(b05_a_batch_whose_client_hung_up_is_stored_and_keeps_its_sequence in door, one_node with proxied());

async fn b06_a_batch_that_the_server_did_not_take_yet_is_sent_again_and_stored_once(case: Case) {
    const TRANSIENT_NOT_COMMITTED: u32 = 57;
    const TRANSIENT_NOT_ACCEPTED: u32 = 58;
    let (mut client, stamps) = settled(&case).await;
    for (sequence, code) in [(1, TRANSIENT_NOT_ACCEPTED), (2, TRANSIENT_NOT_COMMITTED)] {
        for _ in 0..3 {
            case.plan(SEND, Fault::Answer(code));
        }
        let answer = produce(&mut client, stamps.batch(sequence, &code.to_string())).await;
        assert_eq!((answer.error_code, answer.base_offset), (0, i64::from(sequence)), "{code}");
    }
    assert_eq!(values(&mut client).await, ["first", "58", "57"]);
}
shown!(b06_a_batch_that_the_server_did_not_take_yet_is_sent_again_and_stored_once in door);
