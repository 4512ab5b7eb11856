//! Two servers that are asked the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use milena_server::dispatch::APIS;
use milena_testkit::RawClient;
use milena_wire::decode::decode_response_to;
use milena_wire::encode_request;
use milena_wire::kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use milena_wire::kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use milena_wire::kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, BrokerId, ListOffsetsRequest, MetadataRequest, TopicName,
};
use milena_wire::kafka_protocol::protocol::Request;
use tokio::time::timeout;

use crate::accepted::{Accepted, Found, collect};
use crate::compare::{Difference, compare};
use crate::normal::Memory;
use crate::tree::Tree;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What stands for an answer that does not come: no frame is so short.
const SILENCE: &[u8] = b"no";

/// How long a server has for what it does behind an answer, such as telling all of itself about a new topic.
const SETTLED: Duration = Duration::from_secs(20);

/// The client id of all requests.
pub const CLIENT: &str = "client";

/// One of the two, with the connections to it by name.
#[derive(Debug)]
pub struct Side {
    address: SocketAddr,
    lines: BTreeMap<String, RawClient>,
    /// What it said.
    pub memory: Memory,
}

/// What becomes of a request.
enum Outcome<R> {
    Answer(R),
    /// The connection is closed.
    Closed,
    /// No answer comes.
    Silent,
    /// An answer that is not of that version.
    Unreadable(String),
}

/// The answers of both, where there are any.
#[derive(Debug)]
pub struct Answers<R> {
    /// Kafka's.
    pub kafka: Option<R>,
    /// Milena's.
    pub milena: Option<R>,
}

/// Kafka and Milena.
#[derive(Debug)]
pub struct Duo {
    kafka: Side,
    milena: Side,
    step: String,
    from: i64,
    correlation: i32,
    differences: Vec<(String, i16, Difference)>,
    answered: BTreeSet<(i16, i16)>,
    requests: usize,
    accepted: Accepted,
}

impl Side {
    fn new(address: SocketAddr, start_ms: i64) -> Self {
        Self { address, lines: BTreeMap::new(), memory: Memory::new(address.port(), start_ms) }
    }

    async fn line(&mut self, name: &str) -> &mut RawClient {
        if !self.lines.contains_key(name) {
            self.lines.insert(name.to_owned(), RawClient::connect(self.address).await);
        }
        self.lines.get_mut(name).expect("a connection")
    }

    async fn send(&mut self, line: &str, frame: &[u8]) {
        self.line(line).await.send_bytes(frame).await;
    }

    async fn read(&mut self, line: &str) -> Option<Bytes> {
        let frame = timeout(PATIENCE, self.line(line).await.read_frame()).await;
        if !matches!(frame, Ok(Some(_))) {
            self.lines.remove(line);
        }
        frame.unwrap_or_else(|_| Some(Bytes::from_static(SILENCE)))
    }

    async fn receive<Q: Request>(&mut self, line: &str, version: i16, correlation: i32) -> Outcome<Q::Response> {
        let Some(frame) = self.read(line).await else { return Outcome::Closed };
        if frame == SILENCE {
            return Outcome::Silent;
        }
        match decode_response_to::<Q>(version, frame) {
            Ok((id, response)) if id == correlation => Outcome::Answer(response),
            Ok((id, _)) => Outcome::Unreadable(format!("correlation id {id} and not {correlation}")),
            Err(error) => Outcome::Unreadable(error.to_string()),
        }
    }

    fn tree<R: Debug>(&mut self, outcome: &Outcome<R>, from: i64) -> Tree {
        match outcome {
            Outcome::Answer(response) => self.memory.normal(Tree::of(response), from),
            Outcome::Closed => Tree::Atom("the connection is closed".to_owned()),
            Outcome::Silent => Tree::Atom("no answer".to_owned()),
            Outcome::Unreadable(error) => Tree::Atom(format!("unreadable: {error}")),
        }
    }
}

impl<R> Outcome<R> {
    fn answer(self) -> Option<R> {
        match self {
            Self::Answer(response) => Some(response),
            Self::Closed | Self::Silent | Self::Unreadable(_) => None,
        }
    }
}

impl Duo {
    /// The two at these addresses.
    #[must_use]
    pub fn new(kafka: SocketAddr, milena: SocketAddr, accepted: Accepted) -> Self {
        let start_ms = Memory::an_hour_ago();
        Self {
            kafka: Side::new(kafka, start_ms),
            milena: Side::new(milena, start_ms),
            step: String::new(),
            from: 0,
            correlation: 0,
            differences: Vec::new(),
            answered: BTreeSet::new(),
            requests: 0,
            accepted,
        }
    }

    /// Names what comes next; differences are told under that name.
    pub fn step(&mut self, name: &str) {
        name.clone_into(&mut self.step);
        self.from = 0;
    }

    /// The name of this step.
    #[must_use]
    pub fn step_name(&self) -> &str {
        &self.step
    }

