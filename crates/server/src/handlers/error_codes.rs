//! Where the answers of each API hold their error codes, so that errors are counted in one place and by no handler.

use milena_wire::kafka_protocol::messages::{
    AlterConfigsResponse, AlterPartitionReassignmentsResponse, AlterUserScramCredentialsResponse, ApiVersionsResponse,
    CreateAclsResponse, CreatePartitionsResponse, CreateTopicsResponse, DeleteAclsResponse, DeleteGroupsResponse,
    DeleteRecordsResponse, DeleteTopicsResponse, DescribeAclsResponse, DescribeClientQuotasResponse,
    DescribeClusterResponse, DescribeConfigsResponse, DescribeGroupsResponse, DescribeLogDirsResponse,
    DescribeProducersResponse, DescribeTopicPartitionsResponse, DescribeTransactionsResponse,
    DescribeUserScramCredentialsResponse, ElectLeadersResponse, FindCoordinatorResponse, HeartbeatResponse,
    IncrementalAlterConfigsResponse, InitProducerIdResponse, JoinGroupResponse, LeaveGroupResponse,
    ListConfigResourcesResponse, ListGroupsResponse, ListOffsetsResponse, ListPartitionReassignmentsResponse,
    ListTransactionsResponse, MetadataResponse, OffsetCommitResponse, OffsetDeleteResponse, OffsetFetchResponse,
    OffsetForLeaderEpochResponse, ProduceResponse, SaslAuthenticateResponse, SaslHandshakeResponse, SyncGroupResponse,
};

use crate::metrics::ErrorCodes;

/// For answers with one code for all, or with a list of items that have one each, or with items in items.
macro_rules! error_codes {
    ($($answer:ty: $($own:ident)? $([$($list:ident)/+])*;)*) => {$(
        impl ErrorCodes for $answer {
            fn each_code(&self, count: &mut dyn FnMut(i16)) {
                $(count(self.$own);)?
                $(error_codes!(@list self, count, $($list)/+);)*
            }
        }
    )*};
    (@list $parent:expr, $count:ident, $list:ident) => {
        for item in &$parent.$list {
            $count(item.error_code);
        }
    };
    (@list $parent:expr, $count:ident, $list:ident / $($rest:ident)/+) => {
        for item in &$parent.$list {
            error_codes!(@list item, $count, $($rest)/+);
        }
    };
}

error_codes! {
    AlterConfigsResponse: [responses];
    AlterPartitionReassignmentsResponse: error_code [responses/partitions];
    AlterUserScramCredentialsResponse: [results];
    ApiVersionsResponse: error_code;
    CreateAclsResponse: [results];
    CreatePartitionsResponse: [results];
    CreateTopicsResponse: [topics];
    DeleteAclsResponse: [filter_results];
    DeleteGroupsResponse: [results];
    DeleteRecordsResponse: [topics/partitions];
    DeleteTopicsResponse: [responses];
    DescribeAclsResponse: error_code;
    DescribeClientQuotasResponse: error_code;
    DescribeClusterResponse: error_code;
    DescribeConfigsResponse: [results];
    DescribeGroupsResponse: [groups];
    DescribeLogDirsResponse: error_code [results];
    DescribeProducersResponse: [topics/partitions];
    DescribeTopicPartitionsResponse: [topics];
    DescribeTransactionsResponse: [transaction_states];
    DescribeUserScramCredentialsResponse: error_code [results];
    ElectLeadersResponse: error_code [replica_election_results/partition_result];
    FindCoordinatorResponse: error_code [coordinators];
    HeartbeatResponse: error_code;
    IncrementalAlterConfigsResponse: [responses];
    InitProducerIdResponse: error_code;
    JoinGroupResponse: error_code;
    LeaveGroupResponse: error_code [members];
    ListConfigResourcesResponse: error_code;
    ListGroupsResponse: error_code;
    ListOffsetsResponse: [topics/partitions];
    ListPartitionReassignmentsResponse: error_code;
    ListTransactionsResponse: error_code;
    MetadataResponse: [topics] [topics/partitions];
    OffsetCommitResponse: [topics/partitions];
    OffsetDeleteResponse: error_code [topics/partitions];
    OffsetFetchResponse: error_code [topics/partitions] [groups] [groups/topics/partitions];
    OffsetForLeaderEpochResponse: [topics/partitions];
    ProduceResponse: [responses/partition_responses];
    SaslAuthenticateResponse: error_code;
    SaslHandshakeResponse: error_code;
    SyncGroupResponse: error_code;
}
