//! What members may not do, static members, and what tools ask about groups.

use milena_wire::kafka_protocol::messages::leave_group_request::MemberIdentity;
use milena_wire::kafka_protocol::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse,
    LeaveGroupRequest, ListGroupsRequest, SyncGroupRequest,
};
use milena_wire::kafka_protocol::protocol::StrBytes;

use super::groups::{heartbeat, join_alone, joining, leaving, sync};
use super::words::{group, text};
use crate::duo::{Duo, versions};

/// First version of JoinGroup with static members.
const STATIC: i16 = 5;

/// What is refused, and what tools see.
pub async fn run(duo: &mut Duo) {
    duo.step("a group to look at");
    join_alone(duo, "looked-at").await;
    for version in versions::<JoinGroupRequest>() {
        joins(duo, version).await;
        if version >= STATIC {
            static_member(duo, version).await;
        }
    }
    for version in versions::<SyncGroupRequest>() {
        for (step, name) in [("no such group", "nobody's"), ("a group without a name", "")] {
            duo.step(step);
            duo.ask(version, |_| sync(version, name, 1, "nobody", &[])).await;
        }
    }
    duo.step("another type and another assignor");
    duo.ask(5, |memory| sync(5, "looked-at", 1, memory.kept("member"), &[]).with_protocol_type(Some(text("connect"))))
        .await;
    duo.ask(5, |memory| {
        sync(5, "looked-at", 1, memory.kept("member"), &[]).with_protocol_name(Some(text("roundrobin")))
    })
    .await;
    for version in versions::<HeartbeatRequest>() {
        for (step, name) in [("no such group", "nobody's"), ("a group without a name", "")] {
            duo.step(step);
            duo.ask(version, |_| heartbeat(name, 1, "nobody")).await;
        }
    }
    for version in versions::<LeaveGroupRequest>() {
        for (step, name) in [("no such group", "nobody's"), ("a group without a name", "")] {
            duo.step(step);
            duo.ask(version, |_| leaving(version, name, &["nobody"])).await;
        }
        duo.step("nobody leaves");
        duo.ask(version, |_| leaving(version, "looked-at", &[])).await;
    }
    tools(duo).await;
}

async fn joins(duo: &mut Duo, version: i16) {
    for (step, name) in [("a group without a name", ""), ("a new group", "refused")] {
        duo.step(step);
        duo.ask(version, |_| joining(version, name, "nobody")).await;
    }
    for session in [5_999, 1_800_001, 0, -1] {
        duo.step(&format!("a session of {session} ms"));
        duo.ask(version, |_| joining(version, "refused", "").with_session_timeout_ms(session)).await;
    }
    duo.step("no assignor");
    duo.ask(version, |_| joining(version, "refused", "").with_protocols(vec![])).await;
    duo.step("no type");
    duo.ask(version, |_| joining(version, "refused", "").with_protocol_type(text(""))).await;
    duo.step("another type than the group's");
    duo.ask(version, |_| joining(version, "looked-at", "").with_protocol_type(text("connect"))).await;
    duo.step("another assignor than the group's");
    duo.ask(version, |_| {
        let mut request = joining(version, "looked-at", "");
        request.protocols.truncate(1);
        request.protocols[0].name = text("sticky");
        request
    })
    .await;
    if version >= 1 {
        duo.step("a negative rebalance timeout");
        duo.ask(version, |_| joining(version, "refused", "nobody").with_rebalance_timeout_ms(-1)).await;
    }
}

