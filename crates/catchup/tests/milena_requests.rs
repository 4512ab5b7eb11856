//! What goes over the wire, seen by a proxy in front of Milena.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod support;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use milena_catchup::{AckOutcome, Commit, Event, State};
use milena_testkit::proxy::Mode;
use milena_testkit::{Proxy, TestServer};
use support::milena::{GROUP, TOPIC, create};
use support::{Watched, commit, committed, config, produce};
use tokio::sync::mpsc;

const FETCH: i16 = 1;
const OFFSET_COMMIT: i16 = 8;
const JOIN_GROUP: i16 = 11;

/// Requests by API key and client id, put together from the stretches of bytes that the proxy sees.
#[derive(Default)]
struct Requests {
    stretches: HashMap<u64, Vec<u8>>,
    seen: Vec<(i16, String)>,
}

impl Requests {
    /// Answers the requests that are whole now.
    fn take(&mut self, connection: u64, bytes: &[u8]) -> Vec<(i16, String)> {
        let stretch = self.stretches.entry(connection).or_default();
        let before = self.seen.len();
        stretch.extend_from_slice(bytes);
        while let Some(length) = stretch.first_chunk::<4>().map(|length| u32::from_be_bytes(*length) as usize) {
            if stretch.len() < 4 + length {
                break;
            }
            let frame: Vec<_> = stretch.drain(..4 + length).collect();
            let number = |at: usize| i16::from_be_bytes([frame[at], frame[at + 1]]);
            // Length, key, version, correlation id; then the client id with its length.
            let client = String::from_utf8(frame[14..14 + usize::try_from(number(12)).unwrap()].to_vec()).unwrap();
            self.seen.push((number(4), client));
        }
        self.seen[before..].to_vec()
    }
}

struct World {
    requests: Arc<Mutex<Requests>>,
    proxy: Proxy,
    bootstrap: String,
    _server: TestServer,
}

impl World {
    /// Committed 70, end of the log 120.
    async fn new() -> Self {
        Self::watched(|_| {}).await
    }

    /// As [`World::new`]. `watch` gets the requests that have become whole, before the server gets the last bytes of them.
    async fn watched(watch: impl Fn(&[(i16, String)]) + Send + Sync + 'static) -> Self {
        let requests = Arc::<Mutex<Requests>>::default();
        let seer = Arc::clone(&requests);
        let mut bind = None;
        let builder = TestServer::builder().config(|config| {
            config.groups.initial_rebalance_delay = Duration::ZERO;
            bind = Some(config.listeners[0].bind);
        });
        let observer = move |connection, bytes: &[u8]| {
            let new = seer.lock().unwrap().take(connection, bytes);
            watch(&new);
        };
        let proxy = Proxy::observed(bind.unwrap(), Some(Arc::new(observer))).await;
        let address = proxy.address();
        let builder = builder.config(|config| {
            config.listeners[0].advertised_host = Some(address.ip().to_string());
            config.listeners[0].advertised_port = Some(address.port());
        });
        let server = builder.start().await;
        let bootstrap = address.to_string();
        create(&bootstrap, TOPIC, 1).await;
        produce(&bootstrap, TOPIC, 0, 0..120);
        commit(&bootstrap, GROUP, TOPIC, 0, 70, "");
        requests.lock().unwrap().seen.clear();
        Self { requests, proxy, bootstrap, _server: server }
    }

    /// How many requests of that key there were from the member or from the reader.
    fn count(&self, key: i16, client: &str) -> usize {
        self.requests.lock().unwrap().seen.iter().filter(|seen| **seen == (key, client.to_owned())).count()
    }

