use crate::testing::{Client, GROUP, World, config};
use crate::{Census, Departure, GroupConfig, GroupEvent, GroupState, RebalanceCause};

use GroupEvent::{MemberGone, MemberJoined, MemberReturned, RebalanceBegan, RebalanceEnded};

fn events(world: &mut World) -> Vec<GroupEvent> {
    std::mem::take(&mut world.out.events)
}

#[test]
fn a_rebalance_is_told_with_its_cause_and_with_the_time_until_the_assignments_are_there() {
    let mut w = World::with(GroupConfig { initial_rebalance_delay_ms: 3_000, ..config() });
    let mut one = Client::new("a");
    let token = w.enter(&mut one);
    assert_eq!(events(&mut w), [MemberJoined, RebalanceBegan(RebalanceCause::Joined)]);
    w.pass(3_000);
    w.joined(token, &mut one);
    w.pass(500);
    w.send_sync(&one, &[]);
    assert_eq!(events(&mut w), [RebalanceEnded { millis: 3_500 }]);
}

#[test]
fn a_rebalance_that_is_overtaken_by_another_ends_once_and_counts_from_its_first_beginning() {
    let mut w = World::new();
    let mut group = [Client::new("a"), Client::new("b")];
    w.settle(&mut group);
    events(&mut w);
    w.leave(&[(&group[1].member_id, None)]);
    let gone = Departure::Left;
    assert_eq!(events(&mut w), [MemberGone(gone), RebalanceBegan(RebalanceCause::Gone(gone))]);
    w.pass(1_000);
    let token = w.send_join(&group[0]);
    w.joined(token, &mut group[0]);
    assert_eq!(w.state(), "CompletingRebalance");
    let mut other = Client::new("c");
    w.enter(&mut other);
    assert_eq!(events(&mut w), [MemberJoined, RebalanceBegan(RebalanceCause::Joined)]);
    w.pass(1_000);
    let token = w.send_join(&group[0]);
    w.joined(token, &mut group[0]);
    w.send_sync(&group[0], &[]);
    assert_eq!(events(&mut w), [RebalanceEnded { millis: 2_000 }]);
}

#[test]
fn a_changed_subscription_and_a_leader_that_wants_to_assign_anew_are_different_causes() {
    let mut w = World::new();
    let mut group = [Client::new("a"), Client::new("b")];
    let leader = w.settle(&mut group);
    events(&mut w);
    w.send_join(&group[leader]);
    assert_eq!(events(&mut w), [RebalanceBegan(RebalanceCause::Leader)]);
    w.settle(&mut group);
    events(&mut w);
    let changed = group[1 - leader].clone().knows(&["range", "roundrobin"]);
    w.send_join(&changed);
    assert_eq!(events(&mut w), [RebalanceBegan(RebalanceCause::Subscription)]);
}

#[test]
fn every_way_of_going_is_told_by_its_name() {
    let mut w = World::new();
    let mut group = [Client::new("a"), Client { session_ms: 1_000_000, ..Client::new("b") }];
    w.settle(&mut group);
    events(&mut w);
    w.pass(10_000);
    let silent = Departure::SessionEnded;
    assert_eq!(events(&mut w), [MemberGone(silent), RebalanceBegan(RebalanceCause::Gone(silent))]);

    let mut w = World::new();
    let mut group = [Client { session_ms: 1_000_000, ..Client::new("a") }];
    w.gather(&mut group);
    events(&mut w);
    w.pass(60_000);
    let idle = Departure::NotSynced;
    assert_eq!(events(&mut w), [MemberGone(idle), RebalanceBegan(RebalanceCause::Gone(idle))]);

    let mut w = World::new();
    let slow = || Client { session_ms: 1_000_000, ..Client::new("a") };
    let mut group = [slow(), slow()];
    let leader = w.settle(&mut group);
    w.send_join(&group[leader]);
    events(&mut w);
    w.pass(60_000);
    assert_eq!(events(&mut w), [MemberGone(Departure::NotRejoined)]);

    let mut w = World::with(GroupConfig { initial_rebalance_delay_ms: 3_000, ..config() });
    let token = w.send_join(&Client::new("old").version(3));
    events(&mut w);
    w.forget(token);
    assert_eq!(events(&mut w), [MemberGone(Departure::Disconnected)]);
}

#[test]
fn a_static_member_that_returns_neither_joins_nor_rebalances() {
    let mut w = World::new();
    let mut group = [Client::fixed("a")];
    w.settle(&mut group);
    events(&mut w);
    group[0].member_id.clear();
    w.send_join(&group[0]);
    assert_eq!(events(&mut w), [MemberReturned]);
}

#[test]
fn the_census_follows_a_group_through_its_states() {
    let mut w = World::new();
    let census = |w: &World| w.coordinator.census();
    assert_eq!(census(&w), Census::default());
    let mut member = Client::new("a");
    let token = w.send_join(&member);
    assert_eq!(census(&w), Census { empty: 1, pending: 1, ..Census::default() });
    member.member_id = w.join_answer(token).unwrap_err().member_id.to_string();
    let token = w.send_join(&member);
    w.joined(token, &mut member);
    assert_eq!(census(&w), Census { completing_rebalance: 1, members: 1, ..Census::default() });
    w.send_sync(&member, &[]);
    assert_eq!(census(&w), Census { stable: 1, members: 1, ..Census::default() });
    w.enter(&mut Client::fixed("b"));
    let preparing = Census { preparing_rebalance: 1, members: 2, static_members: 1, ..Census::default() };
    assert_eq!(census(&w), preparing);
    assert_eq!(preparing.groups(GroupState::PreparingRebalance), 1);
    w.leave(&[(&member.member_id, None), ("", Some("b"))]);
    assert_eq!(census(&w), Census { empty: 1, ..Census::default() });
    w.coordinator.remove(GROUP).unwrap();
    assert_eq!(census(&w), Census::default());
}
