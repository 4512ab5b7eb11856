//! Consumer groups over TCP: members that join, share, leave and come back.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod groups_kit;

use std::time::Duration;

use groups_kit::{Member, builder, create, group, join_request, pair, server, text};
use milena_wire::kafka_protocol::messages::leave_group_request::MemberIdentity;
use milena_wire::kafka_protocol::messages::{
    DescribeGroupsRequest, FindCoordinatorRequest, HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest,
    ListGroupsRequest,
};

#[tokio::test]
async fn this_server_says_that_it_coordinates_every_group() {
    let server = server().await;
    let mut client = server.client().await;
    let answer = client.request(2, &FindCoordinatorRequest::default().with_key(text("g"))).await;
    assert_eq!((answer.error_code, answer.port), (0, i32::from(server.address().port())));
}

#[tokio::test]
async fn several_groups_are_looked_up_at_once_each_under_its_key() {
    let server = server().await;
    let mut client = server.client().await;
    for version in 4..=6 {
        let keys = ["one", "two"].map(text).to_vec();
        let answer = client.request(version, &FindCoordinatorRequest::default().with_coordinator_keys(keys)).await;
        let port = i32::from(server.address().port());
        let found: Vec<_> =
            answer.coordinators.iter().map(|one| (one.key.as_str(), one.error_code, one.port)).collect();
        assert_eq!(found, [("one", 0, port), ("two", 0, port)], "version {version}");
    }
}

#[tokio::test]
async fn a_member_without_a_name_is_told_one_that_begins_with_its_client_id() {
    let server = server().await;
    let mut client = server.client().await.with_client_id("app");
    let answer = client.request(4, &join_request("", None)).await;
    assert_eq!((answer.error_code, answer.generation_id), (79, -1));
    let fresh = answer.member_id.strip_prefix("app-").expect("the client id");
    assert!(uuid::Uuid::parse_str(fresh).is_ok(), "{fresh}");
    let joined = client.request(4, &join_request(&answer.member_id, None)).await;
    assert_eq!((joined.error_code, joined.member_id), (0, answer.member_id));
}

#[tokio::test]
async fn a_client_that_cannot_join_again_under_a_name_joins_at_once() {
    let server = server().await;
    let mut client = server.client().await;
    for version in 0..=3 {
        let request = join_request("", None).with_group_id(group(&format!("v{version}")));
        let request = if version == 0 { request.with_rebalance_timeout_ms(-1) } else { request };
        assert_eq!(client.request(version, &request).await.error_code, 0, "version {version}");
    }
}

#[tokio::test]
async fn two_members_share_a_group() {
    let server = server().await;
    let (mut one, mut two) = pair(&server).await;
    assert_eq!((one.generation, two.generation), (2, 2));
    assert_eq!((one.heartbeat().await, two.heartbeat().await), (0, 0));
}

#[tokio::test]
async fn who_stays_rebalances_when_another_leaves() {
    let server = server().await;
    let (mut one, mut two) = pair(&server).await;
    let leaving = MemberIdentity::default().with_member_id(text(&two.id));
    let stranger = MemberIdentity::default().with_member_id(text("stranger"));
    let request = LeaveGroupRequest::default().with_group_id(group("g")).with_members(vec![leaving, stranger]);
    let answer = two.client.request(5, &request).await;
    assert_eq!(answer.members.iter().map(|member| member.error_code).collect::<Vec<_>>(), [0, 25]);
    assert_eq!(one.heartbeat().await, 27);
    assert_eq!(one.join().await.members.len(), 1);
    assert_eq!((one.generation, two.heartbeat().await), (3, 25));
}

