//! Each counter and histogram is told under its own name: all of them are moved by amounts that differ, and a scrape must show
//! each amount where it belongs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    missing_docs,
    reason = "test code"
)]

mod kit;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use kit::{Scrape, open_door, open_door_with, scrape, until, watch};
use milena_groups::{Departure, GroupEvent, RebalanceCause};
use milena_iggy_door::{DoorMetrics, DoorWatch};
use milena_server::metrics::{Counter, Histogram};
use milena_server::{Broker, ListenerConfig};
use milena_testkit::TestServer;
use milena_testkit::tls::{Authority, BOTH};
use milena_tls::Reason;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// What happens by itself between two scrapes stays far below it.
const STEP: u64 = 1_000;

/// Families of which neither a counter nor a histogram of the server is the source, so that nothing can be added to it here; each
/// has a test of its own, or shows what the system says.
const OTHERS: [&str; 13] = [
    "process_cpu_seconds_total",
    "milena_request_memory_waits_total",
    "milena_requests_total",
    "milena_request_errors_total",
    "milena_request_duration_seconds",
    // By their reasons and results, below.
    "milena_tls_handshakes_total",
    "milena_tls_handshakes_failed_total",
    "milena_tls_renewals_total",
    "milena_iggy_tls_handshakes_total",
    "milena_iggy_tls_handshakes_failed_total",
    "milena_iggy_tls_renewals_total",
    "milena_group_members_gone_total",
    "milena_group_rebalances_total",
];

type Labels = &'static [(&'static str, &'static str)];
type Row<'a> = (&'static str, Labels, &'a Counter);

fn of_connections(broker: &Broker) -> Vec<Row<'_>> {
    const REFUSED: &str = "milena_connections_refused_total";
    const CLOSED: &str = "milena_connections_closed_total";
    let metrics = &broker.metrics.connections;
    vec![
        ("milena_connections_accepted_total", &[], &metrics.accepted),
        (REFUSED, &[("limit", "max_connections")], &metrics.refused_total),
        (REFUSED, &[("limit", "max_connections_per_address")], &metrics.refused_per_address),
        ("milena_connections_accept_errors_total", &[], &metrics.accept_errors),
        (CLOSED, &[("reason", "by_client")], &metrics.closed_by_client),
        (CLOSED, &[("reason", "within_frame")], &metrics.closed_within_frame),
        (CLOSED, &[("reason", "io_error")], &metrics.closed_io),
        (CLOSED, &[("reason", "tls_handshake")], &metrics.closed_handshake),
        (CLOSED, &[("reason", "idle")], &metrics.closed_idle),
        (CLOSED, &[("reason", "read_stalled")], &metrics.closed_read_stalled),
        (CLOSED, &[("reason", "write_stalled")], &metrics.closed_write_stalled),
        (CLOSED, &[("reason", "frame_too_large")], &metrics.closed_frame_too_large),
        (CLOSED, &[("reason", "protocol_error")], &metrics.closed_protocol),
        (CLOSED, &[("reason", "unauthenticated")], &metrics.closed_unauthenticated),
        (CLOSED, &[("reason", "refused")], &metrics.closed_refused),
        (CLOSED, &[("reason", "session_expired")], &metrics.closed_expired),
        (CLOSED, &[("reason", "drained")], &metrics.closed_drained),
        (CLOSED, &[("reason", "undrained")], &metrics.closed_undrained),
        ("milena_bytes_in_total", &[], &metrics.bytes_in),
        ("milena_bytes_out_total", &[], &metrics.bytes_out),
    ]
}

fn of_authentication(broker: &Broker) -> Vec<Row<'_>> {
    const NAME: &str = "milena_authentications_total";
    let counter = |mechanism, outcome| {
        let mut all = broker.metrics.authentication.all();
        all.find(|(of, came, _)| (*of, *came) == (mechanism, outcome)).map(|(_, _, counter)| counter).unwrap()
    };
    vec![
        (NAME, &[("mechanism", "PLAIN"), ("outcome", "accepted")], counter("PLAIN", "accepted")),
        (NAME, &[("mechanism", "PLAIN"), ("outcome", "refused")], counter("PLAIN", "refused")),
        (NAME, &[("mechanism", "SCRAM-SHA-256"), ("outcome", "accepted")], counter("SCRAM-SHA-256", "accepted")),
        (NAME, &[("mechanism", "SCRAM-SHA-512"), ("outcome", "refused")], counter("SCRAM-SHA-512", "refused")),
        (NAME, &[("mechanism", "other"), ("outcome", "refused")], counter("other", "refused")),
    ]
}

