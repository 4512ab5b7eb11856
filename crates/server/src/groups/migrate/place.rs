//! The two places: all offsets of one are read, written or cleared.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::once;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::stream::{self, StreamExt, TryStreamExt};
use milena_groups::{
    Answer, CommitPartition, CommitRequest, CommitTopic, Committed, Generation, GroupError, Groups, Moment, Now,
    Outputs, Sender, Timestamp, Token, TopicId, Walk,
};
use milena_store::state_log::StateLogOptions;
use milena_store::{OffsetStore, Store, StoreError};

use super::MigrateError;
use crate::config::ServerConfig;
use crate::groups::appender::record_bytes_max;
use crate::groups::bundle::bundle;
use crate::groups::external::{GROUP_PREFIX, stored_name};
use crate::groups::keeper::load_log;
use crate::groups::storage::{Kept, has_log};
use crate::groups::topics::incarnation;
use crate::topics::{Topic, TopicDirectory};

/// Calls under way at a time.
const CALLS_AT_ONCE: usize = 16;

/// Partitions of one record of the log.
const PARTITIONS_PER_COMMIT: usize = 1_000;

/// Offsets by group and Kafka topic.
type Rows = BTreeMap<(Arc<str>, Arc<str>), BTreeMap<i32, i64>>;

/// All offsets of one place.
#[derive(Debug, Default)]
pub(super) struct Offsets {
    pub(super) rows: Rows,
    /// Offsets that only the log can hold.
    pub(super) unfit: usize,
    /// Offsets with a text or a leader epoch.
    pub(super) with_text: usize,
}

impl Offsets {
    pub(super) fn groups(&self) -> BTreeSet<String> {
        self.rows.keys().map(|(group, _)| group.to_string()).collect()
    }
}

pub(super) struct Places<'a> {
    pub(super) config: &'a ServerConfig,
    pub(super) store: &'a Arc<dyn Store>,
    pub(super) topics: &'a TopicDirectory,
}