#[tokio::test]
async fn a_member_that_falls_silent_is_evicted_although_nobody_talks_to_the_group() {
    let server =
        builder().config(|config| config.groups.session_timeout_min = Duration::from_millis(100)).start().await;
    let mut client = server.client().await;
    let joined = client.request(3, &join_request("", None).with_session_timeout_ms(200)).await;
    assert_eq!(joined.error_code, 0);
    let describe = DescribeGroupsRequest::default().with_groups(vec![group("g")]);
    while &*client.request(5, &describe).await.groups[0].group_state != "Empty" {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn strangers_and_members_of_another_generation_are_told_so() {
    let server = server().await;
    let mut member = Member::alone(&server).await;
    let beat = |generation: i32, member: &str| {
        HeartbeatRequest::default()
            .with_group_id(group("g"))
            .with_generation_id(generation)
            .with_member_id(text(member))
    };
    let id = member.id.clone();
    assert_eq!(member.client.request(4, &beat(2, &id)).await.error_code, 22);
    assert_eq!(member.client.request(4, &beat(1, "stranger")).await.error_code, 25);
    assert_eq!(member.client.request(4, &beat(1, &id).with_group_id(group("other"))).await.error_code, 25);
    assert_eq!(member.client.request(4, &beat(1, &id).with_group_id(group(""))).await.error_code, 24);
    let mut wrong = member.sync_request(&[]);
    wrong.protocol_name = Some(text("roundrobin"));
    assert_eq!(member.client.request(5, &wrong).await.error_code, 23);
    wrong.generation_id = 7;
    assert_eq!(member.client.request(5, &wrong).await.error_code, 22);
}

#[tokio::test]
async fn a_session_outside_the_bounds_and_an_empty_group_id_are_refused() {
    let server = server().await;
    let mut client = server.client().await;
    assert_eq!(client.request(9, &join_request("", None).with_session_timeout_ms(5)).await.error_code, 26);
    assert_eq!(client.request(9, &join_request("", None).with_group_id(group(""))).await.error_code, 24);
}

#[tokio::test]
async fn a_static_member_comes_back_without_a_rebalance_and_fences_its_old_self() {
    let server = server().await;
    let mut one = Member::fixed(&server, "i-1").await;
    one.join().await;
    let id = one.id.clone();
    assert_eq!(one.sync(&[(&id, "all")]).await, "all");
    let mut again = Member::fixed(&server, "i-1").await;
    let joined = again.join().await;
    assert_eq!((again.generation, joined.skip_assignment), (1, true));
    assert_ne!(again.id, one.id);
    assert_eq!(again.sync(&[]).await, "all");
    assert_eq!((one.heartbeat().await, again.heartbeat().await), (82, 0));
    assert_eq!(one.commit("t", &[(0, 1)]).await, [82]);
}

#[tokio::test]
async fn a_join_that_waits_ends_with_its_connection() {
    let server = builder().config(|config| config.groups.session_timeout_min = Duration::from_millis(50)).start().await;
    let mut one = Member::alone(&server).await;
    let mut two = server.client().await;
    two.send(3, &join_request("", None).with_session_timeout_ms(100)).await;
    while one.heartbeat().await != 27 {}
    // While it waits its session does not run. The first member never joins again, so nothing else ends the wait.
    assert!(two.is_quiet_for(Duration::from_millis(300)).await);
    assert_eq!(members(&mut one).await, 2);
    drop(two);
    while members(&mut one).await == 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(one.heartbeat().await, 27, "the first member is still there, and asked to join again");
}

async fn members(of: &mut Member) -> usize {
    let request = DescribeGroupsRequest::default().with_groups(vec![group("g")]);
    of.client.request(5, &request).await.groups[0].members.len()
}

#[tokio::test]
async fn a_join_that_waits_is_answered_when_the_server_stops() {
    let server =
        builder().config(|config| config.groups.initial_rebalance_delay = Duration::from_secs(60)).start().await;
    let mut member = Member::new(&server).await;
    member.send_join().await;
    let list = ListGroupsRequest::default().with_states_filter(vec![text("PreparingRebalance")]);
    let mut client = server.client().await;
    while client.request(4, &list).await.groups.is_empty() {}
    let (answer, ()) = tokio::join!(member.client.receive::<JoinGroupRequest>(), server.shutdown());
    assert_eq!(answer.error_code, 15);
}

#[tokio::test]
async fn joins_that_wait_hold_nothing_of_the_budget() {
    let server = builder()
        .config(|config| {
            config.groups.initial_rebalance_delay = Duration::from_secs(60);
            config.limits.in_flight_bytes = 1 << 20;
        })
        .start()
        .await;
    let before = server.server().broker().memory.available();
    let mut members = Vec::new();
    for _ in 0..8 {
        let mut member = server.client().await;
        let mut request = join_request("", None);
        request.protocols[0].metadata = vec![7; 200_000].into();
        // Eight of these are more than the budget, each is more than it when decoded.
        member.send(3, &request).await;
        members.push(member);
    }
    let describe = DescribeGroupsRequest::default().with_groups(vec![group("g")]);
    let mut client = server.client().await;
    while client.request(5, &describe).await.groups[0].members.len() < 8 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(server.server().broker().memory.available(), before);
}

#[tokio::test]
async fn members_that_say_more_than_their_leader_can_be_told_are_not_let_in() {
    let server = builder().config(|config| config.groups.group_metadata_bytes_max = 2_000).start().await;
    let mut member = Member::alone(&server).await;
    let mut request = join_request("", None);
    request.protocols[0].metadata = vec![7; 1_900].into();
    for version in [3, 9] {
        let refused = member.client.request(version, &request).await;
        assert_eq!((refused.error_code, refused.generation_id), (81, -1), "version {version}");
    }
    assert_eq!(member.heartbeat().await, 0, "nobody is disturbed");
}

#[tokio::test]
async fn an_answer_about_groups_is_as_large_as_a_request_may_be_and_not_larger() {
    let server = builder().config(|config| config.limits.max_frame_bytes = 8_192).start().await;
    let mut member = Member { client: server.client().await.with_client_id("app"), ..Member::new(&server).await };
    for (over, codes) in [(0, [0, 0]), (1, [0, 42])] {
        member.join().await;
        // A group and a member count for 40 bytes each, beside their texts; the metadata is "subscription of somebody".
        let rest = 40 + 40 + member.id.len() + "app".len() + "/127.0.0.1".len() + 24;
        let id = member.id.clone();
        member.sync(&[(&id, &"a".repeat(4_096 - rest + over))]).await;
        let request = DescribeGroupsRequest::default().with_groups(vec![group("g"), group("g")]);
        let groups = member.client.request(5, &request).await.groups;
        assert_eq!([groups[0].error_code, groups[1].error_code], codes);
    }
}

#[tokio::test]
async fn groups_are_listed_and_described_with_the_bytes_of_their_members() {
    let server = server().await;
    let mut member = Member::alone(&server).await;
    create(&mut member.client, "t", 1).await;
    let lonely = groups_kit::commits("t", &[(0, 3)]).with_group_id(group("lonely"));
    assert_eq!(groups_kit::codes(&member.client.request(9, &lonely).await), [0]);

    let listed = member.client.request(5, &ListGroupsRequest::default()).await.groups;
    let shown: Vec<_> =
        listed.iter().map(|g| (&**g.group_id, &*g.group_state, &*g.protocol_type, &*g.group_type)).collect();
    assert_eq!(shown, [("g", "Stable", "consumer", "classic"), ("lonely", "Empty", "", "classic")]);
    let stable = ListGroupsRequest::default().with_states_filter(vec![text("stable")]);
    assert_eq!(member.client.request(4, &stable).await.groups.len(), 1);

    let wanted = vec![group("g"), group("lonely"), group("none"), group("")];
    let request = DescribeGroupsRequest::default().with_groups(wanted);
    let groups = member.client.request(6, &request).await.groups;
    let shown: Vec<_> = groups.iter().map(|g| (g.error_code, &*g.group_state, &*g.protocol_data)).collect();
    assert_eq!(shown, [(0, "Stable", "range"), (0, "Empty", ""), (69, "Dead", ""), (24, "Dead", "")]);
    let there = &groups[0].members[0];
    assert_eq!((&*there.member_id, &*there.client_host), (&*member.id, "/127.0.0.1"));
    assert_eq!(there.member_metadata, "subscription of somebody");
    assert_eq!(there.member_assignment, "all");
    assert_eq!(groups[0].authorized_operations, i32::MIN);

    let request = request.with_include_authorized_operations(true);
    let groups = member.client.request(5, &request).await.groups;
    assert_eq!((groups[2].error_code, &*groups[2].group_state), (0, "Dead"));
    assert_eq!(groups[0].authorized_operations, 0b1101_0100_1000);
}

#[tokio::test]
async fn members_have_to_join_again_after_a_restart() {
    let server = server().await;
    let member = Member::alone(&server).await;
    let server = server.restart().await;
    let mut member = Member { client: server.client().await, ..member };
    assert_eq!(member.heartbeat().await, 25);
    assert_eq!(member.commit("t", &[(0, 1)]).await, [25]);
}
