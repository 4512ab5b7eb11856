//! Where the server listens, and what it tells clients about that.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod common;

use std::sync::Arc;

use common::*;
use milena_server::config::ListenerConfig;
use milena_server::{Server, ServerConfig, StartError};
use milena_store::testing::MemoryStore;
use milena_wire::kafka_protocol::messages::*;
use milena_wire::kafka_protocol::protocol::StrBytes;

fn with(listeners: Vec<ListenerConfig>) -> ServerConfig {
    ServerConfig { listeners, instance_id: 7, ..config() }
}

async fn refusal(config: ServerConfig) -> String {
    let started = Server::start_with(config, Arc::new(MemoryStore::new()), TABLE).await;
    started.err().expect("the server must not start").to_string()
}

async fn brokers(client: &mut Client) -> Vec<(i32, String, i32)> {
    let response = client.ask(0, &DescribeClusterRequest::default()).await;
    response.brokers.iter().map(|broker| (broker.broker_id.0, broker.host.to_string(), broker.port)).collect()
}

#[tokio::test]
async fn a_client_is_told_the_address_of_the_listener_it_came_in_on() {
    let outside = ListenerConfig {
        advertised_host: Some("kafka.example.org".to_owned()),
        advertised_port: Some(19_092),
        ..listener("outside", "0.0.0.0:0")
    };
    let server = start(with(vec![listener("inside", "127.0.0.1:0"), outside])).await;
    let ports: Vec<u16> = server.addresses().iter().map(|bound| bound.address.port()).collect();
    let mut inside = Client::connect(&server).await;
    assert_eq!(brokers(&mut inside).await, [(7, "127.0.0.1".to_owned(), i32::from(ports[0]))]);
    let mut outside = Client::connect_to(([127, 0, 0, 1], ports[1]).into()).await;
    assert_eq!(brokers(&mut outside).await, [(7, "kafka.example.org".to_owned(), 19_092)]);
    let names: Vec<_> = server.addresses().iter().map(|bound| bound.name.as_str()).collect();
    assert_eq!(names, ["inside", "outside"]);
}

#[tokio::test]
async fn a_wildcard_without_an_advertised_host_is_refused() {
    for bind in ["0.0.0.0:0", "[::]:0"] {
        let sentence = refusal(with(vec![listener("all", bind)])).await;
        assert!(sentence.contains("listener `all`") && sentence.contains("advertised host"), "{sentence}");
    }
}

#[tokio::test]
async fn an_advertised_host_that_is_no_host_is_refused() {
    for host in ["", "0.0.0.0", "[::]", "http://kafka", "kafka:9092 ", "two hosts"] {
        let one = ListenerConfig { advertised_host: Some(host.to_owned()), ..listener("one", "127.0.0.1:0") };
        let sentence = refusal(with(vec![one])).await;
        assert!(sentence.contains("which no client can connect to"), "{host}: {sentence}");
    }
}

#[tokio::test]
async fn contradictions_are_refused_with_a_sentence() {
    let twice = with(vec![listener("one", "127.0.0.1:0"), listener("one", "127.0.0.1:0")]);
    assert_eq!(refusal(twice).await, "two listeners are named `one`; give each its own name");
    assert!(refusal(with(Vec::new())).await.starts_with("no listener is configured"));
    let port = ListenerConfig { advertised_port: Some(0), ..listener("one", "127.0.0.1:0") };
    assert!(refusal(with(vec![port])).await.contains("advertises port 0"));
    let partitions = ServerConfig { num_partitions: 0, ..config() };
    assert_eq!(refusal(partitions).await, "num_partitions is 0; it must lie between 1 and 10000");
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let server = start(config()).await;
    let taken = address(&server);
    let started =
        Server::start_with(with(vec![listener("again", &taken.to_string())]), Arc::new(MemoryStore::new()), TABLE);
    let error = started.await.err().unwrap();
    assert!(matches!(error, StartError::Bind { .. }));
    assert!(error.to_string().starts_with(&format!("listener `again` cannot listen on {taken}: ")), "{error}");
}

#[tokio::test]
async fn ipv6_clients_are_told_an_address_without_brackets() {
    let bracketed = ListenerConfig { advertised_host: Some("[::1]".to_owned()), ..listener("bracketed", "[::]:0") };
    let server = start(with(vec![listener("six", "[::1]:0"), bracketed])).await;
    for bound in server.addresses() {
        let mut client = Client::connect_to(format!("[::1]:{}", bound.address.port()).parse().unwrap()).await;
        assert_eq!(brokers(&mut client).await, [(7, "::1".to_owned(), i32::from(bound.address.port()))]);
    }
}

