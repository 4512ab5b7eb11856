use crate::testing::{Client, GROUP, World, config};
use crate::{Generation, GroupConfig, GroupError};

fn gathered(n: usize) -> (World, Vec<Client>, usize) {
    let mut w = World::new();
    let mut group: Vec<Client> = (0..n).map(|n| Client::new(&format!("c{n}"))).collect();
    let leader = w.gather(&mut group);
    (w, group, leader)
}

#[test]
fn a_follower_waits_for_the_leader_and_gets_what_it_filed() {
    let (mut w, group, leader) = gathered(2);
    let follower = 1 - leader;
    let waiting = w.send_sync(&group[follower], &[]);
    assert!(w.waits(waiting));
    let filed: [(&str, &[u8]); 2] = [(&group[follower].member_id, b"f"), (&group[leader].member_id, b"l")];
    let leading = w.send_sync(&group[leader], &filed);
    assert_eq!(&*w.synced(leading).unwrap().assignment, b"l");
    let synced = w.synced(waiting).unwrap();
    assert_eq!(&*synced.assignment, b"f");
    assert_eq!((synced.protocol_type.as_deref(), synced.protocol.as_deref()), (Some("consumer"), Some("range")));
    assert_eq!(w.state(), "Stable");
}

#[test]
fn a_member_that_the_leader_left_out_gets_an_empty_assignment_and_an_invented_one_is_ignored() {
    let (mut w, group, leader) = gathered(2);
    w.send_sync(&group[leader], &[("nobody", b"x"), (&group[leader].member_id, b"l")]);
    let token = w.send_sync(&group[1 - leader], &[]);
    assert!(w.synced(token).unwrap().assignment.is_empty());
    assert_eq!(w.coordinator.describe(GROUP).unwrap().members.len(), 2);
}

#[test]
fn what_a_follower_files_is_ignored() {
    let (mut w, group, leader) = gathered(2);
    let follower = &group[1 - leader];
    let token = w.send_sync(follower, &[(&follower.member_id, b"mine")]);
    assert!(w.waits(token));
    w.send_sync(&group[leader], &[]);
    assert!(w.synced(token).unwrap().assignment.is_empty());
}

#[test]
fn in_a_stable_group_a_sync_is_answered_at_once_and_as_often_as_asked() {
    let (mut w, group, leader) = gathered(2);
    let filed: [(&str, &[u8]); 1] = [(&group[1 - leader].member_id, b"f")];
    w.send_sync(&group[leader], &filed);
    for _ in 0..2 {
        let token = w.send_sync(&group[1 - leader], &[]);
        assert_eq!(&*w.synced(token).unwrap().assignment, b"f");
    }
}

#[test]
fn an_assignment_of_the_generation_before_is_not_handed_out() {
    let mut w = World::new();
    let mut group = [Client::new("a"), Client::new("b")];
    let leader = w.settle(&mut group);
    let tokens = [w.send_join(&group[leader]), w.send_join(&group[1 - leader])];
    w.joined(tokens[0], &mut group[leader]);
    w.joined(tokens[1], &mut group[1 - leader]);
    w.send_sync(&group[leader], &[]);
    let token = w.send_sync(&group[1 - leader], &[]);
    assert!(w.synced(token).unwrap().assignment.is_empty());
}

#[test]
fn a_sync_of_another_generation_is_refused() {
    let (mut w, group, leader) = gathered(1);
    for generation in [Generation(0), group[0].generation.next(), Generation::NONE] {
        let token = w.send_sync(&Client { generation, ..group[leader].clone() }, &[]);
        assert_eq!(w.synced(token), Err(GroupError::IllegalGeneration));
    }
}

#[test]
fn a_sync_of_nobody_is_refused() {
    let (mut w, group, _) = gathered(1);
    let ghost = Client { member_id: "ghost".to_owned(), ..group[0].clone() };
    let token = w.send_sync(&ghost, &[]);
    assert_eq!(w.synced(token), Err(GroupError::UnknownMember));
    let mut w = World::new();
    let token = w.send_sync(&ghost, &[]);
    assert_eq!(w.synced(token), Err(GroupError::UnknownMember));
}

