use crate::GroupError;
use crate::testing::{Client, GROUP, World};

#[test]
fn who_leaves_is_out_at_once_and_the_others_are_asked_to_join() {
    let mut w = World::new();
    let mut group = [Client::new("a"), Client::new("b")];
    w.settle(&mut group);
    assert_eq!(w.leave(&[(&group[0].member_id, None)]), [Ok(())]);
    assert_eq!(w.heartbeat(&group[0]), Err(GroupError::UnknownMember));
    assert_eq!(w.heartbeat(&group[1]), Err(GroupError::RebalanceInProgress));
    let token = w.send_join(&group[1]);
    assert_eq!(w.join_answer(token).unwrap().members.len(), 1);
}

#[test]
fn a_barrier_that_waited_for_the_leaver_opens_at_once() {
    let mut w = World::new();
    let mut group = [Client::new("a"), Client::new("b")];
    let leader = w.settle(&mut group);
    let token = w.send_join(&group[leader]);
    assert!(w.waits(token));
    w.leave(&[(&group[1 - leader].member_id, None)]);
    assert_eq!(w.join_answer(token).unwrap().members.len(), 1);
}

#[test]
fn a_batch_is_answered_one_by_one_in_order_and_rebalances_once() {
    let mut w = World::new();
    let mut group = [Client::new("a"), Client::fixed("b"), Client::new("c")];
    w.settle(&mut group);
    let answers = w.leave(&[
        ("ghost", None),
        (&group[0].member_id, None),
        ("", Some("b")),
        ("wrong", Some("b")),
        ("", Some("nobody")),
        (&group[0].member_id, None),
        ("", None),
    ]);
    let unknown = Err(GroupError::UnknownMember);
    assert_eq!(answers, [unknown, Ok(()), Ok(()), unknown, unknown, unknown, unknown]);
    let token = w.send_join(&group[2]);
    assert_eq!(w.join_answer(token).unwrap().generation, group[2].generation.next());
}

#[test]
fn a_static_member_leaves_by_its_instance_id_alone_or_with_the_right_member_id() {
    let mut w = World::new();
    let mut group = [Client::fixed("a"), Client::fixed("b"), Client::fixed("c")];
    w.settle(&mut group);
    assert_eq!(w.leave(&[("wrong", Some("a"))]), [Err(GroupError::FencedInstance)]);
    assert_eq!(w.state(), "Stable", "a refused leave changes nothing");
    assert_eq!(w.leave(&[(&group[0].member_id, Some("a")), ("", Some("b"))]), [Ok(()), Ok(())]);
    assert_eq!(w.coordinator.describe(GROUP).unwrap().members.len(), 1);
}

#[test]
fn leaving_with_a_given_out_id_hands_it_back() {
    let mut w = World::new();
    let mut group = [Client::new("a")];
    w.settle(&mut group);
    let token = w.send_join(&Client::new("b"));
    let id = w.join_answer(token).unwrap_err().member_id.to_string();
    let rejoin = w.send_join(&group[0]);
    assert!(w.waits(rejoin));
    assert_eq!(w.leave(&[(&id, None)]), [Ok(())]);
    assert!(!w.waits(rejoin), "nobody is waited for any more");
}

#[test]
fn requests_of_a_member_that_is_removed_are_answered() {
    let mut w = World::new();
    let mut group = [Client::new("a"), Client::fixed("b"), Client::new("c")];
    let leader = w.gather(&mut group);
    assert_eq!(leader, 0);
    let sync = w.send_sync(&group[1], &[]);
    w.leave(&[("", Some("b"))]);
    assert_eq!(w.synced(sync), Err(GroupError::UnknownMember));
    let join = w.send_join(&group[0]);
    w.leave(&[(&group[0].member_id, None)]);
    let refused = w.join_answer(join).unwrap_err();
    assert_eq!((refused.error, &*refused.member_id), (GroupError::UnknownMember, ""));
}

#[test]
fn the_last_one_leaves_an_empty_group_behind_that_remembers_its_type() {
    let mut w = World::new();
    let mut group = [Client::new("a")];
    w.settle(&mut group);
    w.leave(&[(&group[0].member_id, None)]);
    let shown = w.coordinator.describe(GROUP).unwrap();
    assert_eq!((shown.state.name(), &*shown.protocol_type, &*shown.protocol), ("Empty", "consumer", ""));
    assert!(shown.members.is_empty());
}

#[test]
fn leaving_an_unknown_group_is_answered_for_everybody() {
    let mut w = World::new();
    let unknown = Err(GroupError::UnknownMember);
    assert_eq!(w.leave(&[("a", None), ("", Some("b"))]), [unknown, unknown]);
    assert!(w.coordinator.is_empty());
}