fn of_data(broker: &Broker) -> Vec<Row<'_>> {
    let (produce, fetch) = (&broker.metrics.produce, &broker.metrics.fetch);
    vec![
        ("milena_produce_batches_total", &[], &produce.batches),
        ("milena_produce_records_total", &[], &produce.records),
        ("milena_produce_bytes_total", &[], &produce.bytes),
        ("milena_produce_enveloped_records_total", &[], &produce.enveloped),
        ("milena_produce_duplicates_total", &[], &produce.duplicates),
        ("milena_produce_refused_total", &[], &produce.refused),
        ("milena_produce_out_of_sequence_total", &[], &produce.out_of_sequence),
        ("milena_produce_unknown_producers_total", &[], &produce.unknown_producers),
        ("milena_produce_in_doubt_total", &[], &produce.in_doubt),
        ("milena_produce_doubled_total", &[], &produce.doubled),
        ("milena_produce_tail_reads_total", &[], &produce.tail_reads),
        ("milena_produce_rebuilt_producers_total", &[], &produce.rebuilt_producers),
        ("milena_fetch_records_total", &[], &fetch.records),
        ("milena_fetch_bytes_total", &[], &fetch.bytes),
        ("milena_fetches_parked_total", &[], &fetch.parked),
        ("milena_fetch_sessions_refused_total", &[], &fetch.sessions_refused),
        ("milena_fetch_unmapped_messages_total", &[], &fetch.unmapped),
        ("milena_fetch_lossy_header_names_total", &[], &fetch.lossy_names),
    ]
}

fn of_store(broker: &Broker) -> Vec<Row<'_>> {
    let engine = broker.store.metrics().unwrap();
    vec![
        ("milena_store_appends_total", &[], &engine.appends),
        ("milena_store_messages_total", &[], &engine.messages),
        ("milena_store_bytes_total", &[], &engine.bytes),
        ("milena_store_flush_failures_total", &[], &engine.flush_failures),
        ("milena_store_damaged_entries_total", &[], &engine.damaged_entries),
        ("milena_store_end_falls_total", &[], &engine.end_falls),
        ("milena_store_gap_reads_total", &[], &engine.gap_reads),
        ("milena_store_lost_messages_total", &[], &engine.lost_messages),
        ("milena_store_stray_replies_total", &[], &engine.stray_replies),
        ("milena_store_undurable_topics_total", &[], &engine.undurable_topics),
    ]
}

fn of_groups(broker: &Broker) -> Vec<Row<'_>> {
    const PARTITIONS: &str = "milena_offset_commit_partitions_total";
    let metrics = &broker.metrics.groups;
    vec![
        ("milena_group_members_joined_total", &[], &metrics.members_joined),
        ("milena_group_members_returned_total", &[], &metrics.members_returned),
        ("milena_offset_commits_total", &[], &metrics.commits),
        ("milena_offset_commits_late_total", &[], &metrics.commits_late),
        (PARTITIONS, &[("result", "stored")], &metrics.partitions_stored),
        (PARTITIONS, &[("result", "refused")], &metrics.partitions_refused),
        ("milena_offsets_expired_total", &[], &metrics.offsets_expired),
        ("milena_offsets_log_append_bytes_total", &[], &metrics.append_bytes),
        ("milena_offsets_log_append_failures_total", &[], &metrics.append_failures),
        ("milena_offsets_log_loads_total", &[], &metrics.loads),
        ("milena_offsets_log_snapshots_total", &[], &metrics.snapshots),
        ("milena_offsets_log_snapshot_failures_total", &[], &metrics.snapshot_failures),
    ]
}

