//! Members of consumer groups, played by hand over TCP.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod clock;
pub(crate) mod gate;

use std::time::Duration;

use bytes::Bytes;
use milena_records::Codec;
use milena_records::client::{Record, build_batch};
use milena_testkit::{RawClient, TestServer};
use milena_wire::kafka_protocol::messages::create_topics_request::CreatableTopic;
use milena_wire::kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use milena_wire::kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use milena_wire::kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use milena_wire::kafka_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use milena_wire::kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use milena_wire::kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use milena_wire::kafka_protocol::messages::{
    CreateTopicsRequest, GroupId, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, OffsetCommitRequest,
    OffsetCommitResponse, OffsetDeleteRequest, OffsetFetchRequest, ProduceRequest, SyncGroupRequest, TopicName,
};
use milena_wire::kafka_protocol::protocol::StrBytes;

pub(crate) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

pub(crate) fn group(name: &str) -> GroupId {
    GroupId(text(name))
}

pub(crate) fn topic(name: &str) -> TopicName {
    TopicName(text(name))
}

/// A server whose groups do not wait for more members.
pub(crate) async fn server() -> TestServer {
    builder().start().await
}

pub(crate) fn builder() -> milena_testkit::server::Builder {
    TestServer::builder().config(|config| config.groups.initial_rebalance_delay = Duration::ZERO)
}

pub(crate) async fn create(client: &mut RawClient, name: &str, partitions: i32) {
    let topic = CreatableTopic::default().with_name(topic(name)).with_num_partitions(partitions);
    let topic = topic.with_replication_factor(-1);
    let answer =
        client.request(5, &CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(5_000)).await;
    assert_eq!(answer.topics[0].error_code, 0);
}

pub(crate) fn join_request(member: &str, instance: Option<&str>) -> JoinGroupRequest {
    let protocol = JoinGroupRequestProtocol::default()
        .with_name(text("range"))
        .with_metadata(Bytes::from(format!("subscription of {}", instance.unwrap_or("somebody"))));
    JoinGroupRequest::default()
        .with_group_id(group("g"))
        .with_session_timeout_ms(10_000)
        .with_rebalance_timeout_ms(60_000)
        .with_member_id(text(member))
        .with_group_instance_id(instance.map(text))
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol])
}

/// A member with a connection of its own.
pub(crate) struct Member {
    pub(crate) client: RawClient,
    pub(crate) id: String,
    pub(crate) instance: Option<String>,
    pub(crate) generation: i32,
    /// What it sends with its protocol; empty for something that is no subscription.
    pub(crate) metadata: Bytes,
}

impl Member {
    pub(crate) async fn new(server: &TestServer) -> Self {
        Self::over(server.client().await)
    }

    pub(crate) fn over(client: RawClient) -> Self {
        Self { client, id: String::new(), instance: None, generation: -1, metadata: Bytes::new() }
    }

    pub(crate) async fn fixed(server: &TestServer, instance: &str) -> Self {
        Self { instance: Some(instance.to_owned()), ..Self::new(server).await }
    }

    fn request(&self) -> JoinGroupRequest {
        let mut request = join_request(&self.id, self.instance.as_deref());
        if !self.metadata.is_empty() {
            request.protocols[0].metadata = self.metadata.clone();
        }
        request
    }

    /// Sends a join; a member without a name is given one first.
    pub(crate) async fn send_join(&mut self) {
        if self.id.is_empty() && self.instance.is_none() {
            let answer = self.client.request(9, &self.request()).await;
            assert_eq!(answer.error_code, 79);
            self.id = answer.member_id.to_string();
        }
        self.client.send(9, &self.request()).await;
    }

    pub(crate) async fn joined(&mut self) -> JoinGroupResponse {
        let answer = self.client.receive::<JoinGroupRequest>().await;
        assert_eq!(answer.error_code, 0);
        self.id = answer.member_id.to_string();
        self.generation = answer.generation_id;
        answer
    }

