//! The same requests to Apache Kafka and to Milena.
//!
//! `TEST_BINARY` is the binary of Milena, as an absolute path; without it Milena is in this process. `KAFKA_JARS` is a folder with Kafka's jars; without it they are fetched
//! (`compat/kafka`). `TEST_STORE` and `TEST_IGGY` choose Milena's store, as for other tests.
//! `TEST_SCENARIOS`, names with commas between, leaves the others out, so that what they show is missing.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    missing_docs,
    reason = "test code"
)]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use milena_differential::accepted::Accepted;
use milena_differential::duo::Duo;
use milena_differential::scenarios;
use milena_server::config::ServerConfig;
use milena_testkit::{ChildServer, KafkaChild, TestServer};

/// Less than any machine's descriptors allow, so that the bound in force is not the machine's.
const CONNECTIONS_MAX: usize = 1_000;

/// Milena, set as the broker is.
enum Milena {
    Process(Box<ChildServer>),
    Here(Box<TestServer>),
}

impl Milena {
    async fn start() -> Self {
        let Ok(binary) = std::env::var("TEST_BINARY") else {
            let settings = |config: &mut ServerConfig| {
                config.instance_id = 1;
                config.limits.max_connections = CONNECTIONS_MAX;
                config.groups.initial_rebalance_delay = Duration::ZERO;
            };
            return Self::Here(Box::new(TestServer::builder().in_folder().config(settings).start().await));
        };
        let child = ChildServer::builder(binary)
            .env("MILENA_INSTANCE_ID", "1")
            .env("MILENA_LIMITS_MAX_CONNECTIONS", &CONNECTIONS_MAX.to_string());
        Self::Process(Box::new(child.env("MILENA_GROUPS_INITIAL_REBALANCE_DELAY", "0s").start()))
    }

    fn address(&self) -> SocketAddr {
        match self {
            Self::Process(child) => child.address(),
            Self::Here(server) => server.address(),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts Apache Kafka, with Java and jars from a registry; .ci/run has it as a step"]
async fn answers_are_kafkas_but_for_the_differences_that_are_listed() {
    let kafka = KafkaChild::builder()
        .property("offsets.topic.num.partitions", "1")
        .property("transaction.state.log.num.partitions", "1")
        .spawn();
    // Kafka takes seconds to start.
    let mut kafka = kafka.expect("a process");
    let milena = Milena::start().await;
    kafka.ready().unwrap();
    let only = std::env::var("TEST_SCENARIOS").unwrap_or_default();
    let accepted = Accepted::read(include_str!("../accepted.md"));
    let mut duo = Duo::new(kafka.address(), milena.address(), accepted);
    for (name, scenario) in scenarios::ALL {
        if only.is_empty() || only.split(',').any(|wanted| wanted == name) {
            let (start, before) = (Instant::now(), duo.requests());
            scenario(&mut duo).await;
            println!("{name}: {} requests to both, {} ms", duo.requests() - before, start.elapsed().as_millis());
        }
    }

    let found = duo.found();
    let wrong = [duo.accepted().check(&found), duo.unasked()].concat();
    println!("{} requests to both, {} differences by step and place", duo.requests(), found.len());
    assert!(
        wrong.is_empty(),
        "what differs and is not listed, and what is listed and does not differ:\n{}",
        wrong.join("\n")
    );
}
