//! Produce (0), versions 0-13 advertised, 3-13 served: appends record batches.
//!
//! - Versions below 3 are advertised because librdkafka before 2.11.1 stops compressing, silently, when the lowest
//!   version is above 0. They carry message formats that are not served; the connection is closed.
//! - v7: zstd. v8: the answer names the offending records. v9: flexible. v13: topics by id instead of name.
//! - acks 0 gets no answer at all, also when it fails: a client that expects none would take it for the answer to its
//!   next request. Any acks but -1, 0 and 1 is refused; -1 and 1 are the same, as there is one replica.
//! - One decompression budget for all batches of a request. Partitions are written concurrently, several batches of one
//!   partition one after the other; the answers are in the request's order.
//! - Transactions do not exist: a transactional id is refused with a code that is fatal to the Java producer, since the
//!   others would be retried for ever.
//! - Requests that are large, or compressed and not small, are decoded and mapped off the async threads, and large answers are encoded there.
//! - `current_leader` and `node_endpoints` (v10) are left out: every gateway takes batches for every partition.

use std::sync::Arc;

use bytes::Bytes;
use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::produce_request::TopicProduceData;
use milena_wire::kafka_protocol::messages::{ApiKey, ProduceRequest};
use milena_wire::{WireError, decode_request, encode_response};

use crate::Broker;
use crate::codes;
use crate::dispatch::{Api, Outcome, Request};
use crate::produce::request::{Mapped, Plan, is_heavy};
use crate::topics::{Topic, TopicDirectory};

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::Produce,
    name: "Produce",
    advertised: (0, 13),
    served: (3, 13),
    handle: |request| Box::pin(produce(request)),
};

/// Bodies above this are decoded and mapped on a blocking thread: a body of this size takes 15 to 45 us with values of
/// 1,024 to 100 bytes, the way to another thread and back 7 to 17.
const INLINE_BODY_BYTES: usize = 128 << 10;
/// Answers for more partitions than this are counted and encoded on a blocking thread.
const INLINE_PARTITIONS: usize = 1_000;

async fn produce(request: Request) -> Outcome {
    let Request { context, correlation_id, version, body } = request;
    let broker = &context.broker;
    let plan = match plan(Mapping { broker: Arc::clone(broker), version }, body).await {
        Ok(plan) => plan,
        Err(error) => return Outcome::Close(error),
    };
    if plan.names_unknown() {
        broker.topics.look_soon();
    }
    let (silent, partitions) = (plan.is_silent(), plan.partitions());
    let response = plan.run(&broker.produce).await;
    let broker = Arc::clone(broker);
    let finish = move || {
        broker.metrics.requests.note_errors(ApiKey::Produce as i16, &response);
        let answer = (!silent).then(|| encode_response(ApiKey::Produce, version, correlation_id, &response));
        answer.transpose()
    };
    let finished = if partitions > INLINE_PARTITIONS {
        let finishing = tokio::task::spawn_blocking(finish).await;
        finishing.unwrap_or_else(|error| Err(WireError::Encode(error.to_string())))
    } else {
        finish()
    };
    match finished {
        Ok(Some(frame)) => Outcome::Reply(frame),
        Ok(None) => Outcome::Silent,
        Err(error) => Outcome::Close(error),
    }
}

async fn plan(mapping: Mapping, body: Bytes) -> Result<Plan, WireError> {
    let (produce, again) = (mapping.broker.produce.clone(), mapping.clone());
    let mapped = if body.len() > INLINE_BODY_BYTES {
        produce.map_elsewhere(move || Ok(mapping.map_known(decode_request(body, mapping.version)?))).await?
    } else {
        let request = decode_request::<ProduceRequest>(body, mapping.version)?;
        if is_heavy(&request) {
            produce.map_elsewhere(move || Ok(mapping.map_known(request))).await?
        } else {
            mapping.map_known(request)
        }
    };
    match mapped {
        Mapped::Whole(plan) => Ok(plan),
        Mapped::Strangers { ids, request } => {
            if let Err(error) = produce.learn_ids(&ids).await {
                let code = codes::of_store(&error);
                return Ok(Plan::new(&produce, &|_| Err(code), *request, again.version));
            }
            let mapped = produce.map_elsewhere(move || Ok(Mapped::Whole(again.map(*request)))).await?;
            mapped.into_plan().ok_or_else(|| WireError::Malformed("mapped to nothing".to_owned()))
        }
    }
}

/// What it takes to map a request.
#[derive(Clone)]
struct Mapping {
    broker: Arc<Broker>,
    version: i16,
}

impl Mapping {
    fn map(&self, request: ProduceRequest) -> Plan {
        let lookup = |topic: &TopicProduceData| find(&self.broker.topics, self.version, topic);
        Plan::new(&self.broker.produce, &lookup, request, self.version)
    }

