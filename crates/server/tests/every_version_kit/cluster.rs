//! Requests about the cluster, and about what there is none of.

use milena_server::dispatch::APIS;
use milena_wire::kafka_protocol::messages::*;

use super::Walk;
use crate::groups_kit::{text, topic};

impl Walk {
    pub(super) async fn cluster(&mut self, key: ApiKey, version: i16) -> bool {
        match key {
            ApiKey::ApiVersions => {
                let request = ApiVersionsRequest::default()
                    .with_client_software_name(text("library"))
                    .with_client_software_version(text("1.2"));
                let request = if version < 3 { ApiVersionsRequest::default() } else { request };
                // All but the three of SASL, for which this listener does not ask.
                assert_eq!(self.ask(version, &request).await.api_keys.len(), APIS.len() - 3);
            }
            ApiKey::DescribeCluster => {
                assert_eq!(self.ask(version, &DescribeClusterRequest::default()).await.brokers.len(), 1);
            }
            ApiKey::ElectLeaders => {
                let wanted = elect_leaders_request::TopicPartitions::default().with_topic(topic("orders"));
                let request = ElectLeadersRequest::default();
                let request = request.with_topic_partitions(Some(vec![wanted.with_partitions(vec![0])]));
                assert_eq!(self.ask(version, &request).await.replica_election_results[0].partition_result.len(), 1);
            }
            ApiKey::AlterPartitionReassignments => {
                use alter_partition_reassignments_request::{ReassignablePartition, ReassignableTopic};
                let partition = ReassignablePartition::default().with_replicas(Some(vec![self.leader]));
                let moved = ReassignableTopic::default().with_name(topic("orders")).with_partitions(vec![partition]);
                let request = AlterPartitionReassignmentsRequest::default().with_topics(vec![moved]);
                assert_eq!(self.ask(version, &request).await.responses[0].partitions.len(), 1);
            }
            ApiKey::ListPartitionReassignments => {
                self.ask(version, &ListPartitionReassignmentsRequest::default()).await;
            }
            _ => return false,
        }
        true
    }

    /// What there is none of: rights, quotas, users, transactions, a login on a listener that asks for none.
    pub(super) async fn absent(&mut self, key: ApiKey, version: i16) -> bool {
        match key {
            ApiKey::DescribeAcls => {
                self.ask(version, &DescribeAclsRequest::default()).await;
            }
            ApiKey::CreateAcls => {
                let request =
                    CreateAclsRequest::default().with_creations(vec![create_acls_request::AclCreation::default()]);
                assert_eq!(self.ask(version, &request).await.results.len(), 1);
            }
            ApiKey::DeleteAcls => {
                let request =
                    DeleteAclsRequest::default().with_filters(vec![delete_acls_request::DeleteAclsFilter::default()]);
                assert_eq!(self.ask(version, &request).await.filter_results.len(), 1);
            }
            ApiKey::DescribeClientQuotas => {
                self.ask(version, &DescribeClientQuotasRequest::default()).await;
            }
            ApiKey::DescribeUserScramCredentials => {
                self.ask(version, &DescribeUserScramCredentialsRequest::default()).await;
            }
            ApiKey::DescribeTransactions => {
                let ids = vec![TransactionalId(text("t"))];
                let request = DescribeTransactionsRequest::default().with_transactional_ids(ids);
                assert_eq!(self.ask(version, &request).await.transaction_states.len(), 1);
            }
            ApiKey::ListTransactions => {
                self.ask(version, &ListTransactionsRequest::default()).await;
            }
            ApiKey::AlterUserScramCredentials => {
                self.ask(version, &AlterUserScramCredentialsRequest::default()).await;
            }
            ApiKey::SaslHandshake => {
                self.ask(version, &SaslHandshakeRequest::default()).await;
            }
            ApiKey::SaslAuthenticate => {
                self.ask(version, &SaslAuthenticateRequest::default()).await;
            }
            _ => return false,
        }
        true
    }
}
