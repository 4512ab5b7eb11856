use milena_store::testing::{Fault, Layer, Layered, MemoryStore, TestMessage, batch_of};
use milena_store::{Bounds, PartitionRef, StoreFuture, TopicSettings};

use super::*;

async fn topic(store: &MemoryStore, name: &str) -> TopicRef {
    store.create_topic("s", name, 2, &TopicSettings::default()).await.unwrap().topic
}

async fn open(store: &MemoryStore) -> State {
    State::open(Arc::new(store.clone()), 0).await.unwrap()
}

fn offset(of: Incarnation, who: ConsumerKey, offset: Option<u64>) -> Record {
    Record::Offset { of, partition: 0, who, offset }
}

#[tokio::test]
async fn what_was_stored_is_there_after_a_restart_with_and_without_a_snapshot() {
    for snapshot in [false, true] {
        let store = MemoryStore::new();
        let of = Incarnation::of(&topic(&store, "t").await);
        let state = open(&store).await;
        let records = [
            Record::Stream { id: 0, name: "s".to_owned(), created_at_micros: 5 },
            Record::Group { of, id: 0, name: "gone".to_owned() },
            Record::DropGroup { of, id: 0 },
            offset(of, ConsumerKey::Name("n".to_owned()), Some(7)),
            offset(of, ConsumerKey::Number(3), Some(8)),
            offset(of, ConsumerKey::Number(3), None),
            Record::Token { name: "t".to_owned(), hash: "h".to_owned(), expires_at_micros: Some(9) },
        ];
        for record in records {
            state.write(record).await.unwrap();
        }
        if snapshot {
            state.snapshot().await;
        }
        let again = open(&store.again()).await;
        again.look(|table| {
            assert_eq!(table.stream_named("s").map(|stream| stream.id), Some(0));
            assert_eq!(table.groups(of).count(), 0);
            assert_eq!(table.next_group(of), 1, "the number of a deleted group is not given again");
            assert_eq!(table.offset(of, 0, &ConsumerKey::Name("n".to_owned())), Some(7));
            assert_eq!(table.offset(of, 0, &ConsumerKey::Number(3)), None);
            assert_eq!((table.offsets_count(), table.tokens().len()), (1, 1));
        });
    }
}

#[tokio::test]
async fn groups_and_offsets_of_a_topic_that_others_deleted_are_forgotten_at_start() {
    let store = MemoryStore::new();
    let deleted = topic(&store, "t").await;
    let of = Incarnation::of(&deleted);
    let state = open(&store).await;
    state.write(offset(of, ConsumerKey::Number(1), Some(1))).await.unwrap();
    store.delete_topic(&deleted).await.unwrap();
    let again = open(&store.again()).await;
    assert_eq!(again.look(Table::offsets_count), 0);
}

#[tokio::test]
async fn offsets_beyond_the_end_of_a_partition_move_back_to_its_last_message() {
    let store = MemoryStore::new();
    let topic = topic(&store, "t").await;
    let of = Incarnation::of(&topic);
    for _ in 0..3 {
        store.append(&topic.partition(0), batch_of(&[TestMessage::new(1, b"m")])).await.unwrap();
    }
    let state = open(&store).await;
    let number = ConsumerKey::Number;
    for (partition, who, at) in [(0, 1, 1), (0, 2, 2), (0, 3, 3), (0, 4, 900), (1, 1, 0), (1, 2, 5)] {
        state.write(Record::Offset { of, partition, who: number(who), offset: Some(at) }).await.unwrap();
    }
    state.settle_offsets().await.unwrap();
    let stored = |state: &State| {
        let each = [(0, 1), (0, 2), (0, 3), (0, 4), (1, 1), (1, 2)];
        state.look(|table| each.map(|(partition, who)| table.offset(of, partition, &number(who))))
    };
    assert_eq!(stored(&state), [Some(1), Some(2), Some(2), Some(2), None, None]);
    assert_eq!(stored(&open(&store.again()).await), stored(&state), "it is stored");
}

#[tokio::test]
async fn ends_are_stored_in_pieces_and_take_nothing_that_is_not_beyond_them() {
    const PARTITIONS: u32 = 1_001;
    let store = MemoryStore::new();
    let topic = store.create_topic("s", "t", PARTITIONS, &TopicSettings::default()).await.unwrap().topic;
    let of = Incarnation::of(&topic);
    let state = open(&store).await;
    for partition in 0..PARTITIONS {
        let who = ConsumerKey::Number(1);
        state.write(Record::Offset { of, partition, who, offset: Some(0) }).await.unwrap();
    }
    store.append(&topic.partition(500), batch_of(&[TestMessage::new(1, b"m")])).await.unwrap();
    state.settle_offsets().await.unwrap();
    for state in [&state, &open(&store.again()).await] {
        let left = state.look(|table| (table.offsets_count(), table.offset(of, 500, &ConsumerKey::Number(1))));
        assert_eq!(left, (1, Some(0)));
    }
}

