//! Metadata (3), versions 0-13: the brokers, and the topics with their partitions and leaders.
//!
//! - v0: an empty list is all topics. v1: null is all, empty is none; controller id, internal flag. v2: cluster id.
//!   v3: throttle time. v4: the client says whether topics may be created. v5: offline replicas. v7: leader epoch. v8:
//!   authorized operations, of the cluster up to v10. v9: flexible. v10: topic ids in answers. v12: topics by id.
//!   v13: an error code of the whole answer.
//! - The brokers: this server, and the other gateways in front of its store, under their addresses of the listener on
//!   which the client came in. The one that coordinates groups is the controller. Any
//!   gateway serves every partition; the one that all of them name as its leader, see `leaders.rs`, is its only replica. A
//!   leader epoch rises when the end of its partition moved back, and never falls for a topic id.
//! - An unknown name is created when both the client and the configuration allow it; otherwise 3. A bad name is 17, an
//!   unknown id 100. A topic named twice is answered once. Names come back as they were sent, never a placeholder.
//! - Only so many topics are created in one request; the others are answered with 5, upon which clients ask again.
//! - Authorized operations are unset unless asked for; without authorization they are all of them, also of a topic that
//!   does not exist, as in Kafka.
//! - librdkafka's request for all topics carries three bytes too many from v9 on, see `without_filler`.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use milena_store::Store;
use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use milena_wire::kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use milena_wire::kafka_protocol::messages::{ApiKey, BrokerId, MetadataRequest, MetadataResponse, TopicName};
use milena_wire::kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::admin::TOPIC_OPERATIONS;
use super::brokers::{self, Known};
use super::describe_cluster::CLUSTER_OPERATIONS;
use super::leaders::Leaders;
use crate::broker::Broker;
use crate::codes;
use crate::dispatch::{Api, Context, answer};
use crate::fetch::leader_epoch::kafka_epoch;
use crate::topics::{Sought, Topic, TopicError};

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::Metadata,
    name: "Metadata",
    advertised: (0, 13),
    served: (0, 13),
    handle: |mut request| {
        request.body = without_filler(request.body, request.version);
        Box::pin(answer(ApiKey::Metadata, request, metadata))
    },
};

/// From this version on a topic can be named by its id.
const BY_ID: i16 = 12;

/// First version with varint counts.
const FLEXIBLE: i16 = 9;

/// The body without the filler that librdkafka leaves in a request for all topics.
///
/// It reserves four bytes for the count of topics and, from v9 on, leaves all four in place as zeros where one, the null
/// array, is meant. Apache Kafka reads the flags from the filler and ignores what is left, so every librdkafka since
/// 2.1 sends this for `list_topics` and for subscriptions by pattern. No other body of this length starts with four zeros.
fn without_filler(body: Bytes, version: i16) -> Bytes {
    let flags = if (FLEXIBLE..=10).contains(&version) { 3 } else { 2 };
    match body.strip_prefix(&[0; 4]) {
        Some(rest) if version >= FLEXIBLE && rest.len() == flags + 1 => [&[0], rest].concat().into(),
        _ => body,
    }
}

async fn metadata(context: Context, request: MetadataRequest) -> Option<MetadataResponse> {
    let broker = &context.broker;
    let known = brokers::known(&context);
    let leaders = Leaders::new(&known);
    let mut answers = Answers { version: context.version, leaders, operations: None, topics: Vec::new() };
    answers.operations = request.include_topic_authorized_operations.then_some(TOPIC_OPERATIONS);
    match request.topics {
        Some(named) if !(named.is_empty() && context.version == 0) => {
            let may_create = request.allow_auto_topic_creation && broker.config.auto_create_topics;
            answers.named(broker, named, may_create).await;
        }
        _ => answers.all(broker),
    }
    let controller = brokers::controller(&context, &known);
    let listed = known.into_iter().map(|Known { id, host, port }| {
        MetadataResponseBroker::default().with_node_id(BrokerId(id)).with_host(host).with_port(port)
    });
    let mut response = MetadataResponse::default()
        .with_brokers(listed.collect())
        .with_cluster_id(Some(StrBytes::from_string(broker.cluster_id.clone())))
        .with_controller_id(BrokerId(controller))
        .with_topics(answers.topics);
    if request.include_cluster_authorized_operations {
        response.cluster_authorized_operations = CLUSTER_OPERATIONS;
    }
    Some(response)
}

/// The topics of an answer under way.
struct Answers {
    version: i16,
    leaders: Leaders,
    operations: Option<i32>,
    topics: Vec<MetadataResponseTopic>,
}

