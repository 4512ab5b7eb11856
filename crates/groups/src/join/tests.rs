use crate::testing::{Client, World, config, subscription};
use crate::{Generation, GroupConfig, GroupError};

#[test]
fn a_dynamic_member_from_version_4_on_is_told_to_join_again_under_an_id() {
    let mut w = World::new();
    let mut client = Client::new("c").version(4);
    let token = w.send_join(&client);
    let refused = w.join_answer(token).unwrap_err();
    assert_eq!(refused.error, GroupError::MemberIdRequired);
    assert_eq!(&*refused.member_id, "c-fresh1");
    client.member_id = refused.member_id.to_string();
    let token = w.send_join(&client);
    let joined = w.joined(token, &mut client);
    assert_eq!((joined.generation, &*joined.member_id), (Generation(1), "c-fresh1"));
}

#[test]
fn below_version_4_and_with_an_instance_id_a_client_joins_at_once() {
    for mut client in [Client::new("c").version(3), Client::new("c").version(0), Client::fixed("c")] {
        let mut w = World::new();
        let token = w.send_join(&client);
        assert_eq!(w.joined(token, &mut client).generation, Generation(1));
    }
}

#[test]
fn giving_out_an_id_does_not_open_the_join_window() {
    let mut w = World::new();
    let mut stable = [Client::new("a")];
    w.settle(&mut stable);
    w.send_join(&Client::new("b"));
    assert_eq!(w.state(), "Stable");
    assert_eq!(w.heartbeat(&stable[0]), Ok(()));
}

#[test]
fn an_id_that_nobody_uses_is_void_after_the_session_timeout() {
    let mut w = World::new();
    let mut client = Client::new("c");
    let token = w.send_join(&client);
    client.member_id = w.join_answer(token).unwrap_err().member_id.to_string();
    w.pass(9_999);
    assert_eq!(w.coordinator.members(), 1);
    w.pass(1);
    assert_eq!(w.coordinator.members(), 0);
    let token = w.send_join(&client);
    assert_eq!(w.refused(token), GroupError::UnknownMember);
    assert!(w.coordinator.is_empty(), "a group that never was leaves nothing behind");
}

#[test]
fn a_barrier_waits_for_an_id_that_was_given_out_but_not_for_longer_than_it_lasts() {
    let mut w = World::new();
    let mut group = [Client::new("a"), Client::new("b")];
    w.settle(&mut group);
    w.send_join(&Client::new("late"));
    let tokens = [w.send_join(&group[0]), w.send_join(&group[1])];
    // The leader's join opened a rebalance, everybody has joined, and still it waits.
    assert!(tokens.iter().all(|t| w.waits(*t)));
    w.pass(10_000);
    assert!(tokens.iter().all(|t| !w.waits(*t)));
}

#[test]
fn an_unknown_member_id_is_refused_with_the_id_it_came_with() {
    let mut w = World::new();
    let ghost = Client { member_id: "ghost".to_owned(), ..Client::new("c") };
    let token = w.send_join(&ghost);
    let refused = w.join_answer(token).unwrap_err();
    assert_eq!((refused.error, &*refused.member_id), (GroupError::UnknownMember, "ghost"));
    assert!(w.coordinator.is_empty());
    w.settle(&mut [Client::new("a")]);
    let token = w.send_join(&ghost);
    assert_eq!(w.refused(token), GroupError::UnknownMember);
}

#[test]
fn an_empty_or_too_long_group_id_is_refused() {
    let w = World::with(GroupConfig { group_id_bytes_max: 5, ..config() });
    assert_eq!(w.coordinator.check_group_id(""), Err(GroupError::InvalidGroupId));
    assert_eq!(w.coordinator.check_group_id("123456"), Err(GroupError::InvalidGroupId));
    assert_eq!(w.coordinator.check_group_id("12345"), Ok(()));
}

#[test]
fn a_session_timeout_is_accepted_at_its_bounds_and_refused_beyond() {
    for (asked, fine) in
        [(6_000, true), (1_800_000, true), (5_999, false), (1_800_001, false), (-1, false), (i32::MIN, false)]
    {
        let mut w = World::new();
        let token = w.send_join(&Client { session_ms: asked, ..Client::new("c").version(0) });
        if fine {
            assert!(w.join_answer(token).is_ok(), "{asked}");
        } else {
            let error = GroupError::InvalidSessionTimeout { asked, min: 6_000, max: 1_800_000 };
            assert_eq!(w.refused(token), error);
            assert!(w.coordinator.is_empty());
        }
    }
}

