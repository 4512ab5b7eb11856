//! Consumer groups as an operator sees them: who is in them, what they committed, and setting and deleting that.

use std::collections::BTreeMap;

use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::describe_groups_response::DescribedGroup;
use milena_wire::kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use milena_wire::kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use milena_wire::kafka_protocol::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, GroupId, ListGroupsRequest, OffsetCommitRequest, OffsetFetchRequest,
    OffsetFetchResponse,
};
use milena_wire::kafka_protocol::protocol::StrBytes;

use super::assignment;
use super::cluster::topic_name;
use super::{Client, ClientError, Result};

/// State of a group that is not there, as versions before 6 of DescribeGroups say it.
const DEAD: &str = "Dead";
/// First version of OffsetFetch that asks for several groups, each by a structure of its own.
const BATCHED_FETCH: i16 = 8;

/// A partition, by topic and index.
pub type TopicPartition = (String, i32);

/// A group in a list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListedGroup {
    /// Group id.
    pub id: String,
    /// `consumer` for consumers; empty for a group that only has committed offsets.
    pub protocol_type: String,
    /// State, where the server says (Kafka 2.6 and later).
    pub state: Option<String>,
}

/// A group and who is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Group id.
    pub id: String,
    /// `Empty`, `PreparingRebalance`, `CompletingRebalance` or `Stable`.
    pub state: String,
    /// `consumer` for consumers; empty for a group that only has committed offsets.
    pub protocol_type: String,
    /// The assignor that was chosen; empty between generations.
    pub protocol: String,
    /// The members, by member id.
    pub members: Vec<Member>,
}

impl Group {
    /// True when it has members, or is about to: nobody else can then set its offsets.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state != "Empty" || !self.members.is_empty()
    }
}

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The id that the coordinator gave it.
    pub id: String,
    /// `group.instance.id` of a static member.
    pub instance_id: Option<String>,
    /// Client id.
    pub client_id: String,
    /// Address it came from.
    pub host: String,
    /// Partitions that it was assigned, in order; `None` where the assignment is not a consumer's.
    pub partitions: Option<Vec<TopicPartition>>,
}

/// An offset that a group committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The next offset to read.
    pub offset: i64,
    /// Leader epoch that was committed with it, if one was.
    pub leader_epoch: Option<i32>,
    /// The client's own text.
    pub metadata: String,
}

impl Client {
    /// The groups of all brokers, by id.
    ///
    /// # Errors
    /// When a broker does not answer, or refuses.
    pub async fn groups(&mut self) -> Result<Vec<ListedGroup>> {
        let nodes: Vec<i32> = self.brokers().map(|broker| broker.id).collect();
        let mut groups = Vec::new();
        for node in nodes {
            let answer = self.at(node, &ListGroupsRequest::default()).await?;
            check(|| "the groups were not listed".to_owned(), answer.error_code)?;
            groups.extend(answer.groups.into_iter().map(|found| ListedGroup {
                id: found.group_id.to_string(),
                protocol_type: found.protocol_type.to_string(),
                state: Some(found.group_state.to_string()).filter(|state| !state.is_empty()),
            }));
        }
        groups.sort();
        Ok(groups)
    }

    /// A group, with its members.
    ///
    /// # Errors
    /// [`ClientError::NoGroup`] when there is none of that name, else when its coordinator does not answer, or refuses.
    pub async fn describe_group(&mut self, id: &str) -> Result<Group> {
        let request = DescribeGroupsRequest::default().with_groups(vec![group_id(id)]);
        let answer = self.coordinator(id, &request).await?;
        let what = || format!("group `{id}` was not described");
        let Some(found) = answer.groups.into_iter().next() else { return Err(unanswered(what())) };
        let missing = found.error_code == ResponseError::GroupIdNotFound.code();
        if missing || (found.error_code == 0 && found.group_state.as_str() == DEAD) {
            return Err(ClientError::NoGroup { group: id.to_owned() });
        }
        check(what, found.error_code)?;
        Ok(group_of(found))
    }

    /// Everything that a group has committed. A group that is not there has committed nothing.
    ///
    /// # Errors
    /// When its coordinator does not answer, or refuses; then nothing is known, least of all that nothing is committed.
    pub async fn committed(&mut self, id: &str) -> Result<BTreeMap<TopicPartition, CommittedOffset>> {
        let node = self.coordinator_node(id).await?;
        let request = OffsetFetchRequest::default();
        let request = if self.version_at::<OffsetFetchRequest>(node).await? >= BATCHED_FETCH {
            let group = OffsetFetchRequestGroup::default().with_group_id(group_id(id)).with_topics(None);
            request.with_groups(vec![group])
        } else {
            request.with_group_id(group_id(id)).with_topics(None)
        };
        let answer = self.at(node, &request).await?;
        committed_of(id, answer)
    }

