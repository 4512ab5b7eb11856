use crate::testing::{Client, World, config};
use crate::{Generation, GroupConfig, GroupError};

#[test]
fn members_that_all_vanish_are_evicted_without_any_traffic() {
    let mut w = World::new();
    w.settle(&mut [Client::new("a"), Client { session_ms: 20_000, ..Client::new("b") }]);
    w.pass(9_999);
    assert_eq!(w.state(), "Stable");
    w.pass(1);
    assert_eq!(w.state(), "PreparingRebalance");
    w.pass(10_000);
    assert_eq!(w.state(), "Empty");
    assert_eq!(w.coordinator.deadline(), None, "an empty group needs no timer");
}

#[test]
fn a_heartbeat_just_in_time_keeps_a_member_for_another_session() {
    let mut w = World::new();
    let mut group = [Client::new("a")];
    w.settle(&mut group);
    for _ in 0..10 {
        w.pass(9_999);
        assert_eq!(w.heartbeat(&group[0]), Ok(()));
    }
    w.pass(10_000);
    assert_eq!(w.heartbeat(&group[0]), Err(GroupError::UnknownMember));
}

#[test]
fn the_session_of_a_member_rests_while_its_request_waits_and_begins_with_the_answer() {
    let mut w = World::new();
    let mut group = [Client::new("a"), Client { session_ms: 1_000_000, ..Client::new("b") }];
    let leader = w.settle(&mut group);
    assert_eq!(leader, 0);
    let token = w.send_join(&group[0]);
    w.pass(60_000);
    w.joined(token, &mut group[0]);
    w.pass(9_999);
    assert_eq!(w.heartbeat(&group[0]), Ok(()));
}

#[test]
fn the_session_of_a_member_rests_while_it_waits_for_the_leader() {
    let mut w = World::new();
    let mut group = [Client { session_ms: 100_000, ..Client::new("a") }, Client::new("b")];
    assert_eq!(w.gather(&mut group), 0);
    let token = w.send_sync(&group[1], &[]);
    w.pass(50_000);
    w.send_sync(&group[0], &[(&group[1].member_id, b"b")]);
    assert_eq!(&*w.synced(token).unwrap().assignment, b"b");
    w.pass(9_999);
    assert_eq!(w.heartbeat(&group[1]), Ok(()));
}

#[test]
fn a_new_member_that_waits_too_long_is_given_up() {
    let mut w = World::with(GroupConfig { new_member_join_timeout_ms: 30_000, ..config() });
    let mut group = [Client { session_ms: 1_000_000, rebalance_ms: Some(900_000), ..Client::new("a") }];
    w.settle(&mut group);
    let token = w.send_join(&Client::new("b").version(0));
    w.pass(30_000);
    assert_eq!(w.refused(token), GroupError::UnknownMember);
}

#[test]
fn a_lost_connection_ends_a_new_member_that_never_heard_its_name() {
    let mut w = World::with(GroupConfig { initial_rebalance_delay_ms: 3_000, ..config() });
    let token = w.send_join(&Client::new("a").version(2));
    w.forget(token);
    assert_eq!(w.coordinator.members(), 0);
    w.pass(10_000);
    assert!(w.waits(token), "nothing is sent to a connection that is gone");
}

#[test]
fn a_lost_connection_leaves_a_member_that_knows_its_name_a_session_to_come_back() {
    let mut w = World::new();
    let mut group = [Client::new("a"), Client { session_ms: 100_000, ..Client::new("b") }];
    assert_eq!(w.settle(&mut group), 0);
    let lost = w.send_join(&group[0]);
    w.pass(1_000);
    w.forget(lost);
    let other = w.send_join(&group[1]);
    assert!(w.waits(other), "the one whose connection is lost has not joined");
    w.pass(9_000);
    let again = w.send_join(&group[0]);
    let joined = w.join_answer(again).unwrap();
    assert_eq!(joined.members.len(), 2);
    assert!(w.join_answer(other).is_ok());
}

#[test]
fn a_member_whose_connection_is_lost_for_good_does_not_hold_the_barrier_longer_than_its_session() {
    let mut w = World::new();
    let mut group = [Client::new("a"), Client { session_ms: 100_000, ..Client::new("b") }];
    assert_eq!(w.settle(&mut group), 0);
    let lost = w.send_join(&group[0]);
    w.forget(lost);
    let other = w.send_join(&group[1]);
    w.pass(9_999);
    assert!(w.waits(other));
    w.pass(1);
    assert_eq!(w.join_answer(other).unwrap().members.len(), 1);
}

#[test]
fn a_lost_connection_of_a_waiting_sync_starts_the_session() {
    let mut w = World::new();
    let mut group = [Client { session_ms: 100_000, ..Client::new("a") }, Client::new("b")];
    assert_eq!(w.gather(&mut group), 0);
    let token = w.send_sync(&group[1], &[]);
    w.pass(20_000);
    w.forget(token);
    w.pass(9_999);
    assert_eq!(w.heartbeat(&group[1]), Ok(()));
    w.send_sync(&group[0], &[(&group[1].member_id, b"b")]);
    assert!(w.waits(token));
    let token = w.send_sync(&group[1], &[]);
    assert_eq!(&*w.synced(token).unwrap().assignment, b"b");
}

#[test]
fn forgetting_what_does_not_wait_is_harmless() {
    let mut w = World::new();
    let mut group = [Client::new("a")];
    w.settle(&mut group);
    w.forget(crate::Token(9_999));
    assert_eq!(w.heartbeat(&group[0]), Ok(()));
}

#[test]
fn evicting_a_leader_before_it_filed_frees_those_who_wait_for_it() {
    let mut w = World::new();
    let mut group = [Client::new("a"), Client { session_ms: 100_000, ..Client::new("b") }];
    assert_eq!(w.gather(&mut group), 0);
    let token = w.send_sync(&group[1], &[]);
    w.pass(10_000);
    assert_eq!(w.synced(token), Err(GroupError::RebalanceInProgress));
    let token = w.send_join(&group[1]);
    let joined = w.join_answer(token).unwrap();
    assert_eq!((joined.generation, joined.leader), (Generation(group[1].generation.0 + 1), joined.member_id));
}