    pub(crate) async fn join(&mut self) -> JoinGroupResponse {
        self.send_join().await;
        self.joined().await
    }

    pub(crate) fn sync_request(&self, assignments: &[(&str, &str)]) -> SyncGroupRequest {
        let assignments = assignments.iter().map(|(member, assignment)| {
            SyncGroupRequestAssignment::default()
                .with_member_id(text(member))
                .with_assignment(Bytes::from((*assignment).to_owned()))
        });
        SyncGroupRequest::default()
            .with_group_id(group("g"))
            .with_generation_id(self.generation)
            .with_member_id(text(&self.id))
            .with_group_instance_id(self.instance.as_deref().map(text))
            .with_protocol_type(Some(text("consumer")))
            .with_protocol_name(Some(text("range")))
            .with_assignments(assignments.collect())
    }

    /// The assignment of this member.
    pub(crate) async fn sync(&mut self, assignments: &[(&str, &str)]) -> String {
        let request = self.sync_request(assignments);
        let answer = self.client.request(5, &request).await;
        assert_eq!(answer.error_code, 0);
        String::from_utf8(answer.assignment.to_vec()).unwrap()
    }

    /// Somebody in another group, on a connection of its own.
    pub(crate) async fn alone_in(server: &TestServer, name: &str) -> RawClient {
        let mut client = server.client().await;
        let joined = client.request(3, &join_request("", None).with_group_id(group(name))).await;
        assert_eq!(joined.error_code, 0);
        client
    }

    /// Joins a group that has nobody else, and files its assignment.
    pub(crate) async fn alone(server: &TestServer) -> Self {
        let mut member = Self::new(server).await;
        member.join().await;
        let id = member.id.clone();
        member.sync(&[(&id, "all")]).await;
        member
    }

    pub(crate) fn heartbeat_request(&self) -> HeartbeatRequest {
        HeartbeatRequest::default()
            .with_group_id(group("g"))
            .with_generation_id(self.generation)
            .with_member_id(text(&self.id))
            .with_group_instance_id(self.instance.as_deref().map(text))
    }

    pub(crate) async fn heartbeat(&mut self) -> i16 {
        let request = self.heartbeat_request();
        self.client.request(4, &request).await.error_code
    }

    pub(crate) fn commits(&self, topic: &str, offsets: &[(i32, i64)]) -> OffsetCommitRequest {
        commits(topic, offsets)
            .with_generation_id_or_member_epoch(self.generation)
            .with_member_id(text(&self.id))
            .with_group_instance_id(self.instance.as_deref().map(text))
    }

    pub(crate) async fn commit(&mut self, topic: &str, offsets: &[(i32, i64)]) -> Vec<i16> {
        let request = self.commits(topic, offsets);
        codes(&self.client.request(9, &request).await)
    }
}

/// Two members of one generation; the first is the leader.
pub(crate) async fn pair(server: &TestServer) -> (Member, Member) {
    let mut one = Member::alone(server).await;
    let mut two = Member::new(server).await;
    two.send_join().await;
    while one.heartbeat().await != 27 {}
    one.send_join().await;
    let (first, _) = (one.joined().await, two.joined().await);
    assert_eq!(first.members.len(), 2);
    let request = two.sync_request(&[]);
    two.client.send(5, &request).await;
    let (one_id, two_id) = (one.id.clone(), two.id.clone());
    assert_eq!(one.sync(&[(&one_id, "left"), (&two_id, "right")]).await, "left");
    assert_eq!(two.client.receive::<SyncGroupRequest>().await.assignment, "right");
    (one, two)
}

/// A subscription as consumers send it, so that the server knows what the group reads.
pub(crate) fn subscription(topics: &[&str]) -> Bytes {
    let mut bytes = vec![0, 0];
    bytes.extend(i32::try_from(topics.len()).unwrap().to_be_bytes());
    for topic in topics {
        bytes.extend(i16::try_from(topic.len()).unwrap().to_be_bytes());
        bytes.extend(topic.as_bytes());
    }
    // No user data.
    bytes.extend([0xff; 4]);
    bytes.into()
}