async fn static_member(duo: &mut Duo, version: i16) {
    let name = format!("static-v{version}");
    let joined = |answer: &JoinGroupResponse| -> StrBytes { answer.member_id.clone() };
    let instance = Some(text("instance"));
    let request = |member: &str| joining(version, &name, member).with_group_instance_id(instance.clone());
    duo.step("a static member joins");
    let answers = duo.ask(version, |_| request("")).await;
    duo.keep(&answers, "old", joined);
    duo.ask(5, |memory| {
        let old = memory.kept("old");
        sync(5, &name, 1, old, &[(old, b"mine")]).with_group_instance_id(instance.clone())
    })
    .await;
    duo.step("a static member beats");
    let beat = |member: &str| heartbeat(&name, 1, member).with_group_instance_id(instance.clone());
    duo.ask(4, |memory| beat(memory.kept("old"))).await;
    duo.step("a static member comes back");
    let answers = duo.ask(version, |_| request("")).await;
    duo.keep(&answers, "new", joined);
    duo.step("a static member has its assignment back");
    duo.ask(5, |memory| sync(5, &name, 1, memory.kept("new"), &[]).with_group_instance_id(instance.clone())).await;
    duo.step("its old self is fenced");
    duo.ask(4, |memory| beat(memory.kept("old"))).await;
    duo.ask(version, |memory| request(memory.kept("old"))).await;
    duo.ask(5, |memory| sync(5, &name, 1, memory.kept("old"), &[]).with_group_instance_id(instance.clone())).await;
    duo.step("an unknown instance");
    duo.ask(4, |memory| heartbeat(&name, 1, memory.kept("new")).with_group_instance_id(Some(text("other")))).await;
    duo.step("a static member is described");
    duo.ask(version.min(6), |_| DescribeGroupsRequest::default().with_groups(vec![group(&name)])).await;
    duo.step("a static member leaves, and one that is not there");
    let leaver = |instance: &str| MemberIdentity::default().with_group_instance_id(Some(text(instance)));
    duo.ask(version.min(5), |_| {
        LeaveGroupRequest::default()
            .with_group_id(group(&name))
            .with_members(vec![leaver("instance"), leaver("nobody")])
    })
    .await;
}

async fn tools(duo: &mut Duo) {
    for version in versions::<DescribeGroupsRequest>() {
        for (step, names) in [
            ("no such group", &["nobody's"][..]),
            ("a group without a name", &[""]),
            ("a group twice", &["looked-at", "looked-at"]),
            ("no groups", &[]),
        ] {
            duo.step(step);
            duo.ask(version, |_| {
                DescribeGroupsRequest::default().with_groups(names.iter().map(|name| group(name)).collect())
            })
            .await;
        }
    }
    for version in versions::<ListGroupsRequest>() {
        duo.step("all groups");
        duo.ask(version, |_| ListGroupsRequest::default()).await;
        for states in [&["Stable"][..], &["stable"], &["Empty", "Dead"], &["Nowhere"], &[""]] {
            if version >= 4 {
                duo.step(&format!("groups in the states {}", states.join(" and ")));
                let states: Vec<_> = states.iter().map(|state| text(state)).collect();
                duo.ask(version, |_| ListGroupsRequest::default().with_states_filter(states.clone())).await;
            }
        }
        for types in [&["classic"][..], &["Classic", "consumer"], &["consumer"], &["share"], &["nothing"]] {
            if version >= 5 {
                duo.step(&format!("groups of the types {}", types.join(" and ")));
                let types: Vec<_> = types.iter().map(|kind| text(kind)).collect();
                duo.ask(version, |_| ListGroupsRequest::default().with_types_filter(types.clone())).await;
            }
        }
    }
    for version in versions::<DeleteGroupsRequest>() {
        for (step, names) in [
            ("no such group", &["nobody's"][..]),
            ("a group without a name", &[""]),
            ("a group with members", &["looked-at"]),
            ("no groups", &[]),
        ] {
            duo.step(step);
            let names: Vec<_> = names.iter().map(|name| group(name)).collect();
            duo.ask(version, |_| DeleteGroupsRequest::default().with_groups_names(names.clone())).await;
        }
        duo.step("a group that everybody has left");
        let name = format!("life-v{version}");
        duo.ask(version, |_| DeleteGroupsRequest::default().with_groups_names(vec![group(&name)])).await;
        duo.step("a group that was deleted");
        duo.ask(version, |_| DeleteGroupsRequest::default().with_groups_names(vec![group(&name)])).await;
    }
}
