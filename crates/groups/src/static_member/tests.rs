use crate::testing::{Client, World, config, subscription};
use crate::{Generation, GroupConfig, GroupError};

/// A stable group of static members, in which the first one leads.
fn stable() -> (World, Vec<Client>) {
    let mut w = World::new();
    let mut group = vec![Client::fixed("a"), Client::fixed("b")];
    assert_eq!(w.settle(&mut group), 0);
    (w, group)
}

/// What is left of a client after a restart: its settings.
fn restarted(client: &Client) -> Client {
    Client { member_id: String::new(), generation: Generation::NONE, ..client.clone() }
}

#[test]
fn a_static_member_that_returns_gets_a_new_id_the_same_generation_and_no_rebalance() {
    let (mut w, group) = stable();
    let mut returned = restarted(&group[1]);
    let token = w.send_join(&returned);
    let joined = w.joined(token, &mut returned);
    assert_ne!(returned.member_id, group[1].member_id);
    assert_eq!(joined.generation, group[1].generation);
    assert_eq!((joined.members.len(), joined.skip_assignment), (0, false));
    assert_eq!(&*joined.leader, group[0].member_id.as_str());
    assert_eq!(w.state(), "Stable");
    assert_eq!(w.heartbeat(&group[0]), Ok(()));
}

#[test]
fn a_static_member_that_returns_has_its_assignment_back() {
    let (mut w, group) = stable();
    let mut returned = restarted(&group[1]);
    let token = w.send_join(&returned);
    w.joined(token, &mut returned);
    let token = w.send_sync(&returned, &[]);
    assert_eq!(&*w.synced(token).unwrap().assignment, b"b");
}

#[test]
fn the_old_self_of_a_static_member_is_fenced_everywhere() {
    let (mut w, group) = stable();
    w.send_join(&restarted(&group[1]));
    let old = &group[1];
    let join = w.send_join(old);
    let sync = w.send_sync(old, &[]);
    assert_eq!(w.refused(join), GroupError::FencedInstance);
    assert_eq!(w.synced(sync), Err(GroupError::FencedInstance));
    assert_eq!(w.heartbeat(old), Err(GroupError::FencedInstance));
    assert_eq!(w.coordinator.check_commit(&old.sender(), w.now), Err(GroupError::FencedInstance));
    assert_eq!(w.leave(&[(&old.member_id, Some("b"))]), [Err(GroupError::FencedInstance)]);
}

#[test]
fn an_old_id_without_its_instance_id_is_just_unknown() {
    let (mut w, group) = stable();
    w.send_join(&restarted(&group[1]));
    let old = Client { instance_id: None, ..group[1].clone() };
    assert_eq!(w.heartbeat(&old), Err(GroupError::UnknownMember));
}

#[test]
fn a_leader_that_returns_with_version_9_is_told_to_skip_the_assignment() {
    let (mut w, group) = stable();
    let mut returned = restarted(&group[0]);
    let token = w.send_join(&returned);
    let joined = w.joined(token, &mut returned);
    assert!(joined.skip_assignment);
    assert_eq!(joined.leader, joined.member_id);
    assert_eq!(joined.members.len(), 2, "it still has to know who subscribes to what");
    assert_eq!(w.state(), "Stable");
}

#[test]
fn a_leader_that_returns_below_version_9_is_told_that_its_old_self_leads() {
    let (mut w, group) = stable();
    let mut returned = restarted(&group[0]).version(8);
    let token = w.send_join(&returned);
    let joined = w.joined(token, &mut returned);
    assert!(!joined.skip_assignment);
    assert_eq!(&*joined.leader, group[0].member_id.as_str());
    assert!(joined.members.is_empty());
    // It does lead, as its next join shows.
    let token = w.send_join(&returned);
    assert!(w.waits(token));
    assert_eq!(w.state(), "PreparingRebalance");
}

#[test]
fn what_a_returning_leader_files_in_a_stable_group_changes_nothing() {
    let (mut w, group) = stable();
    let mut returned = restarted(&group[0]);
    let token = w.send_join(&returned);
    w.joined(token, &mut returned);
    let filed: [(&str, &[u8]); 2] = [(&group[1].member_id, b"x"), (&returned.member_id, b"y")];
    let token = w.send_sync(&returned, &filed);
    assert_eq!(&*w.synced(token).unwrap().assignment, b"a");
    let token = w.send_sync(&group[1], &[]);
    assert_eq!(&*w.synced(token).unwrap().assignment, b"b");
}

#[test]
fn other_metadata_of_a_returning_member_is_no_reason_to_rebalance() {
    let (mut w, group) = stable();
    let mut returned = restarted(&group[1]);
    returned.protocols[0].1.extend(b"other owned partitions");
    let token = w.send_join(&returned);
    assert!(w.join_answer(token).is_ok());
    assert_eq!(w.state(), "Stable");
}

#[test]
fn a_returning_member_that_changes_the_choice_of_protocol_starts_a_rebalance() {
    let mut w = World::new();
    let mut group = vec![Client::fixed("a").knows(&["p", "q"]), Client::fixed("b").knows(&["p", "q"])];
    w.settle(&mut group);
    let returned = restarted(&group[1]).knows(&["q"]);
    let token = w.send_join(&returned);
    assert!(w.waits(token));
    assert_eq!(w.state(), "PreparingRebalance");
    let token = w.send_join(&group[0]);
    assert_eq!(w.join_answer(token).unwrap().protocol.as_deref(), Some("q"));
}