#[test]
fn a_full_group_takes_nobody_in_but_lets_its_members_join_again() {
    let mut w = World::with(GroupConfig { group_size_max: 2, ..config() });
    let mut group = [Client::new("a"), Client::fixed("b")];
    w.settle(&mut group);
    for newcomer in [Client::new("c"), Client::new("c").version(2), Client::fixed("c")] {
        let token = w.send_join(&newcomer);
        assert_eq!(w.refused(token), GroupError::GroupFull { max: 2 });
    }
    let returned = Client::fixed("b");
    let token = w.send_join(&returned);
    assert!(w.join_answer(token).is_ok(), "a static member takes its own place");
    let mut changed = group[0].clone();
    changed.protocols[0].1 = subscription(&["u"]);
    let token = w.send_join(&changed);
    assert!(w.waits(token), "a member that joins again needs no room");
}

#[test]
fn ids_that_were_given_out_are_bounded_too() {
    let mut w = World::with(GroupConfig { group_size_max: 2, ..config() });
    for _ in 0..2 {
        let token = w.send_join(&Client::new("c"));
        assert_eq!(w.refused(token), GroupError::MemberIdRequired);
    }
    let token = w.send_join(&Client::new("c"));
    assert_eq!(w.refused(token), GroupError::GroupFull { max: 2 });
}

#[test]
fn a_given_out_id_does_not_get_into_a_group_that_filled_up_meanwhile() {
    let mut w = World::with(GroupConfig { group_size_max: 1, ..config() });
    let mut late = Client::new("late");
    let token = w.send_join(&late);
    late.member_id = w.join_answer(token).unwrap_err().member_id.to_string();
    w.send_join(&Client::fixed("a"));
    let token = w.send_join(&late);
    assert_eq!(w.refused(token), GroupError::GroupFull { max: 1 });
}

#[test]
fn protocols_and_bytes_of_a_join_are_bounded() {
    let mut w = World::with(GroupConfig { protocols_max: 2, member_bytes_max: 60, ..config() });
    let token = w.send_join(&Client::new("c").version(0).knows(&["a", "b"]));
    assert!(w.join_answer(token).is_ok());
    let token = w.send_join(&Client::new("c").version(0).knows(&["a", "b", "c"]));
    assert_eq!(w.refused(token), GroupError::TooManyProtocols { max: 2 });
    // group 1, client id 1, host 10, type 8, protocol 1: 21 bytes beside the metadata.
    let with = |n| Client { protocols: vec![("a".to_owned(), vec![0; n])], ..Client::new("c").version(0) };
    let token = w.send_join(&with(60 - 21 + 1));
    assert_eq!(w.refused(token), GroupError::MemberTooLarge { bytes: 61, max: 60 });
    let token = w.send_join(&with(60 - 21));
    assert!(w.waits(token), "the group rebalances with it");
}

/// A member of 100 bytes, of which `more` come on top: group, name of 3, host, type and protocol are 23 without its id.
fn heavy(name: &str, more: usize) -> Client {
    let id = "100-fresh1".len();
    assert_eq!(name.len(), 3);
    Client { protocols: vec![("a".to_owned(), vec![0; 100 - 23 - id + more])], ..Client::new(name).version(0) }
}

#[test]
fn what_the_leader_is_told_of_a_group_is_bounded() {
    let mut w = World::with(GroupConfig { group_bytes_max: 290, ..config() });
    let mut first = heavy("100", 0);
    let token = w.send_join(&first);
    w.joined(token, &mut first);
    let second = w.send_join(&heavy("100", 0));
    assert!(w.waits(second));
    // The third brings its name, which it has not yet, on top of 90 bytes.
    let token = w.send_join(&heavy("100", 1));
    assert_eq!(w.refused(token), GroupError::GroupTooLarge { bytes: 291, max: 290 });
    let third = w.send_join(&heavy("100", 0));
    assert!(w.waits(third), "at the bound");
    // Who is in may come back with as much as before, and not with more.
    let grown = Client { protocols: heavy("100", 1).protocols, ..first.clone() };
    let token = w.send_join(&grown);
    assert!(matches!(w.refused(token), GroupError::GroupTooLarge { max: 290, .. }));
    let token = w.send_join(&first);
    let told: usize = w.joined(token, &mut first).members.iter().map(|m| m.member_id.len() + m.metadata.len()).sum();
    assert!(told > 200 && told <= 300, "{told}");
    // Whoever goes makes room.
    let token = w.send_join(&heavy("100", 0));
    assert!(matches!(w.refused(token), GroupError::GroupTooLarge { max: 290, .. }));
    w.leave(&[(&first.member_id, None)]);
    let token = w.send_join(&heavy("100", 0));
    assert!(w.waits(token));
}