/// A commit of somebody who is in no group.
pub(crate) fn commits(name: &str, offsets: &[(i32, i64)]) -> OffsetCommitRequest {
    let partitions = offsets.iter().map(|(partition, offset)| {
        OffsetCommitRequestPartition::default()
            .with_partition_index(*partition)
            .with_committed_offset(*offset)
            .with_committed_leader_epoch(-1)
            .with_committed_metadata(None)
    });
    let topic = OffsetCommitRequestTopic::default().with_name(topic(name)).with_partitions(partitions.collect());
    OffsetCommitRequest::default()
        .with_group_id(group("g"))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic])
}

pub(crate) fn codes(answer: &OffsetCommitResponse) -> Vec<i16> {
    answer.topics.iter().flat_map(|topic| &topic.partitions).map(|partition| partition.error_code).collect()
}

/// An OffsetFetch of versions 8 and 9 for some partitions.
pub(crate) fn fetch(name: &str, partitions: &[i32]) -> OffsetFetchRequest {
    let wanted = OffsetFetchRequestTopics::default().with_name(topic(name)).with_partition_indexes(partitions.to_vec());
    let asked = OffsetFetchRequestGroup::default()
        .with_group_id(group("g"))
        .with_topics(Some(vec![wanted]))
        .with_member_epoch(-1);
    OffsetFetchRequest::default().with_groups(vec![asked])
}

/// What the group has of some partitions: offset, epoch, metadata.
pub(crate) async fn fetched(client: &mut RawClient, name: &str, partitions: &[i32]) -> Vec<(i64, i32, String)> {
    let answer = client.request(9, &fetch(name, partitions)).await;
    assert_eq!(answer.groups[0].error_code, 0);
    let rows = answer.groups[0].topics.iter().flat_map(|topic| &topic.partitions);
    rows.map(|row| {
        assert_eq!(row.error_code, 0);
        (row.committed_offset, row.committed_leader_epoch, row.metadata.as_ref().unwrap().to_string())
    })
    .collect()
}

/// As [`fetched`], the offsets alone.
pub(crate) async fn offsets(client: &mut RawClient, name: &str, partitions: &[i32]) -> Vec<i64> {
    fetched(client, name, partitions).await.into_iter().map(|(offset, ..)| offset).collect()
}

/// Everything that the group has: topic, partition, offset.
pub(crate) async fn everything(client: &mut RawClient) -> Vec<(String, i32, i64)> {
    let request = OffsetFetchRequest::default().with_group_id(group("g")).with_topics(None);
    let answer = client.request(7, &request).await;
    assert_eq!(answer.error_code, 0);
    let rows = answer.topics.iter().flat_map(|t| t.partitions.iter().map(move |p| (t.name.to_string(), p)));
    rows.map(|(name, p)| (name, p.partition_index, p.committed_offset)).collect()
}

/// One record, for all replicas.
pub(crate) fn one_record(name: &str) -> ProduceRequest {
    let record = Record { value: Some(b"value".to_vec()), ..Record::default() };
    let batch = build_batch(&[record], Codec::None, None);
    let data = PartitionProduceData::default().with_index(0).with_records(Some(batch.into()));
    let topic = TopicProduceData::default().with_name(topic(name)).with_partition_data(vec![data]);
    ProduceRequest::default().with_acks(-1).with_timeout_ms(20_000).with_topic_data(vec![topic])
}

/// Asks to delete the offset of partition 0.
pub(crate) fn offset_delete(name: &str, of: &str) -> OffsetDeleteRequest {
    let partition = OffsetDeleteRequestPartition::default().with_partition_index(0);
    let topic = OffsetDeleteRequestTopic::default().with_name(topic(name)).with_partitions(vec![partition]);
    OffsetDeleteRequest::default().with_group_id(group(of)).with_topics(vec![topic])
}
