use crate::testing::{Client, World, subscription};
use crate::{Generation, GroupError, Sender};

fn stable() -> (World, [Client; 2], usize) {
    let mut w = World::new();
    let mut group = [Client::new("a"), Client::new("b")];
    let leader = w.settle(&mut group);
    (w, group, leader)
}

fn outsider(group: &str) -> Sender<'_> {
    Sender { group, member_id: "", instance_id: None, generation: Generation::NONE }
}

#[test]
fn a_heartbeat_of_a_member_in_its_generation_is_fine() {
    let (mut w, group, _) = stable();
    assert_eq!(w.heartbeat(&group[0]), Ok(()));
}

#[test]
fn a_heartbeat_of_nobody_or_to_no_group_is_refused() {
    let (mut w, group, _) = stable();
    let ghost = Client { member_id: "ghost".to_owned(), ..group[0].clone() };
    assert_eq!(w.heartbeat(&ghost), Err(GroupError::UnknownMember));
    assert_eq!(World::new().heartbeat(&group[0]), Err(GroupError::UnknownMember));
    let empty = Sender { group: "", ..group[0].sender() };
    assert_eq!(w.coordinator.heartbeat(&empty, w.now), Err(GroupError::InvalidGroupId));
}

#[test]
fn a_heartbeat_of_another_generation_is_refused_and_refreshes_nothing() {
    let (mut w, group, _) = stable();
    w.pass(9_000);
    let old = Client { generation: Generation(0), ..group[0].clone() };
    assert_eq!(w.heartbeat(&old), Err(GroupError::IllegalGeneration));
    assert_eq!(w.heartbeat(&group[1]), Ok(()));
    w.pass(1_000);
    assert_eq!(w.heartbeat(&group[0]), Err(GroupError::UnknownMember));
}

#[test]
fn a_heartbeat_while_the_group_prepares_asks_to_join_and_refreshes() {
    let (mut w, group, leader) = stable();
    w.send_join(&group[leader]);
    for _ in 0..5 {
        w.pass(9_000);
        assert_eq!(w.heartbeat(&group[1 - leader]), Err(GroupError::RebalanceInProgress));
    }
}

#[test]
fn a_heartbeat_between_join_and_sync_is_fine() {
    let mut w = World::new();
    let mut group = [Client::new("a"), Client::new("b")];
    w.gather(&mut group);
    assert_eq!(w.heartbeat(&group[0]), Ok(()));
    assert_eq!(w.heartbeat(&group[1]), Ok(()));
}

#[test]
fn an_outsider_may_commit_to_a_group_without_members_and_to_an_unknown_one() {
    let mut w = World::new();
    assert_eq!(w.coordinator.check_commit(&outsider("g"), w.now), Ok(false));
    assert_eq!(w.coordinator.check_commit(&outsider(""), w.now), Ok(false), "old clients have no group id");
    let mut group = [Client::new("a")];
    w.settle(&mut group);
    assert_eq!(w.coordinator.check_commit(&outsider("g"), w.now), Err(GroupError::UnknownMember));
    w.leave(&[(&group[0].member_id, None)]);
    assert_eq!(w.state(), "Empty");
    assert_eq!(w.coordinator.check_commit(&outsider("g"), w.now), Ok(false));
}

#[test]
fn a_generation_in_an_unknown_or_empty_group_is_an_unknown_member() {
    let mut w = World::new();
    let stranger = Sender { generation: Generation(3), ..outsider("g") };
    assert_eq!(w.coordinator.check_commit(&stranger, w.now), Err(GroupError::UnknownMember));
    let named = Sender { member_id: "m", ..outsider("g") };
    assert_eq!(w.coordinator.check_commit(&named, w.now), Err(GroupError::UnknownMember));
    let mut group = [Client::new("a")];
    w.settle(&mut group);
    w.leave(&[(&group[0].member_id, None)]);
    assert_eq!(w.coordinator.check_commit(&stranger, w.now), Err(GroupError::UnknownMember));
    assert_eq!(w.coordinator.check_commit(&group[0].sender(), w.now), Err(GroupError::UnknownMember));
}

#[test]
fn a_commit_of_a_member_is_judged_by_member_and_generation() {
    let (mut w, group, _) = stable();
    assert_eq!(w.coordinator.check_commit(&group[0].sender(), w.now), Ok(true));
    let wrong = Sender { generation: Generation(99), ..group[0].sender() };
    assert_eq!(w.coordinator.check_commit(&wrong, w.now), Err(GroupError::IllegalGeneration));
    let none = Sender { generation: Generation::NONE, ..group[0].sender() };
    assert_eq!(w.coordinator.check_commit(&none, w.now), Err(GroupError::IllegalGeneration));
    let ghost = Sender { member_id: "ghost", ..group[0].sender() };
    assert_eq!(w.coordinator.check_commit(&ghost, w.now), Err(GroupError::UnknownMember));
}

#[test]
fn a_commit_is_welcome_while_the_group_prepares_and_not_between_join_and_sync() {
    let (mut w, mut group, leader) = stable();
    let follower = 1 - leader;
    let first = w.send_join(&group[leader]);
    assert_eq!(w.coordinator.check_commit(&group[follower].sender(), w.now), Ok(true));
    group[follower].protocols[0].1 = subscription(&["u"]);
    let second = w.send_join(&group[follower]);
    w.joined(first, &mut group[leader]);
    w.joined(second, &mut group[follower]);
    assert_eq!(w.state(), "CompletingRebalance");
    assert_eq!(w.coordinator.check_commit(&group[0].sender(), w.now), Err(GroupError::RebalanceInProgress));
}

#[test]
fn a_commit_refreshes_the_session_and_a_refused_one_does_not() {
    let (mut w, group, _) = stable();
    w.pass(9_000);
    assert_eq!(w.coordinator.check_commit(&group[0].sender(), w.now), Ok(true));
    let wrong = Sender { generation: Generation(99), ..group[1].sender() };
    assert_eq!(w.coordinator.check_commit(&wrong, w.now), Err(GroupError::IllegalGeneration));
    w.pass(1_000);
    // The second was evicted; the first is told so by a rebalance.
    assert_eq!(w.heartbeat(&group[0]), Err(GroupError::RebalanceInProgress));
    assert_eq!(w.heartbeat(&group[1]), Err(GroupError::UnknownMember));
    // Committing while the group prepares keeps it alive, too.
    w.pass(9_000);
    assert_eq!(w.coordinator.check_commit(&group[0].sender(), w.now), Ok(true));
    w.pass(9_000);
    assert_eq!(w.coordinator.check_commit(&group[0].sender(), w.now), Ok(true));
}

#[test]
fn a_commit_refused_between_join_and_sync_does_not_refresh_the_session() {
    let mut w = World::new();
    let mut group = [Client::new("a")];
    w.gather(&mut group);
    w.pass(9_000);
    assert_eq!(w.coordinator.check_commit(&group[0].sender(), w.now), Err(GroupError::RebalanceInProgress));
    w.pass(1_000);
    assert_eq!(w.state(), "Empty");
}