/// A store that does not answer for some of its partitions, and says of others that they cannot be read.
struct Partly {
    store: MemoryStore,
    hangs: bool,
}

impl Layer for Partly {
    fn below(&self) -> &dyn Store {
        &self.store
    }

    fn bounds<'a>(&'a self, at: &'a PartitionRef) -> StoreFuture<'a, Bounds> {
        match at.partition {
            _ if at.topic.stream() != "s" => self.store.bounds(at),
            0 if self.hangs => Box::pin(std::future::pending()),
            0 => Box::pin(async { Err(StoreError::Broken { context: "a test".to_owned() }) }),
            _ => self.store.bounds(at),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_cannot_be_read_keeps_its_offsets_and_one_that_does_not_answer_ends_the_start() {
    let store = MemoryStore::new();
    let of = Incarnation::of(&topic(&store, "t").await);
    let state = open(&store).await;
    for partition in 0..2 {
        let who = ConsumerKey::Number(1);
        state.write(Record::Offset { of, partition, who, offset: Some(9) }).await.unwrap();
    }
    for hangs in [false, true] {
        let partly = Partly { store: store.again(), hangs };
        let state = State::open(Arc::new(Layered(partly)), 0).await.unwrap();
        let begun = Instant::now();
        let settled = state.settle_offsets().await;
        assert_eq!(matches!(settled, Err(StoreError::Busy { .. })), hangs, "{settled:?}");
        assert!(begun.elapsed() < Duration::from_secs(100), "it is waited for once");
        let stored = [0, 1].map(|partition| state.look(|table| table.offset(of, partition, &ConsumerKey::Number(1))));
        assert_eq!(stored, [Some(9), None]);
    }
}

#[tokio::test]
async fn a_deleted_group_takes_its_offsets_along_and_no_others() {
    let store = MemoryStore::new();
    let of = Incarnation::of(&topic(&store, "t").await);
    let state = open(&store).await;
    state.write(Record::Group { of, id: 4, name: "g".to_owned() }).await.unwrap();
    for who in [ConsumerKey::Group(4), ConsumerKey::GroupName("g".to_owned()), ConsumerKey::Group(5)] {
        state.write(offset(of, who, Some(1))).await.unwrap();
    }
    state.write(Record::DropGroup { of, id: 4 }).await.unwrap();
    assert_eq!(state.look(Table::offsets_count), 1);
    assert_eq!(state.look(|table| table.offset(of, 0, &ConsumerKey::Group(5))), Some(1));
}

#[tokio::test]
async fn one_snapshot_is_taken_at_a_time_and_a_failed_one_is_not_tried_again_at_once() {
    let store = MemoryStore::new();
    let state = open(&store).await;
    let taking = state.snapshots.lock().await;
    for _ in 0..5 {
        let name = "n".repeat(1 << 20);
        state.write(Record::DropToken { name }).await.unwrap();
    }
    assert!(state.log.snapshot_due(), "a write does not wait for a snapshot, nor takes a second one");
    drop(taking);
    store.plan(milena_store::testing::Fault::Full);
    state.snapshot_once().await;
    state.snapshot_once().await;
    assert!(state.log.snapshot_due(), "the first one failed, and the second was not tried");
    *state.snapshots.lock().await = Instant::now();
    state.snapshot_once().await;
    assert!(!state.log.snapshot_due());
}

#[tokio::test]
async fn a_change_of_a_name_that_was_interrupted_is_settled_by_what_the_store_has() {
    for (is_done, expected) in [(false, "s"), (true, "new")] {
        let store = MemoryStore::new();
        let of = topic(&store, "t").await.stream_id();
        let state = open(&store).await;
        state.write(Record::Stream { id: 3, name: "s".to_owned(), created_at_micros: 5 }).await.unwrap();
        state.write(Record::Rename { id: 3, name: "new".to_owned(), of }).await.unwrap();
        state.snapshot().await;
        if is_done {
            store.rename_stream("s", "new").await.unwrap();
        }
        let again = open(&store.again()).await;
        again.look(|table| {
            let streams: Vec<_> = table.streams().map(|stream| (stream.id, stream.name.as_str())).collect();
            assert_eq!((streams, table.renaming()), (vec![(3, expected)], Vec::new()));
            assert_eq!(table.stream_named("s").is_some(), !is_done);
        });
    }
}

#[tokio::test]
async fn a_partition_that_went_takes_its_offsets_along() {
    let store = MemoryStore::new();
    let of = Incarnation::of(&topic(&store, "t").await);
    let state = open(&store).await;
    let who = ConsumerKey::Number(1);
    for partition in 0..2 {
        let record = Record::Offset { of, partition, who: who.clone(), offset: Some(7) };
        state.write(record).await.unwrap();
    }
    state.write(Record::DropPartitions { of, from: 1 }).await.unwrap();
    let left = state.look(|table| (table.offset(of, 0, &who), table.offset(of, 1, &who), table.offsets_count()));
    assert_eq!(left, (Some(7), None, 1));
}

#[test]
fn the_smallest_free_number_is_given_to_a_stream() {
    let mut table = Table::default();
    assert_eq!(table.vacant_stream(), 0);
    for id in [0, 1, 3] {
        table.apply(Record::Stream { id, name: id.to_string(), created_at_micros: 0 });
    }
    assert_eq!(table.vacant_stream(), 2);
    table.apply(Record::DropStream { id: 0 });
    assert_eq!(table.vacant_stream(), 0);
}

#[test]
fn a_record_of_another_version_is_an_error() {
    let mut bytes = Record::DropStream { id: 1 }.encode();
    assert_eq!(Record::decode(&bytes), Ok(Record::DropStream { id: 1 }));
    bytes[0] = 2;
    assert!(Record::decode(&bytes).unwrap_err().contains("newer"));
    assert!(Record::decode(&[]).is_err());
}

#[tokio::test]
async fn of_two_numbers_with_one_name_the_one_that_was_renamed_stays() {
    let store = MemoryStore::new();
    let of = topic(&store, "t").await.stream_id();
    let state = open(&store).await;
    let stream = |id, name: &str| Record::Stream { id, name: name.to_owned(), created_at_micros: 5 };
    for record in [stream(0, "old"), Record::Rename { id: 0, name: "s".to_owned(), of }, stream(1, "s")] {
        state.write(record).await.unwrap();
    }
    for _ in 0..2 {
        let again = open(&store.again()).await;
        let streams =
            again.look(|table| table.streams().map(|stream| (stream.id, stream.name.clone())).collect::<Vec<_>>());
        assert_eq!(streams, [(0, "s".to_owned())]);
        assert_eq!(again.look(|table| table.stream_named("s").map(|stream| stream.id)), Some(0));
    }
}

#[test]
fn the_stored_form_of_every_record_stays_as_it_is() {
    let of = Incarnation::of(&TopicRef::new("s", "t", 1, 2, 3));
    let expected = [
        (
            offset(of, ConsumerKey::Number(4), Some(5)),
            r#"{"op":"offset","of":{"s":1,"t":2,"c":3},"partition":0,"who":{"number":4},"offset":5}"#,
        ),
        (
            Record::Group { of, id: 6, name: "g".to_owned() },
            r#"{"op":"group","of":{"s":1,"t":2,"c":3},"id":6,"name":"g"}"#,
        ),
        (Record::DropToken { name: "n".to_owned() }, r#"{"op":"drop_token","name":"n"}"#),
        (Record::Rename { id: 1, name: "n".to_owned(), of: 2 }, r#"{"op":"rename","id":1,"name":"n","of":2}"#),
        (
            Record::Ends { of, ends: vec![(4, 5), (6, 0)] },
            r#"{"op":"ends","of":{"s":1,"t":2,"c":3},"ends":[[4,5],[6,0]]}"#,
        ),
        (Record::DropPartitions { of, from: 4 }, r#"{"op":"drop_partitions","of":{"s":1,"t":2,"c":3},"from":4}"#),
        (
            Record::Stream { id: 1, name: "n".to_owned(), created_at_micros: 2 },
            r#"{"op":"stream","id":1,"name":"n","created_at_micros":2}"#,
        ),
    ];
    for (record, json) in expected {
        assert_eq!(record.encode(), [b"\x01", json.as_bytes()].concat());
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_is_an_error_and_not_a_start_without_end() {
    let store = MemoryStore::new();
    store.plan(Fault::Hangs { applied: true });
    let opened = State::open(Arc::new(store.clone()), 0).await;
    assert!(matches!(opened.err(), Some(StoreError::Busy { .. })));
    assert!(State::open(Arc::new(store), 0).await.is_ok());
}
