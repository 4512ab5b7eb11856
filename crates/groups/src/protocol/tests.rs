use crate::testing::{Client, World};

fn chosen(preferences: &[&[&str]]) -> String {
    let mut w = World::new();
    let mut group: Vec<Client> =
        preferences.iter().enumerate().map(|(n, p)| Client::new(&format!("c{n}")).knows(p)).collect();
    assert_eq!(w.settle(&mut group), 0);
    w.coordinator.describe(crate::testing::GROUP).unwrap().protocol.to_string()
}

#[test]
fn only_a_protocol_that_all_members_know_is_chosen() {
    assert_eq!(chosen(&[&["a", "b"], &["a", "b"], &["b"]]), "b");
}

#[test]
fn of_those_that_all_know_the_one_with_most_first_preferences_is_chosen() {
    assert_eq!(chosen(&[&["a", "b"], &["b", "a"], &["b", "a"]]), "b");
}

#[test]
fn a_vote_goes_to_the_best_protocol_that_all_know() {
    // "x" is the favourite of two, but the first does not know it; their votes go to "b".
    assert_eq!(chosen(&[&["a", "b"], &["x", "b", "a"], &["x", "b", "a"]]), "b");
}

#[test]
fn the_order_of_the_leader_decides_between_equal_votes() {
    assert_eq!(chosen(&[&["a", "b"], &["b", "a"]]), "a");
    assert_eq!(chosen(&[&["b", "a"], &["a", "b"]]), "b");
}