fn of_door(metrics: &DoorMetrics) -> Vec<Row<'_>> {
    const REFUSED: &str = "milena_iggy_connections_refused_total";
    const LOGINS: &str = "milena_iggy_logins_total";
    const CLOSED: &str = "milena_iggy_connections_closed_total";
    vec![
        ("milena_iggy_connections_accepted_total", &[], &metrics.accepted),
        (REFUSED, &[("limit", "connections_max")], &metrics.refused),
        (REFUSED, &[("limit", "connections_per_address_max")], &metrics.refused_per_address),
        ("milena_iggy_connections_accept_errors_total", &[], &metrics.accept_errors),
        (CLOSED, &[("reason", "tls_handshake")], &metrics.closed_handshake),
        (CLOSED, &[("reason", "idle")], &metrics.closed_idle),
        (CLOSED, &[("reason", "stalled")], &metrics.closed_stalled),
        (CLOSED, &[("reason", "protocol_error")], &metrics.closed_protocol),
        (LOGINS, &[("shown", "password")], &metrics.logins_by_password),
        (LOGINS, &[("shown", "token")], &metrics.logins_by_token),
        ("milena_iggy_logins_failed_total", &[], &metrics.logins_failed),
        ("milena_iggy_requests_total", &[], &metrics.requests),
        ("milena_iggy_requests_refused_total", &[], &metrics.refusals),
        ("milena_iggy_messages_in_total", &[], &metrics.messages_in),
        ("milena_iggy_messages_out_total", &[], &metrics.messages_out),
    ]
}