#[tokio::test]
async fn the_ipv6_wildcard_serves_ipv4_clients_too() {
    let all = ListenerConfig { advertised_host: Some("localhost".to_owned()), ..listener("all", "[::]:0") };
    let server = start(with(vec![all])).await;
    let mut client = Client::connect_to(([127, 0, 0, 1], address(&server).port()).into()).await;
    assert_eq!(brokers(&mut client).await.len(), 1);
}

#[tokio::test]
async fn both_wildcards_may_share_a_port() {
    let advertised = |name: &str, bind: &str| ListenerConfig {
        advertised_host: Some(format!("{name}.example.org")),
        ..listener(name, bind)
    };
    // Somebody else may take the port of one before the other has it.
    let mut tries = 0..20;
    let (server, port) = loop {
        tries.next().expect("a port that is free in both");
        let probe = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let port = probe.local_addr().unwrap().port();
        drop(probe);
        let both = vec![advertised("four", &format!("0.0.0.0:{port}")), advertised("six", &format!("[::]:{port}"))];
        match Server::start_with(with(both), Arc::new(MemoryStore::new()), TABLE).await {
            Ok(server) => break (server, port),
            Err(error) => assert!(matches!(error, StartError::Bind { .. }), "{error}"),
        }
    };
    let mut four = Client::connect_to(([127, 0, 0, 1], port).into()).await;
    assert_eq!(brokers(&mut four).await[0].1, "four.example.org");
    let mut six = Client::connect_to(format!("[::1]:{port}").parse().unwrap()).await;
    assert_eq!(brokers(&mut six).await[0].1, "six.example.org");
    drop(server);
}

#[tokio::test]
async fn the_cluster_id_survives_a_restart_and_is_not_that_of_another_store() {
    let id = async |store: &Arc<MemoryStore>| {
        let server = Server::start_with(config(), Arc::clone(store) as _, TABLE).await.unwrap();
        let mut client = Client::connect(&server).await;
        client.ask(0, &DescribeClusterRequest::default()).await.cluster_id.to_string()
    };
    let store = Arc::new(MemoryStore::new());
    let first = id(&store).await;
    assert_eq!(id(&store).await, first);
    assert_eq!(first.len(), 36);
}

#[tokio::test]
async fn describe_cluster_answers_every_version() {
    let server = start(with(vec![listener("one", "127.0.0.1:0")])).await;
    let mut client = Client::connect(&server).await;
    for version in 0..=2 {
        let response = client.ask(version, &DescribeClusterRequest::default()).await;
        assert_eq!((response.error_code, response.controller_id.0), (0, 7));
        assert_eq!(response.cluster_authorized_operations, i32::MIN);
        assert_eq!(response.brokers.len(), 1);
        let asked = DescribeClusterRequest::default().with_include_cluster_authorized_operations(true);
        assert_eq!(client.ask(version, &asked).await.cluster_authorized_operations, 0b1_1111_1010_0000);
    }
    for (endpoint_type, code) in [(2, 114), (3, 115)] {
        let request = DescribeClusterRequest::default().with_endpoint_type(endpoint_type);
        let response = client.ask(1, &request).await;
        assert_eq!((response.error_code, response.brokers.len()), (code, 0));
    }
}

#[tokio::test]
async fn no_coordinator_of_another_kind_is_found_and_each_says_so_in_its_way() {
    let server = start(config()).await;
    let mut client = Client::connect(&server).await;
    for version in 1..=6 {
        for (key_type, code) in [(1, 53), (2, 42), (9, 42)] {
            let keys = ["one", "two"].map(StrBytes::from_static_str);
            let request = FindCoordinatorRequest::default().with_key_type(key_type);
            if version < 4 {
                let response = client.ask(version, &request.with_key(keys[0].clone())).await;
                assert_eq!((response.error_code, response.node_id.0, response.port), (code, -1, -1));
            } else {
                let response = client.ask(version, &request.with_coordinator_keys(keys.to_vec())).await;
                let answered: Vec<_> =
                    response.coordinators.iter().map(|one| (one.key.as_str(), one.error_code, one.port)).collect();
                assert_eq!(answered, [("one", code, -1), ("two", code, -1)]);
                assert!(response.coordinators[0].error_message.is_some());
            }
        }
    }
}

#[tokio::test]
async fn a_small_request_for_many_coordinators_does_not_make_a_huge_answer() {
    let server = start(config()).await;
    let mut client = Client::connect(&server).await;
    let keys = vec![StrBytes::from_static_str("k"); 10_000];
    let request = FindCoordinatorRequest::default().with_key_type(1).with_coordinator_keys(keys);
    let response = client.ask(4, &request).await;
    let messages = response.coordinators.iter().filter(|one| one.error_message.is_some()).count();
    assert_eq!((response.coordinators.len(), messages), (10_000, 100));
}