impl Places<'_> {
    fn offsets(&self) -> Result<&dyn OffsetStore, StoreError> {
        self.store.offset_store().ok_or(StoreError::Unsupported { what: "consumer offsets" })
    }

    /// Longest id of a group that consumer offsets take.
    pub(super) fn group_id_bytes_max(&self) -> usize {
        self.offsets().map_or(0, OffsetStore::group_bytes_max).saturating_sub(GROUP_PREFIX.len())
    }

    pub(super) async fn read(&self, place: Kept) -> Result<Offsets, MigrateError> {
        match place {
            Kept::Topic => Ok(self.read_log().await?),
            Kept::ConsumerOffsets => Ok(Offsets { rows: self.read_store(None).await?, ..Offsets::default() }),
        }
    }

    /// Makes a place hold these offsets, and of the groups `ours` no others. Other gateways in front of the same topics may
    /// have groups beside them in the store.
    pub(super) async fn write(
        &self,
        place: Kept,
        offsets: &Offsets,
        ours: &BTreeSet<String>,
    ) -> Result<(), MigrateError> {
        match place {
            Kept::Topic => self.write_log(&offsets.rows).await,
            Kept::ConsumerOffsets => {
                self.clear(place, ours).await?;
                Ok(self.write_store(&offsets.rows).await?)
            }
        }
    }

    /// Whether a place holds these offsets, and of the groups `ours` no others.
    pub(super) async fn holds(
        &self,
        place: Kept,
        offsets: &Offsets,
        ours: &BTreeSet<String>,
    ) -> Result<bool, MigrateError> {
        let rows = match place {
            Kept::Topic => self.read_log().await?.rows,
            Kept::ConsumerOffsets => self.read_store(Some(ours)).await?,
        };
        Ok(rows == offsets.rows)
    }

    /// Clears consumer offsets of groups away, which would hold back retention. The log stays as it is; nobody reads it, and
    /// the next move to it replaces all that it holds.
    pub(super) async fn clear(&self, place: Kept, ours: &BTreeSet<String>) -> Result<(), StoreError> {
        if place == Kept::Topic {
            return Ok(());
        }
        let offsets = self.offsets()?;
        for (topic, groups) in self.stored_groups(Some(ours)).await? {
            for group in groups {
                offsets.delete_group(&topic.store, &stored_name(&group)).await?;
            }
        }
        Ok(())
    }

    /// A table in memory, as a server has it.
    fn table(&self) -> Groups {
        let settings = &self.config.groups;
        Groups::new(settings.membership(), settings.offsets(record_bytes_max(self.store.as_ref())))
    }

    fn log_options(&self) -> StateLogOptions {
        StateLogOptions { durability: None, writer: u64::from(self.config.instance_id), ..StateLogOptions::default() }
    }

    async fn read_log(&self) -> Result<Offsets, StoreError> {
        if !has_log(self.store).await? {
            return Ok(Offsets::default());
        }
        let (mut groups, _log) = load_log(self.store, self.log_options(), self.table()).await?;
        groups.loaded(now().wall);
        let mut found = Offsets::default();
        let names: Vec<Arc<str>> = groups.offsets().groups().cloned().collect();
        for group in names {
            let Ok(view) = groups.view(&group) else { continue };
            for (key, partition, committed) in view.iter() {
                let topic = self.topics.by_name(&key.name).filter(|topic| incarnation(topic) == key.id);
                let there = topic.filter(|topic| u32::try_from(partition).is_ok_and(|index| index < topic.partitions));
                let fits = group.len() <= self.group_id_bytes_max();
                match there {
                    Some(topic) if fits => {
                        found.with_text += usize::from(has_text(committed));
                        let rows = found.rows.entry((Arc::clone(&group), Arc::clone(&topic.name))).or_default();
                        rows.insert(partition, committed.offset());
                    }
                    // The topic is gone, and its offsets with it.
                    None if key.id != TopicId::FOREIGN && !self.has_incarnation(key.id) => {}
                    _ => found.unfit += 1,
                }
            }
        }
        Ok(found)
    }

    fn has_incarnation(&self, id: TopicId) -> bool {
        self.topics.list().iter().any(|topic| incarnation(topic) == id)
    }

    async fn write_log(&self, rows: &Rows) -> Result<(), MigrateError> {
        let mut groups = self.table();
        groups.loaded(now().wall);
        for ((group, name), offsets) in rows {
            let Some(topic) = self.topics.by_name(name) else { return Err(MigrateError::Changed) };
            let offsets: Vec<(i32, i64)> = offsets.iter().map(|(partition, offset)| (*partition, *offset)).collect();
            for offsets in offsets.chunks(PARTITIONS_PER_COMMIT) {
                commit(&mut groups, group, &topic, offsets).map_err(MigrateError::Group)?;
            }
        }
        let (mut walk, mut records) = (Walk::default(), Vec::new());
        while !walk.is_over() {
            let frozen = groups.freeze(&mut walk);
            records.extend(frozen.records().map(|record| bundle(once(record.as_slice()))));
        }
        let (_, log) = load_log(self.store, self.log_options(), self.table()).await?;
        Ok(log.snapshot(records).await?)
    }

    async fn read_store(&self, of: Option<&BTreeSet<String>>) -> Result<Rows, StoreError> {
        let mut rows = Rows::new();
        for (topic, groups) in self.stored_groups(of).await? {
            for group in groups {
                let name = stored_name(&group);
                let loads = (0..topic.partitions).map(|partition| {
                    let (at, name, store) = (topic.store.partition(partition), name.clone(), Arc::clone(self.store));
                    async move {
                        let offsets =
                            store.offset_store().ok_or(StoreError::Unsupported { what: "consumer offsets" })?;
                        offsets.load(&at, &name).await
                    }
                });
                let loaded: Vec<Option<u64>> = stream::iter(loads).buffered(CALLS_AT_ONCE).try_collect().await?;
                let found = (0..)
                    .zip(loaded)
                    .filter_map(|(partition, offset)| Some((partition, i64::try_from(offset?).unwrap_or(i64::MAX))));
                let found: BTreeMap<i32, i64> = found.collect();
                if !found.is_empty() {
                    rows.insert((Arc::from(group), Arc::clone(&topic.name)), found);
                }
            }
        }
        Ok(rows)
    }

    async fn write_store(&self, rows: &Rows) -> Result<(), StoreError> {
        let writes = rows.iter().map(|((group, name), offsets)| {
            let topic = self.topics.by_name(name);
            let (group, offsets, store) = (stored_name(group), offsets.clone(), Arc::clone(self.store));
            async move {
                let missing = || StoreError::NotFound { what: "a topic".to_owned() };
                let topic = topic.ok_or_else(missing)?;
                let to = store.offset_store().ok_or(StoreError::Unsupported { what: "consumer offsets" })?;
                to.create_group(&topic.store, &group).await?;
                for (partition, offset) in offsets {
                    let (partition, offset) = (u32::try_from(partition), u64::try_from(offset));
                    let (Ok(partition), Ok(offset)) = (partition, offset) else { return Err(missing()) };
                    to.store(&topic.store.partition(partition), &group, offset).await?;
                }
                Ok(())
            }
        });
        stream::iter(writes).buffer_unordered(CALLS_AT_ONCE).try_collect().await
    }

    /// The Kafka groups that each topic has; of those named, or all.
    async fn stored_groups(&self, of: Option<&BTreeSet<String>>) -> Result<Vec<(Arc<Topic>, Vec<String>)>, StoreError> {
        let offsets = self.offsets()?;
        let mut found = Vec::new();
        for topic in self.topics.list().into_iter().filter(|topic| !topic.internal) {
            let groups = offsets.groups(&topic.store).await?;
            let kafka = groups.iter().filter_map(|name| name.strip_prefix(GROUP_PREFIX)).map(str::to_owned);
            found.push((topic, kafka.filter(|name| of.is_none_or(|of| of.contains(name))).collect()));
        }
        Ok(found)
    }
}

fn has_text(committed: &Committed) -> bool {
    !committed.metadata().is_empty() || committed.leader_epoch() >= 0
}

/// Commits into a table that is in memory only.
fn commit(groups: &mut Groups, group: &Arc<str>, topic: &Topic, offsets: &[(i32, i64)]) -> Result<(), GroupError> {
    let partitions = offsets.iter().map(|(partition, offset)| CommitPartition {
        partition: *partition,
        exists: true,
        offset: *offset,
        leader_epoch: -1,
        metadata: None,
        expected: None,
    });
    let partitions = partitions.collect();
    let topic = CommitTopic { name: Arc::clone(&topic.name), id: Some(incarnation(topic)), partitions };
    let request = CommitRequest { group: Arc::clone(group), retention_ms: None, topics: vec![topic] };
    let sender = Sender { group, member_id: "", instance_id: None, generation: Generation::NONE };
    let mut out = Outputs::default();
    groups.commit(Token(0), &sender, request, now(), &mut out);
    for append in std::mem::take(&mut out.appends) {
        groups.settled(append.ticket, true, &mut out);
    }
    let results = out.answers.into_iter().flat_map(|(_, answer)| match answer {
        Answer::Commit(results) => results,
        _ => Vec::new(),
    });
    results.collect()
}

fn now() -> Now {
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    Now { moment: Moment::from_millis(0), wall: Timestamp(i64::try_from(millis).unwrap_or(i64::MAX)) }
}