#[test]
fn a_static_member_that_returns_takes_the_room_of_its_old_self() {
    let mut w = World::with(GroupConfig { group_bytes_max: 100, ..config() });
    let heavy = |n| Client { protocols: vec![("a".to_owned(), vec![0; n])], ..Client::fixed("i") };
    let token = w.send_join(&heavy(70));
    assert!(w.join_answer(token).is_ok());
    let token = w.send_join(&heavy(70));
    assert!(w.join_answer(token).is_ok());
    let token = w.send_join(&heavy(90));
    assert!(matches!(w.refused(token), GroupError::GroupTooLarge { max: 100, .. }));
}

#[test]
fn the_members_and_assignments_of_all_groups_are_bounded_together() {
    let mut w = World::with(GroupConfig { members_bytes_max: 151, ..config() });
    let mut first = heavy("100", 0);
    let token = w.send_join(&first);
    w.joined(token, &mut first);
    let token = w.send_join(&heavy("100", 0));
    assert_eq!(w.refused(token), GroupError::MembersTooLarge { max: 151 });
    let member_id = first.member_id.clone();
    let token = w.send_sync(&first, &[(&member_id, &[0; 51])]);
    assert_eq!(w.synced(token), Err(GroupError::AssignmentTooLarge { bytes: 51, max: 50 }));
    let token = w.send_sync(&first, &[(&member_id, &[0; 50]), ("nobody", &[0; 50])]);
    assert!(w.synced(token).is_ok());
    // The next generation's assignments take the place of these.
    let token = w.send_join(&first);
    w.joined(token, &mut first);
    let token = w.send_sync(&first, &[(&member_id, &[1; 50])]);
    assert!(w.synced(token).is_ok());
    w.leave(&[(&member_id, None)]);
    let token = w.send_join(&Client { protocols: vec![("a".to_owned(), vec![0; 127])], ..heavy("100", 0) });
    assert!(w.join_answer(token).is_ok(), "all of the room is free again");
}

#[test]
fn a_join_without_protocols_or_type_is_inconsistent() {
    let mut w = World::new();
    let token = w.send_join(&Client { protocols: Vec::new(), ..Client::new("c") });
    assert_eq!(w.refused(token), GroupError::InconsistentProtocol);
    let token = w.send_join(&Client { protocol_type: String::new(), ..Client::new("c") });
    assert_eq!(w.refused(token), GroupError::InconsistentProtocol);
    assert!(w.coordinator.is_empty());
}

#[test]
fn a_join_of_another_type_or_without_a_common_protocol_is_inconsistent() {
    let mut w = World::new();
    w.settle(&mut [Client::new("a").knows(&["range", "sticky"]), Client::new("b").knows(&["sticky"])]);
    for other in [
        Client { protocol_type: "connect".to_owned(), ..Client::new("c").knows(&["sticky"]) },
        Client::new("c").knows(&["range"]),
        Client::new("c").knows(&["other"]),
        Client::new("c").version(0).knows(&["range"]),
        Client::fixed("c").knows(&["range"]),
    ] {
        let token = w.send_join(&other);
        assert_eq!(w.refused(token), GroupError::InconsistentProtocol);
    }
    assert_eq!(w.state(), "Stable");
    let token = w.send_join(&Client::new("c").knows(&["other", "sticky"]));
    assert_eq!(w.refused(token), GroupError::MemberIdRequired);
}

#[test]
fn a_refused_join_under_a_given_out_id_may_be_tried_again() {
    let mut w = World::new();
    w.settle(&mut [Client::new("a")]);
    let mut client = Client::new("b");
    let token = w.send_join(&client);
    client.member_id = w.join_answer(token).unwrap_err().member_id.to_string();
    let token = w.send_join(&client.clone().knows(&["other"]));
    assert_eq!(w.refused(token), GroupError::InconsistentProtocol);
    let token = w.send_join(&client);
    assert!(w.waits(token), "it is in, and waits for the other");
}

