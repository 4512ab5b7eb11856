//! The life of a group: members join, share, leave.

use bytes::Bytes;
use milena_wire::kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use milena_wire::kafka_protocol::messages::leave_group_request::MemberIdentity;
use milena_wire::kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use milena_wire::kafka_protocol::messages::{
    DescribeGroupsRequest, FindCoordinatorRequest, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse,
    LeaveGroupRequest, ListGroupsRequest, SyncGroupRequest,
};
use milena_wire::kafka_protocol::protocol::StrBytes;

use super::words::{group, text};
use crate::duo::{Answers, Duo, versions};
use crate::normal::Memory;

/// First version of JoinGroup that gives an id out before a member joins.
const ID_FIRST: i16 = 4;

/// What is said of a group that is not there.
const UNKNOWN_MEMBER_ID: i16 = 25;

/// A group for each version of JoinGroup, with the other requests in versions of their own.
pub async fn run(duo: &mut Duo) {
    duo.step("until there is a coordinator");
    let found = |version| move |_: &Memory| coordinator(version, &["any"], 0);
    duo.until(0, found(0), |answer| answer.error_code == 0).await;
    // Kafka names a coordinator before that one has read its log.
    duo.until(4, |_| heartbeat("any", 1, "nobody"), |answer| answer.error_code == UNKNOWN_MEMBER_ID).await;
    for version in versions::<FindCoordinatorRequest>() {
        coordinators(duo, version).await;
    }
    for join in versions::<JoinGroupRequest>() {
        let life = Life::new(join);
        life.first_member(duo).await;
        life.second_member(duo).await;
        life.described(duo).await;
        life.left(duo).await;
    }
}

/// A request for the coordinators of these, of that kind.
#[must_use]
pub fn coordinator(version: i16, keys: &[&str], kind: i8) -> FindCoordinatorRequest {
    let request = FindCoordinatorRequest::default();
    let request = if version == 0 { request } else { request.with_key_type(kind) };
    match version {
        0..=3 => request.with_key(text(keys.first().copied().unwrap_or_default())),
        _ => request.with_coordinator_keys(keys.iter().map(|key| text(key)).collect()),
    }
}

async fn coordinators(duo: &mut Duo, version: i16) {
    for (step, keys, kind) in [
        ("of a group", &["any"][..], 0),
        ("of the group without a name", &[""], 0),
        ("of a kind that nobody knows", &["any"], 9),
        ("of a negative kind", &["any"], -1),
    ] {
        if version > 0 || kind == 0 {
            duo.step(step);
            duo.ask(version, |_| coordinator(version, keys, kind)).await;
        }
    }
    if version >= 4 {
        for (step, keys) in
            [("of several groups", &["a", "b"][..]), ("of no group", &[]), ("of one twice", &["a", "a"])]
        {
            duo.step(step);
            duo.ask(version, |_| coordinator(version, keys, 0)).await;
        }
    }
}

/// A group, and the version of each request to it.
struct Life {
    join: i16,
    sync: i16,
    heartbeat: i16,
    leave: i16,
    name: String,
}

/// A request to join, with an assignor or two.
pub(super) fn joining(version: i16, name: &str, member: &str) -> JoinGroupRequest {
    let protocol = |name: &str, metadata: &'static [u8]| {
        JoinGroupRequestProtocol::default().with_name(text(name)).with_metadata(Bytes::from_static(metadata))
    };
    let request = JoinGroupRequest::default()
        .with_group_id(group(name))
        .with_session_timeout_ms(30_000)
        .with_member_id(text(member))
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol("range", &SUBSCRIPTION), protocol("roundrobin", &SUBSCRIPTION)]);
    if version >= 1 { request.with_rebalance_timeout_ms(30_000) } else { request }
}

/// Version 0 of what a consumer subscribes to: the topic `read`, and no data of its own.
const SUBSCRIPTION: [u8; 16] = [0, 0, 0, 0, 0, 1, 0, 4, b'r', b'e', b'a', b'd', 0xff, 0xff, 0xff, 0xff];

