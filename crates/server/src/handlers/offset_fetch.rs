//! OffsetFetch (9), versions 1-9: what groups have committed.
//!
//! - v1: one group, named partitions, errors per partition. v2: no list of topics asks for everything; error for the
//!   whole. v3: throttle time. v5: leader epoch. v6: flexible. v7: require stable, which is always so without
//!   transactions. v8: several groups (KIP-709). v9: member id and epoch of 848 members, of which there are none here.
//! - Nothing stored, unknown group, topic or partition: offset -1, epoch -1, no metadata, no error. What is asked for
//!   everything lists only what is stored, and a topic that was deleted and created again has nothing.
//! - Offsets that are not loaded are 14, those of a group that is coordinated elsewhere 16. They are never -1: a consumer
//!   would reset its position.
//! - Where the store keeps the offsets, it is asked for each partition, and for everything for each topic too. It has
//!   neither epochs nor metadata.
//! - An answer that would be larger than a request may be fails the group that passes the bound with 42.

use milena_groups::{Committed, GroupError, GroupView, TopicId};
use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::offset_fetch_request::{OffsetFetchRequestTopic, OffsetFetchRequestTopics};
use milena_wire::kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions, OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
};
use milena_wire::kafka_protocol::messages::{ApiKey, OffsetFetchRequest, OffsetFetchResponse, TopicName};
use milena_wire::kafka_protocol::protocol::StrBytes;

use super::groups::{Room, shared};
use crate::broker::Broker;
use crate::codes;
use crate::dispatch::{Api, Context, answer};
use crate::groups::topics::incarnation;
use crate::topics::Sought;

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::OffsetFetch,
    name: "OffsetFetch",
    advertised: (1, 9),
    served: (1, 9),
    handle: |request| Box::pin(answer(ApiKey::OffsetFetch, request, offset_fetch)),
};

/// First version with an error for the whole.
const GROUP_ERROR_FROM: i16 = 2;

/// First version with leader epochs.
const EPOCH_FROM: i16 = 5;

/// First version with several groups.
const SEVERAL_FROM: i16 = 8;

/// Bytes of an offset in an answer, without its metadata.
const ROW_BYTES: usize = 24;

async fn offset_fetch(context: Context, request: OffsetFetchRequest) -> Option<OffsetFetchResponse> {
    let Context { broker, version, .. } = context;
    let mut room = Room::new(&broker.config.limits);
    if broker.groups.is_external() {
        // "No offset" of a partition that another gateway knows would send its reader back to the beginning. Once for all groups:
        // an answer waits for one look.
        let one = request.topics.iter().flatten().map(|topic| (&topic.name, &topic.partition_indexes));
        let several = request.groups.iter().flat_map(|group| group.topics.iter().flatten());
        let several = several.map(|topic| (&topic.name, &topic.partition_indexes));
        let sought = one.chain(several).map(|(name, partitions)| Sought::partitions(name, partitions.iter().copied()));
        broker.topics.seek(sought).await;
    }
    if version >= SEVERAL_FROM {
        let mut groups = Vec::with_capacity(request.groups.len());
        for group in request.groups {
            let wanted = group.topics.map(|topics| topics.into_iter().map(Wanted::from).collect::<Vec<_>>());
            let answer = OffsetFetchResponseGroup::default();
            groups.push(
                match find(&broker, &mut room, &group.group_id, wanted.as_deref()).await {
                    Ok(topics) => answer.with_topics(topics.into_iter().map(Found::into_topics).collect()),
                    Err(error) => answer.with_error_code(error.code()),
                }
                .with_group_id(group.group_id),
            );
        }
        return Some(OffsetFetchResponse::default().with_groups(groups));
    }
    let wanted = request.topics.map(|topics| topics.into_iter().map(Wanted::from).collect::<Vec<_>>());
    Some(match find(&broker, &mut room, &request.group_id, wanted.as_deref()).await {
        Ok(topics) => OffsetFetchResponse::default()
            .with_topics(topics.into_iter().map(|topic| topic.into_topic(version)).collect()),
        Err(error) if version >= GROUP_ERROR_FROM => OffsetFetchResponse::default().with_error_code(error.code()),
        Err(error) => failed(&wanted.unwrap_or_default(), error),
    })
}