impl Answers {
    fn all(&mut self, broker: &Broker) {
        for topic in broker.topics.list() {
            self.found(broker.store.as_ref(), &topic);
        }
    }

    async fn named(&mut self, broker: &Broker, named: Vec<MetadataRequestTopic>, may_create: bool) {
        let mut ids: HashSet<Uuid> = HashSet::new();
        let mut names: HashSet<TopicName> = HashSet::new();
        // Before anything is created, so that what another gateway has just created is answered as it is.
        let sought = named.iter().flat_map(|wanted| {
            let name = wanted.name.as_ref().map(|name| Sought::Name(name.as_str()));
            name.into_iter().chain([Sought::Id(wanted.topic_id)])
        });
        broker.topics.seek(sought).await;
        let mut creations = if may_create { broker.config.limits.auto_create_max } else { 0 };
        for wanted in named {
            match (wanted.topic_id, wanted.name) {
                // The name may be left out only where there is an id in its place, which is served from v12 on.
                (id, name) if self.version < BY_ID && (!id.is_nil() || name.is_none()) => {
                    self.failed(Some(name.unwrap_or_default()), id, ResponseError::InvalidRequest);
                }
                (id, _) if !id.is_nil() => {
                    if ids.insert(id) {
                        self.by_id(broker, id);
                    }
                }
                (_, Some(name)) => {
                    if names.insert(name.clone()) {
                        self.by_name(broker, name, may_create, &mut creations).await;
                    }
                }
                (id, None) => {
                    if ids.insert(id) {
                        self.failed(None, id, ResponseError::UnknownTopicId);
                    }
                }
            }
        }
    }

    fn by_id(&mut self, broker: &Broker, id: Uuid) {
        match broker.topics.by_id(id) {
            Some(topic) => self.found(broker.store.as_ref(), &topic),
            None => self.failed(None, id, ResponseError::UnknownTopicId),
        }
    }

    async fn by_name(&mut self, broker: &Broker, name: TopicName, may_create: bool, creations: &mut usize) {
        if let Some(topic) = broker.topics.by_name(&name) {
            return self.found(broker.store.as_ref(), &topic);
        }
        if let Err(error) = broker.topics.check_name(&name) {
            return self.failed(Some(name), Uuid::nil(), codes::of_topic(&error));
        }
        if !may_create {
            return self.failed(Some(name), Uuid::nil(), ResponseError::UnknownTopicOrPartition);
        }
        if *creations == 0 {
            return self.failed(Some(name), Uuid::nil(), ResponseError::LeaderNotAvailable);
        }
        *creations -= 1;
        match auto_create(broker, &name).await {
            Ok(topic) => self.found(broker.store.as_ref(), &topic),
            Err(error) => self.failed(Some(name), Uuid::nil(), codes::of_auto_creation(&error)),
        }
    }

    fn found(&mut self, store: &dyn Store, topic: &Topic) {
        let partitions = (0..topic.partitions).map(|index| {
            let epoch = store.epochs(&topic.store.partition(index)).current();
            let leader = BrokerId(self.leaders.of(topic.id, index));
            MetadataResponsePartition::default()
                .with_partition_index(i32::try_from(index).unwrap_or(i32::MAX))
                .with_leader_id(leader)
                .with_leader_epoch(kafka_epoch(epoch))
                .with_replica_nodes(vec![leader])
                .with_isr_nodes(vec![leader])
        });
        let mut answer = MetadataResponseTopic::default()
            .with_name(Some(TopicName(StrBytes::from_string(topic.name.to_string()))))
            .with_topic_id(topic.id)
            .with_is_internal(topic.internal)
            .with_partitions(partitions.collect());
        if let Some(operations) = self.operations {
            answer.topic_authorized_operations = operations;
        }
        self.topics.push(answer);
    }

    fn failed(&mut self, name: Option<TopicName>, id: Uuid, error: ResponseError) {
        // What may be done with a name does not depend on a topic of that name.
        let operations = self.operations.filter(|_| name.is_some());
        let mut answer =
            MetadataResponseTopic::default().with_error_code(error.code()).with_name(name).with_topic_id(id);
        if let Some(operations) = operations {
            answer.topic_authorized_operations = operations;
        }
        self.topics.push(answer);
    }
}

/// Creates a topic with this server's defaults. When somebody else was faster, theirs is as good.
async fn auto_create(broker: &Broker, name: &str) -> Result<Arc<Topic>, TopicError> {
    let partitions = i64::from(broker.config.num_partitions);
    match broker.topics.create_topic(name, partitions, std::collections::BTreeMap::new()).await {
        Err(TopicError::Exists) => broker.topics.by_name(name).ok_or(TopicError::Exists),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests;