fn member_of(answer: &JoinGroupResponse) -> StrBytes {
    answer.member_id.clone()
}

/// Joins a member that is not known yet, up to the request that may have to wait; returns what that one is received with.
async fn introduce(duo: &mut Duo, line: &str, version: i16, name: &str, kept: &str) -> i32 {
    if version < ID_FIRST {
        return duo.send(line, version, |_| joining(version, name, "")).await;
    }
    let sent = duo.send(line, version, |_| joining(version, name, "")).await;
    let answers = duo.receive::<JoinGroupRequest>(line, version, sent).await;
    duo.keep(&answers, kept, member_of);
    duo.send(line, version, |memory| joining(version, name, memory.kept(kept))).await
}

/// Joins the only member of a group, and gives it an assignment.
pub(super) async fn join_alone(duo: &mut Duo, name: &str) {
    let sent = introduce(duo, "main", 9, name, "member").await;
    let joined = duo.receive::<JoinGroupRequest>("main", 9, sent).await;
    duo.keep(&joined, "member", member_of);
    duo.ask(5, |memory| sync(5, name, 1, memory.kept("member"), &[(memory.kept("member"), b"all of it")])).await;
}

/// A request for an assignment, which the leader brings.
pub(super) fn sync(
    version: i16,
    name: &str,
    generation: i32,
    member: &str,
    assignments: &[(&str, &'static [u8])],
) -> SyncGroupRequest {
    let assigned = |(member, bytes): &(&str, &'static [u8])| {
        SyncGroupRequestAssignment::default().with_member_id(text(member)).with_assignment(Bytes::from_static(bytes))
    };
    let request = SyncGroupRequest::default()
        .with_group_id(group(name))
        .with_generation_id(generation)
        .with_member_id(text(member))
        .with_assignments(assignments.iter().map(assigned).collect());
    match version {
        5.. => request.with_protocol_type(Some(text("consumer"))).with_protocol_name(Some(text("range"))),
        _ => request,
    }
}

/// A sign of life.
pub(super) fn heartbeat(name: &str, generation: i32, member: &str) -> HeartbeatRequest {
    HeartbeatRequest::default().with_group_id(group(name)).with_generation_id(generation).with_member_id(text(member))
}

/// Members that leave; before version 3 only the first of them.
pub(super) fn leaving(version: i16, name: &str, members: &[&str]) -> LeaveGroupRequest {
    let request = LeaveGroupRequest::default().with_group_id(group(name));
    match version {
        0..=2 => request.with_member_id(text(members.first().copied().unwrap_or_default())),
        _ => {
            let member = |member: &&str| MemberIdentity::default().with_member_id(text(member));
            request.with_members(members.iter().map(member).collect())
        }
    }
}

impl Life {
    fn new(join: i16) -> Self {
        let name = format!("life-v{join}");
        Self { join, sync: join.min(5), heartbeat: join.min(4), leave: join.min(5), name }
    }

    async fn first_member(&self, duo: &mut Duo) {
        let name = self.name.as_str();
        duo.step("a first member joins");
        let sent = introduce(duo, "main", self.join, name, "first").await;
        let joined = duo.receive::<JoinGroupRequest>("main", self.join, sent).await;
        duo.keep(&joined, "first", member_of);
        duo.step("a heartbeat before the assignment");
        duo.ask(self.heartbeat, |memory| heartbeat(name, 1, memory.kept("first"))).await;
        duo.step("an assignment");
        duo.ask(self.sync, |memory| {
            let first = memory.kept("first");
            sync(self.sync, name, 1, first, &[(first, b"everything"), ("nobody", b"nothing")])
        })
        .await;
        duo.step("an assignment once more");
        duo.ask(self.sync, |memory| sync(self.sync, name, 1, memory.kept("first"), &[])).await;
        duo.step("a heartbeat");
        duo.ask(self.heartbeat, |memory| heartbeat(name, 1, memory.kept("first"))).await;
        for (step, generation) in [("an older generation", 0), ("a newer generation", 2), ("no generation", -1)] {
            duo.step(step);
            duo.ask(self.heartbeat, |memory| heartbeat(name, generation, memory.kept("first"))).await;
            duo.ask(self.sync, |memory| sync(self.sync, name, generation, memory.kept("first"), &[])).await;
        }
        duo.step("an unknown member");
        duo.ask(self.heartbeat, |_| heartbeat(name, 1, "nobody")).await;
        duo.ask(self.sync, |_| sync(self.sync, name, 1, "nobody", &[])).await;
        duo.ask(self.join, |_| joining(self.join, name, "nobody")).await;
        duo.ask(self.leave, |_| leaving(self.leave, name, &["nobody"])).await;
    }

    async fn second_member(&self, duo: &mut Duo) {
        let name = self.name.as_str();
        duo.step("a second member joins");
        let sent = introduce(duo, "second", self.join, name, "second").await;
        duo.until(4, |memory| heartbeat(name, 1, memory.kept("first")), |answer| answer.error_code != 0).await;
        duo.step("a heartbeat while others join");
        duo.ask(self.heartbeat, |memory| heartbeat(name, 1, memory.kept("first"))).await;
        duo.step("an assignment while others join");
        duo.ask(self.sync, |memory| sync(self.sync, name, 1, memory.kept("first"), &[])).await;
        duo.step("the first member joins again");
        duo.ask(self.join, |memory| joining(self.join, name, memory.kept("first"))).await;
        duo.step("a second member has joined");
        let joined: Answers<JoinGroupResponse> = duo.receive::<JoinGroupRequest>("second", self.join, sent).await;
        duo.keep(&joined, "second", member_of);
        duo.step("a follower waits for its assignment");
        let sent = duo.send("second", self.sync, |memory| sync(self.sync, name, 2, memory.kept("second"), &[])).await;
        duo.step("the leader assigns, and leaves the other one out");
        duo.ask(self.sync, |memory| {
            let first = memory.kept("first");
            sync(self.sync, name, 2, first, &[(first, b"half")])
        })
        .await;
        duo.step("a follower has its assignment");
        duo.receive::<SyncGroupRequest>("second", self.sync, sent).await;
        duo.step("a follower joins again without a change");
        duo.ask(self.join, |memory| joining(self.join, name, memory.kept("second"))).await;
    }

    async fn described(&self, duo: &mut Duo) {
        let version = self.join.min(6);
        duo.step("a group of two");
        let request = |operations: bool| {
            let request = DescribeGroupsRequest::default().with_groups(vec![group(&self.name)]);
            if version >= 3 { request.with_include_authorized_operations(operations) } else { request }
        };
        duo.ask(version, |_| request(false)).await;
        duo.step("a group of two, with operations");
        duo.ask(version, |_| request(true)).await;
        duo.step("groups with members");
        duo.ask(self.join.min(5), |_| ListGroupsRequest::default()).await;
    }

    async fn left(&self, duo: &mut Duo) {
        let name = self.name.as_str();
        duo.step("the second member leaves");
        duo.ask(self.leave, |memory| leaving(self.leave, name, &[memory.kept("second"), "nobody"])).await;
        duo.step("the second member has left");
        duo.ask(self.heartbeat, |memory| heartbeat(name, 2, memory.kept("second"))).await;
        duo.ask(self.leave, |memory| leaving(self.leave, name, &[memory.kept("second")])).await;
        duo.step("the first member hears of it");
        duo.ask(self.heartbeat, |memory| heartbeat(name, 2, memory.kept("first"))).await;
        duo.step("the first member leaves without an answer to it");
        duo.ask(self.leave, |memory| leaving(self.leave, name, &[memory.kept("first")])).await;
        duo.step("everybody has left");
        duo.ask(self.join.min(6), |_| DescribeGroupsRequest::default().with_groups(vec![group(name)])).await;
        duo.ask(self.heartbeat, |memory| heartbeat(name, 2, memory.kept("first"))).await;
    }
}
