use iggy_common::{ClusterNode, ClusterNodeStatus, TransportEndpoints};

use super::*;

fn roster(leader: u16) -> Roster {
    let role = |port| if port == leader { ClusterNodeRole::Leader } else { ClusterNodeRole::Follower };
    let node = |port: u16| ClusterNode {
        name: format!("node-{port}"),
        ip: "10.0.0.1".to_owned(),
        endpoints: TransportEndpoints { tcp: port, quic: 0, http: 0, websocket: 0 },
        role: role(port),
        status: ClusterNodeStatus::Healthy,
    };
    let roster = Roster::default();
    roster.learn(&ClusterMetadata { name: "c".to_owned(), nodes: [1, 2, 3].map(node).to_vec() });
    roster
}

fn node(port: u16) -> Node {
    Node::from(format!("10.0.0.1:{port}"))
}

fn at(partition: u32) -> PartitionRef {
    TopicRef::new("kafka", "orders", 1, 2, 3).partition(partition)
}

#[test]
fn a_single_server_has_no_homes() {
    let (roster, now) = (Roster::default(), Instant::now());
    assert!(!roster.is_cluster() && roster.home(Some(&at(0)), now).is_none());
    roster.doubt(&at(0), now);
    assert_eq!(roster.doubted(&at(0), now), None, "whatever it stored is where it is read");
}

#[test]
fn a_partition_is_at_home_where_an_append_went_through_and_until_then_with_the_leader() {
    let (roster, now) = (roster(1), Instant::now());
    assert_eq!(roster.home(Some(&at(0)), now), Some(node(1)));
    roster.found(&at(0), &node(3));
    assert_eq!(roster.home(Some(&at(0)), now), Some(node(3)));
    assert_eq!(roster.home(Some(&at(1)), now), Some(node(1)));
    assert_eq!(roster.led(&at(0).topic, 4), [[at(0)]]);
    assert_eq!(roster.candidates(Some(&at(0)), now), [node(3), node(1), node(2)]);
}

#[test]
fn after_refusals_every_node_is_tried_in_its_turn() {
    let (roster, now) = (roster(1), Instant::now());
    for (refused, next) in [(1, 2), (2, 3), (3, 1), (1, 2)] {
        roster.refused(&at(0), &node(refused), now);
        assert_eq!(roster.home(Some(&at(0)), now), Some(node(next)));
        assert_eq!(roster.leader(&at(0)), None, "it is a guess");
    }
}

/// The node that an append of the partition ends up with when those nodes are dead.
fn ends_at(roster: &Roster, at: &PartitionRef, dead: &[Node], now: Instant) -> Node {
    for node in roster.candidates(Some(at), now) {
        roster.attempts(&node, Duration::from_secs(5), now);
        if !dead.contains(&node) {
            roster.reached(&node, now);
            return node;
        }
        roster.unreachable(&node, now);
    }
    panic!("one of three is alive");
}

#[test]
fn the_leader_is_found_after_one_refusal_of_each_other_living_node_although_one_is_dead() {
    for (metadata_leader, home, dead, leads) in [(3, 1, 1, 2), (1, 1, 1, 2), (1, 1, 1, 3), (2, 3, 3, 1), (2, 2, 3, 1)] {
        let (roster, mut now) = (roster(metadata_leader), Instant::now());
        roster.found(&at(0), &node(home));
        let mut refusals = 0;
        loop {
            let asked = ends_at(&roster, &at(0), &[node(dead)], now);
            if asked == node(leads) {
                break roster.found(&at(0), &asked);
            }
            roster.refused(&at(0), &asked, now);
            refusals += 1;
            assert!(refusals <= 1, "{home} is dead, {metadata_leader} leads the cluster, {leads} the partition");
            // The SDK's attempt elsewhere, after which the dead node may be tried again.
            now += Duration::from_secs(2);
        }
        assert_eq!(roster.home(Some(&at(0)), now), Some(node(leads)));
    }
}

#[test]
fn while_nobody_leads_the_living_nodes_are_asked_by_turns_and_the_dead_one_when_its_pause_is_over() {
    let (roster, start) = (roster(3), Instant::now());
    roster.found(&at(0), &node(1));
    let mut asked = Vec::new();
    for turn in 0..6 {
        let now = start + Duration::from_secs(2) * turn;
        let node = ends_at(&roster, &at(0), &[node(1)], now);
        roster.refused(&at(0), &node, now);
        asked.push(node);
    }
    for living in [node(2), node(3)] {
        assert!(asked.windows(3).all(|turns| turns.contains(&living)), "{asked:?}");
    }
    let now = start + Duration::from_secs(60);
    let revived = (0..3).any(|_| {
        let asked = ends_at(&roster, &at(0), &[], now);
        roster.refused(&at(0), &asked, now);
        asked == node(1)
    });
    assert!(revived, "a node that is back is found");
}

