//! What the store says when connections, replies and servers are lost.
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

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use common::{RUNTIME, open};
use door::{PASSWORD, TestServer, USER};
use iggy::prelude::{Identifier, PersonalAccessTokenClient, TcpClient, TopicClient, TopicCreateOptions};
use iggy_binary_protocol::codes::POLL_MESSAGES_CODE;
use iggy_binary_protocol::consensus::Operation;
use milena_iggy_door::faults::{Fault, On};
use milena_store::frame::Frames;
use milena_store::testing::{TestMessage, batch_of};
use milena_store::{
    Appended, Bounds, GrowthWatcher, PartitionRef, ReadLimit, Store, StoreError, TopicRef, TopicSettings,
};
use milena_store_iggy::{IggyConfig, IggyStore, OpenError, SecretString};
use parking_lot::Mutex;
use pollster::block_on;

const ALL: ReadLimit = ReadLimit { bytes: usize::MAX, at_least_one: true };
const SEND: On = On::Operation(Operation::SendMessages);

/// Long enough for a busy machine.
const SOON: Duration = Duration::from_secs(30);

struct Case {
    server: TestServer,
    store: Arc<IggyStore>,
    topic: TopicRef,
}

impl Case {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut IggyConfig)) -> Self {
        let server = TestServer::new();
        let mut config = server.config();
        change(&mut config);
        let store = open(config);
        let topic = block_on(store.create_topic("kafka", "orders", 4, &TopicSettings::default())).unwrap().topic;
        Self { server, store, topic }
    }

    fn at(&self) -> PartitionRef {
        self.topic.partition(0)
    }

    fn plan(&self, fault: Fault) {
        self.server.door.lock().as_ref().unwrap().faults().plan(SEND, fault);
    }

    fn append(&self, id: u128) -> Result<Appended, StoreError> {
        block_on(self.store.append(&self.at(), batch_of(&[TestMessage::new(id, b"value")])))
    }

    /// Ids of all messages, in order.
    fn ids(&self) -> Vec<u128> {
        let Bounds { start, .. } = block_on(self.store.bounds(&self.at())).unwrap();
        let entries = block_on(self.store.read(&self.at(), start, ALL)).unwrap();
        entries.iter().flat_map(|entry| Frames::new(&entry.frames).map(|frame| frame.id).collect::<Vec<_>>()).collect()
    }

    /// Somebody who uses the SDK directly.
    fn native(&self) -> TcpClient {
        self.server.native()
    }
}

fn name(text: &str) -> Identifier {
    Identifier::named(text).unwrap()
}

/// Until it is so, or the test fails.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < SOON, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn is_in_doubt(result: &Result<Appended, StoreError>) -> bool {
    matches!(result, Err(StoreError::InDoubt { .. }))
}

#[test]
fn an_append_whose_reply_was_cut_off_is_in_doubt_and_can_be_found() {
    let case = Case::new();
    assert_eq!(case.append(1).unwrap().base_offset, Some(0));
    case.plan(Fault::CutAfterApply);
    let cut = case.append(2);
    assert!(is_in_doubt(&cut), "{cut:?}");
    assert_eq!(case.ids(), [1, 2]);
    assert_eq!(case.append(3).unwrap().base_offset, Some(2), "the connection was replaced");
}

#[test]
fn an_append_that_was_cut_off_on_its_way_is_in_doubt_and_is_not_there() {
    let case = Case::new();
    case.plan(Fault::CutBeforeApply);
    let cut = case.append(1);
    assert!(is_in_doubt(&cut), "{cut:?}");
    assert_eq!(case.ids(), [0u128; 0]);
    assert_eq!(case.append(1).unwrap().base_offset, Some(0));
    assert_eq!(case.ids(), [1]);
}