    /// Waits until there were so many.
    async fn until_count(&self, key: i16, client: &str, wanted: usize) {
        let look = async {
            while self.count(key, client) < wanted {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(support::SOON, look).await.expect("requests in time");
        assert_eq!(self.count(key, client), wanted);
    }

    fn builder(&self) -> milena_catchup::Builder {
        let mut config = config(&self.bootstrap, GROUP);
        config.set("client.id", "member");
        Watched::with(config)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b02_without_a_fork_there_is_no_reader() {
    let world = World::new().await;
    let builder = world.builder().fork_when(milena_catchup::Lag::records(50));
    let mut consumer = Watched::start(builder, &[TOPIC]);
    let (live, backfill) = consumer.take(50, |_, _| true).await;
    assert_eq!((live, backfill), ((70..120).collect::<Vec<_>>(), vec![]));
    consumer.consumer.close().await.unwrap();
    assert!(world.count(FETCH, "member") > 0);
    let requests = world.requests.lock().unwrap();
    assert!(requests.seen.iter().all(|(_, client)| client != "member.catchup"), "{:?}", requests.seen);
}

#[tokio::test(flavor = "multi_thread")]
async fn b24_the_reader_joins_no_group_and_commits_nothing() {
    let world = World::new().await;
    let mut consumer = Watched::start(world.builder().commit(Commit::Every(Duration::from_millis(20))), &[TOPIC]);
    consumer.event(|event| matches!(event, Event::Forked { .. })).await;
    produce(&world.bootstrap, TOPIC, 0, 120..130);
    consumer.take(60, |_, _| true).await;
    consumer.until_state(TOPIC, 0, State::Live).await;
    consumer.consumer.close().await.unwrap();
    assert_eq!(committed(&world.bootstrap, GROUP, TOPIC, 0).unwrap().0, 130);
    assert!(world.count(FETCH, "member.catchup") > 0 && world.count(OFFSET_COMMIT, "member") > 0);
    assert_eq!((world.count(OFFSET_COMMIT, "member.catchup"), world.count(JOIN_GROUP, "member.catchup")), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn b25_views_that_come_while_a_commit_is_under_way_become_one() {
    let world = World::new().await;
    let mut consumer = Watched::start(world.builder(), &[TOPIC]);
    let mut in_hand = Vec::new();
    for _ in 0..50 {
        in_hand.push(consumer.next().await);
    }
    let mut in_hand = in_hand.into_iter();
    world.proxy.set(Mode::HoldReplies);
    let mut commits = Vec::new();
    for _ in 0..4 {
        assert_eq!(in_hand.next().unwrap().ack(), AckOutcome::Counted);
        let commit = consumer.consumer.commit();
        let mut commit = Box::pin(commit);
        // Asked for, and not answered.
        assert!(tokio::time::timeout(Duration::from_millis(200), &mut commit).await.is_err());
        commits.push(commit);
        world.until_count(OFFSET_COMMIT, "member", 1).await;
    }
    world.proxy.set(Mode::Pass);
    for commit in commits {
        tokio::time::timeout(support::SOON, commit).await.expect("an answer").unwrap();
    }
    assert_eq!(world.count(OFFSET_COMMIT, "member"), 2);
    assert_eq!(committed(&world.bootstrap, GROUP, TOPIC, 0).unwrap().0, 74);
}

/// Whenever a commit is on its way, before the broker has it, the next record is acknowledged, and that makes the next commit due.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_commit_is_answered_while_acknowledgements_come_faster_than_answers() {
    let (on_its_way, mut commits) = mpsc::unbounded_channel();
    let (acknowledged, go_on) = std::sync::mpsc::channel();
    let go_on = Mutex::new(go_on);
    let world = World::watched(move |seen: &[(i16, String)]| {
        let member = |(key, client): &&(i16, String)| *key == OFFSET_COMMIT && client == "member";
        if seen.iter().any(|seen| member(&seen)) && on_its_way.send(()).is_ok() {
            // Nobody answers when the test is over.
            let _ = go_on.lock().unwrap().recv_timeout(support::SOON);
        }
    });
    let world = world.await;
    let every = Commit::Every(Duration::from_secs(3_600));
    let mut consumer = Watched::start(world.builder().commit(every).commit_acks(1), &[TOPIC]);
    let mut in_hand = Vec::new();
    for _ in 0..50 {
        in_hand.push(consumer.next().await);
    }
    let mut in_hand = in_hand.into_iter();
    let first = in_hand.next().unwrap();
    consumer.ack(first);
    let commit = consumer.consumer.commit();
    tokio::pin!(commit);
    let answer = async {
        loop {
            tokio::select! {
                biased;
                answer = &mut commit => break Some(answer),
                Some(()) = commits.recv() => {
                    let Some(delivery) = in_hand.next() else { break None };
                    assert_eq!(delivery.ack(), AckOutcome::Counted);
                    acknowledged.send(()).unwrap();
                }
            }
        }
    };
    let answer = tokio::time::timeout(support::SOON, answer).await.expect("an answer, or no record any more");
    answer.expect("an answer before the acknowledgements end").unwrap();
    // Commits that are on their way go on.
    drop((commits, acknowledged));
    let (floor, _) = committed(&world.bootstrap, GROUP, TOPIC, 0).unwrap();
    assert!(floor > 70, "{floor}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b26_a_view_that_did_not_change_is_not_sent() {
    let world = World::new().await;
    let mut consumer = Watched::start(world.builder().commit(Commit::Every(Duration::from_millis(20))), &[TOPIC]);
    consumer.take(50, |_, offset| offset < 80).await;
    consumer.until(TOPIC, 0, |status| status.is_some_and(|status| status.committed == Some(80))).await;
    let sent = world.count(OFFSET_COMMIT, "member");
    tokio::time::sleep(support::QUIET).await;
    consumer.consumer.commit().await.unwrap();
    assert_eq!(world.count(OFFSET_COMMIT, "member"), sent);
}

#[tokio::test(flavor = "multi_thread")]
async fn b46_a_revocation_is_committed_once_when_it_is_drained() {
    let world = World::new().await;
    let mut consumer = Watched::start(world.builder(), &[TOPIC]);
    let mut in_hand = Vec::new();
    for _ in 0..50 {
        in_hand.push(consumer.next().await);
    }
    let open = in_hand.split_off(20);
    for delivery in in_hand {
        consumer.ack(delivery);
    }
    // Another member of the group takes the partition, or makes it come back: either way it is drained and given up.
    let mut config = config(&world.bootstrap, GROUP);
    config.set("client.id", "other");
    let _other = Watched::start(Watched::with(config), &[TOPIC]);
    consumer.event(|event| *event == Event::Draining).await;
    assert_eq!(world.count(OFFSET_COMMIT, "member"), 0, "before the drain is over nothing is committed");
    for delivery in open {
        consumer.ack(delivery);
    }
    consumer.event(|event| *event == Event::Revoked).await;
    assert_eq!(world.count(OFFSET_COMMIT, "member"), 1);
    assert_eq!(committed(&world.bootstrap, GROUP, TOPIC, 0).unwrap().0, 120);
}