    fn map_known(&self, request: ProduceRequest) -> Mapped {
        match self.broker.produce.unknown_ids(&request) {
            ids if ids.is_empty() => Mapped::Whole(self.map(request)),
            ids => Mapped::Strangers { ids, request: Box::new(request) },
        }
    }
}

fn find(topics: &TopicDirectory, version: i16, topic: &TopicProduceData) -> Result<Arc<Topic>, ResponseError> {
    let found = if version >= 13 {
        topics.by_id(topic.topic_id).ok_or(ResponseError::UnknownTopicId)
    } else {
        topics.by_name(&topic.name).ok_or(ResponseError::UnknownTopicOrPartition)
    };
    // Milena's own state is written by Milena alone.
    found.and_then(|topic| if topic.internal { Err(ResponseError::InvalidTopicException) } else { Ok(topic) })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::SocketAddr;
    use std::sync::Mutex;
    use std::time::Duration;

    use milena_records::Codec;
    use milena_records::client::{Record, build_batch};
    use milena_store::testing::MemoryStore;
    use milena_wire::decode_response;
    use milena_wire::kafka_protocol::messages::produce_request::PartitionProduceData;
    use milena_wire::kafka_protocol::messages::{ProduceResponse, TopicName};
    use milena_wire::kafka_protocol::protocol::{Encodable, StrBytes};
    use uuid::Uuid;

    use super::*;
    use crate::ServerConfig;
    use crate::dispatch::{Connection, Context};
    use crate::lifecycle::Lifecycle;
    use crate::listener::Bound;

    async fn broker() -> Arc<Broker> {
        let config = ServerConfig { show_internal_topics: true, ..ServerConfig::default() };
        let broker = Broker::open(config, Arc::new(MemoryStore::new())).await.unwrap();
        broker.topics.create("orders", 2, BTreeMap::new()).await.unwrap();
        broker
    }

    async fn handle(broker: &Arc<Broker>, version: i16, body: Bytes) -> Outcome {
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let listener = Arc::new(Bound::advertising("localhost", 9092));
        let connection = Connection::new(1, peer, listener, Arc::new(Lifecycle::default()));
        let context =
            Context { broker: Arc::clone(broker), connection: Arc::new(connection), client_id: None, version };
        (API.handle)(Request { context, correlation_id: 7, version, body }).await
    }

    fn topic(version: i16, name: &'static str, id: Uuid, partitions: usize, records: &Bytes) -> TopicProduceData {
        let data = (0..partitions).map(|index| {
            PartitionProduceData::default()
                .with_index(i32::try_from(index % 2).unwrap())
                .with_records(Some(records.clone()))
        });
        let topic = TopicProduceData::default().with_partition_data(data.collect());
        if version >= 13 {
            topic.with_topic_id(id)
        } else {
            topic.with_name(TopicName(StrBytes::from_static_str(name)))
        }
    }

    fn body(version: i16, acks: i16, topics: Vec<TopicProduceData>) -> Bytes {
        let request = ProduceRequest::default().with_acks(acks).with_timeout_ms(1_000).with_topic_data(topics);
        let mut body = bytes::BytesMut::new();
        request.encode(&mut body, version).unwrap();
        body.freeze()
    }

    fn records(bytes: usize, codec: Codec) -> Bytes {
        let record = Record { timestamp_ms: 1, value: Some(vec![b'v'; bytes]), ..Record::default() };
        Bytes::from(build_batch(&[record], codec, None))
    }

    fn answers(version: i16, outcome: Outcome) -> Vec<(i16, i64)> {
        let Outcome::Reply(frame) = outcome else { panic!("no answer: {outcome:?}") };
        let (correlation_id, response) =
            decode_response::<ProduceResponse>(ApiKey::Produce, version, frame.slice(4..)).unwrap();
        assert_eq!(correlation_id, 7);
        let partitions = response.responses.into_iter().flat_map(|topic| topic.partition_responses);
        partitions.map(|answer| (answer.error_code, answer.base_offset)).collect()
    }

    #[tokio::test]
    async fn every_version_writes_and_answers_in_its_own_layout() {
        let broker = broker().await;
        let id = broker.topics.by_name("orders").unwrap().id;
        for (offset, version) in (3..=13).enumerate() {
            let topic = topic(version, "orders", id, 1, &records(10, Codec::None));
            let outcome = handle(&broker, version, body(version, -1, vec![topic])).await;
            assert_eq!(answers(version, outcome), [(0, i64::try_from(offset).unwrap())], "version {version}");
        }
    }

    #[tokio::test]
    async fn unknown_topics_answer_by_name_with_3_and_by_id_with_100() {
        let broker = broker().await;
        for (version, code) in [(12, 3), (13, 100)] {
            for id in [Uuid::from_u128(9), Uuid::nil()] {
                let topic = topic(version, "nowhere", id, 2, &records(10, Codec::None));
                let outcome = handle(&broker, version, body(version, -1, vec![topic])).await;
                assert_eq!(answers(version, outcome), [(code, -1); 2]);
            }
        }
    }

    #[tokio::test]
    async fn a_client_cannot_write_into_internal_topics() {
        let broker = broker().await;
        let internal = broker.topics.list().into_iter().find(|topic| topic.internal).expect("shown by the switch");
        let topic = topic(13, "", internal.id, 1, &records(10, Codec::None));
        assert_eq!(answers(13, handle(&broker, 13, body(13, -1, vec![topic])).await), [(17, -1)]);
    }

    #[tokio::test]
    async fn acks_0_writes_and_stays_silent_whatever_happens() {
        let broker = broker().await;
        let written = topic(9, "orders", Uuid::nil(), 1, &records(10, Codec::None));
        let unknown = topic(9, "nowhere", Uuid::nil(), 1, &records(10, Codec::None));
        let invalid = topic(9, "orders", Uuid::nil(), 1, &Bytes::from_static(b"no batch"));
        for topic in [written, unknown, invalid] {
            assert!(matches!(handle(&broker, 9, body(9, 0, vec![topic])).await, Outcome::Silent));
        }
        let again = topic(9, "orders", Uuid::nil(), 1, &records(10, Codec::None));
        assert_eq!(answers(9, handle(&broker, 9, body(9, 1, vec![again])).await), [(0, 1)]);
    }

    #[tokio::test]
    async fn large_and_heavy_requests_take_the_blocking_path_to_the_same_answer() {
        let broker = broker().await;
        for (offset, records) in [records(INLINE_BODY_BYTES, Codec::None), records(100, Codec::Zstd)].iter().enumerate()
        {
            let topic = topic(9, "orders", Uuid::nil(), 1, records);
            let outcome = handle(&broker, 9, body(9, -1, vec![topic])).await;
            assert_eq!(answers(9, outcome), [(0, i64::try_from(offset).unwrap())]);
        }
    }

    /// What this thread has computed so far. Other than the time of day, it does not grow while a busy machine runs something else.
    fn computed() -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(u64::try_from(time.tv_sec).unwrap(), u32::try_from(time.tv_nsec).unwrap())
    }

    /// Computes what `work` does, and the longest that it kept the thread from other tasks.
    async fn longest_turn<T>(work: impl Future<Output = T>) -> (T, Duration) {
        let longest = Arc::new(Mutex::new(Duration::ZERO));
        let seen = Arc::clone(&longest);
        let ticker = tokio::spawn(async move {
            let mut last = computed();
            loop {
                tokio::task::yield_now().await;
                let now = computed();
                let mut longest = seen.lock().unwrap();
                *longest = now.saturating_sub(last).max(*longest);
                last = now;
            }
        });
        tokio::task::yield_now().await;
        let done = work.await;
        // The last turn of the work is seen by the next tick.
        tokio::task::yield_now().await;
        ticker.abort();
        let longest = *longest.lock().unwrap();
        (done, longest)
    }

    /// An entry of the answer takes 33 bytes, five times what an entry of the request may take. Words come on top, for as many
    /// as there is room for.
    #[tokio::test]
    async fn an_answer_for_very_many_partitions_is_built_off_the_async_threads_and_is_whole() {
        const PARTITIONS: usize = 65_535;
        const ENTRY_BYTES: usize = 33;
        let broker = broker().await;
        let topic = topic(9, "orders", Uuid::nil(), PARTITIONS, &Bytes::new());
        let (outcome, longest) = longest_turn(handle(&broker, 9, body(9, -1, vec![topic]))).await;
        let Outcome::Reply(frame) = &outcome else { panic!("no answer") };
        let (_, response) = decode_response::<ProduceResponse>(ApiKey::Produce, 9, frame.slice(4..)).unwrap();
        let begun = computed();
        assert_eq!(encode_response(ApiKey::Produce, 9, 7, &response).unwrap(), frame);
        let encoding = computed().saturating_sub(begun);
        assert!(longest < encoding / 4, "other tasks waited for {longest:?}, where the answer takes {encoding:?}");
        let most = PARTITIONS * ENTRY_BYTES + broker.config.limits.error_text_bytes + 100;
        assert!(frame.len() <= most, "{} bytes", frame.len());
        assert_eq!(answers(9, outcome), [(87, -1); PARTITIONS]);
    }

    #[tokio::test]
    async fn a_body_that_does_not_decode_closes_the_connection_without_an_answer() {
        let broker = broker().await;
        for acks in [0, -1] {
            let topic = topic(9, "orders", Uuid::nil(), 1, &records(10, Codec::None));
            let whole = body(9, acks, vec![topic]);
            for body in [whole.slice(..whole.len() - 1), [&whole[..], b"x"].concat().into()] {
                assert!(matches!(handle(&broker, 9, body).await, Outcome::Close(_)));
            }
        }
    }
}