#[test]
fn a_reply_that_never_comes_ends_after_our_own_time_and_holds_up_nobody_else() {
    let case = Case::with(|config| config.call_timeout = Duration::from_secs(6));
    case.append(1).unwrap();
    case.plan(Fault::SwallowReply);
    let started = Instant::now();
    std::thread::scope(|scope| {
        let swallowed = scope.spawn(|| case.append(2));
        eventually("the send arrives", || case.server.door.lock().as_ref().unwrap().faults().left() == 0);
        // Its neighbour has another connection, and so have reads and the log of Milena's own state.
        let other = case.topic.partition(1);
        let appended = block_on(case.store.append(&other, batch_of(&[TestMessage::new(9, b"value")])));
        assert_eq!(appended.unwrap().base_offset, Some(0));
        for at in [case.at(), other] {
            assert_eq!(block_on(case.store.read(&at, 0, ALL)).unwrap().first().map(|entry| entry.base_offset), Some(0));
        }
        let settings = TopicSettings { flush_messages: Some(3), ..TopicSettings::default() };
        block_on(case.store.update_settings(&case.topic, &settings)).unwrap();
        assert!(!swallowed.is_finished(), "they waited for the reply: {:?}", started.elapsed());
        let swallowed = swallowed.join().unwrap();
        assert!(is_in_doubt(&swallowed), "{swallowed:?}");
    });
    assert!(started.elapsed() < Duration::from_secs(25), "the SDK's own 30 seconds were waited for");
    assert_eq!(case.ids(), [1, 2]);
    assert_eq!(case.append(3).unwrap().base_offset, Some(2));
}

#[test]
fn a_confirmation_without_an_offset_is_success_and_no_guess() {
    let case = Case::new();
    case.append(1).unwrap();
    case.plan(Fault::NoOffset);
    assert_eq!(case.append(2).unwrap().base_offset, None);
    assert_eq!(case.ids(), [1, 2]);
}

/// Empty answers to a number of polls: what the server says at the end of a partition, and when it could not read.
const NOTHING: Fault = Fault::Body(&[0; 16]);

#[test]
fn a_start_that_no_message_shows_is_not_believed_and_asked_for_again() {
    for (start, messages) in [(3, "two"), (5, "no")] {
        let case = Case::new();
        (0..5).for_each(|id| assert!(case.append(id).is_ok()));
        let in_memory = block_on(case.server.memory.topic("kafka", "orders")).unwrap().unwrap().topic.partition(0);
        let bounds = || block_on(case.store.bounds(&case.at())).unwrap();
        assert_eq!(bounds(), Bounds { start: 0, end: 5 });
        let plan = |fault| case.server.door.lock().as_ref().unwrap().faults().plan(On::Code(POLL_MESSAGES_CODE), fault);
        (0..10_000).for_each(|_| plan(NOTHING));
        block_on(case.server.memory.trim(&in_memory, start)).unwrap();
        let left = || case.server.door.lock().as_ref().unwrap().faults().left();
        eventually("the start is asked for, more than once", || {
            assert_eq!(bounds(), Bounds { start: 0, end: 5 }, "{messages} messages are counted");
            left() < 9_998
        });
        case.server.door.lock().as_ref().unwrap().faults().forget();
        eventually("the start is believed", || bounds() == Bounds { start, end: 5 });
    }
}

#[test]
fn a_send_that_was_not_accepted_is_sent_again() {
    const TRANSIENT_NOT_ACCEPTED: u32 = 58;
    let case = Case::new();
    case.plan(Fault::Answer(TRANSIENT_NOT_ACCEPTED));
    assert_eq!(case.append(1).unwrap().base_offset, Some(0));
    assert_eq!(case.ids(), [1]);
}

#[test]
fn a_refused_send_says_so_and_keeps_the_connection() {
    const TOO_BIG_MESSAGE_PAYLOAD: u32 = 4022;
    let case = Case::new();
    case.plan(Fault::Answer(TOO_BIG_MESSAGE_PAYLOAD));
    let refused = case.append(1);
    assert!(matches!(refused, Err(StoreError::Refused { .. })), "{refused:?}");
    assert_eq!(case.append(1).unwrap().base_offset, Some(0));
}

#[test]
fn a_server_that_went_away_is_busy_at_once_and_is_found_again() {
    let case = Case::new();
    case.append(1).unwrap();
    case.server.stop();
    eventually("a call is refused while the server is away", || {
        let error = case.append(2).unwrap_err();
        assert!(matches!(error, StoreError::Busy { .. } | StoreError::InDoubt { .. }), "{error:?}");
        matches!(error, StoreError::Busy { .. })
    });
    case.server.start();
    eventually("the server is found again", || case.append(3).is_ok());
    assert_eq!(case.ids(), [1, 3]);
}

