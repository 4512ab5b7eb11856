//! The records that a batch is refused for, by name.

use super::*;

#[tokio::test]
async fn the_records_that_a_batch_is_refused_for_are_named_from_version_8_on() {
    let mut client = Client::new(TopicConfig { compacted: true, ..config() }).await;
    let keyed = Record { key: Some(b"k".to_vec()), ..record("value") };
    let records = [keyed.clone(), record("without a key"), keyed, record("nor with one")];
    let batch = build_batch(&records, Codec::None, None);
    let answer = client.one(batch.clone()).await;
    assert_eq!((answer.error_code, answer.base_offset), (87, -1));
    let indexes: Vec<_> = answer.record_errors.iter().map(|record| record.batch_index).collect();
    assert_eq!(indexes, [1, 3]);
    assert!(answer.error_message.is_some());
    client.version = 7;
    let answer = client.one(batch).await;
    assert_eq!((answer.error_code, answer.record_errors.len(), answer.error_message), (87, 0, None));
}

#[tokio::test]
async fn of_very_many_records_that_are_refused_as_many_are_named_as_words_have_room() {
    let records = vec![record("without a key"); 10];
    let batch = build_batch(&records, Codec::None, None);
    let compacted = || TopicConfig { compacted: true, ..config() };
    let words = Client::new(compacted()).await.one(batch.clone()).await.error_message.unwrap().len();
    for (room, said, named) in
        [(11 * words, true, 10), (11 * words - 1, true, 9), (words, true, 0), (words - 1, false, 0)]
    {
        let client = Client::with(ProduceSettings { error_text_bytes: room, ..settings() }, compacted()).await;
        let answer = client.one(batch.clone()).await;
        let indexes: Vec<_> = answer.record_errors.iter().map(|record| record.batch_index).collect();
        assert_eq!((answer.error_code, answer.error_message.is_some()), (87, said), "{room}");
        assert_eq!(indexes, (0..named).collect::<Vec<_>>(), "{room}");
    }
    // All batches of a request share the room.
    let client = Client::with(ProduceSettings { error_text_bytes: 12 * words, ..settings() }, compacted()).await;
    let answers = client.run(request(vec![(0, Some(batch.clone())), (1, Some(batch.clone())), (2, Some(batch))])).await;
    let named: Vec<_> =
        answers.iter().map(|answer| (answer.error_message.is_some(), answer.record_errors.len())).collect();
    assert_eq!((codes(&answers), named), (vec![87; 3], vec![(true, 10), (true, 0), (false, 0)]));
}

#[tokio::test]
async fn records_whose_times_are_refused_are_all_named() {
    let client = Client::new(TopicConfig { timestamp_after_max_ms: 3_600_000, ..config() }).await;
    let late = Record { timestamp_ms: i64::MAX / 2_000, ..record("late") };
    let past = Record { timestamp_ms: 1_700_000_000_000, ..record("in time") };
    let batch = build_batch(&[late.clone(), past, late], Codec::None, None);
    let answer = client.one(batch).await;
    let indexes: Vec<_> = answer.record_errors.iter().map(|record| record.batch_index).collect();
    assert_eq!((answer.error_code, indexes), (32, vec![0, 2]));
}
