//! Members of consumer groups: they join, share partitions and commit as a consumer does.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use milena_wire::kafka_protocol::messages::consumer_protocol_assignment::{ConsumerProtocolAssignment, TopicPartition};
use milena_wire::kafka_protocol::messages::consumer_protocol_subscription::ConsumerProtocolSubscription;
use milena_wire::kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use milena_wire::kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use milena_wire::kafka_protocol::messages::leave_group_request::MemberIdentity;
use milena_wire::kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use milena_wire::kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use milena_wire::kafka_protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, OffsetCommitRequest,
    OffsetCommitResponse, SyncGroupRequest,
};
use milena_wire::kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::Result;
use crate::client::{Connection, accepted, refused};
use crate::pulse::{Beats, Rhythm, pulse};
use crate::setup::{find_coordinator, group_id, text, topic_name};

/// Versions that Kafka 4 and Milena speak.
const JOIN: i16 = 9;
const SYNC: i16 = 5;
const HEARTBEAT: i16 = 4;
const LEAVE: i16 = 5;

/// Version in which commits are sent.
pub const COMMIT: i16 = 8;

/// Codes after which a member joins again or asks again.
const LOADING: i16 = 14;
const NOT_AVAILABLE: i16 = 15;
const NOT_COORDINATOR: i16 = 16;
const ILLEGAL_GENERATION: i16 = 22;
const UNKNOWN_MEMBER: i16 = 25;
const REBALANCING: i16 = 27;
const ID_REQUIRED: i16 = 79;

/// Session of a member. Members of a server that is not being measured just now are silent for a whole round of the
/// other one.
const SESSION: Duration = Duration::from_secs(600);

/// How often a member asks where its group stands while it waits for the others.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(100);

const ASSIGNOR: &str = "range";
const TYPE: &str = "consumer";

/// What the members of one group have in common.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Where they connect.
    pub address: String,
    /// Their group.
    pub group: String,
    /// The topic whose partitions they share.
    pub topic: String,
    /// Partitions of it.
    pub partitions: i32,
    /// Number of members.
    pub members: usize,
}

/// A member of a group, on a connection of its own.
#[derive(Debug)]
pub struct Member {
    connection: Connection,
    plan: Arc<Plan>,
    id: StrBytes,
    generation: i32,
    partitions: Vec<i32>,
    /// What it commits next, for all of its partitions.
    next_offset: i64,
}

/// Joins all members of a group at once, and returns when each has its assignment in the same generation.
///
/// # Errors
/// When a member is refused for another reason than that the group is rebalancing.
pub async fn assemble(plan: &Plan) -> Result<Vec<Member>> {
    find_coordinator(&mut Connection::open(&plan.address).await?, &plan.group).await?;
    let plan = Arc::new(plan.clone());
    // Generation in which each member has its assignment; 0 when it has none.
    let board = watch::Sender::new(vec![0; plan.members]);
    let mut joining = JoinSet::new();
    for number in 0..plan.members {
        joining.spawn(stable_member(Arc::clone(&plan), number, board.clone()));
    }
    let mut members = Vec::new();
    while let Some(member) = joining.join_next().await {
        members.push(member??);
    }
    Ok(members)
}

/// A member that joins until all are stable.
async fn stable_member(plan: Arc<Plan>, number: usize, board: watch::Sender<Vec<i32>>) -> Result<Member> {
    let connection = Connection::open(&plan.address).await?;
    let mut member =
        Member { connection, plan, id: StrBytes::default(), generation: 0, partitions: Vec::new(), next_offset: 0 };
    let note = |generation: i32| {
        board.send_modify(|board| {
            if let Some(place) = board.get_mut(number) {
                *place = generation;
            }
        });
    };
    let mut news = board.subscribe();
    'joining: loop {
        if !member.join().await? {
            continue;
        }
        note(member.generation);
        loop {
            let stable = news.wait_for(|board| is_stable(board));
            if let Ok(result) = tokio::time::timeout(HEARTBEAT_INTERVAL, stable).await {
                result.map_err(|_| "the board is gone")?;
                return Ok(member);
            }
            let answer = member.connection.call(HEARTBEAT, &member.heartbeat_request()).await?;
            if member.must_rejoin("Heartbeat", answer.error_code).await? {
                note(0);
                continue 'joining;
            }
        }
    }
}

