//! A broker that has just become the leader and names an end of the log that lies below the fork, more than once on the way through one gap:
//! Milena behind a proxy that takes such an end into answers to the reader.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod support;

use std::sync::{Arc, Mutex};

use milena_catchup::{Event, Lane};
use milena_wire::RequestFrame;
use milena_wire::decode::decode_request;
use milena_wire::kafka_protocol::messages::{ApiKey, FetchRequest};
use support::milena::{GROUP, TOPIC, create};
use support::rewriting::{self, changed};
use support::{Watched, commit, committed, patient, produce};

/// What the reader is told is the end of the log, until somebody asks for it once more.
const ENDS: [i64; 3] = [30, 60, 90];

#[derive(Default)]
struct Leader {
    /// How many of these ends are over.
    over: usize,
    /// The reader was told of the one that counts.
    told: bool,
}

impl Leader {
    fn answer(&mut self, request: &RequestFrame, frame: &[u8]) -> Option<Vec<u8>> {
        if request.api_key == ApiKey::ListOffsets as i16 && std::mem::take(&mut self.told) {
            self.over += 1;
        }
        let reads = request.client_id.as_ref().is_some_and(|client| client.ends_with(".catchup"));
        if !reads || request.api_key != ApiKey::Fetch as i16 {
            return None;
        }
        let asked: FetchRequest = decode_request(request.body.clone(), request.api_version).unwrap();
        let at = asked.topics.first()?.partitions.first()?.fetch_offset;
        if ENDS.get(self.over).is_none_or(|end| at < *end) {
            return None;
        }
        self.told = true;
        let lagging = changed::<FetchRequest>(request, frame, |answer| {
            for partition in answer.responses.iter_mut().flat_map(|topic| &mut topic.partitions) {
                (partition.high_watermark, partition.last_stable_offset) = (at, at);
                partition.records = Some(Vec::new().into());
            }
        });
        Some(lagging)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_end_that_is_named_below_the_fork_is_asked_about_and_nothing_is_passed_over() {
    let leader = Arc::<Mutex<Leader>>::default();
    let answers = Arc::clone(&leader);
    let rewrite = move |request: &RequestFrame, frame: &[u8]| answers.lock().unwrap().answer(request, frame);
    let (_server, bootstrap) = rewriting::server(Arc::new(rewrite)).await;
    create(&bootstrap, TOPIC, 1).await;
    // A batch each, and the reader gets one at a time.
    for start in (0..120).step_by(10) {
        produce(&bootstrap, TOPIC, 0, start..start + 10);
    }
    commit(&bootstrap, GROUP, TOPIC, 0, 0, "");
    let mut config = patient(&bootstrap, GROUP);
    config.set("fetch.message.max.bytes", "1").set("queued.max.messages.kbytes", "1").set("queued.min.messages", "1");
    let mut consumer = Watched::start(Watched::with(config).in_flight_max(Lane::Backfill, 10), &[TOPIC]);
    let (live, backfill) = consumer.take(120, |_, _| true).await;
    assert_eq!((live, backfill), (vec![], (0..120).collect::<Vec<_>>()));
    assert_eq!(leader.lock().unwrap().over, ENDS.len(), "the reader was not told of all these ends");
    consumer.event(|event| *event == Event::CaughtUp).await;
    consumer.consumer.close().await.unwrap();
    assert_eq!(committed(&bootstrap, GROUP, TOPIC, 0).unwrap().0, 120);
}
