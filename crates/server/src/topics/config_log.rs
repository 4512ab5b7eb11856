//! What users set on topics, kept in the store's own internal topic.
//!
//! Configs belong to an incarnation of a topic, so that a topic which was deleted and created again does not inherit.
//! An incarnation has no number before the engine created it, and a crash may come between the creation and the
//! record of the configs; the client would create again, hear that the topic exists, and its configs would be lost
//! without a word. So the configs are *planned* under the topic's place first, then the topic is created, then they
//! are bound to the incarnation. Whoever loads the log and finds a plan and a topic without configs at its place
//! binds them. The other order (create, then record) has no such repair.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use milena_store::state_log::{StateEvent, StateLog, StateLogOptions, StateLogReader};
use milena_store::{Store, StoreError, TopicRef};
use serde::{Deserialize, Serialize};

use super::mapping::Place;
use crate::opening::open_log;

/// Configs by name.
pub(super) type Configs = BTreeMap<String, String>;

/// One incarnation of a topic, as the engine numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Incarnation {
    stream_id: u32,
    topic_id: u32,
    created_at_micros: u64,
}

impl From<&TopicRef> for Incarnation {
    fn from(topic: &TopicRef) -> Self {
        Self { stream_id: topic.stream_id(), topic_id: topic.topic_id(), created_at_micros: topic.created_at_micros() }
    }
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Record {
    /// A topic with these configs is about to be created; none is a plan taken back.
    Plan { stream: String, topic: String, configs: Configs },
    /// These are the configs of that incarnation, in place of all it had. A plan for its place is done.
    Set { stream: String, topic: String, of: Incarnation, configs: Configs },
    /// The incarnation is gone.
    Drop { of: Incarnation },
}

/// The configs in memory.
#[derive(Debug, Default)]
pub(super) struct ConfigTable {
    planned: HashMap<Place, Configs>,
    set: HashMap<Incarnation, (Place, Configs)>,
}

impl ConfigTable {
    /// Carries out one change.
    pub(super) fn apply(&mut self, record: Record) {
        match record {
            Record::Plan { stream, topic, configs } if configs.is_empty() => {
                self.planned.remove(&Place { stream, topic });
            }
            Record::Plan { stream, topic, configs } => {
                self.planned.insert(Place { stream, topic }, configs);
            }
            Record::Set { stream, topic, of, configs } => {
                let place = Place { stream, topic };
                self.planned.remove(&place);
                self.set.insert(of, (place, configs));
            }
            Record::Drop { of } => {
                self.set.remove(&of);
            }
        }
    }

    /// What was set on that incarnation.
    pub(super) fn get(&self, topic: &TopicRef) -> Option<&Configs> {
        self.set.get(&Incarnation::from(topic)).map(|(_, configs)| configs)
    }

    /// What was planned for a place and not yet bound.
    pub(super) fn planned(&self, place: &Place) -> Option<&Configs> {
        self.planned.get(place)
    }

    /// Keeps what belongs to `topics` only, and binds plans to topics that have no configs of their own. Plans without a topic
    /// are kept if asked: another gateway may be about to create it. Answers the places of those that are not.
    pub(super) fn reconcile<'a>(
        &mut self,
        topics: impl Iterator<Item = &'a TopicRef>,
        keeps_plans: bool,
    ) -> Vec<Place> {
        let mut kept = HashMap::new();
        for topic in topics {
            self.bind(topic);
            let of = Incarnation::from(topic);
            if let Some(set) = self.set.remove(&of) {
                kept.insert(of, set);
            }
        }
        self.set = kept;
        if keeps_plans { Vec::new() } else { self.planned.drain().map(|(place, _)| place).collect() }
    }

    /// Gives a topic the configs that were planned for its place, unless it has some.
    fn bind(&mut self, topic: &TopicRef) {
        if self.planned.is_empty() {
            return;
        }
        let place = Place { stream: topic.stream().to_owned(), topic: topic.topic().to_owned() };
        if let Some(configs) = self.planned.remove(&place) {
            self.set.entry(Incarnation::from(topic)).or_insert((place, configs));
        }
    }