fn is_stable(board: &[i32]) -> bool {
    board.first().is_some_and(|first| *first > 0 && board.iter().all(|generation| generation == first))
}

impl Member {
    /// A member that is alone in its group. `instance` makes it a static one.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn alone(connection: Connection, plan: &Plan, instance: Option<&str>) -> Result<Self> {
        let plan = Arc::new(plan.clone());
        let id = StrBytes::default();
        let mut member = Self { connection, plan, id, generation: 0, partitions: Vec::new(), next_offset: 0 };
        while !member.join_as(instance).await? {}
        Ok(member)
    }

    /// The generation that it is in.
    #[must_use]
    pub fn generation(&self) -> i32 {
        self.generation
    }

    /// Its connection, when the member itself is not needed any more.
    #[must_use]
    pub fn into_connection(self) -> Connection {
        self.connection
    }

    /// Leaves the group.
    ///
    /// # Errors
    /// When the connection ends.
    pub async fn leave(mut self) -> Result<()> {
        let identity = MemberIdentity::default().with_member_id(self.id.clone());
        let request =
            LeaveGroupRequest::default().with_group_id(group_id(&self.plan.group)).with_members(vec![identity]);
        self.connection.call(LEAVE, &request).await?;
        Ok(())
    }

    /// Commits all its partitions in that rhythm. A unit is a partition.
    ///
    /// # Errors
    /// When a commit is refused.
    pub async fn commit_for(&mut self, rhythm: &Rhythm) -> Result<Beats> {
        let Self { connection, plan, id, generation, partitions, next_offset } = self;
        let ask = || {
            *next_offset += 1;
            commit_request(plan, id, *generation, partitions, *next_offset)
        };
        pulse(connection, COMMIT, rhythm, ask, stored).await
    }

    /// Sends heartbeats in that rhythm.
    ///
    /// # Errors
    /// When one is refused.
    pub async fn heartbeat_for(&mut self, rhythm: &Rhythm) -> Result<Beats> {
        let request = self.heartbeat_request();
        let worth = |answer: &HeartbeatResponse| accepted("Heartbeat", answer.error_code).map(|()| 1);
        pulse(&mut self.connection, HEARTBEAT, rhythm, || request.clone(), worth).await
    }

    async fn join(&mut self) -> Result<bool> {
        self.join_as(None).await
    }

    /// One attempt at a generation; false when it has to be made again.
    async fn join_as(&mut self, instance: Option<&str>) -> Result<bool> {
        let joined = self.connection.call(JOIN, &self.join_request(instance)?).await?;
        if joined.error_code == ID_REQUIRED {
            self.id = joined.member_id;
            return Ok(false);
        }
        if self.must_rejoin("JoinGroup", joined.error_code).await? {
            return Ok(false);
        }
        self.id = joined.member_id.clone();
        self.generation = joined.generation_id;
        let assignments = if joined.leader == joined.member_id { self.share(&joined)? } else { Vec::new() };
        let request = SyncGroupRequest::default()
            .with_group_id(group_id(&self.plan.group))
            .with_generation_id(self.generation)
            .with_member_id(self.id.clone())
            .with_group_instance_id(instance.map(text))
            .with_protocol_type(Some(StrBytes::from_static_str(TYPE)))
            .with_protocol_name(Some(StrBytes::from_static_str(ASSIGNOR)))
            .with_assignments(assignments);
        let synced = self.connection.call(SYNC, &request).await?;
        if self.must_rejoin("SyncGroup", synced.error_code).await? {
            return Ok(false);
        }
        self.partitions = assigned(synced.assignment)?;
        Ok(true)
    }

    /// True when the member has to join again.
    async fn must_rejoin(&mut self, what: &str, code: i16) -> Result<bool> {
        match code {
            0 => return Ok(false),
            REBALANCING | ILLEGAL_GENERATION => {}
            UNKNOWN_MEMBER => self.id = StrBytes::default(),
            LOADING | NOT_AVAILABLE | NOT_COORDINATOR => sleep(HEARTBEAT_INTERVAL).await,
            code => return Err(refused(what, code)),
        }
        Ok(true)
    }

    fn join_request(&self, instance: Option<&str>) -> Result<JoinGroupRequest> {
        let subscription = ConsumerProtocolSubscription::default().with_topics(vec![text(&self.plan.topic)]);
        let protocol = JoinGroupRequestProtocol::default()
            .with_name(StrBytes::from_static_str(ASSIGNOR))
            .with_metadata(versioned(&subscription)?);
        let session = i32::try_from(SESSION.as_millis()).unwrap_or(i32::MAX);
        Ok(JoinGroupRequest::default()
            .with_group_id(group_id(&self.plan.group))
            .with_session_timeout_ms(session)
            .with_rebalance_timeout_ms(session)
            .with_member_id(self.id.clone())
            .with_group_instance_id(instance.map(text))
            .with_protocol_type(StrBytes::from_static_str(TYPE))
            .with_protocols(vec![protocol]))
    }

    fn heartbeat_request(&self) -> HeartbeatRequest {
        HeartbeatRequest::default()
            .with_group_id(group_id(&self.plan.group))
            .with_generation_id(self.generation)
            .with_member_id(self.id.clone())
    }

    /// Ranges of the topic for the members that the leader was told of.
    fn share(&self, joined: &JoinGroupResponse) -> Result<Vec<SyncGroupRequestAssignment>> {
        let count = joined.members.len().max(1);
        let all = usize::try_from(self.plan.partitions)?;
        let share = |(number, member): (usize, &JoinGroupResponseMember)| {
            let range = i32::try_from(number * all / count)?..i32::try_from((number + 1) * all / count)?;
            let partitions =
                TopicPartition::default().with_topic(topic_name(&self.plan.topic)).with_partitions(range.collect());
            let assignment = ConsumerProtocolAssignment::default().with_assigned_partitions(vec![partitions]);
            Ok(SyncGroupRequestAssignment::default()
                .with_member_id(member.member_id.clone())
                .with_assignment(versioned(&assignment)?))
        };
        joined.members.iter().enumerate().map(share).collect()
    }
}

