//! Reads, and where a partition begins and ends.

use std::time::{Duration, Instant};

use iggy_binary_protocol::codes::POLL_MESSAGES_CODE;
use iggy_common::SegmentClient;
use milena_iggy_door::faults::{Fault, On};
use milena_records::client::Record;
use milena_store::Store;
use milena_testkit::RawClient;
use milena_wire::kafka_protocol::messages::FetchRequest;

use crate::case::{Case, Setup, TOPIC, eventually, named};
use crate::kafka::{
    EARLIEST, LATEST, fetch, fetch_request, list, offset, plain, produce, read_all, record, records_of, values_of,
};

/// Server side retention as often as it goes.
const QUICK: &[(&str, &str)] = &[("IGGY_DATA_MAINTENANCE_MESSAGES_INTERVAL", "500 ms")];

/// Fills segments of 1 MiB: that many batches, of 200 KiB each.
async fn fill(client: &mut RawClient, batches: usize) {
    let large = Record { value: Some(vec![b'x'; 200 << 10]), ..record("") };
    for _ in 0..batches {
        assert_eq!(produce(client, plain(std::slice::from_ref(&large))).await.error_code, 0);
    }
}

fn small_segments() -> Setup {
    Setup { configs: &[("segment.bytes", "1048576")], envs: QUICK, ..Setup::default() }
}

async fn b16_a_fetch_below_the_start_is_out_of_range_with_the_true_start(case: Case) {
    let mut client = case.raw().await;
    fill(&mut client, 20).await;
    let (native, stream, topic) = (case.native().await, named(&case.stream), named(TOPIC));
    native.delete_segments(&stream, &topic, 0, 1).await.unwrap();
    eventually("the start moved", async || offset(&mut client, EARLIEST).await > 0).await;
    let start = offset(&mut client, EARLIEST).await;
    let data = fetch(&mut client, 0, 0).await;
    assert_eq!((data.error_code, data.log_start_offset, data.high_watermark), (1, start, 20));
    assert!(records_of(&data).is_empty(), "later records under an older offset");
    assert_eq!(records_of(&fetch(&mut client, start, 0).await)[0].offset, start);
}
shown!(b16_a_fetch_below_the_start_is_out_of_range_with_the_true_start in door, one_node, three_nodes
    with small_segments());

async fn b17_the_end_is_empty_and_what_lies_behind_it_is_out_of_range(case: Case) {
    let mut client = case.raw().await;
    for end in [0, 1] {
        let data = fetch(&mut client, end, 0).await;
        assert_eq!((data.error_code, data.high_watermark, records_of(&data).len()), (0, end, 0));
        assert_eq!(fetch(&mut client, end + 1, 0).await.error_code, 1);
        assert_eq!(produce(&mut client, plain(&[record("x")])).await.base_offset, end);
    }
}
shown!(b17_the_end_is_empty_and_what_lies_behind_it_is_out_of_range in door, one_node, three_nodes);

async fn b18_an_empty_answer_where_a_message_must_be_is_asked_again_and_then_a_storage_error(case: Case) {
    let mut client = case.raw().await;
    assert_eq!(produce(&mut client, plain(&[record("there")])).await.error_code, 0);
    // Partition, current offset and count: what the server says at the end of a partition, and for a fault of its disk.
    let empty = || case.plan(On::Code(POLL_MESSAGES_CODE), Fault::Body(&[0; 16]));
    empty();
    assert_eq!(values_of(&fetch(&mut client, 0, 0).await), ["there"], "a race with retention looks like that");
    (0..4).for_each(|_| empty());
    let data = fetch(&mut client, 0, 0).await;
    assert_eq!((data.error_code, records_of(&data).len()), (56, 0), "it is not the end of the log");
    assert_eq!(values_of(&fetch(&mut client, 0, 0).await), ["there"]);
}
shown!(b18_an_empty_answer_where_a_message_must_be_is_asked_again_and_then_a_storage_error in door);

