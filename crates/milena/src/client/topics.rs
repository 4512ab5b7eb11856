//! Topics: list, describe, create, delete, grow; and their configs.

use std::collections::BTreeMap;

use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use milena_wire::kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use milena_wire::kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use milena_wire::kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use milena_wire::kafka_protocol::messages::{
    CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest, DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
};
use milena_wire::kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::cluster::{topic_name, topic_of};
use super::{Client, ClientError, Result};

/// Time that a server is given to change topics, in ms.
pub(super) const CHANGE_MS: i32 = 30_000;
/// Resource type of topics in config requests.
const TOPIC_RESOURCE: i8 = 2;
/// Config source of what was set on the topic itself.
const SET_ON_TOPIC: i8 = 1;

/// A topic and who leads its partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// Name.
    pub name: String,
    /// Id; nil where the cluster has none.
    pub id: Uuid,
    /// True for topics that the cluster keeps for itself.
    pub internal: bool,
    /// Partitions by index.
    pub partitions: Vec<Partition>,
}

/// A partition and who has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Index.
    pub index: i32,
    /// Node id of its leader, if it has one now.
    pub leader: Option<i32>,
    /// Node ids of its replicas.
    pub replicas: Vec<i32>,
    /// Node ids of the replicas that are in sync.
    pub in_sync: Vec<i32>,
}

/// A topic to create.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewTopic {
    /// Name.
    pub name: String,
    /// Number of partitions; the server's default where none is given.
    pub partitions: Option<i32>,
    /// Configs that differ from the server's defaults.
    pub configs: BTreeMap<String, String>,
}

/// What was created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedTopic {
    /// Number of partitions, where the server says.
    pub partitions: Option<i32>,
    /// Id, where the server says.
    pub id: Option<Uuid>,
}

/// A config of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Name.
    pub name: String,
    /// Value; `None` where it is secret or null.
    pub value: Option<String>,
    /// True when it was set on this topic, and is not a default.
    pub is_set: bool,
    /// True when it cannot be changed.
    pub read_only: bool,
}

impl Client {
    /// All topics, by name, internal ones too.
    ///
    /// # Errors
    /// When the cluster does not answer, or says of a topic that it cannot be described.
    pub async fn topics(&mut self) -> Result<Vec<Topic>> {
        let answer = self.metadata(None).await?;
        let mut topics = Vec::with_capacity(answer.topics.len());
        for found in &answer.topics {
            let Some(name) = &found.name else { continue };
            topics.push(topic_of(name, found)?);
        }
        topics.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(topics)
    }

    /// Creates a topic.
    ///
    /// # Errors
    /// When the server refuses; [`ClientError::code`] is `TopicAlreadyExists` when there is one of that name.
    pub async fn create_topic(&mut self, new: &NewTopic) -> Result<CreatedTopic> {
        let config = |(name, value): (&String, &String)| {
            CreatableTopicConfig::default().with_name(text(name)).with_value(Some(text(value)))
        };
        let topic = CreatableTopic::default()
            .with_name(topic_name(&new.name))
            .with_num_partitions(new.partitions.unwrap_or(-1))
            .with_replication_factor(-1)
            .with_configs(new.configs.iter().map(config).collect());
        let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(CHANGE_MS);
        let answer = self.controller(&request).await?;
        self.forget(&new.name);
        let what = || format!("topic `{}` was not created", new.name);
        let Some(result) = answer.topics.first() else { return Err(unanswered(what())) };
        check(what, result.error_code, result.error_message.as_deref())?;
        Ok(CreatedTopic {
            partitions: Some(result.num_partitions).filter(|&count| count > 0),
            id: Some(result.topic_id).filter(|id| !id.is_nil()),
        })
    }

