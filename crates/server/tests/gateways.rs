//! Several gateways in front of one store.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod gateways_kit;
mod groups_kit;

use std::sync::Arc;
use std::time::Duration;

use gateways_kit::{Gateway, LEASE, TAKEN_OVER, agreed, member};
use groups_kit::{Member, codes, commits, create, fetch, join_request, offsets};
use milena_server::StartError;
use milena_server::gateways::JoinError;
use milena_server::lifecycle::Phase;
use milena_store::Store;
use milena_store::testing::MemoryStore;
use milena_store_embedded::{EmbeddedConfig, EmbeddedStore};
use milena_wire::kafka_protocol::messages::{DescribeClusterRequest, JoinGroupRequest};
use tokio::time::{Instant, sleep, timeout};

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

#[tokio::test]
async fn a_gateway_that_drains_is_named_no_longer() {
    let store = memory();
    let (one, two) = (Gateway::start(&store, 1).await, Gateway::start(&store, 2).await);
    for (brokers, phase) in [(2, Phase::Serving), (1, Phase::Draining)] {
        two.server.broker().lifecycle.advance(phase);
        let since = Instant::now();
        while one.metadata().await.brokers.len() != brokers {
            assert!(since.elapsed() < TAKEN_OVER, "{brokers} brokers");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Two members, each of which was sent to the coordinator by another gateway, share two partitions.
async fn two_members(gateways: [&Gateway; 2]) -> [Member; 2] {
    let (mut one, mut two) = (member(gateways[0]).await, member(gateways[1]).await);
    one.join_in_the_end(gateways[0]).await;
    let id = one.id.clone();
    one.sync(&[(&id, "0 1")]).await;
    two.send_join().await;
    while one.heartbeat().await != 27 {}
    let (led, joined) = (one.join().await, two.joined().await);
    assert_eq!((led.members.len(), led.generation_id), (2, joined.generation_id));
    let assignments = [(one.id.clone(), "0"), (two.id.clone(), "1")];
    let assignments: Vec<_> = assignments.iter().map(|(id, partition)| (id.as_str(), *partition)).collect();
    let leads = *led.leader == *one.id;
    let (of_one, of_two) = if leads {
        (one.sync(&assignments).await, two.sync(&[]).await)
    } else {
        let of_two = two.sync(&assignments).await;
        (one.sync(&[]).await, of_two)
    };
    assert_eq!((of_one.as_str(), of_two.as_str()), ("0", "1"), "no partition is assigned twice");
    [one, two]
}

trait Patient {
    async fn join_in_the_end(&mut self, gateway: &Gateway);
}

impl Patient for Member {
    /// Joins as a client does: a coordinator that loads, or has just changed, is asked again.
    async fn join_in_the_end(&mut self, gateway: &Gateway) {
        let since = Instant::now();
        loop {
            let answer = self.client.request(3, &join_request("", None)).await;
            if answer.error_code == 0 {
                self.id = answer.member_id.to_string();
                self.generation = answer.generation_id;
                return;
            }
            assert!([14, 15, 16].contains(&answer.error_code), "{}", answer.error_code);
            assert!(since.elapsed() < TAKEN_OVER);
            sleep(Duration::from_millis(20)).await;
            *self = member(gateway).await;
        }
    }
}

/// What the group has of both partitions, from whoever coordinates it as `gateway` says.
async fn committed(gateway: &Gateway) -> Vec<i64> {
    let since = Instant::now();
    loop {
        let mut client = member(gateway).await.client;
        let answer = client.request(9, &fetch("t", &[0, 1])).await;
        if answer.groups[0].error_code == 0 {
            let rows = answer.groups[0].topics.iter().flat_map(|topic| &topic.partitions);
            return rows.map(|row| row.committed_offset).collect();
        }
        assert!([14, 15, 16].contains(&answer.groups[0].error_code));
        assert!(since.elapsed() < TAKEN_OVER);
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn one_group_over_two_gateways_outlives_its_coordinator_and_loses_no_commit() {
    let store = memory();
    let one = Gateway::start(&store, 1).await;
    create(&mut one.client().await, "t", 2).await;
    let two = Gateway::start(&store, 2).await;
    let first = agreed(&[&one, &two]).await;
    let [mut here, mut there] = two_members([&one, &two]).await;
    assert_eq!((here.commit("t", &[(0, 10)]).await, there.commit("t", &[(1, 20)]).await), (vec![0], vec![0]));

    let (dead, alive) = if first == 1 { (one, two) } else { (two, one) };
    assert_eq!(alive.client().await.request(3, &join_request("", None)).await.error_code, 16);
    drop(dead);
    let died = Instant::now();
    let mut again = member(&alive).await;
    again.join_in_the_end(&alive).await;
    assert!(died.elapsed() < TAKEN_OVER);
    assert_eq!(offsets(&mut again.client, "t", &[0, 1]).await, [10, 20]);
    drop(again);
    assert_ne!(agreed(&[&alive]).await, first);
}

#[tokio::test]
async fn of_three_gateways_each_takes_over_in_the_end() {
    let store = memory();
    let mut gateways = Vec::new();
    for instance in 1..=3 {
        gateways.push(Gateway::start(&store, instance).await);
        if instance == 1 {
            create(&mut gateways[0].client().await, "t", 2).await;
        }
    }
    let mut last = -1;
    while let Some(gateway) = gateways.first() {
        let coordinator = agreed(&gateways.iter().collect::<Vec<_>>()).await;
        assert_eq!(committed(gateway).await, [last, last]);
        last += 1;
        let answer = member(gateway).await.client.request(9, &commits("t", &[(0, last), (1, last)])).await;
        assert_eq!(codes(&answer), [0, 0]);
        gateways.retain(|gateway| gateway.server.broker().node_id() != coordinator);
    }
    assert_eq!(last, 2);
}

#[tokio::test]
async fn a_gateway_that_shuts_down_gives_the_lease_back_at_once() {
    let store = memory();
    let one = Gateway::start(&store, 1).await;
    assert_eq!(agreed(&[&one]).await, 1);
    let two = Gateway::start(&store, 2).await;
    assert_eq!(agreed(&[&one, &two]).await, 1, "who has it keeps it");
    one.server.shutdown().await.unwrap();
    let stopped = Instant::now();
    assert_eq!(agreed(&[&two]).await, 2);
    assert!(stopped.elapsed() < LEASE / 2, "{:?}", stopped.elapsed());
    let brokers = two.metadata().await.brokers;
    assert_eq!(brokers.len(), 1);
    let again = Instant::now();
    let one = Gateway::start(&store, 1).await;
    assert!(again.elapsed() < LEASE / 2, "its number was given back too");
    assert_eq!(agreed(&[&one, &two]).await, 2);
}

#[tokio::test]
async fn a_coordinator_that_does_not_reach_the_store_stops_by_itself_before_another_one_begins() {
    let store = memory();
    let one = Gateway::start(&store, 1).await;
    assert_eq!(agreed(&[&one]).await, 1);
    let two = Gateway::start(&store, 2).await;
    assert_eq!(agreed(&[&one, &two]).await, 1);
    one.line.cut(true);
    let cut = Instant::now();
    loop {
        let (other, ours) = (two.says().await, one.says().await);
        // Asked in this order, and the other way round: whoever begins, the first one had stopped.
        if other.0 == 0 && other.1 == 2 {
            assert_ne!((ours.0, ours.1), (0, 1), "two coordinators");
            break;
        }
        assert!(cut.elapsed() < TAKEN_OVER);
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(one.client().await.request(3, &join_request("", None)).await.error_code, 16);
    one.line.cut(false);
    assert_eq!(agreed(&[&one, &two]).await, 2);
}

#[tokio::test]
async fn clients_are_told_of_all_gateways_that_are_alive_and_that_the_coordinator_is_the_controller() {
    let store = memory();
    let one = Gateway::start(&store, 1).await;
    create(&mut one.client().await, "t", 1).await;
    assert_eq!(agreed(&[&one]).await, 1);
    let two = Gateway::start(&store, 2).await;
    assert_eq!(agreed(&[&one, &two]).await, 1);
    let expected = [(1, i32::from(one.port())), (2, i32::from(two.port()))];
    let started = Instant::now();
    while one.metadata().await.brokers.len() < 2 {
        assert!(started.elapsed() < TAKEN_OVER);
        sleep(Duration::from_millis(20)).await;
    }
    for gateway in [&one, &two] {
        let answer = gateway.metadata().await;
        let mut brokers: Vec<_> = answer.brokers.iter().map(|broker| (broker.node_id.0, broker.port)).collect();
        brokers.sort_unstable();
        assert_eq!((brokers, answer.controller_id.0), (expected.to_vec(), 1));
        let request = DescribeClusterRequest::default().with_endpoint_type(1);
        let answer = gateway.client().await.request(1, &request).await;
        let mut brokers: Vec<_> = answer.brokers.iter().map(|broker| (broker.broker_id.0, broker.port)).collect();
        brokers.sort_unstable();
        assert_eq!((brokers, answer.controller_id.0), (expected.to_vec(), 1));
    }
    let cluster = one.server.broker().cluster_id.clone();
    assert_eq!(two.server.broker().cluster_id, cluster);
    drop(one);
    let died = Instant::now();
    while two.metadata().await.brokers.len() > 1 {
        assert!(died.elapsed() < TAKEN_OVER);
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_gateway_does_not_start_under_the_number_of_one_that_runs_and_does_under_that_of_a_dead_one() {
    let store = memory();
    let first = Gateway::start(&store, 7).await;
    let refused = Gateway::try_start(&store, 7, true).await.err().expect("the number is taken");
    assert!(matches!(refused, StartError::Join(JoinError::Taken { instance: 7, .. })), "{refused}");
    assert!(refused.to_string().contains(&format!("127.0.0.1:{}", first.port())), "{refused}");
    assert_eq!(agreed(&[&first]).await, 7);
    drop(first);
    let again = timeout(TAKEN_OVER, Gateway::start(&store, 7)).await.expect("the number becomes free");
    assert_eq!(agreed(&[&again]).await, 7);
}

#[tokio::test]
async fn a_gateway_whose_number_was_taken_while_it_was_silent_stops_serving() {
    let store = memory();
    let first = Gateway::start(&store, 7).await;
    let mut client = first.client().await;
    first.line.cut(true);
    let second = timeout(TAKEN_OVER, Gateway::start(&store, 7)).await.expect("silence frees the number");
    first.line.cut(false);
    timeout(TAKEN_OVER, first.server.displaced()).await.expect("it finds out");
    client.expect_close().await;
    assert_eq!(agreed(&[&second]).await, 7);
    timeout(TAKEN_OVER, first.server.shutdown()).await.unwrap().unwrap();
    assert_eq!(second.says().await.1, 7, "who was displaced takes nothing with it");
}

#[tokio::test]
async fn a_gateway_that_is_not_to_coordinate_never_does() {
    let store = memory();
    let one = Gateway::try_start(&store, 1, false).await.unwrap();
    let since = Instant::now();
    while since.elapsed() < LEASE * 2 {
        assert_eq!(one.says().await.0, 15);
        sleep(Duration::from_millis(100)).await;
    }
    let two = Gateway::start(&store, 2).await;
    assert_eq!(agreed(&[&one, &two]).await, 2);
}

#[tokio::test]
async fn who_waits_for_a_group_when_the_coordinator_is_cut_off_is_told_in_time() {
    let store = memory();
    let one = Gateway::start(&store, 1).await;
    assert_eq!(agreed(&[&one]).await, 1);
    let mut first = member(&one).await;
    first.join_in_the_end(&one).await;
    let mut waiting = member(&one).await;
    waiting.client.send(3, &join_request("", None)).await;
    one.line.cut(true);
    let answer = timeout(TAKEN_OVER, waiting.client.receive::<JoinGroupRequest>()).await.expect("an answer");
    assert_eq!(answer.error_code, 16);
}

#[tokio::test]
async fn two_gateways_share_an_embedded_store_of_one_process() {
    let dir = tempfile::tempdir().unwrap();
    let config = EmbeddedConfig { dir: Some(dir.path().to_owned()), ..EmbeddedConfig::default() };
    let store = tokio::task::spawn_blocking(move || EmbeddedStore::open(&config)).await.unwrap().unwrap();
    let store: Arc<dyn Store> = store;
    let one = Gateway::start(&store, 1).await;
    create(&mut one.client().await, "t", 2).await;
    assert_eq!(agreed(&[&one]).await, 1);
    let two = Gateway::start(&store, 2).await;
    assert_eq!(agreed(&[&one, &two]).await, 1);
    let [mut here, _there] = two_members([&one, &two]).await;
    assert_eq!(here.commit("t", &[(0, 10)]).await, [0]);
    drop(one);
    assert_eq!(committed(&two).await, [10, -1]);
    drop(two);
    store.close().await.unwrap();
}