async fn b19_a_small_fetch_of_large_messages_loads_few_of_them(case: Case) {
    let mut client = case.raw().await;
    fill(&mut client, 60).await;
    let before = case.proxy().to_client();
    let answer = client.request(11, &fetch_request(TOPIC, 0, 0, 0, 64 << 10)).await;
    assert_eq!(records_of(&answer.responses[0].partitions[0]).len(), 1);
    let loaded = case.proxy().to_client() - before;
    assert!(loaded < 2 << 20, "{loaded} bytes were loaded for an answer of 200 KiB");
}
shown!(b19_a_small_fetch_of_large_messages_loads_few_of_them in door, one_node
    with Setup { proxied: true, ..Setup::default() });

async fn b20_a_fetch_waits_for_others_without_asking_all_the_time(case: Case) {
    let mut client = case.raw().await;
    let started = Instant::now();
    assert_eq!(records_of(&fetch(&mut client, 0, 1_000).await).len(), 0);
    assert!(started.elapsed() >= Duration::from_millis(900), "it did not wait");
    // Own messages and those of an Iggy client wake it.
    for (offset, own) in [(0, true), (1, false)] {
        let mut waiting = case.raw().await;
        waiting.send(11, &fetch_request(TOPIC, 0, offset, 20_000, 1 << 20)).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let started = Instant::now();
        if own {
            assert_eq!(produce(&mut client, plain(&[record("own")])).await.error_code, 0);
        } else {
            case.native_send("foreign").await;
        }
        let answer = waiting.receive::<FetchRequest>().await;
        assert_eq!(records_of(&answer.responses[0].partitions[0]).len(), 1);
        assert!(started.elapsed() < Duration::from_secs(10), "it waited to its end");
    }
}
shown!(b20_a_fetch_waits_for_others_without_asking_all_the_time in door, one_node, three_nodes);

async fn b20_a_hundred_fetches_that_wait_cost_the_server_as_few_calls_as_one(case: Case) {
    const WAITING: usize = 100;
    let mut waiting = Vec::new();
    for _ in 0..WAITING {
        let mut client = case.raw().await;
        client.send(11, &fetch_request(TOPIC, 0, 0, 25_000, 1 << 20)).await;
        waiting.push(client);
    }
    // By then all of them have looked for themselves, and the pauses between two looks are as long as they get.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (before, started) = (case.frames.requests(), Instant::now());
    tokio::time::sleep(Duration::from_secs(2)).await;
    let asked = case.frames.requests() - before;
    // A look every 250 ms, and what gateways have to say of themselves. Were each fetch to look, it would be 400 a second.
    let seconds = usize::try_from(started.elapsed().as_secs()).unwrap().max(2);
    assert!(before > 0 && asked <= 25 * seconds, "{asked} requests in {:?}", started.elapsed());
    assert_eq!(produce(&mut case.raw().await, plain(&[record("for all")])).await.error_code, 0);
    for mut client in waiting {
        let answer = client.receive::<FetchRequest>().await;
        assert_eq!(values_of(&answer.responses[0].partitions[0]), ["for all"]);
    }
}
shown!(b20_a_hundred_fetches_that_wait_cost_the_server_as_few_calls_as_one in door, one_node
    with Setup { proxied: true, ..Setup::default() });

async fn b20_a_produce_through_the_same_gateway_wakes_a_fetch_at_once(case: Case) {
    let mut client = case.raw().await;
    let mut waiting = case.raw().await;
    waiting.send(11, &fetch_request(TOPIC, 0, 0, 28_000, 1 << 20)).await;
    // Pauses between two looks double and have no bound here: the next look is due after about ten seconds.
    tokio::time::sleep(Duration::from_millis(5_500)).await;
    let started = Instant::now();
    assert_eq!(produce(&mut client, plain(&[record("own")])).await.error_code, 0);
    let answer = waiting.receive::<FetchRequest>().await;
    assert_eq!(values_of(&answer.responses[0].partitions[0]), ["own"]);
    assert!(started.elapsed() < Duration::from_secs(4), "it was found by looking: {:?}", started.elapsed());
}
shown!(b20_a_produce_through_the_same_gateway_wakes_a_fetch_at_once in door, one_node with Setup {
    iggy: |config| config.probe_interval_max = Duration::from_secs(60),
    ..Setup::default()
});

