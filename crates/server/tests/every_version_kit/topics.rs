//! Requests about topics and their configs.

use milena_wire::kafka_protocol::messages::*;

use super::Walk;
use crate::groups_kit::{create, text, topic};

impl Walk {
    pub(super) async fn create_topic(&mut self, version: i16, name: &str) {
        let new = create_topics_request::CreatableTopic::default()
            .with_name(topic(name))
            .with_num_partitions(1)
            .with_replication_factor(1);
        let request = CreateTopicsRequest::default().with_topics(vec![new]).with_timeout_ms(5_000);
        assert_eq!(self.ask(version, &request).await.topics[0].error_code, 0, "{name}");
    }

    pub(super) async fn topics(&mut self, key: ApiKey, version: i16) -> bool {
        match key {
            ApiKey::Metadata => {
                let asked = metadata_request::MetadataRequestTopic::default().with_name(Some(topic("orders")));
                let answer = self.ask(version, &MetadataRequest::default().with_topics(Some(vec![asked]))).await;
                assert_eq!((answer.brokers.len(), answer.topics[0].partitions.len()), (1, 1));
            }
            ApiKey::CreateTopics => self.create_topic(version, &format!("created-{version}")).await,
            ApiKey::DeleteTopics => {
                let name = format!("deleted-{version}");
                create(&mut self.client, &name, 1).await;
                let name = topic(&name);
                let request = DeleteTopicsRequest::default().with_timeout_ms(5_000);
                let request = if version < 6 {
                    request.with_topic_names(vec![name])
                } else {
                    let deleted = delete_topics_request::DeleteTopicState::default().with_name(Some(name));
                    request.with_topics(vec![deleted])
                };
                assert_eq!(self.ask(version, &request).await.responses.len(), 1);
            }
            ApiKey::CreatePartitions => {
                let name = format!("grown-{version}");
                create(&mut self.client, &name, 1).await;
                let grown = create_partitions_request::CreatePartitionsTopic::default().with_name(topic(&name));
                let request =
                    CreatePartitionsRequest::default().with_topics(vec![grown.with_count(2).with_assignments(None)]);
                assert_eq!(self.ask(version, &request.with_timeout_ms(5_000)).await.results.len(), 1);
            }
            ApiKey::DescribeTopicPartitions => {
                let wanted = describe_topic_partitions_request::TopicRequest::default().with_name(topic("orders"));
                let request = DescribeTopicPartitionsRequest::default().with_topics(vec![wanted]);
                let answer = self.ask(version, &request.with_response_partition_limit(9)).await;
                assert_eq!(answer.topics[0].partitions.len(), 1);
            }
            ApiKey::DescribeLogDirs => {
                let wanted = describe_log_dirs_request::DescribableLogDirTopic::default().with_topic(topic("orders"));
                let request =
                    DescribeLogDirsRequest::default().with_topics(Some(vec![wanted.with_partitions(vec![0])]));
                assert_eq!(self.ask(version, &request).await.results[0].topics[0].partitions.len(), 1);
            }
            _ => return false,
        }
        true
    }

    pub(super) async fn configs(&mut self, key: ApiKey, version: i16) -> bool {
        /// The type of topics among the resources that have configs.
        const TOPIC: i8 = 2;
        let retention = || (text("retention.ms"), Some(text("86400000")));
        match key {
            ApiKey::DescribeConfigs => {
                let resource = describe_configs_request::DescribeConfigsResource::default()
                    .with_resource_type(TOPIC)
                    .with_resource_name(text("orders"))
                    .with_configuration_keys(None);
                let answer = self.ask(version, &DescribeConfigsRequest::default().with_resources(vec![resource])).await;
                assert!(!answer.results[0].configs.is_empty());
            }
            ApiKey::AlterConfigs => {
                use alter_configs_request::{AlterConfigsResource, AlterableConfig};
                let (name, value) = retention();
                let config = AlterableConfig::default().with_name(name).with_value(value);
                let resource =
                    AlterConfigsResource::default().with_resource_type(TOPIC).with_resource_name(text("orders"));
                let request = AlterConfigsRequest::default().with_resources(vec![resource.with_configs(vec![config])]);
                assert_eq!(self.ask(version, &request).await.responses.len(), 1);
            }
            ApiKey::IncrementalAlterConfigs => {
                use incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
                let (name, value) = retention();
                let config = AlterableConfig::default().with_name(name).with_value(value);
                let resource =
                    AlterConfigsResource::default().with_resource_type(TOPIC).with_resource_name(text("orders"));
                let request = IncrementalAlterConfigsRequest::default();
                let request = request.with_resources(vec![resource.with_configs(vec![config])]);
                assert_eq!(self.ask(version, &request).await.responses.len(), 1);
            }
            ApiKey::ListConfigResources => {
                self.ask(version, &ListConfigResourcesRequest::default()).await;
            }
            _ => return false,
        }
        true
    }
}