#[test]
fn a_returning_member_without_a_common_protocol_is_refused_and_its_old_self_stays() {
    let (mut w, group) = stable();
    let token = w.send_join(&restarted(&group[1]).knows(&["other"]));
    assert_eq!(w.refused(token), GroupError::InconsistentProtocol);
    assert_eq!(w.heartbeat(&group[1]), Ok(()));
}

#[test]
fn a_static_member_that_returns_while_the_leader_computes_starts_over() {
    let mut w = World::new();
    let mut group = vec![Client::fixed("a"), Client::fixed("b")];
    w.gather(&mut group);
    let parked = w.send_sync(&group[1], &[]);
    let returned = restarted(&group[1]);
    let token = w.send_join(&returned);
    assert!(w.waits(token));
    assert_eq!(w.synced(parked), Err(GroupError::FencedInstance));
    assert_eq!(w.state(), "PreparingRebalance");
}

#[test]
fn a_static_member_that_returns_while_the_group_prepares_joins_in_and_sends_its_old_self_away() {
    let (mut w, group) = stable();
    let old = w.send_join(&Client { protocols: vec![("range".to_owned(), vec![1])], ..group[1].clone() });
    let mut returned = restarted(&group[1]);
    let token = w.send_join(&returned);
    assert_eq!(w.refused(old), GroupError::FencedInstance);
    assert!(w.waits(token));
    let leader = w.send_join(&group[0]);
    let joined = w.joined(token, &mut returned);
    assert_eq!(joined.generation, w.join_answer(leader).unwrap().generation);
}

#[test]
fn a_returning_member_brings_its_new_client_id_and_timeouts() {
    let (mut w, group) = stable();
    let returned =
        Client { name: "new".to_owned(), session_ms: 6_000, rebalance_ms: Some(7_000), ..restarted(&group[1]) };
    w.send_join(&returned);
    let shown = w.coordinator.describe(crate::testing::GROUP).unwrap();
    assert_eq!(&*shown.members[1].client_id, "new");
    w.pass(5_999);
    assert_eq!(w.state(), "Stable");
    w.pass(1);
    assert_eq!(w.state(), "PreparingRebalance", "its session is as short as it now says");
}

#[test]
fn a_static_member_that_does_not_join_in_time_keeps_its_place_until_its_session_ends() {
    let (mut w, mut group) = stable();
    group[1].session_ms = 100_000;
    group[0].session_ms = 100_000;
    w.settle(&mut group);
    let token = w.send_join(&group[0]);
    w.pass(60_000);
    let joined = w.joined(token, &mut group[0]);
    assert_eq!(joined.members.len(), 2, "the absent one is given partitions");
    let filed: [(&str, &[u8]); 2] = [(&group[0].member_id, b"a"), (&group[1].member_id, b"b2")];
    w.send_sync(&group[0], &filed);
    let mut returned = restarted(&group[1]);
    let token = w.send_join(&returned);
    w.joined(token, &mut returned);
    let token = w.send_sync(&returned, &[]);
    assert_eq!(&*w.synced(token).unwrap().assignment, b"b2");
}

#[test]
fn an_absent_static_leader_is_replaced_by_one_that_joined() {
    let (mut w, mut group) = stable();
    for client in &mut group {
        client.session_ms = 200_000;
    }
    w.settle(&mut group);
    let mut other = group[1].clone();
    other.protocols[0].1 = subscription(&["u"]);
    let token = w.send_join(&other);
    w.pass(60_000);
    let joined = w.joined(token, &mut other);
    assert_eq!(joined.leader, joined.member_id);
    assert_eq!(joined.members.len(), 2);
}

#[test]
fn static_members_that_are_all_absent_are_waited_for_until_their_sessions_end() {
    let mut w = World::new();
    let mut group = vec![Client { session_ms: 150_000, ..Client::fixed("a") }, Client::new("b")];
    w.settle(&mut group);
    let b = group[1].member_id.clone();
    assert_eq!(w.leave(&[(&b, None)]), [Ok(())]);
    assert_eq!(w.state(), "PreparingRebalance");
    w.pass(149_999);
    assert_eq!(w.state(), "PreparingRebalance");
    w.pass(1);
    assert_eq!(w.state(), "Empty");
}

#[test]
fn a_static_member_may_be_the_one_over_the_total_because_it_needs_no_room() {
    let mut w = World::with(GroupConfig { members_max: 1, ..config() });
    let mut group = vec![Client::fixed("a")];
    w.settle(&mut group);
    let token = w.send_join(&restarted(&group[0]));
    assert!(w.join_answer(token).is_ok());
    let token = w.send_join(&Client::fixed("b"));
    assert_eq!(w.refused(token), GroupError::TooManyMembers { max: 1 });
}

#[test]
fn an_unknown_instance_id_makes_a_known_member_unknown() {
    let (mut w, group) = stable();
    let wrong = Client { instance_id: Some("z".to_owned()), ..group[1].clone() };
    assert_eq!(w.heartbeat(&wrong), Err(GroupError::UnknownMember));
    let token = w.send_join(&wrong);
    assert_eq!(w.refused(token), GroupError::UnknownMember);
}

#[test]
fn who_takes_over_an_unanswered_first_join_has_the_full_time_of_a_new_member() {
    let mut w = World::with(GroupConfig { new_member_join_timeout_ms: 30_000, ..config() });
    let mut group = [Client { session_ms: 1_000_000, rebalance_ms: Some(900_000), ..Client::new("a") }];
    w.settle(&mut group);
    w.send_join(&Client::fixed("b"));
    w.pass(20_000);
    let token = w.send_join(&Client::fixed("b"));
    w.pass(29_999);
    assert!(w.waits(token));
    w.pass(1);
    assert_eq!(w.refused(token), GroupError::UnknownMember);
}