    /// The records that make an empty table this one.
    pub(super) fn records(&self) -> Vec<Record> {
        let planned = self.planned.iter().map(|(place, configs)| Record::Plan {
            stream: place.stream.clone(),
            topic: place.topic.clone(),
            configs: configs.clone(),
        });
        let set = self.set.iter().map(|(of, (place, configs))| Record::Set {
            stream: place.stream.clone(),
            topic: place.topic.clone(),
            of: *of,
            configs: configs.clone(),
        });
        planned.chain(set).collect()
    }
}

/// First byte of every record. A version that is not known is an error at start: skipping what a newer Milena wrote
/// would lose configs.
const VERSION: u8 = 1;

/// Topic of the internal stream.
const TOPIC: &str = "configs";

/// Attempts to store a change while other gateways store theirs.
const ROUNDS_MAX: usize = 8;

/// The table and the log behind it.
///
/// All gateways of a store share the log, which has one writer at a time: who finds that another one took it over reads it
/// again, with what the other one set, and goes on.
pub(super) struct ConfigLog {
    store: Arc<dyn Store>,
    writer: u16,
    log: StateLog,
    reader: StateLogReader,
    table: ConfigTable,
}

impl ConfigLog {
    /// Loads all that was ever set. `writer` is the instance number.
    pub(super) async fn open(store: Arc<dyn Store>, writer: u16) -> Result<Self, StoreError> {
        let mut table = ConfigTable::default();
        let mut broken = None;
        let options = StateLogOptions { writer: u64::from(writer), ..StateLogOptions::default() };
        let log = open_log(Arc::clone(&store), TOPIC, options, |event| take(&mut table, &mut broken, event)).await?;
        if let Some(error) = broken {
            return Err(error);
        }
        let mut reader = log.reader();
        reader.knows_to(log.end().await);
        Ok(Self { store, writer, log, reader, table })
    }

    /// Takes in what other gateways set since. Costs a look at the end of the log when they set nothing.
    ///
    /// # Errors
    /// Whatever the store answers; what was known stays then. A record that cannot be read is an error until it can be, or
    /// until a snapshot took its place.
    pub(super) async fn follow(&mut self) -> Result<(), StoreError> {
        // A record that this gateway may still take back must not get into a snapshot of its own, so that is settled first.
        if self.log.is_in_doubt().await {
            *self = Self::open(Arc::clone(&self.store), self.writer).await?;
            return Ok(());
        }
        let (mut table, mut broken) = (ConfigTable::default(), None);
        let mut reader = self.reader.clone();
        let grew = reader.follow(|event| take(&mut table, &mut broken, event)).await?;
        if let Some(error) = broken {
            // The reader as it was looks again: who moved on would show old configs for ever, without another word.
            return Err(error);
        }
        self.reader = reader;
        if grew {
            self.table = table;
        }
        Ok(())
    }