#[test]
fn a_dead_node_is_tried_by_one_call_after_each_pause_and_the_others_go_elsewhere() {
    let (roster, start) = (roster(1), Instant::now());
    let elsewhere = |now| roster.home(Some(&at(0)), now) != Some(node(1));
    roster.unreachable(&node(1), start);
    assert!(elsewhere(start));
    let later = start + limits::RECONNECT_PAUSE;
    assert!(!elsewhere(later), "the pause is over");
    roster.attempts(&node(1), Duration::from_secs(5), later);
    assert!(elsewhere(later + Duration::from_secs(4)), "somebody tries it");
    assert!(!elsewhere(later + Duration::from_secs(5)), "whoever tried it has gone away");
    roster.reached(&node(1), later);
    assert!(!elsewhere(later));
}

#[test]
fn a_node_that_is_back_at_once_still_has_its_partitions_and_one_that_was_away_for_long_has_none() {
    let (roster, start) = (roster(1), Instant::now());
    roster.found(&at(0), &node(2));
    roster.unreachable(&node(2), start);
    roster.reached(&node(2), start + Duration::from_secs(2));
    assert_eq!(roster.home(Some(&at(0)), start), Some(node(2)));
    roster.unreachable(&node(2), start);
    roster.reached(&node(2), start + limits::LEADER_LOST);
    assert_eq!(roster.home(Some(&at(0)), start), Some(node(1)));
    roster.found(&at(0), &node(2));
    roster.unreachable(&node(2), start);
    roster.unreachable(&node(2), start + limits::LEADER_LOST);
    assert!(roster.led(&at(0).topic, 4).is_empty());
}

#[test]
fn of_a_topic_that_is_gone_nothing_is_kept() {
    let (roster, now) = (roster(1), Instant::now());
    roster.found(&at(0), &node(2));
    roster.refused(&at(1), &node(1), now);
    roster.doubt(&at(2), now);
    roster.forget(&at(0).topic);
    assert!(roster.homes.read().is_empty() && roster.refusals.read().is_empty() && roster.doubts.read().is_empty());
}

#[test]
fn a_suspicion_is_a_doubt_and_does_not_make_an_older_one_younger() {
    let (roster, start) = (roster(1), Instant::now());
    roster.suspect(&at(0), start);
    roster.suspect(&at(0), start + Duration::from_secs(2));
    assert_eq!(roster.doubted(&at(0), start + Duration::from_secs(3)), Some(Duration::from_secs(3)));
}

#[test]
fn a_doubt_lasts_until_the_leader_has_answered() {
    let (roster, start) = (roster(1), Instant::now());
    roster.doubt(&at(0), start);
    assert_eq!(roster.doubted(&at(0), start + Duration::from_secs(3)), Some(Duration::from_secs(3)));
    assert_eq!(roster.doubted(&at(1), start), None);
    assert!(roster.doubted_since(&at(0), start + Duration::from_secs(9)));
    roster.settled(&at(0), start, start + Duration::from_secs(3));
    assert_eq!(roster.doubted(&at(0), start), None);
}

#[test]
fn what_was_asked_before_a_doubt_was_over_counts_no_more_behind_it() {
    let (roster, start) = (roster(1), Instant::now());
    let second = |count| start + Duration::from_secs(count);
    roster.doubt(&at(0), second(1));
    roster.settled(&at(0), second(2), second(4));
    assert!(roster.doubted_since(&at(0), start) && roster.doubted_since(&at(0), second(3)));
    assert!(!roster.doubted_since(&at(0), second(5)) && !roster.doubted_since(&at(1), start));
    roster.forget(&at(0).topic);
    assert!(!roster.doubted_since(&at(0), start));
}

#[test]
fn an_answer_leaves_a_doubt_that_arose_behind_its_question() {
    let (roster, start) = (roster(1), Instant::now());
    let second = |count| start + Duration::from_secs(count);
    roster.doubt(&at(0), second(2));
    roster.settled(&at(0), second(1), second(3));
    assert_eq!(roster.doubted(&at(0), second(3)), Some(Duration::from_secs(1)));
    roster.settled(&at(0), second(2), second(3));
    assert_eq!(roster.doubted(&at(0), second(3)), None);
}
