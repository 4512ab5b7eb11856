use crate::testing::{Client, GROUP, World, config};
use crate::{Answer, Generation};
use crate::{Coordinator, GroupConfig, GroupError, JoinRequest, Leaving, Moment, Outputs, Sender, SyncRequest, Token};

fn request<'a>(group: &'a str, fresh: &'a str) -> JoinRequest<'a> {
    JoinRequest {
        version: 9,
        group,
        member_id: "",
        instance_id: None,
        client_id: "c",
        client_host: "h",
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: Some(10_000),
        protocol_type: "consumer",
        protocols: &[("range", b"")],
        fresh,
    }
}

fn join(c: &mut Coordinator, request: &JoinRequest<'_>) -> GroupError {
    let mut out = Outputs::default();
    c.join(Token(1), request, Moment::default(), &mut out);
    match out.answers.pop() {
        Some((_, Answer::Join(Err(refused)))) => refused.error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_number_of_groups_is_bounded() {
    let mut c = Coordinator::new(GroupConfig { groups_max: 2, ..config() });
    assert_eq!(join(&mut c, &request("1", "x")), GroupError::MemberIdRequired);
    assert_eq!(join(&mut c, &request("2", "x")), GroupError::MemberIdRequired);
    assert_eq!(join(&mut c, &request("3", "x")), GroupError::TooManyGroups { max: 2 });
    assert_eq!(join(&mut c, &request("1", "y")), GroupError::MemberIdRequired);
    // The ids run out, and with them the groups.
    c.tick(Moment::from_millis(10_000), &mut Outputs::default());
    assert_eq!((c.len(), c.members(), c.deadline()), (0, 0, None));
}

#[test]
fn the_number_of_members_in_all_groups_is_bounded() {
    let mut c = Coordinator::new(GroupConfig { members_max: 2, ..config() });
    join(&mut c, &request("1", "x"));
    join(&mut c, &request("2", "x"));
    assert_eq!(join(&mut c, &request("2", "y")), GroupError::TooManyMembers { max: 2 });
}

#[test]
fn groups_that_nobody_joins_take_room_until_the_ids_given_out_in_them_are_gone() {
    let mut c = Coordinator::new(GroupConfig { members_bytes_max: 1_000, ..config() });
    let names: Vec<String> = (0..3).map(|n| format!("{n}").repeat(500)).collect();
    assert_eq!(join(&mut c, &request(&names[0], "x")), GroupError::MemberIdRequired);
    assert_eq!(join(&mut c, &request(&names[1], "x")), GroupError::MembersTooLarge { max: 1_000 });
    c.tick(Moment::from_millis(10_000), &mut Outputs::default());
    assert_eq!(join(&mut c, &request(&names[2], "x")), GroupError::MemberIdRequired);
}

#[test]
fn every_call_refuses_an_empty_group_id_except_commits() {
    let mut c = Coordinator::new(config());
    let (now, mut out) = (Moment::default(), Outputs::default());
    let sender = Sender { group: "", member_id: "", instance_id: None, generation: Generation::NONE };
    assert_eq!(join(&mut c, &request("", "x")), GroupError::InvalidGroupId);
    assert_eq!(c.heartbeat(&sender, now), Err(GroupError::InvalidGroupId));
    assert_eq!(
        c.leave("", &[Leaving { member_id: "m", instance_id: None }], now, &mut out),
        Err(GroupError::InvalidGroupId)
    );
    let sync = SyncRequest {
        group: "",
        member_id: "",
        instance_id: None,
        generation: Generation(1),
        protocol_type: None,
        protocol: None,
        assignments: &[],
    };
    c.sync(Token(2), &sync, now, &mut out);
    assert_eq!(out.answers, [(Token(2), Answer::Sync(Err(GroupError::InvalidGroupId)))]);
    assert_eq!(c.check_commit(&sender, now), Ok(false));
}

#[test]
fn a_commit_to_a_group_id_that_is_too_long_is_refused() {
    let mut c = Coordinator::new(GroupConfig { group_id_bytes_max: 3, ..config() });
    let sender = |group| Sender { group, member_id: "", instance_id: None, generation: Generation::NONE };
    assert_eq!(c.check_commit(&sender("1234"), Moment::default()), Err(GroupError::InvalidGroupId));
    assert_eq!(c.check_commit(&sender("123"), Moment::default()), Ok(false));
}

#[test]
fn a_group_with_members_cannot_be_removed_and_an_empty_one_can() {
    let mut w = World::new();
    let mut group = [Client::new("a")];
    w.settle(&mut group);
    assert_eq!(w.coordinator.remove(GROUP), Err(GroupError::NonEmptyGroup));
    w.leave(&[(&group[0].member_id, None)]);
    assert_eq!(w.coordinator.remove(GROUP), Ok(()));
    assert_eq!(w.coordinator.remove(GROUP), Err(GroupError::GroupIdNotFound));
    assert_eq!((w.coordinator.members(), w.coordinator.deadline()), (0, None));
}

#[test]
fn a_sweep_removes_an_empty_group_unless_somebody_is_on_the_way() {
    let mut w = World::new();
    let mut group = [Client::new("a")];
    w.settle(&mut group);
    w.coordinator.sweep(GROUP);
    assert_eq!(w.coordinator.len(), 1, "it has a member");
    w.leave(&[(&group[0].member_id, None)]);
    w.send_join(&Client::new("b"));
    w.coordinator.sweep(GROUP);
    assert_eq!(w.coordinator.len(), 1, "somebody is on the way");
    w.pass(10_000);
    w.coordinator.sweep(GROUP);
    assert!(w.coordinator.is_empty());
}

#[test]
fn groups_do_not_know_of_each_other() {
    let mut c = Coordinator::new(config());
    let mut out = Outputs::default();
    for (at, group) in ["1", "2"].into_iter().enumerate() {
        c.join(Token(at as u64), &JoinRequest { version: 0, ..request(group, "x") }, Moment::default(), &mut out);
    }
    for (_, answer) in &out.answers {
        let Answer::Join(Ok(joined)) = answer else { panic!("{answer:?}") };
        assert_eq!((joined.generation, joined.members.len()), (Generation(1), 1));
    }
    assert_eq!(c.members(), 2);
}

#[test]
fn the_deadline_is_the_earliest_of_all_groups() {
    let mut c = Coordinator::new(config());
    join(&mut c, &request("1", "x"));
    join(&mut c, &JoinRequest { session_timeout_ms: 7_000, ..request("2", "x") });
    assert_eq!(c.deadline(), Some(Moment::from_millis(7_000)));
    c.tick(Moment::from_millis(7_000), &mut Outputs::default());
    assert_eq!(c.deadline(), Some(Moment::from_millis(10_000)));
}
