//! Health, and how the listener behaves towards odd clients.

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

use std::sync::Arc;
use std::time::Duration;

use groups_kit::{Member, builder, commits, create, server};
use kit::{SOON, Scrape, get, monitor, scrape, send, until, watch};
use milena_monitor::{Monitor, MonitorSettings, limits};
use milena_server::groups::{Coordinator, Coordinators};
use milena_store::Store;
use milena_store::testing::{Fault, MemoryStore};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

/// Asks until the server says that, and is not ready because of it.
async fn says(monitor: &Monitor, reason: &str) {
    let waited = async {
        loop {
            let ready = get(monitor, "/readyz").await;
            if ready.status == 503 && ready.body.contains(reason) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, waited).await.unwrap_or_else(|_| panic!("it never said: {reason}"));
}

/// Coordinates all groups or none, as the test says.
#[derive(Debug)]
struct Mandate(watch::Sender<bool>);

impl Coordinators for Mandate {
    fn coordinator_of(&self, _group: &str) -> Coordinator {
        if *self.0.borrow() { Coordinator::Here } else { Coordinator::Unknown }
    }

    fn mandate(&self) -> watch::Receiver<bool> {
        self.0.subscribe()
    }
}

#[tokio::test]
async fn a_server_that_loads_offsets_is_not_ready_and_one_that_leaves_groups_to_another_is() {
    let memory = MemoryStore::new();
    let mandate = Arc::new(Mandate(watch::Sender::new(false)));
    let told = Arc::clone(&mandate) as Arc<dyn Coordinators>;
    let server = builder().config(|config| config.coordinators = told).store(Arc::new(memory.clone())).start().await;
    let monitor = watch(&server).await;
    let coordinates = |now: &Scrape| now.value("milena_group_coordinator", &[]) == 1.0;
    assert_eq!(get(&monitor, "/readyz").await.status, 200);
    memory.plan(Fault::Hangs { applied: false });
    mandate.0.send_replace(true);
    says(&monitor, "the committed offsets are being loaded").await;
    // What is to hang is a call of this load, and not of the next one.
    while memory.faults_left() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(!coordinates(&scrape(&monitor).await));
    mandate.0.send_replace(false);
    mandate.0.send_replace(true);
    until(&monitor, "it coordinates", coordinates).await;
    assert_eq!(get(&monitor, "/readyz").await.status, 200);
    let mut member = Member::alone(&server).await;
    assert_eq!(member.heartbeat().await, 0);
    mandate.0.send_replace(false);
    let now = until(&monitor, "it does not", |now| !coordinates(now)).await;
    assert_eq!(now.value("milena_group_members_gone_total", &[("reason", "coordinator_moved")]), 1.0);
    assert_eq!((now.value("milena_group_members", &[]), now.value("milena_offsets_log_loads_total", &[])), (0.0, 1.0));
    assert_eq!(get(&monitor, "/readyz").await.status, 200);
}

#[tokio::test]
async fn before_the_server_is_up_the_process_is_alive_and_not_ready() {
    let monitor = monitor(MonitorSettings::default()).await;
    assert_eq!(get(&monitor, "/livez").await.status, 200);
    let ready = get(&monitor, "/readyz").await;
    assert_eq!((ready.status, ready.body.as_str()), (503, "the server is starting: it opens its store\n"));
    let now = scrape(&monitor).await;
    assert!(now.value("process_resident_memory_bytes", &[]) > 1e6);
    assert!(now.value("process_cpu_seconds_total", &[]) > 0.0);
    assert!(now.value("process_open_fds", &[]) < now.value("process_max_fds", &[]));
    assert!(now.value("process_start_time_seconds", &[]) > 1.7e9);
    assert_eq!(now.total("milena_build_info"), 1.0);
    assert_eq!(now.count("milena_groups"), 0);
}

#[tokio::test]
async fn readiness_follows_the_store() {
    let memory = MemoryStore::new();
    let server = builder().store(Arc::new(memory.clone())).start().await;
    let monitor = watch(&server).await;
    assert_eq!(get(&monitor, "/readyz").await.status, 200);
    // With something in the log of offsets it is read, too.
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    client.request(9, &commits("t", &[(0, 1)])).await;
    assert_eq!(get(&monitor, "/readyz").await.status, 200);
    memory.close().await.unwrap();
    let ready = get(&monitor, "/readyz").await;
    assert_eq!((ready.status, ready.body.as_str()), (503, "the store does not work: the store is closed\n"));
    assert_eq!(get(&monitor, "/livez").await.status, 200);
}

#[tokio::test]
async fn a_server_that_shuts_down_is_not_ready_and_one_that_is_gone_says_so() {
    let memory = MemoryStore::new();
    let short = |config: &mut milena_server::ServerConfig| config.groups.session_timeout_min = Duration::from_secs(2);
    let server = builder().config(short).store(Arc::new(memory.clone())).start().await;
    let monitor = watch(&server).await;
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    memory.plan(Fault::Hangs { applied: true });
    client.send(9, &commits("t", &[(0, 1)])).await;
    until(&monitor, "the commit waits", |now| now.value("milena_offsets_log_waiting_bytes", &[]) > 0.0).await;
    let stopping = tokio::spawn(server.shutdown());
    says(&monitor, "shutting down").await;
    assert_eq!(get(&monitor, "/livez").await.status, 200);
    says(&monitor, "has stopped").await;
    timeout(SOON, stopping).await.unwrap().unwrap();
}

#[tokio::test]
async fn what_is_no_path_or_no_method_of_ours_is_refused() {
    let monitor = monitor(MonitorSettings::default()).await;
    assert_eq!(get(&monitor, "/").await.status, 404);
    let refused = send(monitor.address(), b"POST /metrics HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n").await;
    assert_eq!(refused.status, 405);
    assert!(refused.head.contains("allow: get, head"), "{}", refused.head);
    let head = send(monitor.address(), b"HEAD /metrics HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert_eq!(send(monitor.address(), b"\x00\x00\x00\x12\x00\x12\x00\x00 Kafka? \r\n\r\n").await.status, 400);
}

#[tokio::test]
async fn a_head_that_never_ends_is_refused() {
    let monitor = monitor(MonitorSettings::default()).await;
    let long = format!("GET /livez HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(limits::HEAD_BYTES_MAX));
    assert_eq!(send(monitor.address(), long.as_bytes()).await.status, 431);
    let many = format!("GET /livez HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(limits::HEADERS_MAX + 1));
    assert_eq!(send(monitor.address(), many.as_bytes()).await.status, 431);
}

#[tokio::test]
async fn clients_that_say_nothing_lose_their_places_and_hold_up_nobody_for_long() {
    let server = server().await;
    let monitor = watch(&server).await;
    let mut silent = Vec::new();
    for _ in 0..limits::CONNECTIONS_MAX {
        silent.push(TcpStream::connect(monitor.address()).await.unwrap());
    }
    // All places are taken; members do not notice, and the next one comes in when the first is thrown out.
    let mut member = Member::alone(&server).await;
    assert_eq!(member.heartbeat().await, 0);
    assert_eq!(get(&monitor, "/readyz").await.status, 200);
    for mut stream in silent {
        let mut rest = Vec::new();
        timeout(SOON, stream.read_to_end(&mut rest)).await.expect("it was closed").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_scrapes_at_once_are_answered_while_groups_work() {
    let server = server().await;
    let monitor = watch(&server).await;
    let mut member = Member::alone(&server).await;
    create(&mut member.client, "t", 4).await;
    let traffic = async {
        for offset in 0..50 {
            assert_eq!(member.commit("t", &[(0, offset), (1, offset)]).await, [0, 0]);
            assert_eq!(member.heartbeat().await, 0);
        }
    };
    let address = monitor.address();
    let scrapes: Vec<_> = (0..100)
        .map(|_| tokio::spawn(async move { send(address, b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").await }))
        .collect();
    traffic.await;
    for scrape in scrapes {
        let answer = scrape.await.unwrap();
        assert_eq!(answer.status, 200);
        Scrape::parse(&answer.body);
    }
    assert_eq!(scrape(&monitor).await.value("milena_offset_commits_total", &[]), 50.0);
}