    /// Deletes a topic with all its records.
    ///
    /// # Errors
    /// When the server refuses, or there is no such topic.
    pub async fn delete_topic(&mut self, name: &str) -> Result<()> {
        let request =
            DeleteTopicsRequest::default().with_topic_names(vec![topic_name(name)]).with_timeout_ms(CHANGE_MS);
        let answer = self.controller(&request).await?;
        self.forget(name);
        let what = || format!("topic `{name}` was not deleted");
        let Some(result) = answer.responses.first() else { return Err(unanswered(what())) };
        if result.error_code == ResponseError::UnknownTopicOrPartition.code() {
            return Err(ClientError::NoTopic { topic: name.to_owned() });
        }
        check(what, result.error_code, result.error_message.as_deref())
    }

    /// Grows a topic to that many partitions in all. Keys go to other partitions from then on.
    ///
    /// # Errors
    /// When the server refuses, as it does for fewer than there are.
    pub async fn grow_topic(&mut self, name: &str, partitions: i32) -> Result<()> {
        let topic =
            CreatePartitionsTopic::default().with_name(topic_name(name)).with_count(partitions).with_assignments(None);
        let request = CreatePartitionsRequest::default().with_topics(vec![topic]).with_timeout_ms(CHANGE_MS);
        let answer = self.controller(&request).await?;
        self.forget(name);
        let what = || format!("topic `{name}` did not grow");
        let Some(result) = answer.results.first() else { return Err(unanswered(what())) };
        check(what, result.error_code, result.error_message.as_deref())
    }

    /// The configs of a topic, by name.
    ///
    /// # Errors
    /// When the server refuses, or there is no such topic.
    pub async fn topic_configs(&mut self, name: &str) -> Result<Vec<Config>> {
        let resource = DescribeConfigsResource::default()
            .with_resource_type(TOPIC_RESOURCE)
            .with_resource_name(text(name))
            .with_configuration_keys(None);
        let answer = self.any(&DescribeConfigsRequest::default().with_resources(vec![resource])).await?;
        let what = || format!("the configs of topic `{name}` were not read");
        let Some(result) = answer.results.into_iter().next() else { return Err(unanswered(what())) };
        if result.error_code == ResponseError::UnknownTopicOrPartition.code() {
            return Err(ClientError::NoTopic { topic: name.to_owned() });
        }
        check(what, result.error_code, result.error_message.as_deref())?;
        let mut configs: Vec<_> = result
            .configs
            .into_iter()
            .map(|found| Config {
                name: found.name.to_string(),
                value: found.value.map(|value| value.to_string()),
                is_set: found.config_source == SET_ON_TOPIC,
                read_only: found.read_only,
            })
            .collect();
        configs.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(configs)
    }

    /// Sets configs of a topic, and puts those with `None` back to their defaults; others stay.
    ///
    /// # Errors
    /// When the server refuses, in which case nothing is changed.
    pub async fn set_topic_configs(&mut self, name: &str, configs: &BTreeMap<String, Option<String>>) -> Result<()> {
        let change = |(name, value): (&String, &Option<String>)| {
            AlterableConfig::default()
                .with_name(text(name))
                .with_config_operation(i8::from(value.is_none()))
                .with_value(value.as_deref().map(text))
        };
        let resource = AlterConfigsResource::default()
            .with_resource_type(TOPIC_RESOURCE)
            .with_resource_name(text(name))
            .with_configs(configs.iter().map(change).collect());
        let answer = self.controller(&IncrementalAlterConfigsRequest::default().with_resources(vec![resource])).await?;
        let what = || format!("the configs of topic `{name}` were not changed");
        let Some(result) = answer.responses.first() else { return Err(unanswered(what())) };
        if result.error_code == ResponseError::UnknownTopicOrPartition.code() {
            return Err(ClientError::NoTopic { topic: name.to_owned() });
        }
        check(what, result.error_code, result.error_message.as_deref())
    }
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn check(what: impl FnOnce() -> String, code: i16, message: Option<&str>) -> Result<()> {
    match ResponseError::try_from_code(code) {
        None => Ok(()),
        Some(code) => Err(ClientError::refused(what(), code, message)),
    }
}

/// An answer that does not mention what was asked for.
fn unanswered(what: String) -> ClientError {
    ClientError::refused(what, ResponseError::UnknownServerError, None)
}
