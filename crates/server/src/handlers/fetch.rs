//! Fetch (1), versions 4-17: records of partitions, waiting for them if asked to.
//!
//! - v5: log start offset. v7: fetch sessions (KIP-227). v9: the client's leader epoch. v11: rack and preferred replica.
//!   v12: flexible. v13: topics by id. v15 to v17: fields of replicas only.
//! - Waits up to `max_wait` (at most `fetch_wait_max`) until `min_bytes` of records are there. An error in any partition,
//!   a deleted topic and shutdown answer at once; a client that is gone is not waited for.
//! - `max_bytes` (at most `fetch_response_bytes`) and `partition_max_bytes` cut at a record; the first record of the
//!   response is returned whatever its size (KIP-74), or a consumer could never get past it. 4 MiB end an answer, unless
//!   `min_bytes` asks for more. So that this starves no partition, requests without a session begin at any of them.
//! - When clients leave so many answers unread that their bytes pass `in_flight_bytes`, further answers get shorter, down
//!   to one record.
//! - An offset outside of the log is 1, with the true log start offset and high watermark: the client resets by them.
//! - High watermark and last stable offset are the end of the log. There are no transactions: the isolation level changes
//!   nothing but the form of the (empty) list of aborted ones.
//! - The leader epoch rises when the end of the log moved back. One that is older than the partition's is 74, whatever the
//!   offset: the client then asks where its position ends, instead of reading on. A newer one is 75. Each batch carries
//!   the epoch of its records, so an answer ends where an epoch does.
//! - v12: a replica names the epoch of its last record; where its position lies behind what is left of that epoch, the answer
//!   is that end (the diverging epoch) and no records.
//! - An unknown topic is 3 by name and 100 by id; a partition that its topic does not have is 3.
//! - A damaged stored entry is 56 for its partition only.
//! - Left out: the preferred replica (always none), the rack, throttling. A fetch of a replica is otherwise
//!   answered as one of a consumer.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use milena_store::Store;
use milena_wire::WireError;
use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use milena_wire::kafka_protocol::messages::{ApiKey, FetchRequest, TopicName};
use uuid::Uuid;

use crate::dispatch::{Api, Connection, Outcome, Pieces, Request, decode};
use crate::fetch::Fetches;
use crate::fetch::arena::Frozen;
use crate::fetch::leader_epoch::NO_EPOCH;
use crate::fetch::reader::{self, Answer, Pass, Topics};
use crate::fetch::response::{Head, write_frame};
use crate::fetch::room::Held;
use crate::fetch::serve::{Patience, Source, serve};
use crate::fetch::sessions::{Ask, EPOCH_NEW, NO_SESSION, Plan, SessionError, Summary};
use crate::fetch::want::{PartitionKey, Position, TopicKey, Want};
use crate::limits::{FETCH_ENOUGH_BYTES, Limits};
use crate::metrics::{ApiMetrics, FetchMetrics};

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::Fetch,
    name: "Fetch",
    advertised: (4, 17),
    served: (4, 17),
    handle: |request| Box::pin(handle(request)),
};

/// First version that names topics by id.
const BY_ID: i16 = 13;

async fn handle(request: Request) -> Outcome {
    let broker = &request.context.broker;
    let decoded = match decode::<FetchRequest>(broker, request.body, request.version).await {
        Ok(decoded) => Asked::new(request.version, request.correlation_id, &decoded, &broker.config.limits),
        Err(error) => return Outcome::Close(error),
    };
    let environment = Environment {
        store: broker.store.as_ref(),
        topics: &broker.topics,
        fetches: &broker.fetches,
        metrics: &broker.metrics.fetch,
        request: broker.metrics.requests.of(ApiKey::Fetch as i16).map(|api| (api, &*request.context.connection)),
        threads_can_block: broker.threads_can_block,
    };
    match fetch(&environment, decoded, request.context.connection.ending()).await {
        Ok(answer) => Outcome::Pieces(answer),
        Err(error) => Outcome::Close(error),
    }
}

/// A request in our terms. The decoded message is dropped before the fetch may wait: that of a hundred thousand
/// partitions takes tens of megabytes.
struct Asked {
    head: Head,
    ask: Ask,
    patience: Patience,
}

impl Asked {
    fn new(version: i16, correlation_id: i32, request: &FetchRequest, limits: &Limits) -> Self {
        let read_committed = request.isolation_level == 1;
        Self {
            head: Head { version, correlation_id, error_code: 0, session_id: NO_SESSION, read_committed },
            ask: ask(version, request),
            patience: patience(request, limits),
        }
    }
}

/// What the handler works with.
struct Environment<'a, T> {
    store: &'a dyn Store,
    topics: &'a T,
    fetches: &'a Fetches,
    metrics: &'a FetchMetrics,
    /// Where error codes are counted, and who is told of time asleep.
    request: Option<(&'a ApiMetrics, &'a Connection)>,
    threads_can_block: bool,
}

