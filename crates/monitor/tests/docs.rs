//! The table of metrics in the documents, the dashboard and the alert rules name what a scrape holds, and all of it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

#[path = "../../server/tests/groups_kit/mod.rs"]
mod groups_kit;
mod kit;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use groups_kit::{Member, create, text};
use kit::{Family, open_door, scrape, until, watch};
use milena_server::ListenerConfig;
use milena_testkit::{Authority, TestServer};
use milena_wire::kafka_protocol::messages::ApiVersionsRequest;

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every family that a server has, with all its labels: something happened to each.
async fn families() -> BTreeMap<String, Family> {
    let authority = Authority::new();
    let tls = Some(authority.sign("server").files());
    let secure = ListenerConfig { tls, ..ListenerConfig::new("secure", SocketAddr::from(([127, 0, 0, 1], 0))) };
    let server = TestServer::builder().in_folder().config(|config| config.listeners.push(secure)).start().await;
    let monitor = watch(&server).await;
    let mut member = Member::new(&server).await;
    let request = ApiVersionsRequest::default().with_client_software_name(text("test"));
    member.client.request(3, &request).await;
    create(&mut member.client, "t", 1).await;
    let commit = groups_kit::commits("t", &[(0, 0), (1, 0)]);
    assert_eq!(groups_kit::codes(&member.client.request(9, &commit).await), [0, 3]);
    let door = open_door(&server).await;
    monitor.watch_door(door.watch());
    scrape(&monitor).await.families
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_iggy_clients_are_counted_while_the_door_is_open() {
    let server = TestServer::start().await;
    let monitor = watch(&server).await;
    assert!(!scrape(&monitor).await.families.contains_key("milena_iggy_connections"), "there is no door");
    let door = open_door(&server).await;
    monitor.watch_door(door.watch());
    let client = tokio::net::TcpStream::connect(door.address()).await.unwrap();
    until(&monitor, "a connection is counted", |scrape| scrape.find("milena_iggy_connections", &[]) == Some(1.0)).await;
    drop(client);
    until(&monitor, "its end is seen", |scrape| scrape.find("milena_iggy_connections", &[]) == Some(0.0)).await;
    door.shutdown().await;
    assert!(!scrape(&monitor).await.families.contains_key("milena_iggy_connections"), "it is closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_table_of_metrics_is_what_a_scrape_holds() {
    let text = document("docs/metrics.md");
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let rows: Vec<Vec<&str>> = rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect();
    let shown: Vec<(String, Family)> = rows
        .iter()
        .filter(|row| row.len() == 4)
        .map(|row| {
            let labels = row[2].split(", ").filter(|label| !label.is_empty()).map(|label| label.trim_matches('`'));
            let family = Family {
                kind: row[1].to_owned(),
                help: row[3].to_owned(),
                labels: labels.map(str::to_owned).collect(),
            };
            (row[0].trim_matches('`').to_owned(), family)
        })
        .collect();
    let count = shown.len();
    let shown: BTreeMap<String, Family> = shown.into_iter().collect();
    assert_eq!(shown.len(), count, "a metric has two rows");
    let there = families().await;
    let missing: Vec<_> = there.iter().filter(|(name, family)| shown.get(*name) != Some(family)).collect();
    assert!(missing.is_empty(), "docs/metrics.md says otherwise, or nothing, of {missing:#?}");
    let invented: Vec<_> = shown.keys().filter(|name| !there.contains_key(*name)).collect();
    assert!(invented.is_empty(), "docs/metrics.md names metrics that no scrape holds: {invented:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_dashboard_and_the_alert_rules_name_metrics_that_exist() {
    let there = families().await;
    for file in ["contrib/grafana/milena.json", "contrib/prometheus/alerts.yml", "docs/metrics.md"] {
        let text = document(file);
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let names: Vec<&str> =
            words.filter(|word| word.starts_with("milena_") || word.starts_with("process_")).collect();
        assert!(names.len() > 5, "{file} is not read");
        for name in names {
            let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let exists = there.contains_key(name)
                || of_histogram.and_then(|stem| there.get(stem)).is_some_and(|family| family.kind == "histogram");
            assert!(exists, "{file} names {name}");
        }
    }
}
