//! Authentication through the binary, with librdkafka as the client. Built without OpenSSL it has PLAIN alone of the mechanisms
//! that are served.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

use std::time::Duration;

use milena_testkit::ChildServer;
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::{FutureProducer, FutureRecord};

const PATIENCE: Duration = Duration::from_secs(20);

fn server() -> ChildServer {
    ChildServer::builder(env!("CARGO_BIN_EXE_milena"))
        .env("MILENA_SASL_MECHANISMS", "PLAIN,SCRAM-SHA-256")
        .env("MILENA_SASL_USERNAME", "alice")
        .env("MILENA_SASL_PASSWORD", "päss wörd")
        .start()
}

fn config(server: &ChildServer, password: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", server.bootstrap())
        .set("broker.address.family", "v4")
        .set("security.protocol", "sasl_plaintext")
        .set("sasl.mechanism", "PLAIN")
        .set("sasl.username", "alice")
        .set("sasl.password", password)
        .set("message.timeout.ms", "20000");
    config
}

#[tokio::test]
async fn librdkafka_logs_in_with_a_password() {
    let server = server();
    let producer: FutureProducer = config(&server, "päss wörd").create().unwrap();
    let sent = producer.send(FutureRecord::<(), _>::to("t").payload("hello"), PATIENCE).await;
    assert_eq!(sent.unwrap().offset, 0);
    let consumer: BaseConsumer = config(&server, "päss wörd").set("group.id", "g").create().unwrap();
    assert_eq!(consumer.fetch_watermarks("t", 0, PATIENCE).unwrap(), (0, 1));
}

#[test]
fn librdkafka_is_not_let_in_with_a_wrong_password_and_the_log_says_who_tried() {
    let server = server();
    let consumer: BaseConsumer = config(&server, "wrong").create().unwrap();
    assert!(consumer.fetch_metadata(None, Duration::from_secs(5)).is_err());
    let log = server.output();
    assert!(log.contains("client not authenticated") && log.contains("wrong name or password"), "{log}");
    assert!(!log.contains("päss"), "{log}");
}

#[test]
fn the_banner_says_what_clients_need_to_be_let_in() {
    let mut server = server();
    server.stop();
    let said = server.output();
    assert!(said.contains(&format!("Kafka clients connect to  {} (SASL_PLAINTEXT)", server.bootstrap())), "{said}");
    assert!(said.contains("--sasl-mechanism PLAIN --sasl-username NAME greetings"), "{said}");
}