/// A topic whose offsets are wanted.
struct Wanted {
    name: TopicName,
    partitions: Vec<i32>,
}

impl From<OffsetFetchRequestTopic> for Wanted {
    fn from(topic: OffsetFetchRequestTopic) -> Self {
        Self { name: topic.name, partitions: topic.partition_indexes }
    }
}

impl From<OffsetFetchRequestTopics> for Wanted {
    fn from(topic: OffsetFetchRequestTopics) -> Self {
        Self { name: topic.name, partitions: topic.partition_indexes }
    }
}

/// Offsets of a topic.
struct Found {
    name: TopicName,
    rows: Vec<Row>,
}

/// One offset.
struct Row {
    partition: i32,
    offset: i64,
    leader_epoch: i32,
    metadata: StrBytes,
}

impl Row {
    fn new(partition: i32, committed: Option<&Committed>) -> Self {
        Self {
            partition,
            offset: committed.map_or(-1, Committed::offset),
            leader_epoch: committed.map_or(-1, Committed::leader_epoch),
            metadata: match committed.map(Committed::metadata) {
                None | Some("") => StrBytes::default(),
                Some(text) => StrBytes::from_string(text.to_owned()),
            },
        }
    }

    fn bytes(&self) -> usize {
        ROW_BYTES + self.metadata.len()
    }
}

/// What one group committed, of the topics named or of all.
async fn find(
    broker: &Broker,
    room: &mut Room,
    group: &str,
    wanted: Option<&[Wanted]>,
) -> Result<Vec<Found>, ResponseError> {
    let found = match wanted {
        Some(wanted) if broker.groups.is_external() => stored(broker, room, group, wanted).await,
        None if broker.groups.is_external() => all_stored(broker, room, group).await,
        Some(wanted) => {
            let wanted: Vec<(&Wanted, TopicId)> =
                wanted.iter().map(|topic| (topic, current(broker, &topic.name))).collect();
            broker.groups.offsets(group, |view| named(view, room, &wanted))
        }
        None => all(broker, room, group),
    };
    match found {
        Ok(Some(found)) => Ok(found),
        Ok(None) => Err(ResponseError::InvalidRequest),
        Err(error) => Err(codes::of_group(&error)),
    }
}

/// As [`named`], of offsets that the store keeps. It has neither epochs nor metadata.
async fn stored(
    broker: &Broker,
    room: &mut Room,
    group: &str,
    wanted: &[Wanted],
) -> Result<Option<Vec<Found>>, GroupError> {
    let (mut found, mut asked) = (Vec::with_capacity(wanted.len()), Vec::new());
    for topic in wanted {
        let there = broker.topics.by_name(&topic.name);
        let mut rows = Vec::with_capacity(topic.partitions.len());
        for partition in &topic.partitions {
            let row = Row::new(*partition, None);
            if !room.take(row.bytes()) {
                return Ok(None);
            }
            let at = u32::try_from(*partition).ok().zip(there.as_ref());
            if let Some((partition, there)) = at.filter(|(partition, there)| *partition < there.partitions) {
                asked.push(((found.len(), rows.len()), there.store.partition(partition)));
            }
            rows.push(row);
        }
        found.push(Found { name: topic.name.clone(), rows });
    }
    let (places, asked): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
    let offsets = broker.groups.stored(group, asked).await?;
    for ((topic, row), offset) in places.into_iter().zip(offsets) {
        let row = found.get_mut(topic).and_then(|found| found.rows.get_mut(row));
        if let (Some(row), Some(offset)) = (row, offset) {
            row.offset = offset;
        }
    }
    Ok(Some(found))
}

