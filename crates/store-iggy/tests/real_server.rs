//! The suite of promises against a real Iggy server, where `TEST_IGGY=iggy://user:password@host:port` names one.
//!
//! The server must be there for tests only: every test deletes the streams that it uses, Milena's own among them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    missing_docs,
    reason = "test code"
)]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{RUNTIME, open};
use iggy::prelude::{Client, Identifier, StreamClient, TcpClient, TopicClient};
use iggy_common::{AutoLogin, Credentials, TcpClientConfig};
use milena_store::conformance::StoreFactory;
use milena_store::testing::{TestMessage, batch_of};
use milena_store::{Bounds, Store, TopicSettings};
use milena_store_iggy::IggyConfig;
use milena_store_iggy::url::IggyUrl;
use parking_lot::{Mutex, MutexGuard};
use pollster::block_on;

/// One server, so one test at a time.
static TURN: Mutex<()> = Mutex::new(());

/// Streams of the suite and of the store.
const STREAMS: [&str; 3] = ["conformance", "other", "__milena"];

struct RealServer {
    config: IggyConfig,
    _turn: MutexGuard<'static, ()>,
}

impl RealServer {
    /// The server that the variable names, emptied; `None` when there is none.
    fn new() -> Option<Self> {
        let Ok(text) = std::env::var("TEST_IGGY") else {
            eprintln!("skipped: TEST_IGGY names no Iggy server");
            return None;
        };
        let turn = TURN.lock();
        let url = IggyUrl::parse(&text).unwrap();
        let server = url.servers.first().unwrap();
        let config = IggyConfig::new(server, &url.user.unwrap(), url.password.unwrap());
        RUNTIME.block_on(empty(&config));
        Some(Self { config, _turn: turn })
    }
}

async fn native(config: &IggyConfig) -> TcpClient {
    let credentials = Credentials::UsernamePassword(config.user.clone(), config.password.clone());
    let client = TcpClient::create(Arc::new(TcpClientConfig {
        server_address: config.servers[0].clone(),
        auto_login: AutoLogin::Enabled(credentials),
        ..TcpClientConfig::default()
    }));
    let client = client.unwrap();
    Client::connect(&client).await.unwrap();
    client
}

async fn empty(config: &IggyConfig) {
    let client = native(config).await;
    for stream in STREAMS {
        let name = Identifier::named(stream).unwrap();
        if client.get_stream(&name).await.unwrap().is_some() {
            client.delete_stream(&name).await.unwrap();
        }
    }
    client.disconnect().await.unwrap();
}

impl StoreFactory for RealServer {
    fn open(&self) -> Arc<dyn Store> {
        open(self.config.clone())
    }

    fn crash(&self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        drop(store);
        Some(StoreFactory::open(self))
    }
}

#[test]
fn a_trim_point_that_a_purge_made_void_does_not_come_back() {
    let Some(server) = RealServer::new() else { return };
    let store = server.open();
    let topic = block_on(store.create_topic("conformance", "purged", 1, &TopicSettings::default())).unwrap().topic;
    let at = topic.partition(0);
    let append = |count: u128| {
        for id in 1..=count {
            block_on(store.append(&at, batch_of(&[TestMessage::new(id, b"value")]))).unwrap();
        }
    };
    append(5);
    block_on(store.trim(&at, 4)).unwrap();
    RUNTIME.block_on(async {
        let (stream, topic) = (Identifier::named("conformance").unwrap(), Identifier::named("purged").unwrap());
        native(&server.config).await.purge_topic(&stream, &topic).await.unwrap();
    });
    // The first of them shows that the end fell, and the others pass the trim point.
    append(7);
    let all = Bounds { start: 0, end: 7 };
    let started = Instant::now();
    let reopened = || {
        let other = server.open();
        block_on(other.topics()).unwrap();
        block_on(other.bounds(&at)).unwrap()
    };
    while reopened() != all {
        assert!(started.elapsed() < Duration::from_secs(30), "the journal still has the trim point");
        std::thread::sleep(Duration::from_millis(100));
    }
    block_on(store.topics()).unwrap();
    assert_eq!(block_on(store.bounds(&at)).unwrap(), all);
}

/// As the suite's own macro, for a server that may not be there.
macro_rules! promises {
    ($($promise:ident)*) => {
        $(
            #[test]
            fn $promise() {
                if let Some(server) = RealServer::new() {
                    milena_store::conformance::$promise(&server);
                }
            }
        )*
    };
}

promises! {
    a_created_topic_is_described_and_listed
    a_topic_that_exists_is_not_created_again
    of_concurrent_creates_exactly_one_succeeds
    a_missing_topic_is_none
    one_name_in_two_streams_is_two_topics
    a_name_of_digits_is_a_name
    too_many_partitions_are_refused
    a_deleted_topic_is_gone
    a_topic_created_again_is_another_and_empty
    growing_adds_empty_partitions
    shrinking_is_refused
    settings_are_replaced
    a_missing_partition_is_not_found
    offsets_are_dense_and_start_at_zero
    the_answer_to_an_append_is_true
    messages_are_read_back_byte_for_byte
    partitions_are_independent
    a_read_at_the_end_is_empty
    a_read_outside_is_out_of_range
    a_read_within_an_entry_returns_all_of_it
    a_read_stops_at_its_limit_between_entries
    at_least_one_entry_is_returned_when_asked
    without_at_least_one_a_too_small_limit_returns_nothing
    a_large_entry_is_stored_and_read
    appends_of_several_threads_keep_each_ones_order
    a_reader_beside_a_writer_sees_a_dense_prefix
    malformed_batches_do_no_harm
    find_is_exact_when_times_are_out_of_order
    find_starts_where_it_is_told
    find_takes_the_append_time_of_untimed_messages
    find_by_append_time_ignores_origin_times
    find_agrees_with_a_scan_over_many_entries
    newest_is_the_first_of_the_latest
    newest_of_an_empty_partition_is_none
    newest_takes_the_append_time_of_untimed_messages
    trim_moves_the_start_at_once_and_exactly
    trim_never_moves_back_and_stops_at_the_end
    a_trimmed_partition_goes_on_where_it_was
    what_was_trimmed_is_not_found_by_time
    a_trim_survives_a_reopen
    sizes_name_every_partition
    the_watcher_hears_of_growth_when_it_is_readable
    the_watcher_hears_of_a_deletion
    a_later_watcher_replaces_the_first
    a_reopened_store_has_everything
    a_reopened_store_goes_on_at_the_same_offsets
    a_deletion_survives_a_reopen
    a_topic_created_again_after_a_reopen_is_another
    growth_and_settings_survive_a_reopen
    a_closed_store_refuses
    what_was_acknowledged_survives_a_crash
}
