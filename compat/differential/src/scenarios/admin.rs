//! What admin tools ask of a cluster.

use milena_wire::kafka_protocol::messages::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use milena_wire::kafka_protocol::messages::alter_user_scram_credentials_request::ScramCredentialDeletion;
use milena_wire::kafka_protocol::messages::create_acls_request::AclCreation;
use milena_wire::kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;
use milena_wire::kafka_protocol::messages::describe_client_quotas_request::ComponentData;
use milena_wire::kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;
use milena_wire::kafka_protocol::messages::describe_user_scram_credentials_request::UserName;
use milena_wire::kafka_protocol::messages::elect_leaders_request::TopicPartitions;
use milena_wire::kafka_protocol::messages::list_partition_reassignments_request::ListPartitionReassignmentsTopics;
use milena_wire::kafka_protocol::messages::{
    AlterPartitionReassignmentsRequest, AlterUserScramCredentialsRequest, BrokerId, CreateAclsRequest,
    DeleteAclsRequest, DescribeAclsRequest, DescribeClientQuotasRequest, DescribeClusterRequest,
    DescribeLogDirsRequest, DescribeUserScramCredentialsRequest, ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
};

use super::words::{text, topic};
use crate::duo::{Duo, versions};

/// Cluster, folders, leaders, placement, rights, quotas, passwords.
pub async fn run(duo: &mut Duo) {
    for version in versions::<DescribeClusterRequest>() {
        cluster(duo, version).await;
    }
    for version in versions::<DescribeLogDirsRequest>() {
        folders(duo, version).await;
    }
    for version in versions::<ElectLeadersRequest>() {
        leaders(duo, version).await;
    }
    placement(duo).await;
    for version in versions::<DescribeAclsRequest>() {
        rights(duo, version).await;
    }
    for version in versions::<DescribeClientQuotasRequest>() {
        quotas(duo, version).await;
    }
    passwords(duo).await;
}

async fn cluster(duo: &mut Duo, version: i16) {
    for operations in [false, true] {
        duo.step(if operations { "the cluster, with operations" } else { "the cluster" });
        duo.ask(version, |_| DescribeClusterRequest::default().with_include_cluster_authorized_operations(operations))
            .await;
    }
    for kind in [2, 9, 0] {
        if version >= 1 {
            duo.step(&format!("endpoints of kind {kind}"));
            duo.ask(version, |_| DescribeClusterRequest::default().with_endpoint_type(kind)).await;
        }
    }
    if version >= 2 {
        duo.step("brokers that are fenced, too");
        duo.ask(version, |_| DescribeClusterRequest::default().with_include_fenced_brokers(true)).await;
    }
}

async fn folders(duo: &mut Duo, version: i16) {
    for (step, topics) in [
        ("partitions", &[("read", &[0, 1][..])][..]),
        ("an unknown partition", &[("read", &[7, 0])]),
        ("an unknown topic", &[("nowhere", &[0])]),
        ("no partitions", &[("read", &[])]),
        ("no topics", &[]),
    ] {
        duo.step(step);
        let named = |(name, partitions): &(&str, &[i32])| {
            DescribableLogDirTopic::default().with_topic(topic(name)).with_partitions(partitions.to_vec())
        };
        let topics: Vec<_> = topics.iter().map(named).collect();
        duo.ask(version, |_| DescribeLogDirsRequest::default().with_topics(Some(topics.clone()))).await;
    }
}

async fn leaders(duo: &mut Duo, version: i16) {
    for (step, kind, topics) in [
        ("preferred", 0, &[("read", &[0, 1][..])][..]),
        ("unclean", 1, &[("read", &[0])]),
        ("of a kind that nobody knows", 9, &[("read", &[0])]),
        ("of an unknown partition", 0, &[("read", &[7, 0])]),
        ("of an unknown topic", 0, &[("nowhere", &[0])]),
        ("of no partition", 0, &[("read", &[])]),
        ("of no topic", 0, &[]),
    ] {
        if version == 0 && kind != 0 {
            continue;
        }
        duo.step(step);
        let named = |(name, partitions): &(&str, &[i32])| {
            TopicPartitions::default().with_topic(topic(name)).with_partitions(partitions.to_vec())
        };
        let topics: Vec<_> = topics.iter().map(named).collect();
        duo.ask(version, |_| {
            ElectLeadersRequest::default()
                .with_election_type(kind)
                .with_timeout_ms(30_000)
                .with_topic_partitions(Some(topics.clone()))
        })
        .await;
    }
    duo.step("of everything");
    duo.ask(version, |_| ElectLeadersRequest::default().with_timeout_ms(30_000).with_topic_partitions(None)).await;
}