/// As [`all`], of offsets that the store keeps.
async fn all_stored(broker: &Broker, room: &mut Room, group: &str) -> Result<Option<Vec<Found>>, GroupError> {
    let stored = broker.groups.all_stored(group).await?;
    let found = stored.into_iter().map(|topic| {
        let rows = topic.offsets.iter().map(|(partition, offset)| {
            let row = Row { offset: *offset, ..Row::new(*partition, None) };
            room.take(row.bytes()).then_some(row)
        });
        Some(Found { rows: rows.collect::<Option<_>>()?, name: TopicName(shared(&topic.topic.name)) })
    });
    Ok(found.collect())
}

/// The incarnation whose offsets are meant by a name.
fn current(broker: &Broker, name: &str) -> TopicId {
    broker.topics.by_name(name).map_or(TopicId::FOREIGN, |topic| incarnation(&topic))
}

/// Offsets of the topics named; `None` when they do not fit.
fn named(view: GroupView<'_>, room: &mut Room, wanted: &[(&Wanted, TopicId)]) -> Option<Vec<Found>> {
    let topics = wanted.iter().map(|(topic, id)| {
        let rows = topic.partitions.iter().map(|partition| {
            let row = Row::new(*partition, view.get(&topic.name, *id, *partition));
            room.take(row.bytes()).then_some(row)
        });
        Some(Found { rows: rows.collect::<Option<_>>()?, name: topic.name.clone() })
    });
    topics.collect()
}

/// Every offset that the group holds; `None` when they do not fit.
fn all(broker: &Broker, room: &mut Room, group: &str) -> Result<Option<Vec<Found>>, GroupError> {
    let copied = broker.groups.offsets(group, |view| {
        let mut topics: Vec<(milena_groups::TopicKey, Vec<Row>)> = Vec::new();
        for (key, partition, committed) in view.iter() {
            let row = Row::new(partition, Some(committed));
            if !room.take(row.bytes()) {
                return None;
            }
            match topics.last_mut() {
                Some((last, rows)) if last == key => rows.push(row),
                _ => topics.push((key.clone(), vec![row])),
            }
        }
        Some(topics)
    })?;
    Ok(copied.map(|topics| {
        let current = topics.into_iter().filter(|(key, _)| current(broker, &key.name) == key.id);
        current.map(|(key, rows)| Found { name: TopicName(shared(&key.name)), rows }).collect()
    }))
}

impl Found {
    fn into_topics(self) -> OffsetFetchResponseTopics {
        let partitions = self.rows.into_iter().map(|row| {
            OffsetFetchResponsePartitions::default()
                .with_partition_index(row.partition)
                .with_committed_offset(row.offset)
                .with_committed_leader_epoch(row.leader_epoch)
                .with_metadata(Some(row.metadata))
        });
        OffsetFetchResponseTopics::default().with_partitions(partitions.collect()).with_name(self.name)
    }

    fn into_topic(self, version: i16) -> OffsetFetchResponseTopic {
        let partitions = self.rows.into_iter().map(|row| {
            OffsetFetchResponsePartition::default()
                .with_partition_index(row.partition)
                .with_committed_offset(row.offset)
                .with_committed_leader_epoch(if version >= EPOCH_FROM { row.leader_epoch } else { -1 })
                .with_metadata(Some(row.metadata))
        });
        OffsetFetchResponseTopic::default().with_partitions(partitions.collect()).with_name(self.name)
    }
}

/// The form of version 1, in which every partition has the error.
fn failed(wanted: &[Wanted], error: ResponseError) -> OffsetFetchResponse {
    let topics = wanted.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            OffsetFetchResponsePartition::default()
                .with_partition_index(*partition)
                .with_committed_offset(-1)
                .with_metadata(Some(StrBytes::default()))
                .with_error_code(error.code())
        });
        OffsetFetchResponseTopic::default().with_partitions(partitions.collect()).with_name(topic.name.clone())
    });
    OffsetFetchResponse::default().with_topics(topics.collect())
}