/// A message of the consumer protocol in version 0, behind its version.
fn versioned(message: &impl Encodable) -> Result<Bytes> {
    let mut bytes = BytesMut::new();
    bytes.put_i16(0);
    message.encode(&mut bytes, 0).map_err(|error| error.to_string())?;
    Ok(bytes.freeze())
}

/// The partitions of an assignment.
fn assigned(mut bytes: Bytes) -> Result<Vec<i32>> {
    if bytes.len() < 2 {
        return Ok(Vec::new());
    }
    let _version = bytes.split_to(2);
    let assignment = ConsumerProtocolAssignment::decode(&mut bytes, 0).map_err(|error| error.to_string())?;
    Ok(assignment.assigned_partitions.into_iter().flat_map(|topic| topic.partitions).collect())
}

/// A commit of one offset for many partitions of the plan's topic. An empty id is nobody in particular, as a consumer
/// without a group protocol is.
#[must_use]
pub fn commit_request(
    plan: &Plan,
    id: &StrBytes,
    generation: i32,
    partitions: &[i32],
    offset: i64,
) -> OffsetCommitRequest {
    let partitions = partitions.iter().map(|partition| {
        OffsetCommitRequestPartition::default().with_partition_index(*partition).with_committed_offset(offset)
    });
    let topic =
        OffsetCommitRequestTopic::default().with_name(topic_name(&plan.topic)).with_partitions(partitions.collect());
    OffsetCommitRequest::default()
        .with_group_id(group_id(&plan.group))
        .with_generation_id_or_member_epoch(generation)
        .with_member_id(id.clone())
        .with_topics(vec![topic])
}

/// The number of partitions that were stored, when all were.
///
/// # Errors
/// The first that was refused.
pub fn stored(answer: &OffsetCommitResponse) -> Result<u64> {
    let mut partitions = 0;
    for partition in answer.topics.iter().flat_map(|topic| &topic.partitions) {
        accepted("OffsetCommit", partition.error_code)?;
        partitions += 1;
    }
    Ok(partitions)
}