    /// True when an answer had the id of that topic.
    #[must_use]
    pub fn knows_topic(&self, name: &str) -> bool {
        self.kafka.memory.knows_topic(name) && self.milena.memory.knows_topic(name)
    }

    /// Of records in the answers of this step, those before that offset do not count.
    pub fn from_offset(&mut self, offset: i64) {
        self.from = offset;
    }

    /// Sends both a request, made for each of what it said before, and compares the answers.
    pub async fn ask<Q: Request<Response: Debug>>(
        &mut self,
        version: i16,
        request: impl Fn(&Memory) -> Q,
    ) -> Answers<Q::Response> {
        let sent = self.send("main", version, request).await;
        self.receive::<Q>("main", version, sent).await
    }

    /// Sends both a request on a connection of that name; returns what [`Duo::receive`] wants.
    pub async fn send<Q: Request>(&mut self, line: &str, version: i16, request: impl Fn(&Memory) -> Q) -> i32 {
        self.correlation += 1;
        self.requests += 1;
        for side in [&mut self.kafka, &mut self.milena] {
            let frame = encode(version, self.correlation, &request(&side.memory), &self.step);
            side.send(line, &frame).await;
        }
        self.correlation
    }

    /// Reads the answers to the oldest request on a connection, and compares them.
    pub async fn receive<Q: Request<Response: Debug>>(
        &mut self,
        line: &str,
        version: i16,
        sent: i32,
    ) -> Answers<Q::Response> {
        let kafka = self.kafka.receive::<Q>(line, version, sent).await;
        let milena = self.milena.receive::<Q>(line, version, sent).await;
        let trees = (self.kafka.tree(&kafka, self.from), self.milena.tree(&milena, self.from));
        self.note(Q::KEY, version, &trees.0, &trees.1);
        let answers = Answers { kafka: kafka.answer(), milena: milena.answer() };
        if answers.kafka.is_some() && answers.milena.is_some() {
            self.answered.insert((Q::KEY, version));
        }
        answers
    }