async fn b21_a_single_message_that_expired_leaves_the_end_where_it_was(case: Case) {
    let mut client = case.raw().await;
    // As large as a segment, which is full with it and goes as a whole.
    let whole = Record { value: Some(vec![b'x'; 1_200_000]), ..record("") };
    assert_eq!(produce(&mut client, plain(&[whole])).await.error_code, 0);
    eventually("it expired", async || case.native_topic(TOPIC).await.unwrap().partitions[0].messages_count == 0).await;
    assert_eq!(offset(&mut client, LATEST).await, 1);
    assert_eq!(fetch(&mut client, 1, 0).await.error_code, 0);
    assert_eq!(produce(&mut client, plain(&[record("next")])).await.base_offset, 1);
    assert_eq!(offset(&mut client, LATEST).await, 2);
}
shown!(b21_a_single_message_that_expired_leaves_the_end_where_it_was in door, one_node with Setup {
    configs: &[("segment.bytes", "1048576"), ("retention.ms", "1000"), ("max.message.bytes", "4000000")],
    ..small_segments()
});

async fn b22_offsets_are_found_by_the_producers_time_and_not_by_that_of_the_append(case: Case) {
    let mut client = case.raw().await;
    for times in [[5_000, 1_000], [9_000, 3_000]] {
        let records = times.map(|timestamp_ms| Record { timestamp_ms, ..record("x") });
        assert_eq!(produce(&mut client, plain(&records)).await.error_code, 0);
    }
    for (time, found) in [(1_000, 0), (5_000, 0), (5_001, 2), (9_000, 2), (9_001, -1)] {
        assert_eq!(list(&mut client, TOPIC, 0, time).await.offset, found, "{time}");
    }
}
shown!(b22_offsets_are_found_by_the_producers_time_and_not_by_that_of_the_append in door, one_node, three_nodes);

async fn b23_retention_takes_sealed_segments_and_the_start_follows(case: Case) {
    let mut client = case.raw().await;
    fill(&mut client, 20).await;
    eventually("sealed segments go", async || offset(&mut client, EARLIEST).await > 0).await;
    assert_eq!(offset(&mut client, LATEST).await, 20);
    // By now the start may lie behind all of them.
    assert_eq!(produce(&mut client, plain(&[record("next")])).await.base_offset, 20);
    let data = fetch(&mut client, 20, 0).await;
    assert_eq!((data.error_code, records_of(&data)[0].offset), (0, 20));
}
shown!(b23_retention_takes_sealed_segments_and_the_start_follows in door, one_node with Setup {
    configs: &[("segment.bytes", "1048576"), ("retention.ms", "1500")],
    ..small_segments()
});

async fn b25_a_trim_to_the_end_does_not_begin_offsets_again(case: Case) {
    let mut client = case.raw().await;
    for _ in 0..3 {
        assert_eq!(produce(&mut client, plain(&[record("old")])).await.error_code, 0);
    }
    let at = case.at().await;
    assert_eq!(case.store.trim(&at, 3).await.unwrap().start, 3);
    assert_eq!(offset(&mut client, EARLIEST).await, 3);
    assert_eq!(produce(&mut client, plain(&[record("new")])).await.base_offset, 3);
    let seen = read_all(&mut client).await;
    assert_eq!(seen.iter().map(|record| record.offset).collect::<Vec<_>>(), [3]);
    assert_eq!(case.native_poll().await.last().unwrap().header.offset, 3);
}
shown!(b25_a_trim_to_the_end_does_not_begin_offsets_again in door, one_node, three_nodes);