#[test]
fn a_follower_that_joins_again_unchanged_gets_the_current_generation() {
    let mut w = World::new();
    let mut group = [Client::new("a"), Client::new("b")];
    let leader = w.settle(&mut group);
    let follower = 1 - leader;
    let generation = group[follower].generation;
    let token = w.send_join(&group[follower]);
    let joined = w.joined(token, &mut group[follower]);
    assert_eq!(joined.generation, generation);
    assert_eq!(&*joined.leader, group[leader].member_id.as_str());
    assert!(joined.members.is_empty());
    assert_eq!(w.state(), "Stable");
}

#[test]
fn a_member_that_joins_with_another_subscription_starts_a_rebalance() {
    let mut w = World::new();
    let mut group = [Client::new("a"), Client::new("b")];
    let leader = w.settle(&mut group);
    let follower = &mut group[1 - leader];
    follower.protocols[0].1 = subscription(&["t", "u"]);
    let token = w.send_join(follower);
    assert!(w.waits(token));
    assert_eq!(w.state(), "PreparingRebalance");
    assert_eq!(w.heartbeat(&group[leader]), Err(GroupError::RebalanceInProgress));
}

#[test]
fn a_leader_that_joins_again_starts_a_rebalance_even_unchanged() {
    let mut w = World::new();
    let mut group = [Client::new("a"), Client::new("b")];
    let leader = w.settle(&mut group);
    let token = w.send_join(&group[leader]);
    assert!(w.waits(token));
    assert_eq!(w.state(), "PreparingRebalance");
}

#[test]
fn before_the_leader_filed_a_repeated_join_gets_the_same_answer_again() {
    let mut w = World::new();
    let mut group = [Client::new("a"), Client::new("b")];
    let leader = w.gather(&mut group);
    for (at, client) in group.iter_mut().enumerate() {
        let before = client.generation;
        let token = w.send_join(client);
        let joined = w.joined(token, client);
        assert_eq!(joined.generation, before);
        assert_eq!(joined.members.len(), if at == leader { 2 } else { 0 });
    }
    assert_eq!(w.state(), "CompletingRebalance");
}

#[test]
fn before_the_leader_filed_a_changed_join_starts_over() {
    let mut w = World::new();
    let mut group = [Client::new("a"), Client::new("b")];
    let leader = w.gather(&mut group);
    let follower = 1 - leader;
    let parked = w.send_sync(&group[follower], &[]);
    group[follower].protocols[0].1 = subscription(&["u"]);
    w.send_join(&group[follower]);
    assert_eq!(w.state(), "PreparingRebalance");
    assert_eq!(w.synced(parked), Err(GroupError::RebalanceInProgress));
}

#[test]
fn of_two_joins_of_one_member_the_first_is_sent_away() {
    let mut w = World::new();
    let mut group = [Client::new("a"), Client::new("b")];
    let leader = w.settle(&mut group);
    let first = w.send_join(&group[leader]);
    let second = w.send_join(&group[leader]);
    assert_eq!(w.refused(first), GroupError::RebalanceInProgress);
    assert!(w.waits(second));
}

#[test]
fn a_lone_member_may_change_type_and_protocols() {
    let mut w = World::new();
    let mut group = [Client::new("a")];
    w.settle(&mut group);
    group[0].protocol_type = "connect".to_owned();
    group[0] = group[0].clone().knows(&["sessioned"]);
    let token = w.send_join(&group[0]);
    let joined = w.joined(token, &mut group[0]);
    assert_eq!(joined.protocol_type.as_deref(), Some("connect"));
    assert_eq!(joined.protocol.as_deref(), Some("sessioned"));
}

#[test]
fn a_member_id_holds_no_more_of_a_client_id_than_fits() {
    let mut w = World::new();
    let long = "ü".repeat(10_000);
    let token = w.send_join(&Client::new(&long));
    let id = w.join_answer(token).unwrap_err().member_id;
    assert_eq!(&*id, format!("{}-fresh1", "ü".repeat(127)));
    let token = w.send_join(&Client { name: "client".to_owned(), ..Client::fixed("instance") });
    assert_eq!(&*w.join_answer(token).unwrap().member_id, "instance-fresh2");
}