#[test]
fn a_sync_while_the_group_prepares_is_sent_back_to_join() {
    let mut w = World::new();
    let mut group = [Client::new("a"), Client::new("b")];
    let leader = w.settle(&mut group);
    w.send_join(&group[leader]);
    let token = w.send_sync(&group[1 - leader], &[]);
    assert_eq!(w.synced(token), Err(GroupError::RebalanceInProgress));
}

#[test]
fn a_sync_of_version_5_must_name_the_type_and_protocol_of_the_group() {
    let (mut w, group, leader) = gathered(1);
    let mut sync = |kind, protocol| {
        let token = w.send_sync_with(&group[leader], &[], kind, protocol);
        w.synced(token).map(|_| ())
    };
    assert_eq!(sync(Some("connect"), Some("range")), Err(GroupError::InconsistentProtocol));
    assert_eq!(sync(Some("consumer"), Some("sticky")), Err(GroupError::InconsistentProtocol));
    assert_eq!(sync(Some("consumer"), Some("range")), Ok(()));
    assert_eq!(sync(Some("consumer"), None), Ok(()));
}

#[test]
fn a_parked_sync_is_sent_back_when_somebody_starts_a_rebalance() {
    let (mut w, mut group, leader) = gathered(3);
    let followers: Vec<usize> = (0..3).filter(|at| *at != leader).collect();
    let waiting = w.send_sync(&group[followers[0]], &[]);
    group[followers[1]].protocols[0].1 = vec![1];
    w.send_join(&group[followers[1]]);
    assert_eq!(w.synced(waiting), Err(GroupError::RebalanceInProgress));
}

#[test]
fn of_two_syncs_of_one_member_the_first_is_sent_away() {
    let (mut w, group, leader) = gathered(2);
    let first = w.send_sync(&group[1 - leader], &[]);
    let second = w.send_sync(&group[1 - leader], &[]);
    assert_eq!(w.synced(first), Err(GroupError::RebalanceInProgress));
    assert!(w.waits(second));
}

#[test]
fn an_assignment_is_bounded_and_one_over_leaves_the_group_waiting() {
    let mut w = World::with(GroupConfig { assignment_bytes_max: 3, ..config() });
    let mut group = [Client::new("a")];
    w.gather(&mut group);
    let token = w.send_sync(&group[0], &[(&group[0].member_id, b"1234")]);
    assert_eq!(w.synced(token), Err(GroupError::AssignmentTooLarge { bytes: 4, max: 3 }));
    assert_eq!(w.state(), "CompletingRebalance");
    let token = w.send_sync(&group[0], &[(&group[0].member_id, b"123")]);
    assert_eq!(&*w.synced(token).unwrap().assignment, b"123");
}

#[test]
fn members_that_never_sync_are_evicted_at_the_sync_deadline() {
    let mut w = World::new();
    let lasting = |name| Client { session_ms: 1_000_000, ..Client::new(name) };
    let mut group = [lasting("a"), lasting("b"), lasting("c")];
    let leader = w.gather(&mut group);
    let followers: Vec<usize> = (0..3).filter(|at| *at != leader).collect();
    let waiting = w.send_sync(&group[followers[0]], &[]);
    // The leader and one follower stay silent for the rebalance timeout.
    w.pass(59_999);
    assert!(w.waits(waiting));
    w.pass(1);
    assert_eq!(w.synced(waiting), Err(GroupError::RebalanceInProgress));
    assert_eq!(w.heartbeat(&group[leader]), Err(GroupError::UnknownMember));
    assert_eq!(w.heartbeat(&group[followers[1]]), Err(GroupError::UnknownMember));
    let token = w.send_join(&group[followers[0]]);
    assert_eq!(w.join_answer(token).unwrap().members.len(), 1);
}

#[test]
fn a_member_that_never_asks_a_stable_group_for_its_assignment_is_evicted_too() {
    let mut w = World::new();
    let lasting = |name| Client { session_ms: 1_000_000, ..Client::new(name) };
    let mut group = [lasting("a"), lasting("b")];
    let leader = w.gather(&mut group);
    w.send_sync(&group[leader], &[]);
    w.pass(60_000);
    assert_eq!(w.heartbeat(&group[leader]), Err(GroupError::RebalanceInProgress));
    assert_eq!(w.heartbeat(&group[1 - leader]), Err(GroupError::UnknownMember));
}
