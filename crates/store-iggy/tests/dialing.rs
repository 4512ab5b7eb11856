//! Connections to a cluster whose nodes are hard to reach.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod common;
#[path = "common/door.rs"]
mod door;
#[path = "common/nodes.rs"]
mod nodes;

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{RUNTIME, open};
use iggy_binary_protocol::codes::GET_ME_CODE;
use iggy_common::BinaryTransport;
use milena_store::testing::{TestMessage, batch_of};
use milena_store::{Appended, OffsetStore, Store, StoreError};
use milena_store_iggy::IggyConfig;
use milena_testkit::proxy::Mode;
use milena_testkit::{Proxy, ReservedPort};
use nodes::{GROUP, Nodes};
use pollster::block_on;

fn append(nodes: &Nodes, id: u128) -> Result<Appended, StoreError> {
    block_on(nodes.store.append(&nodes.topic.partition(0), batch_of(&[TestMessage::new(id, b"value")])))
}

/// None of the nodes that the cluster names can be reached, and the configured address can: so it is used, and nobody knows
/// which node that is.
#[test]
fn a_connection_to_a_node_without_a_name_is_not_believed_when_its_replies_are_to_others() {
    let nodes = Nodes::new();
    let other = nodes.native(0, async |client| client.send_raw_with_response(GET_ME_CODE, Bytes::new()).await.unwrap());
    let other: &'static [u8] = Box::leak(other.to_vec().into_boxed_slice());
    let ports = [ReservedPort::take(), ReservedPort::take()];
    let nowhere = ports.each_ref().map(|port| SocketAddr::from(([127, 0, 0, 1], port.number())));
    nodes.says_of(0, &nowhere, 1);
    // With this it hears of them.
    assert_eq!(nodes.read(0).unwrap(), [(0, 1)]);
    assert_eq!(append(&nodes, 2).unwrap().base_offset, Some(1));
    // The name that the connection has at first is that of another one, as when a reply to somebody else came before it.
    nodes.answers(0, GET_ME_CODE, other, 1);
    let astray = append(&nodes, 3);
    assert!(matches!(astray, Err(StoreError::InDoubt { .. })), "{astray:?}");
    assert_eq!(nodes.store.metrics().unwrap().stray_replies.get(), 1);
    assert_eq!(append(&nodes, 4).unwrap().base_offset, Some(3));
}

/// Connections to them are taken, and nothing is ever answered: however many there are, a call ends in its time.
#[test]
fn a_call_ends_in_its_time_when_no_node_of_a_cluster_answers() {
    let (call_timeout, connect_timeout) = (Duration::from_secs(4), Duration::from_secs(3));
    let nodes = Nodes::new();
    let store = open(IggyConfig { instance: 7, call_timeout, connect_timeout, ..nodes.nodes[0].config() });
    let silent: Vec<_> = (0..4).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let others = silent.iter().map(|listener| listener.local_addr().unwrap());
    let addresses: Vec<_> = std::iter::once(nodes.nodes[0].address()).chain(others).collect();
    nodes.says_of(0, &addresses, 0);
    let at = nodes.topic.partition(0);
    // With this it hears of them.
    assert_eq!(block_on(store.has_group(&nodes.topic, GROUP)), Ok(false));
    nodes.nodes[0].stop();
    let mut longest = Duration::ZERO;
    for _ in 0..2 {
        let started = Instant::now();
        let (asked, appended) = std::thread::scope(|scope| {
            let asked = scope.spawn(|| block_on(store.topic("kafka", "orders")).map(drop));
            let appended = block_on(store.append(&at, batch_of(&[TestMessage::new(9, b"value")]))).map(drop);
            (asked.join().unwrap(), appended)
        });
        assert!(asked.is_err() && appended.is_err(), "{asked:?}, {appended:?}");
        longest = longest.max(started.elapsed());
    }
    // Not at once either: they were waited for. One after the other, with the time for a login each, took 16 s.
    assert!(longest >= Duration::from_secs(1) && longest < Duration::from_secs(10), "{longest:?}");
    drop(silent);
}

/// As while nobody leads the cluster: the nodes neither answer a login nor refuse it, and do not come back to it.
#[test]
fn a_login_that_no_node_answers_is_sent_again_before_the_time_for_one_is_over() {
    let nodes = Nodes::new();
    let proxies = nodes.nodes.each_ref().map(|node| RUNTIME.block_on(Proxy::start(node.address())));
    nodes.says_of(0, &proxies.each_ref().map(Proxy::address), 0);
    // With this it hears of them.
    assert_eq!(nodes.read(0).unwrap(), [(0, 1)]);
    assert_eq!(append(&nodes, 2).unwrap().base_offset, Some(1));
    let connect_timeout = nodes.nodes[0].config().connect_timeout;
    let started = std::thread::scope(|scope| {
        proxies.iter().for_each(|proxy| proxy.set(Mode::LoseReplies));
        proxies.iter().for_each(Proxy::cut);
        let started = Instant::now();
        scope.spawn(|| {
            // No reply of this time ever comes.
            std::thread::sleep(connect_timeout / 3);
            proxies.iter().for_each(|proxy| proxy.set(Mode::Pass));
        });
        let appended = loop {
            match append(&nodes, 3) {
                // The call that meets the end of its connection.
                Err(StoreError::InDoubt { .. }) => {}
                appended => break appended,
            }
        };
        assert_eq!(appended.unwrap().base_offset, Some(2));
        started
    });
    assert!(started.elapsed() < connect_timeout, "one login was waited for: {:?}", started.elapsed());
}