async fn fetch<T: Topics>(
    environment: &Environment<'_, T>,
    asked: Asked,
    ending: impl Future<Output = ()>,
) -> Result<Pieces, WireError> {
    let Asked { mut head, ask, patience } = asked;
    let Environment { store, topics, fetches, metrics, request, threads_can_block } = *environment;
    let wants_session = ask.epoch == EPOCH_NEW;
    let plan = match fetches.sessions.begin(ask, fetches.now_ms()) {
        Ok(plan) => plan,
        Err(error) => return refuse(environment, head, error),
    };
    let source = Source {
        store,
        // Drawn, not counted: of consumers that ask in step each would be given the same few numbers again and again.
        first: if patience.ends_early && plan.is_sessionless() { rand::random::<u32>() as usize } else { 0 },
        purgatory: &fetches.purgatory,
        buffers: &fetches.buffers,
        room: &fetches.room,
        compressors: &fetches.compressors,
        metrics,
        threads_can_block,
    };
    let targets = reader::resolve(topics, &plan.wants);
    if targets.iter().any(Result::is_err) {
        topics.look_soon();
    }
    let pass = serve(&source, &plan.wants, &targets, patience, ending).await;
    count(metrics, &pass);
    if let Some((api, connection)) = request {
        connection.was_parked(pass.slept);
        let codes = pass.answers.iter().filter_map(|answer| answer.error);
        codes.for_each(|error| api.errors.note(error.code()));
    }
    let summaries: Vec<Summary> = pass.answers.iter().map(summary).collect();
    match fetches.sessions.finish(&plan, &summaries, fetches.now_ms(), rand::random::<i32>) {
        Ok(finished) => {
            if wants_session && finished.session_id == NO_SESSION {
                metrics.sessions_refused.add(1);
            }
            head.session_id = finished.session_id;
            let Pass { answers, arena, held, .. } = pass;
            let included = included(&plan, &answers, finished.included.as_deref());
            Ok(Pieces { bytes: write_frame(&head, &included, &arena.freeze())?, held })
        }
        Err(error) => refuse(environment, head, error),
    }
}

fn count(metrics: &FetchMetrics, pass: &Pass) {
    metrics.records.add(pass.counts.records);
    metrics.bytes.add(pass.arena.len() as u64);
    metrics.unmapped.add(pass.counts.unmapped);
    metrics.lossy_names.add(pass.counts.lossy_names);
    metrics.errors.add(pass.errors as u64);
}

fn refuse<T>(environment: &Environment<'_, T>, mut head: Head, error: SessionError) -> Result<Pieces, WireError> {
    let code = match error {
        SessionError::NotFound => ResponseError::FetchSessionIdNotFound,
        SessionError::Epoch => ResponseError::InvalidFetchSessionEpoch,
        SessionError::TopicIds => ResponseError::FetchSessionTopicIdError,
    };
    head.error_code = code.code();
    if let Some((api, _)) = environment.request {
        api.errors.note(head.error_code);
    }
    Ok(Pieces { bytes: write_frame(&head, &[], &Frozen::default())?, held: Held::default() })
}

fn included<'a>(plan: &'a Plan, answers: &'a [Answer], chosen: Option<&[bool]>) -> Vec<(&'a Want, &'a Answer)> {
    let all = plan.wants.iter().zip(answers);
    match chosen {
        None => all.collect(),
        Some(chosen) => all.zip(chosen).filter(|(_, chosen)| **chosen).map(|(pair, _)| pair).collect(),
    }
}

fn summary(answer: &Answer) -> Summary {
    Summary {
        failed: answer.is_news(),
        has_records: !answer.records.is_empty(),
        high_watermark: answer.high_watermark,
        log_start: answer.log_start,
    }
}

fn patience(request: &FetchRequest, limits: &Limits) -> Patience {
    let bytes_most = usize::try_from(request.max_bytes).unwrap_or(0).min(limits.fetch_response_bytes);
    // More than the limit never comes.
    let bytes_min = usize::try_from(request.min_bytes).unwrap_or(0).min(bytes_most.max(1));
    let bytes_max = bytes_most.min(bytes_min.max(FETCH_ENOUGH_BYTES));
    Patience {
        wait: Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0)).min(limits.fetch_wait_max),
        bytes_min,
        bytes_max,
        ends_early: bytes_max < bytes_most,
    }
}

fn ask(version: i16, request: &FetchRequest) -> Ask {
    Ask {
        by_id: version >= BY_ID,
        session_id: request.session_id,
        epoch: request.session_epoch,
        wants: request.topics.iter().flat_map(|topic| wants(version, topic)).collect(),
        forgotten: request.forgotten_topics_data.iter().flat_map(|topic| forgotten(version, topic)).collect(),
    }
}

fn topic_key(version: i16, name: &TopicName, id: Uuid) -> TopicKey {
    if version >= BY_ID { TopicKey::Id(id) } else { TopicKey::Name(Arc::from(name.as_str())) }
}

fn wants(version: i16, topic: &FetchTopic) -> impl Iterator<Item = Want> {
    let key = topic_key(version, &topic.topic, topic.topic_id);
    topic.partitions.iter().map(move |partition| want(key.clone(), partition))
}

fn want(topic: TopicKey, partition: &FetchPartition) -> Want {
    Want {
        key: PartitionKey { topic, partition: partition.partition },
        position: Position {
            offset: partition.fetch_offset,
            max_bytes: partition.partition_max_bytes,
            // Any negative epoch is none here, unlike in ListOffsets: as in Kafka.
            leader_epoch: partition.current_leader_epoch.max(NO_EPOCH),
            fetched_epoch: partition.last_fetched_epoch,
        },
    }
}

fn forgotten(version: i16, topic: &ForgottenTopic) -> impl Iterator<Item = PartitionKey> {
    let key = topic_key(version, &topic.topic, topic.topic_id);
    topic.partitions.iter().map(move |partition| PartitionKey { topic: key.clone(), partition: *partition })
}

#[cfg(test)]
#[path = "fetch_tests/mod.rs"]
mod tests;