    /// Sets offsets of a group that has no members, which makes the group if there is none. All of them are set or an
    /// error names one that was not.
    ///
    /// # Errors
    /// When the group has members (code 25), and when a partition is not there (code 3).
    pub async fn commit_offsets(&mut self, id: &str, offsets: &BTreeMap<TopicPartition, i64>) -> Result<()> {
        let mut topics: BTreeMap<&str, Vec<OffsetCommitRequestPartition>> = BTreeMap::new();
        for ((topic, partition), offset) in offsets {
            let entry = OffsetCommitRequestPartition::default()
                .with_partition_index(*partition)
                .with_committed_offset(*offset)
                .with_committed_metadata(Some(StrBytes::default()));
            topics.entry(topic).or_default().push(entry);
        }
        let topic = |(name, partitions)| {
            OffsetCommitRequestTopic::default().with_name(topic_name(name)).with_partitions(partitions)
        };
        let request = OffsetCommitRequest::default()
            .with_group_id(group_id(id))
            .with_generation_id_or_member_epoch(-1)
            .with_topics(topics.into_iter().map(topic).collect());
        let answer = self.coordinator(id, &request).await?;
        for topic in &answer.topics {
            for partition in &topic.partitions {
                let index = partition.partition_index;
                let what = || format!("the offset of `{}`-{index} was not set for group `{id}`", topic.name.0);
                check(what, partition.error_code)?;
            }
        }
        Ok(())
    }

    /// Deletes a group that has no members, with what it committed.
    ///
    /// # Errors
    /// [`ClientError::NoGroup`] when there is none of that name; when it has members (code 68).
    pub async fn delete_group(&mut self, id: &str) -> Result<()> {
        let request = DeleteGroupsRequest::default().with_groups_names(vec![group_id(id)]);
        let answer = self.coordinator(id, &request).await?;
        let what = || format!("group `{id}` was not deleted");
        let Some(result) = answer.results.first() else { return Err(unanswered(what())) };
        if result.error_code == ResponseError::GroupIdNotFound.code() {
            return Err(ClientError::NoGroup { group: id.to_owned() });
        }
        check(what, result.error_code)
    }
}

fn group_of(found: DescribedGroup) -> Group {
    let is_consumer = found.protocol_type.as_str() == "consumer";
    let mut members: Vec<Member> = found
        .members
        .into_iter()
        .map(|member| Member {
            id: member.member_id.to_string(),
            instance_id: member.group_instance_id.map(|id| id.to_string()),
            client_id: member.client_id.to_string(),
            host: member.client_host.to_string(),
            partitions: if is_consumer { assignment::partitions_of(&member.member_assignment) } else { None },
        })
        .collect();
    members.sort_by(|a, b| a.id.cmp(&b.id));
    Group {
        id: found.group_id.to_string(),
        state: found.group_state.to_string(),
        protocol_type: found.protocol_type.to_string(),
        protocol: found.protocol_data.to_string(),
        members,
    }
}

/// The offsets of either form of the answer.
fn committed_of(id: &str, answer: OffsetFetchResponse) -> Result<BTreeMap<TopicPartition, CommittedOffset>> {
    check(|| format!("the offsets of group `{id}` were not read"), answer.error_code)?;
    let single = answer.topics.into_iter().flat_map(|topic| {
        let name = topic.name.0.to_string();
        topic.partitions.into_iter().map(move |found| {
            let epoch = found.committed_leader_epoch;
            (name.clone(), found.partition_index, found.error_code, found.committed_offset, epoch, found.metadata)
        })
    });
    let mut groups = Vec::new();
    for group in answer.groups {
        check(|| format!("the offsets of group `{id}` were not read"), group.error_code)?;
        groups.extend(group.topics);
    }
    let batched = groups.into_iter().flat_map(|topic| {
        let name = topic.name.0.to_string();
        topic.partitions.into_iter().map(move |found| {
            let epoch = found.committed_leader_epoch;
            (name.clone(), found.partition_index, found.error_code, found.committed_offset, epoch, found.metadata)
        })
    });
    let mut committed = BTreeMap::new();
    for (topic, partition, code, offset, epoch, metadata) in single.chain(batched) {
        check(|| format!("the offset of `{topic}`-{partition} of group `{id}` was not read"), code)?;
        if offset >= 0 {
            let leader_epoch = Some(epoch).filter(|&epoch| epoch >= 0);
            let metadata = metadata.map(|text| text.to_string()).unwrap_or_default();
            committed.insert((topic, partition), CommittedOffset { offset, leader_epoch, metadata });
        }
    }
    Ok(committed)
}

fn group_id(id: &str) -> GroupId {
    GroupId(StrBytes::from_string(id.to_owned()))
}

fn check(what: impl FnOnce() -> String, code: i16) -> Result<()> {
    match ResponseError::try_from_code(code) {
        None => Ok(()),
        Some(code) => Err(ClientError::refused(what(), code, None)),
    }
}

/// An answer that does not mention what was asked for.
fn unanswered(what: String) -> ClientError {
    ClientError::refused(what, ResponseError::UnknownServerError, None)
}