    /// Binds what was planned for topics that exist. As [`Self::reconcile`] does, it leaves that to memory.
    pub(super) fn bind<'a>(&mut self, topics: impl Iterator<Item = &'a TopicRef>) {
        topics.for_each(|topic| self.table.bind(topic));
    }

    /// The configs as they are now.
    pub(super) fn table(&self) -> &ConfigTable {
        &self.table
    }

    /// Forgets what belongs to no topic, and binds what was planned. The log follows with the next snapshot; until
    /// then every start comes to the same result.
    ///
    /// But plans are taken back in the log too. It is read again as soon as another gateway writes to it, and by then a plan may
    /// be one of theirs, so it would be kept, and become the configs of a topic that somebody creates much later.
    pub(super) async fn reconcile<'a>(&mut self, topics: impl Iterator<Item = &'a TopicRef>, keeps_plans: bool) {
        let topics: Vec<_> = topics.collect();
        for Place { stream, topic } in self.table.reconcile(topics.iter().copied(), keeps_plans) {
            if let Err(error) = self.write(Record::Plan { stream, topic, configs: Configs::new() }).await {
                tracing::warn!(%error, "the plan of a topic that was never created stays behind");
                break;
            }
        }
        // The log may have been read again meanwhile.
        self.bind(topics.into_iter());
        self.snapshot_if_due().await;
    }

    /// Makes a change durable, then carries it out.
    pub(super) async fn write(&mut self, record: Record) -> Result<(), StoreError> {
        self.write_with(|_| Ok::<_, StoreError>(record.clone())).await
    }

    /// As [`Self::write`], with a record that depends on the configs as they are: it is made anew when another gateway
    /// changed them meanwhile.
    pub(super) async fn write_with<E: From<StoreError>>(
        &mut self,
        mut make: impl FnMut(&ConfigTable) -> Result<Record, E>,
    ) -> Result<(), E> {
        for _ in 0..ROUNDS_MAX {
            let record = make(&self.table)?;
            match self.log.append(encode(&record)?).await {
                Ok(()) => {
                    self.table.apply(record);
                    self.snapshot_if_due().await;
                    return Ok(());
                }
                Err(_) if self.log.is_overtaken().await => {
                    *self = Self::open(Arc::clone(&self.store), self.writer).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(StoreError::Busy { reason: "other gateways change topic configs all the time".to_owned() }.into())
    }

    async fn snapshot_if_due(&mut self) {
        if self.log.snapshot_due() {
            self.snapshot().await;
        }
        // What this gateway wrote need not be read again.
        self.reader.knows_to(self.log.end().await);
    }

    async fn snapshot(&self) {
        let records: Result<Vec<_>, _> = self.table.records().iter().map(encode).collect();
        let written = match records {
            Ok(records) => self.log.snapshot(records).await,
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            // The records that it would stand for are still there; the next change tries again.
            tracing::warn!(%error, "no snapshot of the topic configs");
        }
    }
}

fn take(table: &mut ConfigTable, broken: &mut Option<StoreError>, event: StateEvent<'_>) {
    match event {
        StateEvent::Reset => *table = ConfigTable::default(),
        StateEvent::Record(bytes) => match decode(bytes) {
            Ok(record) => table.apply(record),
            Err(error) => *broken = broken.take().or(Some(error)),
        },
    }
}

fn encode(record: &Record) -> Result<Vec<u8>, StoreError> {
    let mut bytes = vec![VERSION];
    serde_json::to_writer(&mut bytes, record)
        .map_err(|error| StoreError::Broken { context: format!("a config record cannot be written: {error}") })?;
    Ok(bytes)
}

fn decode(bytes: &[u8]) -> Result<Record, StoreError> {
    let broken = |why: String| StoreError::Broken { context: format!("a config record {why}") };
    match bytes.split_first() {
        Some((&VERSION, json)) => {
            serde_json::from_slice(json).map_err(|error| broken(format!("cannot be read: {error}")))
        }
        Some((version, _)) => Err(broken(format!("has version {version}, this Milena knows version {VERSION}"))),
        None => Err(broken("is empty".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use milena_store::testing::MemoryStore;

    use super::*;

    fn topic(name: &str, number: u32) -> TopicRef {
        TopicRef::new("kafka", name, 1, number, 1_764_000_000_000_000)
    }

    fn configs(value: &str) -> Configs {
        Configs::from([("retention.ms".to_owned(), value.to_owned())])
    }

    fn plan(name: &str, configs: Configs) -> Record {
        Record::Plan { stream: "kafka".to_owned(), topic: name.to_owned(), configs }
    }

    fn set(topic: &TopicRef, configs: Configs) -> Record {
        Record::Set { stream: topic.stream().to_owned(), topic: topic.topic().to_owned(), of: topic.into(), configs }
    }

    async fn open(store: &MemoryStore) -> ConfigLog {
        ConfigLog::open(Arc::new(store.again()), 0).await.unwrap()
    }

    /// What version 1 wrote; it must be readable for ever.
    #[test]
    fn the_stored_form_of_version_1_does_not_change() {
        let of = topic("orders", 7);
        let fixtures = [
            (
                plan("orders", configs("5")),
                r#"{"op":"plan","stream":"kafka","topic":"orders","configs":{"retention.ms":"5"}}"#,
            ),
            (
                set(&of, configs("5")),
                r#"{"op":"set","stream":"kafka","topic":"orders","of":{"stream_id":1,"topic_id":7,"created_at_micros":1764000000000000},"configs":{"retention.ms":"5"}}"#,
            ),
            (
                Record::Drop { of: (&of).into() },
                r#"{"op":"drop","of":{"stream_id":1,"topic_id":7,"created_at_micros":1764000000000000}}"#,
            ),
        ];
        for (record, json) in fixtures {
            let bytes = [b"\x01", json.as_bytes()].concat();
            assert_eq!(encode(&record).unwrap(), bytes);
            assert_eq!(decode(&bytes).unwrap(), record);
        }
    }

    #[test]
    fn a_record_of_another_version_or_of_garbage_is_an_error() {
        for bytes in [&b""[..], b"\x02{}", b"\x01", b"\x01{}", b"\x01{\"op\":\"other\"}", b"{\"op\":\"drop\"}"] {
            assert!(matches!(decode(bytes), Err(StoreError::Broken { .. })), "{bytes:?}");
        }
    }

    #[test]
    fn a_plan_without_configs_takes_a_plan_back() {
        let mut table = ConfigTable::default();
        table.apply(plan("t", configs("1")));
        table.apply(plan("t", Configs::new()));
        assert!(table.records().is_empty());
    }

    #[test]
    fn a_plan_is_bound_to_the_topic_that_came_into_being() {
        let mut table = ConfigTable::default();
        table.apply(plan("t", configs("1")));
        let created = topic("t", 1);
        table.reconcile([&created].into_iter(), false);
        assert_eq!(table.get(&created), Some(&configs("1")));
        assert_eq!(table.records(), [set(&created, configs("1"))]);
    }

    #[test]
    fn a_plan_never_replaces_configs_that_are_bound() {
        let mut table = ConfigTable::default();
        let bound = topic("t", 1);
        table.apply(set(&bound, configs("1")));
        table.apply(plan("t", configs("2")));
        table.reconcile([&bound].into_iter(), false);
        assert_eq!(table.get(&bound), Some(&configs("1")));
    }

    #[test]
    fn what_belongs_to_no_topic_is_forgotten() {
        let mut table = ConfigTable::default();
        table.apply(set(&topic("gone", 1), configs("1")));
        table.apply(plan("never", configs("2")));
        table.reconcile([&topic("other", 2)].into_iter(), false);
        assert!(table.records().is_empty());
    }

    #[test]
    fn a_topic_created_again_does_not_inherit() {
        let mut table = ConfigTable::default();
        table.apply(set(&topic("t", 1), configs("1")));
        let again = topic("t", 2);
        table.reconcile([&again].into_iter(), false);
        assert_eq!(table.get(&again), None);
    }

    #[tokio::test]
    async fn configs_are_there_again_after_a_restart() {
        let store = MemoryStore::new();
        let of = topic("t", 1);
        let mut log = open(&store).await;
        log.write(set(&of, configs("1"))).await.unwrap();
        log.write(set(&of, configs("2"))).await.unwrap();
        assert_eq!(open(&store).await.table().get(&of), Some(&configs("2")));
    }

    #[tokio::test]
    async fn gateways_that_share_the_log_take_turns_and_see_what_the_other_set() {
        let store = MemoryStore::new();
        let (mut one, mut two) = (open(&store).await, ConfigLog::open(Arc::new(store.again()), 1).await.unwrap());
        for number in 0..10 {
            one.write(set(&topic("one", number), configs("1"))).await.unwrap();
            two.write(set(&topic("two", 100 + number), configs("2"))).await.unwrap();
            assert_eq!(two.table().get(&topic("one", number)), Some(&configs("1")));
        }
        assert_eq!(open(&store).await.table().records().len(), 20);
    }

    #[test]
    fn a_plan_of_another_gateway_is_kept_until_its_topic_is_there() {
        let mut table = ConfigTable::default();
        table.apply(plan("t", configs("1")));
        table.reconcile([].into_iter(), true);
        let created = topic("t", 1);
        table.reconcile([&created].into_iter(), true);
        assert_eq!(table.get(&created), Some(&configs("1")));
    }

    #[tokio::test]
    async fn a_plan_whose_creator_crashed_does_not_come_back_when_another_gateway_writes() {
        let store = MemoryStore::new();
        open(&store).await.write(plan("t", configs("1"))).await.unwrap();
        let mut one = open(&store).await;
        one.reconcile([].into_iter(), false).await;
        let mut two = ConfigLog::open(Arc::new(store.again()), 1).await.unwrap();
        two.write(set(&topic("u", 2), configs("2"))).await.unwrap();
        one.follow().await.unwrap();
        let created = topic("t", 1);
        one.bind([&created].into_iter());
        assert_eq!(one.table().get(&created), None);
        assert_eq!(one.table().get(&topic("u", 2)), Some(&configs("2")));
    }

    #[tokio::test]
    async fn what_another_gateway_set_is_followed_without_taking_the_log_from_it() {
        let store = MemoryStore::new();
        let (of, planned) = (topic("t", 1), topic("p", 2));
        let mut one = open(&store).await;
        let mut two = ConfigLog::open(Arc::new(store.again()), 1).await.unwrap();
        two.write(set(&of, configs("1"))).await.unwrap();
        two.write(plan("p", configs("2"))).await.unwrap();
        one.follow().await.unwrap();
        assert_eq!((one.table().get(&of), one.table().get(&planned)), (Some(&configs("1")), None));
        one.bind([&planned].into_iter());
        assert_eq!(one.table().get(&planned), Some(&configs("2")), "a crash may have come before it was bound");
        two.write(Record::Drop { of: (&of).into() }).await.unwrap();
        assert!(!two.log.is_overtaken().await);
        one.follow().await.unwrap();
        assert_eq!(one.table().get(&of), None);
        one.write(set(&of, configs("3"))).await.unwrap();
        two.follow().await.unwrap();
        assert_eq!(two.table().get(&of), Some(&configs("3")));
    }

    #[tokio::test]
    async fn a_record_that_cannot_be_read_is_told_each_time_and_hides_nothing_that_comes_later() {
        let store = MemoryStore::new();
        let of = topic("t", 1);
        let mut one = open(&store).await;
        one.write(set(&of, configs("1"))).await.unwrap();
        let two = ConfigLog::open(Arc::new(store.again()), 1).await.unwrap();
        two.log.append(b"\x09of a newer version".to_vec()).await.unwrap();
        for _ in 0..2 {
            assert!(matches!(one.follow().await, Err(StoreError::Broken { .. })));
            assert_eq!(one.table().get(&of), Some(&configs("1")), "what was known stays");
        }
        // Whoever wrote it puts a snapshot in its place that everybody can read.
        two.log.snapshot(vec![encode(&set(&of, configs("2"))).unwrap()]).await.unwrap();
        one.follow().await.unwrap();
        assert_eq!(one.table().get(&of), Some(&configs("2")));
    }

    #[tokio::test]
    async fn a_change_in_doubt_is_settled_before_others_are_followed() {
        let store = MemoryStore::new();
        let of = topic("t", 1);
        let mut log = open(&store).await;
        store.plan(milena_store::testing::Fault::InDoubtApplied);
        assert!(log.write(set(&of, configs("1"))).await.is_err());
        log.follow().await.unwrap();
        assert!(!log.log.is_in_doubt().await);
        let landed = log.table().get(&of).cloned();
        assert_eq!(open(&store).await.table().get(&of).cloned(), landed, "as everybody else sees it");
    }

    #[tokio::test]
    async fn a_change_that_did_not_become_durable_is_not_carried_out() {
        let store = MemoryStore::new();
        let of = topic("t", 1);
        let mut log = open(&store).await;
        store.plan(milena_store::testing::Fault::Full);
        assert!(log.write(set(&of, configs("1"))).await.is_err());
        assert_eq!(log.table().get(&of), None);
    }

    #[tokio::test]
    async fn snapshots_keep_the_log_from_growing_with_every_change() {
        let store = MemoryStore::new();
        let of = topic("t", 1);
        let mut log = open(&store).await;
        let long = "9".repeat(30_000);
        for _ in 0..100 {
            log.write(set(&of, configs(&long))).await.unwrap();
        }
        let bounds = store.bounds(log.log.partition()).await.unwrap();
        assert!(bounds.start > 50, "{bounds:?}");
        assert_eq!(open(&store).await.table().get(&of), Some(&configs(&long)));
    }
}