#[test]
fn a_wrong_password_is_a_clear_refusal() {
    let server = TestServer::new();
    let config = IggyConfig { password: SecretString::from("wrong".to_owned()), ..server.config() };
    let error = RUNTIME.block_on(Box::pin(IggyStore::open(config))).err().unwrap();
    assert!(matches!(error, OpenError::Refused(_)), "{error}");
    assert!(error.to_string().contains("nvalid credentials") && !error.to_string().contains("wrong"), "{error}");
}

#[test]
fn a_server_that_is_not_there_is_an_error_within_the_time_given() {
    let patience = Duration::from_secs(1);
    let nowhere = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = IggyConfig {
        start_timeout: patience,
        ..IggyConfig::new(&nowhere.to_string(), USER, SecretString::from(PASSWORD.to_owned()))
    };
    let started = Instant::now();
    let error = RUNTIME.block_on(Box::pin(IggyStore::open(config))).err().unwrap();
    assert!(matches!(error, OpenError::Unreachable(_)), "{error}");
    assert!(started.elapsed() < SOON);
}

#[test]
fn a_server_that_never_answers_is_an_error_that_says_what_to_look_at() {
    // It accepts connections and says nothing, as one of another protocol generation does.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = IggyConfig {
        connect_timeout: Duration::from_millis(500),
        start_timeout: Duration::from_secs(1),
        ..IggyConfig::new(&silent.local_addr().unwrap().to_string(), USER, SecretString::from(PASSWORD.to_owned()))
    };
    let error = RUNTIME.block_on(Box::pin(IggyStore::open(config))).err().unwrap();
    assert!(matches!(error, OpenError::Unreachable(_)), "{error}");
    assert!(error.to_string().contains("protocol 0.11"), "{error}");
}