async fn placement(duo: &mut Duo) {
    for (step, name, index, replicas) in [
        ("where it is", "read", 0, Some(&[1][..])),
        ("to a broker that is not there", "read", 0, Some(&[9])),
        ("to two brokers", "read", 0, Some(&[1, 9])),
        ("to nobody", "read", 0, Some(&[])),
        ("to one broker twice", "read", 0, Some(&[1, 1])),
        ("to a negative broker", "read", 0, Some(&[-1])),
        ("cancelled", "read", 0, None),
        ("an unknown partition", "read", 7, Some(&[1])),
        ("an unknown topic", "nowhere", 0, Some(&[1])),
    ] {
        duo.step(step);
        duo.ask(0, |_| {
            let replicas = replicas.map(|ids: &[i32]| ids.iter().copied().map(BrokerId).collect());
            let partition = ReassignablePartition::default().with_partition_index(index).with_replicas(replicas);
            let topic = ReassignableTopic::default().with_name(topic(name)).with_partitions(vec![partition]);
            AlterPartitionReassignmentsRequest::default().with_timeout_ms(30_000).with_topics(vec![topic])
        })
        .await;
    }
    duo.step("nothing is moved");
    duo.ask(0, |_| AlterPartitionReassignmentsRequest::default().with_timeout_ms(30_000)).await;
    for (step, topics) in [
        ("of a partition", Some(&[("read", &[0][..])][..])),
        ("of an unknown topic", Some(&[("nowhere", &[0])])),
        ("of all", None),
    ] {
        duo.step(step);
        let named = |(name, partitions): &(&str, &[i32])| {
            ListPartitionReassignmentsTopics::default()
                .with_name(topic(name))
                .with_partition_indexes(partitions.to_vec())
        };
        let topics: Option<Vec<_>> = topics.map(|topics| topics.iter().map(named).collect());
        duo.ask(0, |_| {
            ListPartitionReassignmentsRequest::default().with_timeout_ms(30_000).with_topics(topics.clone())
        })
        .await;
    }
}

async fn rights(duo: &mut Duo, version: i16) {
    duo.step("all rights");
    duo.ask(version, |_| {
        DescribeAclsRequest::default()
            .with_resource_type_filter(1)
            .with_pattern_type_filter(1)
            .with_operation(1)
            .with_permission_type(1)
    })
    .await;
    duo.step("a right is given");
    let creation = || {
        AclCreation::default()
            .with_resource_type(2)
            .with_resource_name(text("read"))
            .with_resource_pattern_type(3)
            .with_principal(text("User:anybody"))
            .with_host(text("*"))
            .with_operation(3)
            .with_permission_type(3)
    };
    duo.ask(version, |_| CreateAclsRequest::default().with_creations(vec![creation(), creation()])).await;
    duo.step("rights are taken");
    let filter = || {
        DeleteAclsFilter::default()
            .with_resource_type_filter(2)
            .with_pattern_type_filter(3)
            .with_operation(1)
            .with_permission_type(1)
    };
    duo.ask(version, |_| DeleteAclsRequest::default().with_filters(vec![filter()])).await;
    duo.step("nothing is given or taken");
    duo.ask(version, |_| CreateAclsRequest::default()).await;
    duo.ask(version, |_| DeleteAclsRequest::default()).await;
}

async fn quotas(duo: &mut Duo, version: i16) {
    for (step, kind, matched, name) in [
        ("of a user", "user", 0, Some("anybody")),
        ("of the default user", "user", 1, None),
        ("of any client", "client-id", 2, None),
        ("of a kind that nobody knows", "nothing", 2, None),
        ("of a match that nobody knows", "user", 9, None),
        ("of a user without a name", "user", 0, None),
        ("of an address", "ip", 0, Some("127.0.0.1")),
    ] {
        duo.step(step);
        duo.ask(version, |_| {
            let component = ComponentData::default()
                .with_entity_type(text(kind))
                .with_match_type(matched)
                .with_match(name.map(text));
            DescribeClientQuotasRequest::default().with_components(vec![component])
        })
        .await;
    }
    for strict in [false, true] {
        duo.step(if strict { "of nobody, strictly" } else { "of everybody" });
        duo.ask(version, |_| DescribeClientQuotasRequest::default().with_strict(strict)).await;
    }
}

async fn passwords(duo: &mut Duo) {
    for (step, users) in [
        ("of everybody", None),
        ("of nobody", Some(&[][..])),
        ("of a user", Some(&["anybody"])),
        ("of a user twice", Some(&["a", "a"])),
        ("of a user without a name", Some(&[""])),
    ] {
        duo.step(step);
        let named = |name: &&str| UserName::default().with_name(text(name));
        let users: Option<Vec<_>> = users.map(|users: &[&str]| users.iter().map(named).collect());
        duo.ask(0, |_| DescribeUserScramCredentialsRequest::default().with_users(users.clone())).await;
    }
    duo.step("no change");
    duo.ask(0, |_| AlterUserScramCredentialsRequest::default()).await;
    duo.step("the password of nobody, taken away");
    let deletion = ScramCredentialDeletion::default().with_name(text("nobody")).with_mechanism(1);
    duo.ask(0, |_| AlterUserScramCredentialsRequest::default().with_deletions(vec![deletion.clone()])).await;
}
