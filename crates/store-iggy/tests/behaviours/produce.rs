//! Appends that go well, and what they look like on the server.

use std::time::Duration;

use milena_records::client::Record;
use milena_store::Store;
use milena_testkit::proxy::Mode;
use milena_wire::kafka_protocol::messages::OffsetForLeaderEpochRequest;
use milena_wire::kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};

use crate::case::{Case, Setup, TOPIC, eventually};
use crate::kafka::{
    EARLIEST, LATEST, Stamps, fetch, fetch_request, list, offset, plain, produce, produce_request, produce_to,
    produce_until_stored, read_all, record, records_of, topic_name, values_of,
};

const FENCED_LEADER_EPOCH: i16 = 74;

async fn b01_an_acknowledged_batch_is_where_its_answer_says(case: Case) {
    let mut client = case.raw().await;
    for base in [0, 3] {
        let batch = plain(&[record("a"), record("b"), record("c")]);
        let answer = produce(&mut client, batch).await;
        assert_eq!((answer.error_code, answer.base_offset), (0, base));
        assert_eq!(values_of(&fetch(&mut client, base + 2, 0).await), ["c"]);
        assert_eq!(offset(&mut client, LATEST).await, base + 3);
    }
    let stored = case.native_poll().await;
    assert_eq!(stored.iter().map(|message| message.header.offset).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
}
shown!(b01_an_acknowledged_batch_is_where_its_answer_says in door, one_node, three_nodes);

async fn b07_the_first_batch_to_a_new_topic_is_stored(case: Case) {
    let mut client = case.raw().await;
    for number in 0..5 {
        let topic = format!("new-{number}");
        case.create(&topic, 2, &[]).await;
        for partition in [0, 1] {
            let answer = produce_to(&mut client, &topic, partition, plain(&[record("first")])).await;
            assert_eq!((answer.error_code, answer.base_offset), (0, 0), "{topic} {partition}");
        }
    }
}
shown!(b07_the_first_batch_to_a_new_topic_is_stored in door, one_node, three_nodes);

async fn b08_a_batch_above_the_servers_frame_is_refused_and_not_sent(case: Case) {
    let mut client = case.raw().await;
    assert_eq!(produce(&mut client, plain(&[record("small")])).await.error_code, 0);
    let before = case.proxy().to_server();
    let large = Record { value: Some(vec![b'x'; 1 << 20]), ..record("") };
    let answer = produce(&mut client, plain(&vec![large; 64])).await;
    assert_eq!(answer.error_code, 10);
    assert_eq!(produce(&mut client, plain(&[record("small")])).await.base_offset, 1);
    let sent = case.proxy().to_server() - before;
    assert!(sent < 1 << 20, "{sent} bytes were sent: the server closes the connection upon such a batch");
}
shown!(b08_a_batch_above_the_servers_frame_is_refused_and_not_sent in door, one_node with Setup {
    proxied: true,
    configs: &[("max.message.bytes", "90000000")],
    ..Setup::default()
});

async fn b09_timestamps_far_apart_are_stored_and_come_back(case: Case) {
    const HOUR_MS: i64 = 3_600_000;
    let mut client = case.raw().await;
    let at = |hours: i64| Record { timestamp_ms: 1_700_000_000_000 + hours * HOUR_MS, ..record("x") };
    let records: Vec<Record> = [0, 2, 30, 1].into_iter().map(at).collect();
    assert_eq!(produce(&mut client, plain(&records)).await.error_code, 0);
    let times = |records: &[Record]| records.iter().map(|record| record.timestamp_ms).collect::<Vec<_>>();
    assert_eq!(times(&read_all(&mut client).await), times(&records));
    // The server gives each append a time of its own.
    eventually("the server shows them", async || case.native_poll().await.len() == records.len()).await;
    let mut appended: Vec<u64> = case.native_poll().await.iter().map(|message| message.header.timestamp).collect();
    appended.dedup();
    assert_eq!(appended.len(), 1, "one batch is one append");
}
shown!(b09_timestamps_far_apart_are_stored_and_come_back in door, one_node, three_nodes);

async fn b10_odd_records_come_back_as_they_were(case: Case) {
    let mut client = case.raw().await;
    let text = |text: &str| Some(text.as_bytes().to_vec());
    let header = |name: &str, value: Option<Vec<u8>>| (name.to_owned(), value);
    let mut records = vec![
        Record { value: text(""), ..record("") },
        Record { value: None, key: text("k"), ..record("") },
        Record { value: None, key: None, ..record("") },
        Record { key: text(""), ..record("v") },
        Record { headers: vec![header("a", text("1")), header("a", text("2")), header("", None)], ..record("v") },
        Record { headers: vec![header("z", text("")), header("a", None)], ..record("v") },
        Record { headers: vec![header(&"n".repeat(300), Some(vec![7; 2_000]))], ..record("v") },
    ];
    assert_eq!(produce(&mut client, plain(&records)).await.error_code, 0);
    for (offset, record) in (0..).zip(&mut records) {
        record.offset = offset;
    }
    assert_eq!(read_all(&mut client).await, records);
    assert_eq!(case.native_poll().await.len(), records.len(), "one message for each record");
}
shown!(b10_odd_records_come_back_as_they_were in door, one_node, three_nodes);

async fn b13_no_more_than_32_sends_of_a_partition_are_unanswered(case: Case) {
    const SENT: usize = 100;
    let mut client = case.raw().await;
    assert_eq!(produce(&mut client, plain(&[record("first")])).await.error_code, 0);
    case.proxy().set(Mode::HoldReplies);
    let before = case.frames.sends();
    let mut waiting = Vec::new();
    for number in 0..SENT {
        let mut client = case.raw().await;
        client.send(9, &produce_request(TOPIC, 0, plain(&[record(&number.to_string())]), 30_000)).await;
        waiting.push(client);
    }
    eventually("a send is on its way", async || case.frames.sends() > before).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let unanswered = case.frames.sends() - before;
    assert!(unanswered <= 32, "{unanswered} sends wait for an answer");
    case.proxy().set(Mode::Pass);
    for mut client in waiting {
        let answer = client.receive::<milena_wire::kafka_protocol::messages::ProduceRequest>().await;
        assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
    }
    assert_eq!(read_all(&mut client).await.len(), SENT + 1);
}
shown!(b13_no_more_than_32_sends_of_a_partition_are_unanswered in door, one_node
    with Setup { proxied: true, ..Setup::default() });

async fn b14_an_acknowledged_record_and_its_offset_survive_kill_9_of_the_server(case: Case) {
    let mut client = case.raw().await;
    for number in 0..20 {
        assert_eq!(produce(&mut client, plain(&[record(&number.to_string())])).await.base_offset, number);
    }
    case.take_away().await;
    case.bring_back().await;
    assert_eq!(produce_until_stored(&mut client, &plain(&[record("after")])).await, 20);
    let values: Vec<_> = read_all(&mut client).await.into_iter().map(|record| record.value.unwrap()).collect();
    let wanted: Vec<_> = (0..20).map(|number| number.to_string()).chain(["after".to_owned()]).collect();
    assert_eq!(values, wanted.iter().map(String::as_bytes).collect::<Vec<_>>());
}
shown!(b14_an_acknowledged_record_and_its_offset_survive_kill_9_of_the_server in door, one_node);

async fn b14_topics_are_created_durable_for_each_message(case: Case) {
    let options = case.native_topic(TOPIC).await.unwrap().options;
    let text = |key: &str| Some(options.get(&key.parse().unwrap())?.value.to_string_value());
    let (durability, messages) = (text("durability"), text("messages_required_to_save"));
    assert!(
        durability.as_deref() == Some("persisted") || messages.as_deref() == Some("1"),
        "{durability:?} {messages:?}"
    );
}
shown!(b14_topics_are_created_durable_for_each_message in door, one_node, three_nodes);

async fn b15_after_a_server_lost_acknowledged_records_their_offsets_are_out_of_range(case: Case) {
    let mut client = case.raw().await;
    for number in 0..20 {
        assert_eq!(produce(&mut client, plain(&[record(&number.to_string())])).await.error_code, 0);
    }
    case.take_away().await;
    case.bring_back().await;
    let base = produce_until_stored(&mut client, &plain(&[record("after")])).await;
    assert_eq!(base, 0, "the server had it all in memory");
    assert_eq!(fetch(&mut client, 20, 0).await.error_code, 1);
    assert_eq!(list(&mut client, TOPIC, 0, EARLIEST).await.offset, 0);
    assert_eq!(offset(&mut client, LATEST).await, 1);
    let data = fetch(&mut client, 0, 1_000).await;
    assert_eq!((data.error_code, data.high_watermark, records_of(&data).len()), (0, 1, 1));
}
shown!(b15_after_a_server_lost_acknowledged_records_their_offsets_are_out_of_range in one_node with Setup {
    iggy: |config| config.durability = milena_store_iggy::AckDurability::Fast,
    ..Setup::default()
});

async fn b15_after_a_restart_without_the_newest_records_the_epoch_rises_and_says_where_to_go_on(case: Case) {
    let mut client = case.raw().await;
    let producer = Stamps::new(&mut client).await;
    for sequence in 0..3 {
        assert_eq!(produce(&mut client, producer.batch(sequence, "kept")).await.base_offset, i64::from(sequence));
    }
    let saved = case.save();
    for sequence in 3..6 {
        assert_eq!(produce(&mut client, producer.batch(sequence, "lost")).await.base_offset, i64::from(sequence));
    }
    assert_eq!(fetch(&mut client, 0, 1_000).await.high_watermark, 6);
    case.restart_with(&saved).await;
    // The producer knows of nothing and goes on: what it sends gets the offset of a record that is gone.
    assert_eq!(produce_until_stored(&mut client, &producer.batch(6, "new")).await, 3);
    // A consumer that read all six in epoch 0 is fenced, asks where that ended, and goes on there.
    let mut request = fetch_request(TOPIC, 0, 6, 0, 1 << 20);
    request.topics[0].partitions[0].current_leader_epoch = 0;
    let started = std::time::Instant::now();
    let code = loop {
        match client.request(12, &request).await.responses[0].partitions[0].error_code {
            // Until the risen epoch is stored; consumers ask again.
            6 => assert!(started.elapsed() < milena_testkit::SOON * 2, "the epoch does not rise"),
            code => break code,
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(code, FENCED_LEADER_EPOCH);
    let partition = OffsetForLeaderPartition::default().with_partition(0).with_current_leader_epoch(-1);
    let topic = OffsetForLeaderTopic::default().with_topic(topic_name(TOPIC)).with_partitions(vec![partition]);
    let request = OffsetForLeaderEpochRequest::default().with_replica_id((-1).into()).with_topics(vec![topic]);
    let ended = client.request(4, &request).await.topics[0].partitions[0].clone();
    assert_eq!((ended.error_code, ended.leader_epoch, ended.end_offset), (0, 0, 3));
    let read = fetch(&mut client, 3, 1_000).await;
    assert_eq!((read.error_code, read.high_watermark, values_of(&read)), (0, 4, vec!["new".to_owned()]));
    assert_eq!(case.store.epochs(&case.at().await).current(), 1);
}
shown!(b15_after_a_restart_without_the_newest_records_the_epoch_rises_and_says_where_to_go_on in door);