fn histograms(broker: &Broker) -> [(&'static str, &Histogram); 4] {
    let groups = &broker.metrics.groups;
    [
        ("milena_store_flush_duration_seconds", &broker.store.metrics().unwrap().flush_time),
        ("milena_offsets_log_append_duration_seconds", &groups.append_time),
        ("milena_offsets_log_append_records", &groups.append_records),
        ("milena_group_rebalance_duration_seconds", &groups.rebalance_time),
    ]
}

/// Steps by which a series grew.
fn steps(before: &Scrape, now: &Scrape, name: &str, labels: Labels) -> u64 {
    let grown = now.value(name, labels) - before.find(name, labels).unwrap_or(0.0);
    let whole = (grown / STEP as f64).floor();
    assert!(whole >= 0.0, "{name} fell");
    whole as u64
}

/// Calls `look` with every counter.
fn with_rows<T>(broker: &Broker, door: &DoorWatch, look: impl FnOnce(Vec<Row<'_>>) -> T) -> T {
    let all = |metrics: &DoorMetrics| {
        let parts = [
            of_connections(broker),
            of_authentication(broker),
            of_data(broker),
            of_store(broker),
            of_groups(broker),
            of_door(metrics),
        ];
        look(parts.concat())
    };
    door.look(|metrics, _| all(metrics)).expect("the door is open")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_counter_is_told_under_its_own_name() {
    let server = TestServer::builder().in_folder().start().await;
    let monitor = watch(&server).await;
    let open = open_door(&server).await;
    let (broker, door) = (server.server().broker(), open.watch());
    monitor.watch_door(open.watch());
    let before = scrape(&monitor).await;
    with_rows(broker, &door, |rows| {
        (1..).zip(&rows).for_each(|(number, (_, _, counter))| counter.add(number * STEP));
    });
    for (number, (_, histogram)) in (1..).zip(histograms(broker)) {
        (0..number * STEP).for_each(|_| histogram.observe(1));
    }
    let now = scrape(&monitor).await;
    with_rows(broker, &door, |rows| {
        for (number, (name, labels, _)) in (1..).zip(rows) {
            assert_eq!(steps(&before, &now, name, labels), number, "{name} {labels:?}");
        }
    });
    for (number, (name, _)) in (1..).zip(histograms(broker)) {
        assert_eq!(steps(&before, &now, &format!("{name}_count"), &[]), number, "{name}");
    }
    let mut known: BTreeSet<&str> = OTHERS.into_iter().chain(histograms(broker).map(|(name, _)| name)).collect();
    with_rows(broker, &door, |rows| known.extend(rows.iter().map(|(name, _, _)| *name)));
    let growing = now.families.iter().filter(|(_, family)| family.kind != "gauge").map(|(name, _)| name.as_str());
    assert_eq!(growing.collect::<BTreeSet<_>>(), known, "a family that is not looked at, or one that is gone");
}

#[tokio::test]
async fn each_reason_is_told_under_its_own_name() {
    let server = TestServer::start().await;
    let monitor = watch(&server).await;
    let broker = server.server().broker();
    let metrics = &broker.metrics.groups;
    for (number, cause) in (1..).zip(RebalanceCause::ALL) {
        (0..number).for_each(|_| metrics.note(&GroupEvent::RebalanceBegan(cause)));
    }
    for (number, why) in (1..).zip(Departure::ALL) {
        (0..number).for_each(|_| metrics.note(&GroupEvent::MemberGone(why)));
    }
    metrics.rebalance_time.observe_time(Duration::from_secs(3));
    let now = scrape(&monitor).await;
    for (number, cause) in (1..).zip(RebalanceCause::ALL) {
        let found = now.value("milena_group_rebalances_total", &[("reason", cause.name())]);
        assert_eq!(found, f64::from(number), "{cause:?}");
    }
    for (number, why) in (1..).zip(Departure::ALL) {
        let found = now.value("milena_group_members_gone_total", &[("reason", why.name())]);
        assert_eq!(found, f64::from(number), "{why:?}");
    }
    assert_eq!(now.value("milena_group_rebalance_duration_seconds_sum", &[]), 3.0, "seconds, not nanoseconds");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handshakes_and_certificates_are_told_by_listener() {
    let authority = Authority::new();
    // The first second of 2040.
    let expiry = 2_208_988_800.0;
    let sign = || authority.sign_until("server", 2040);
    let tls = Some(sign().files());
    let secure = ListenerConfig { tls, ..ListenerConfig::new("secure", SocketAddr::from(([127, 0, 0, 1], 0))) };
    let server = TestServer::builder().config(|config| config.listeners.push(secure)).start().await;
    let monitor = watch(&server).await;
    let door = open_door_with(&server, |config| config.tls = Some(authority.sign_until("iggy", 2040).files())).await;
    monitor.watch_door(door.watch());
    let address = server.server().addresses()[1].address;
    let listener: Labels = &[("listener", "secure")];

    drop(milena_testkit::tls::connect(&authority.client(BOTH, None), address).await.unwrap());
    for _ in 0..2 {
        let mut plain = server.client_at(address).await;
        plain.send_bytes(b"GET / HTTP/1.1\r\n\r\n").await;
        plain.expect_close().await;
    }
    let (_, port) = &server.server().broker().tls.get().unwrap()[0];
    std::fs::write(authority.folder().join("server.key.pem"), "no key").unwrap();
    port.renew();
    for _ in 0..2 {
        sign();
        port.renew();
    }

    drop(milena_testkit::tls::connect(&authority.client(BOTH, None), door.address()).await.unwrap());
    let plain = async {
        let mut stream = tokio::net::TcpStream::connect(door.address()).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let _ = stream.read(&mut [0]).await;
    };
    tokio::time::timeout(Duration::from_secs(20), plain).await.expect("it is closed");
    std::fs::write(authority.folder().join("iggy.key.pem"), "no key").unwrap();
    door.metrics().tls.get().unwrap().renew();

    let failed: Labels = &[("listener", "secure"), ("reason", "plain_text")];
    let counted = |scrape: &Scrape| scrape.find("milena_tls_handshakes_failed_total", failed) == Some(2.0);
    let now = until(&monitor, "two failures", counted).await;
    assert_eq!(now.value("milena_tls_handshakes_total", listener), 1.0);
    assert_eq!(now.value("milena_tls_certificate_expiry_timestamp_seconds", listener), expiry);
    let renewals = |result| now.value("milena_tls_renewals_total", &[("listener", "secure"), ("result", result)]);
    assert!(renewals("renewed") >= 2.0 && renewals("refused") >= 1.0);
    for reason in Reason::ALL {
        let labels = [("listener", "secure"), ("reason", reason.name())];
        assert!(now.find("milena_tls_handshakes_failed_total", &labels).is_some(), "{reason:?}");
    }
    let now = until(&monitor, "the handshake of an Iggy client", |scrape| {
        scrape.find("milena_iggy_tls_handshakes_failed_total", &[("reason", "plain_text")]) == Some(1.0)
    })
    .await;
    assert_eq!(now.value("milena_iggy_tls_handshakes_total", &[]), 1.0);
    assert_eq!(now.value("milena_iggy_tls_certificate_expiry_timestamp_seconds", &[]), expiry);
    assert_eq!(now.value("milena_iggy_tls_renewals_total", &[("result", "refused")]), 1.0);
}