#[test]
fn the_token_is_named_after_the_instance_and_gone_after_a_close() {
    let case = Case::with(|config| config.instance = 7);
    let native = case.native();
    let tokens = || {
        let tokens = RUNTIME.block_on(native.get_personal_access_tokens()).unwrap();
        tokens.iter().map(|token| token.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(tokens(), ["milena-7-b"]);
    let expiry = RUNTIME.block_on(native.get_personal_access_tokens()).unwrap()[0].expiry_at.unwrap();
    let day = Duration::from_secs(24 * 3_600);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let left = Duration::from_micros(expiry.as_micros()).saturating_sub(now);
    assert!((day - SOON..=day).contains(&left), "it ends by itself when nobody deletes it: {left:?}");
    block_on(case.store.close()).unwrap();
    assert_eq!(tokens(), [""; 0]);
}

#[test]
fn the_password_is_used_once_and_every_connection_logs_in_with_the_token() {
    let case = Case::new();
    for partition in 0..4 {
        let at = case.topic.partition(partition);
        block_on(case.store.append(&at, batch_of(&[TestMessage::new(1, b"value")]))).unwrap();
        assert_eq!(block_on(case.store.read(&at, 0, ALL)).unwrap().len(), 1);
    }
    // Each of these connections is lost and made again.
    for id in [2, 3] {
        case.plan(Fault::CutBeforeApply);
        assert!(is_in_doubt(&case.append(id)));
        case.append(id).unwrap();
    }
    let door = case.server.door.lock();
    let metrics = door.as_ref().unwrap().metrics();
    assert_eq!(metrics.logins_by_password.get(), 1, "the server spends tens of milliseconds on each");
    let appends = case.server.config().append_connections as u64;
    assert!(metrics.logins_by_token.get() >= appends + 2, "{} logins", metrics.logins_by_token.get());
}

#[test]
fn the_token_is_renewed_in_time_and_what_a_killed_run_left_behind_is_cleared_away() {
    let server = TestServer::new();
    // Never closed, as a gateway that was killed.
    let killed = open(server.config());
    let config = IggyConfig { token_renewal: Duration::from_millis(500), ..server.config() };
    let case = {
        let store = open(config);
        let topic = block_on(store.create_topic("kafka", "orders", 4, &TopicSettings::default())).unwrap().topic;
        Case { server, store, topic }
    };
    let native = case.native();
    let tokens = || {
        let mut tokens = RUNTIME.block_on(native.get_personal_access_tokens()).unwrap();
        tokens.retain(|token| token.name.starts_with("milena-"));
        tokens.iter().map(|token| token.name.clone()).collect::<Vec<_>>()
    };
    for name in ["milena-0-a", "milena-0-b", "milena-0-a"] {
        eventually("the token is replaced by one of the other name", || tokens() == [name]);
    }
    // A connection that is made now logs in with the new one, or with the password while it changes.
    case.plan(Fault::CutBeforeApply);
    assert!(is_in_doubt(&case.append(1)));
    eventually("there is a connection", || case.append(1).is_ok());
    drop(killed);
}

#[test]
fn a_token_that_was_revoked_is_no_end() {
    let case = Case::new();
    let native = case.native();
    RUNTIME.block_on(native.delete_personal_access_token("milena-0-b")).unwrap();
    // The next connection has to log in, and this makes the store need one.
    case.plan(Fault::CutBeforeApply);
    assert!(is_in_doubt(&case.append(1)));
    eventually("the password gets it in", || case.append(1).is_ok());
    eventually("there is a new token", || {
        let tokens = RUNTIME.block_on(native.get_personal_access_tokens()).unwrap();
        tokens.iter().any(|token| token.name.starts_with("milena-0-"))
    });
}

#[derive(Default)]
struct Deleted(Mutex<Vec<TopicRef>>);

impl GrowthWatcher for Deleted {
    fn grown(&self, _partition: &PartitionRef, _end: u64, _bytes: usize) {}

    fn deleted(&self, topic: &TopicRef) {
        self.0.lock().push(topic.clone());
    }
}

#[test]
fn a_topic_that_somebody_else_created_again_is_another() {
    let case = Case::new();
    let deleted = Arc::new(Deleted::default());
    case.store.watch(Arc::clone(&deleted) as Arc<dyn GrowthWatcher>);
    case.append(1).unwrap();
    let native = case.native();
    RUNTIME.block_on(native.delete_topic(&name("kafka"), &name("orders"))).unwrap();
    let options = TopicCreateOptions { partitions_count: Some(2), ..TopicCreateOptions::default() };
    RUNTIME.block_on(native.create_topic(&name("kafka"), "orders", &options)).unwrap();
    let listed = block_on(case.store.topics()).unwrap();
    let new = listed.iter().find(|info| info.topic.topic() == "orders").unwrap();
    assert!(new.topic != case.topic && new.partitions == 2);
    assert!(matches!(case.append(2), Err(StoreError::NotFound { .. })));
    assert_eq!(*deleted.0.lock(), std::slice::from_ref(&case.topic));
    assert_eq!(block_on(case.store.bounds(&new.topic.partition(0))).unwrap(), Bounds { start: 0, end: 0 });
}

#[test]
fn what_one_gateway_trimmed_and_set_is_so_for_another() {
    let case = Case::new();
    for id in 0..5 {
        case.append(id).unwrap();
    }
    let settings = TopicSettings { flush_messages: Some(3), ..TopicSettings::default() };
    let other = open(IggyConfig { instance: 1, ..case.server.config() });
    block_on(case.store.trim(&case.at(), 3)).unwrap();
    block_on(case.store.update_settings(&case.topic, &settings)).unwrap();
    let listed = block_on(other.topics()).unwrap();
    let seen = listed.iter().find(|info| info.topic == case.topic).unwrap();
    assert_eq!(seen.settings, settings);
    assert_eq!(block_on(other.bounds(&case.at())).unwrap(), Bounds { start: 3, end: 5 });
}

#[test]
fn after_a_restart_of_the_server_only_the_call_that_notices_it_is_in_doubt() {
    let case = Case::new();
    let append = |partition: u32| {
        let at = case.topic.partition(partition);
        block_on(case.store.append(&at, batch_of(&[TestMessage::new(1, b"value")])))
    };
    for partition in 0..4 {
        append(partition).unwrap();
    }
    case.server.stop();
    case.server.start();
    let after: Vec<_> = (0..4).map(append).collect();
    let in_doubt = after.iter().filter(|result| is_in_doubt(result)).count();
    assert!(in_doubt <= 1, "{after:?}");
    assert!(after.iter().skip(1).all(Result::is_ok), "{after:?}");
}
