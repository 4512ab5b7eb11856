use crate::testing::{Client, World, config};
use crate::{Generation, GroupConfig, GroupError};

fn delayed(delay: u32) -> World {
    World::with(GroupConfig { initial_rebalance_delay_ms: delay, ..config() })
}

#[test]
fn the_first_join_of_an_empty_group_waits_for_others() {
    let mut w = delayed(3_000);
    let mut client = Client::new("a");
    let token = w.enter(&mut client);
    w.pass(2_999);
    assert!(w.waits(token));
    w.pass(1);
    assert_eq!(w.joined(token, &mut client).generation, Generation(1));
}

#[test]
fn the_initial_wait_is_extended_while_members_arrive() {
    let mut w = delayed(3_000);
    let first = w.send_join(&Client::new("a").version(0));
    w.pass(2_000);
    let second = w.send_join(&Client::new("b").version(0));
    w.pass(1_000);
    assert!(w.waits(first), "somebody came, so it waits another round");
    w.pass(3_000);
    let (a, b) = (w.join_answer(first).unwrap(), w.join_answer(second).unwrap());
    assert_eq!((a.generation, b.generation), (Generation(1), Generation(1)));
    assert_eq!((a.members.len(), b.members.len()), (2, 0));
}

#[test]
fn the_initial_wait_ends_with_the_rebalance_timeout_however_many_arrive() {
    let mut w = delayed(3_000);
    let client = Client { rebalance_ms: Some(7_000), ..Client::new("a").version(1) };
    let first = w.send_join(&client);
    for _ in 0..6 {
        w.pass(1_000);
        w.send_join(&client);
    }
    assert!(w.waits(first));
    w.pass(1_000);
    assert!(!w.waits(first));
}

#[test]
fn an_emptied_group_waits_again_with_its_next_first_member() {
    let mut w = delayed(3_000);
    let mut client = Client::new("a");
    let token = w.enter(&mut client);
    w.pass(3_000);
    w.joined(token, &mut client);
    assert_eq!(w.leave(&[(&client.member_id, None)]), [Ok(())]);
    assert_eq!(w.state(), "Empty");
    let mut next = Client::new("b");
    let token = w.enter(&mut next);
    assert!(w.waits(token));
    w.pass(3_000);
    assert_eq!(w.joined(token, &mut next).generation, Generation(3), "2 was the empty one");
}

#[test]
fn the_barrier_opens_when_the_last_known_member_has_joined() {
    let mut w = World::new();
    let mut group = [Client::new("a"), Client::new("b"), Client::new("c")];
    let leader = w.settle(&mut group);
    let mut tokens = vec![w.send_join(&group[leader])];
    for at in (0..3).filter(|at| *at != leader) {
        assert!(w.waits(tokens[0]));
        tokens.push(w.send_join(&group[at]));
    }
    for token in tokens {
        assert_eq!(w.join_answer(token).unwrap().generation, group[0].generation.next());
    }
}

#[test]
fn who_does_not_join_within_the_largest_rebalance_timeout_is_dropped() {
    let mut w = World::new();
    let long = |name| Client { session_ms: 1_000_000, ..Client::new(name) };
    let mut group = [long("a"), Client { rebalance_ms: Some(90_000), ..long("b") }];
    let leader = w.settle(&mut group);
    let token = w.send_join(&group[leader]);
    w.pass(89_999);
    assert!(w.waits(token));
    w.pass(1);
    assert_eq!(w.join_answer(token).unwrap().members.len(), 1);
    assert_eq!(w.heartbeat(&group[1 - leader]), Err(GroupError::UnknownMember));
}

#[test]
fn the_leader_stays_as_long_as_it_is_a_member() {
    let mut w = World::new();
    let mut group = [Client::new("a"), Client::new("b"), Client::new("c")];
    let leader = w.settle(&mut group);
    let others: Vec<usize> = (0..3).filter(|at| *at != leader).collect();
    // The leader joins last and leads all the same.
    group[others[0]].protocols[0].1 = vec![7];
    let first = w.send_join(&group[others[0]]);
    w.send_join(&group[others[1]]);
    let last = w.send_join(&group[leader]);
    assert_eq!(w.join_answer(last).unwrap().members.len(), 3);
    assert_eq!(&*w.join_answer(first).unwrap().leader, group[leader].member_id.as_str());
}

#[test]
fn after_the_leader_the_one_leads_that_came_first() {
    let mut w = World::new();
    let mut group = [Client::new("a"), Client::new("b"), Client::new("c")];
    assert_eq!(w.settle(&mut group), 0);
    assert_eq!(w.leave(&[(&group[0].member_id, None)]), [Ok(())]);
    let c = w.send_join(&group[2]);
    let b = w.send_join(&group[1]);
    assert_eq!(&*w.join_answer(c).unwrap().leader, group[1].member_id.as_str());
    assert_eq!(w.join_answer(b).unwrap().members.len(), 2);
}

#[test]
fn the_generation_never_falls_not_even_when_the_group_is_empty() {
    let mut w = World::new();
    let mut last = Generation::ZERO;
    for round in 0..5 {
        let mut client = Client::new(&format!("c{round}"));
        let token = w.enter(&mut client);
        let generation = w.joined(token, &mut client).generation;
        assert!(generation > last);
        last = generation;
        w.leave(&[(&client.member_id, None)]);
    }
}

#[test]
fn every_member_hears_the_same_leader_protocol_and_generation_and_only_the_leader_who_is_in() {
    let mut w = World::new();
    let mut group: Vec<Client> = (0..5).map(|n| Client::new(&format!("c{n}"))).collect();
    w.settle(&mut group);
    let tokens: Vec<_> = group.iter().map(|client| w.send_join(client)).collect();
    let answers: Vec<_> = tokens.into_iter().map(|token| w.join_answer(token).unwrap()).collect();
    for joined in &answers {
        assert_eq!((&joined.leader, joined.generation), (&answers[0].leader, answers[0].generation));
        assert_eq!(joined.protocol.as_deref(), Some("range"));
        assert_eq!(joined.protocol_type.as_deref(), Some("consumer"));
        assert_eq!(joined.members.len(), if joined.member_id == joined.leader { 5 } else { 0 });
        assert!(!joined.skip_assignment);
    }
}

#[test]
fn a_group_says_when_it_gets_its_first_members_and_when_it_loses_its_last() {
    let mut w = World::new();
    let mut group = [Client::new("a"), Client::new("b")];
    w.settle(&mut group);
    let told = |w: &mut World| w.out.occupancy.drain(..).map(|o| o.occupied).collect::<Vec<_>>();
    assert_eq!(told(&mut w), [true]);
    w.leave(&[(&group[0].member_id, None)]);
    assert!(told(&mut w).is_empty());
    w.leave(&[(&group[1].member_id, None)]);
    assert_eq!(told(&mut w), [false]);
}

#[test]
fn a_rebalance_timeout_of_zero_ends_at_once_instead_of_never() {
    let mut w = World::new();
    let mut client = Client { rebalance_ms: Some(0), ..Client::new("a") };
    let token = w.enter(&mut client);
    w.joined(token, &mut client);
    w.pass(100_000);
    assert_eq!(w.state(), "Empty");
    let mut client = Client { rebalance_ms: Some(-5), ..Client::new("a") };
    let token = w.enter(&mut client);
    assert!(!w.waits(token));
}