    /// As [`Duo::ask`], of what the servers may not have in place yet: asked again until they agree but for what is accepted, or for
    /// half a second.
    pub async fn ask_until_same<Q: Request<Response: Debug>>(
        &mut self,
        version: i16,
        request: impl Fn(&Memory) -> Q,
    ) -> Answers<Q::Response> {
        let start = Instant::now();
        loop {
            let before = self.differences.len();
            let answers = self.ask(version, &request).await;
            let mut new = self.differences.iter().skip(before);
            let known = new.all(|(step, _, difference)| self.accepted.covers(step, difference));
            if known || start.elapsed() > Duration::from_millis(500) {
                return answers;
            }
            self.differences.truncate(before);
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }

    /// Asks each, by a request that changes nothing, until its answer is as wanted; what does not come shows in what is asked next.
    pub async fn until<Q: Request>(
        &mut self,
        version: i16,
        request: impl Fn(&Memory) -> Q,
        wanted: impl Fn(&Q::Response) -> bool,
    ) {
        for side in [&mut self.kafka, &mut self.milena] {
            let start = Instant::now();
            while start.elapsed() < SETTLED {
                let frame = encode(version, 0, &request(&side.memory), &self.step);
                side.send("settled", &frame).await;
                if side.receive::<Q>("settled", version, 0).await.answer().is_some_and(|answer| wanted(&answer)) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }

    /// Sends both a request that is not answered, and compares whether it is: the next request on the connection tells.
    pub async fn tell<Q: Request>(&mut self, version: i16, request: impl Fn(&Memory) -> Q) {
        let sent = self.send("silent", version, request).await;
        let probe = self.send("silent", 0, |_| ApiVersionsRequest::default()).await;
        let mut outcomes = Vec::new();
        for side in [&mut self.kafka, &mut self.milena] {
            let frame = side.read("silent").await;
            let id = frame.as_deref().and_then(|frame| frame.first_chunk::<4>()).map(|id| i32::from_be_bytes(*id));
            outcomes.push(Tree::Atom(match id {
                None => "the connection is closed".to_owned(),
                Some(id) if id == probe => "no answer".to_owned(),
                Some(id) if id == sent => {
                    side.read("silent").await;
                    "an answer".to_owned()
                }
                Some(id) => format!("an answer to {id}"),
            }));
        }
        if let [kafka, milena] = outcomes.as_slice() {
            self.note(Q::KEY, version, kafka, milena);
        }
    }

    /// Sends both the same bytes behind a request header without client id, and compares what becomes of them: a connection that is
    /// closed, or the bytes of an answer behind its correlation id.
    pub async fn raw(&mut self, key: i16, version: i16, body: &[u8]) {
        self.correlation += 1;
        self.requests += 1;
        let mut outcomes = Vec::new();
        for side in [&mut self.kafka, &mut self.milena] {
            side.line("raw").await.send_frame(key, version, self.correlation, body).await;
            outcomes.push(match side.read("raw").await {
                None => Tree::Atom("the connection is closed".to_owned()),
                Some(frame) => Tree::Bytes(frame.get(4..).unwrap_or_default().to_vec()),
            });
        }
        if let [kafka, milena] = outcomes.as_slice() {
            self.note(key, version, kafka, milena);
        }
    }

    /// Keeps something of the answers under a name, on each side.
    pub fn keep<R, V: ToString>(&mut self, answers: &Answers<R>, name: &str, value: impl Fn(&R) -> V) {
        for (side, answer) in [(&mut self.kafka, &answers.kafka), (&mut self.milena, &answers.milena)] {
            let value = answer.as_ref().map_or_else(String::new, |answer| value(answer).to_string());
            side.memory.keep(name, &value);
        }
    }

    /// Waits until both know that topic with so many partitions and their leaders; 0 is until it is gone. What does not come is a
    /// difference.
    pub async fn settled(&mut self, topic: &str, partitions: usize) {
        let start = Instant::now();
        loop {
            let kafka = partitions_of(&mut self.kafka, topic).await;
            let milena = partitions_of(&mut self.milena, topic).await;
            if (kafka, milena) == (partitions, partitions) {
                return;
            }
            if start.elapsed() > SETTLED {
                self.step(&format!("{topic} has {partitions} partitions"));
                let [kafka, milena] = [kafka, milena].map(|count| Tree::Atom(count.to_string()));
                return self.note(MetadataRequest::KEY, 4, &kafka, &milena);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The differences so far.
    #[must_use]
    pub fn found(&self) -> Vec<Found> {
        collect(&self.differences)
    }

    /// The list of differences that are meant.
    #[must_use]
    pub fn accepted(&self) -> &Accepted {
        &self.accepted
    }

    /// Requests that were sent to both.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.requests
    }

    /// Versions that Milena serves and that both have not answered yet.
    #[must_use]
    pub fn unasked(&self) -> Vec<String> {
        let versions = APIS.iter().flat_map(|api| (api.served.0..=api.served.1).map(move |version| (api, version)));
        let unasked = versions.filter(|(api, version)| !self.answered.contains(&(api.key as i16, *version)));
        unasked.map(|(api, version)| format!("{} {version}", api.name)).collect()
    }

    fn note(&mut self, key: i16, version: i16, kafka: &Tree, milena: &Tree) {
        let name = ApiKey::try_from(key).map_or_else(|()| format!("key {key}"), |key| format!("{key:?}"));
        // Topics that are made for a version have it in their names.
        let mark = format!("-v{version}");
        let unversioned = |text: String| text.replace(&mark, "-vN");
        for difference in compare(kafka, milena) {
            let Difference { path, kafka, milena } = difference;
            let [path, kafka, milena] = [path, kafka, milena].map(unversioned);
            let difference = Difference { path, kafka, milena };
            self.differences.push((format!("{name}: {}", self.step), version, difference));
        }
    }
}

/// The versions of a request that Milena serves.
#[must_use]
pub fn versions<Q: Request>() -> std::ops::RangeInclusive<i16> {
    let api = APIS.iter().find(|api| api.key as i16 == Q::KEY).expect("a request that Milena serves");
    api.served.0..=api.served.1
}

fn encode<Q: Request>(version: i16, correlation: i32, request: &Q, step: &str) -> Bytes {
    let key = ApiKey::try_from(Q::KEY).expect("a key of the schemas");
    encode_request(key, version, correlation, CLIENT, request)
        .unwrap_or_else(|error| panic!("{step}: {key:?} {version}: {error}"))
}

/// Partitions of a topic whose leader serves them; 0 without the topic, or when one of them is not served.
async fn partitions_of(side: &mut Side, topic: &str) -> usize {
    let named = MetadataRequestTopic::default().with_name(Some(TopicName(topic.to_owned().into())));
    let request = MetadataRequest::default().with_topics(Some(vec![named])).with_allow_auto_topic_creation(false);
    side.send("settled", &encode(4, 0, &request, "settled")).await;
    let answer = side.receive::<MetadataRequest>("settled", 4, 0).await.answer().expect("an answer to Metadata");
    let topics = answer.topics.iter().filter(|topic| topic.error_code == 0);
    let partitions: Vec<i32> =
        topics.flat_map(|topic| &topic.partitions).map(|partition| partition.partition_index).collect();
    // Kafka names a leader before that leader serves.
    let wanted = partitions.iter().map(|index| ListOffsetsPartition::default().with_partition_index(*index));
    let wanted =
        ListOffsetsTopic::default().with_name(TopicName(topic.to_owned().into())).with_partitions(wanted.collect());
    let request = ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![wanted]);
    side.send("settled", &encode(1, 0, &request, "settled")).await;
    let answer = side.receive::<ListOffsetsRequest>("settled", 1, 0).await.answer().expect("an answer to ListOffsets");
    let served = answer.topics.iter().flat_map(|topic| &topic.partitions);
    if served.clone().all(|partition| partition.error_code == 0) { served.count() } else { 0 }
}
