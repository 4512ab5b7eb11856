use crate::testing::{Client, GROUP, World, subscription};
use crate::{GroupState, ListFilter};

#[test]
fn a_stable_group_shows_members_with_client_host_and_blobs() {
    let mut w = World::new();
    let mut group = [Client::new("a"), Client::fixed("b")];
    w.settle(&mut group);
    let shown = w.coordinator.describe(GROUP).unwrap();
    assert_eq!((shown.state, &*shown.protocol_type, &*shown.protocol), (GroupState::Stable, "consumer", "range"));
    for (member, client) in shown.members.iter().zip(&group) {
        assert_eq!(&*member.member_id, client.member_id);
        assert_eq!(member.instance_id.as_deref(), client.instance_id.as_deref());
        assert_eq!((&*member.client_id, &*member.client_host), (client.name.as_str(), "/127.0.0.1"));
        assert_eq!(&*member.metadata, subscription(&["t"]));
        assert_eq!(&*member.assignment, client.name.as_bytes());
    }
}

#[test]
fn a_group_that_rebalances_shows_its_members_without_blobs() {
    let mut w = World::new();
    let mut group = [Client::new("a"), Client::new("b")];
    let leader = w.settle(&mut group);
    w.send_join(&group[leader]);
    let shown = w.coordinator.describe(GROUP).unwrap();
    assert_eq!((shown.state, &*shown.protocol), (GroupState::PreparingRebalance, ""));
    assert!(shown.members.iter().all(|m| m.metadata.is_empty() && m.assignment.is_empty()));
    w.send_join(&group[1 - leader]);
    assert_eq!(w.coordinator.describe(GROUP).unwrap().state, GroupState::CompletingRebalance);
}

#[test]
fn an_unknown_group_is_dead() {
    let w = World::new();
    assert_eq!(w.coordinator.describe("nobody"), None);
    assert_eq!(w.coordinator.state("nobody").name(), "Dead");
}

#[test]
fn groups_are_listed_by_state_and_type() {
    let mut w = World::new();
    w.settle(&mut [Client::new("a")]);
    let listed = w.coordinator.listed(GROUP).unwrap();
    let count = |states: &[&str], types: &[&str]| usize::from(ListFilter::named(states, types).wants(listed.state));
    assert_eq!(count(&[], &[]), 1);
    assert_eq!(count(&["stable"], &["Classic"]), 1);
    assert_eq!(count(&["Empty", "Stable"], &[]), 1);
    assert_eq!(count(&["Empty"], &[]), 0);
    assert_eq!(count(&["Nonsense"], &[]), 0);
    assert_eq!(count(&[], &["consumer"]), 0);
}
