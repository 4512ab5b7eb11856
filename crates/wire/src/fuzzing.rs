//! Every message type by number, for fuzz targets and for tests that walk all of them.

use bytes::Bytes;
use kafka_protocol::messages::{self, ApiKey};
use kafka_protocol::protocol::Request;

use crate::decode::{decode_body, decode_request, decode_response_to};
use crate::error::WireError;
use crate::frame::parse_request;

/// Something to do with a request type, and with the response type that belongs to it.
pub trait Visit {
    /// Called with the types of one key.
    fn visit<Q>(&mut self, key: ApiKey)
    where
        Q: Request + Default + Clone + PartialEq + std::fmt::Debug,
        Q::Response: Default + Clone + PartialEq + std::fmt::Debug;
}

macro_rules! visit_by_key {
    ($($key:ident => $request:ident,)*) => {
        /// Calls `visitor` with the types of `key`.
        #[inline]
        pub fn visit(key: ApiKey, visitor: &mut impl Visit) {
            match key {
                $(ApiKey::$key => visitor.visit::<messages::$request>(key),)*
            }
        }
    };
}

visit_by_key! {
    Produce => ProduceRequest,
    Fetch => FetchRequest,
    ListOffsets => ListOffsetsRequest,
    Metadata => MetadataRequest,
    OffsetCommit => OffsetCommitRequest,
    OffsetFetch => OffsetFetchRequest,
    FindCoordinator => FindCoordinatorRequest,
    JoinGroup => JoinGroupRequest,
    Heartbeat => HeartbeatRequest,
    LeaveGroup => LeaveGroupRequest,
    SyncGroup => SyncGroupRequest,
    DescribeGroups => DescribeGroupsRequest,
    ListGroups => ListGroupsRequest,
    SaslHandshake => SaslHandshakeRequest,
    ApiVersions => ApiVersionsRequest,
    CreateTopics => CreateTopicsRequest,
    DeleteTopics => DeleteTopicsRequest,
    DeleteRecords => DeleteRecordsRequest,
    InitProducerId => InitProducerIdRequest,
    OffsetForLeaderEpoch => OffsetForLeaderEpochRequest,
    AddPartitionsToTxn => AddPartitionsToTxnRequest,
    AddOffsetsToTxn => AddOffsetsToTxnRequest,
    EndTxn => EndTxnRequest,
    WriteTxnMarkers => WriteTxnMarkersRequest,
    TxnOffsetCommit => TxnOffsetCommitRequest,
    DescribeAcls => DescribeAclsRequest,
    CreateAcls => CreateAclsRequest,
    DeleteAcls => DeleteAclsRequest,
    DescribeConfigs => DescribeConfigsRequest,
    AlterConfigs => AlterConfigsRequest,
    AlterReplicaLogDirs => AlterReplicaLogDirsRequest,
    DescribeLogDirs => DescribeLogDirsRequest,
    SaslAuthenticate => SaslAuthenticateRequest,
    CreatePartitions => CreatePartitionsRequest,
    CreateDelegationToken => CreateDelegationTokenRequest,
    RenewDelegationToken => RenewDelegationTokenRequest,
    ExpireDelegationToken => ExpireDelegationTokenRequest,
    DescribeDelegationToken => DescribeDelegationTokenRequest,
    DeleteGroups => DeleteGroupsRequest,
    ElectLeaders => ElectLeadersRequest,
    IncrementalAlterConfigs => IncrementalAlterConfigsRequest,
    AlterPartitionReassignments => AlterPartitionReassignmentsRequest,
    ListPartitionReassignments => ListPartitionReassignmentsRequest,
    OffsetDelete => OffsetDeleteRequest,
    DescribeClientQuotas => DescribeClientQuotasRequest,
    AlterClientQuotas => AlterClientQuotasRequest,
    DescribeUserScramCredentials => DescribeUserScramCredentialsRequest,
    AlterUserScramCredentials => AlterUserScramCredentialsRequest,
    Vote => VoteRequest,
    BeginQuorumEpoch => BeginQuorumEpochRequest,
    EndQuorumEpoch => EndQuorumEpochRequest,
    DescribeQuorum => DescribeQuorumRequest,
    AlterPartition => AlterPartitionRequest,
    UpdateFeatures => UpdateFeaturesRequest,
    Envelope => EnvelopeRequest,
    FetchSnapshot => FetchSnapshotRequest,
    DescribeCluster => DescribeClusterRequest,
    DescribeProducers => DescribeProducersRequest,
    BrokerRegistration => BrokerRegistrationRequest,
    BrokerHeartbeat => BrokerHeartbeatRequest,
    UnregisterBroker => UnregisterBrokerRequest,
    DescribeTransactions => DescribeTransactionsRequest,
    ListTransactions => ListTransactionsRequest,
    AllocateProducerIds => AllocateProducerIdsRequest,
    ConsumerGroupHeartbeat => ConsumerGroupHeartbeatRequest,
    ConsumerGroupDescribe => ConsumerGroupDescribeRequest,
    ControllerRegistration => ControllerRegistrationRequest,
    GetTelemetrySubscriptions => GetTelemetrySubscriptionsRequest,
    PushTelemetry => PushTelemetryRequest,
    AssignReplicasToDirs => AssignReplicasToDirsRequest,
    ListConfigResources => ListConfigResourcesRequest,
    DescribeTopicPartitions => DescribeTopicPartitionsRequest,
    ShareGroupHeartbeat => ShareGroupHeartbeatRequest,
    ShareGroupDescribe => ShareGroupDescribeRequest,
    ShareFetch => ShareFetchRequest,
    ShareAcknowledge => ShareAcknowledgeRequest,
    AddRaftVoter => AddRaftVoterRequest,
    RemoveRaftVoter => RemoveRaftVoterRequest,
    UpdateRaftVoter => UpdateRaftVoterRequest,
    InitializeShareGroupState => InitializeShareGroupStateRequest,
    ReadShareGroupState => ReadShareGroupStateRequest,
    WriteShareGroupState => WriteShareGroupStateRequest,
    DeleteShareGroupState => DeleteShareGroupStateRequest,
    ReadShareGroupStateSummary => ReadShareGroupStateSummaryRequest,
    DescribeShareGroupOffsets => DescribeShareGroupOffsetsRequest,
    AlterShareGroupOffsets => AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsets => DeleteShareGroupOffsetsRequest,
}

/// Calls `visitor` with every key and version that `kafka-protocol` has messages for.
#[inline]
pub fn visit_all(visitor: &mut impl Visit) {
    for key in ApiKey::iter() {
        visit(key, visitor);
    }
}

struct Decode {
    body: Bytes,
    version: i16,
    outcome: Result<(), WireError>,
}

impl Visit for Decode {
    fn visit<Q>(&mut self, _key: ApiKey)
    where
        Q: Request + Default + Clone + PartialEq + std::fmt::Debug,
        Q::Response: Default + Clone + PartialEq + std::fmt::Debug,
    {
        self.outcome = decode_request::<Q>(self.body.clone(), self.version).map(drop);
        // The two ways differ in what they know, and must agree in what they say.
        if self.outcome.is_ok() {
            self.outcome = decode_body::<Q>(self.body.clone(), self.version).map(drop);
        }
    }
}

struct DecodeResponse {
    frame: Bytes,
    version: i16,
    outcome: Result<(), WireError>,
}

impl Visit for DecodeResponse {
    fn visit<Q>(&mut self, _key: ApiKey)
    where
        Q: Request + Default + Clone + PartialEq + std::fmt::Debug,
        Q::Response: Default + Clone + PartialEq + std::fmt::Debug,
    {
        self.outcome = decode_response_to::<Q>(self.version, self.frame.clone()).map(drop);
    }
}

/// Fuzz target: a request frame without length prefix, header and body. Nothing it is given may panic, or reserve memory
/// that the bytes do not back.
///
/// # Errors
/// When the bytes are no request.
#[inline]
pub fn request_frame(data: &[u8]) -> Result<(), WireError> {
    let frame = parse_request(Bytes::copy_from_slice(data))?;
    let key = ApiKey::try_from(frame.api_key).map_err(|()| WireError::UnknownApi(frame.api_key))?;
    let mut decode = Decode { body: frame.body, version: frame.api_version, outcome: Ok(()) };
    visit(key, &mut decode);
    decode.outcome
}

/// Fuzz target: a response frame without length prefix, behind two bytes of key and two of version.
///
/// # Errors
/// When the bytes are no response.
#[inline]
pub fn response_frame(data: &[u8]) -> Result<(), WireError> {
    let Some((&[k0, k1, v0, v1], rest)) = data.split_first_chunk::<4>() else {
        return Err(WireError::ShortHeader);
    };
    let key = i16::from_be_bytes([k0, k1]);
    let key = ApiKey::try_from(key).map_err(|()| WireError::UnknownApi(key))?;
    let frame = Bytes::copy_from_slice(rest);
    let mut decode = DecodeResponse { frame, version: i16::from_be_bytes([v0, v1]), outcome: Ok(()) };
    visit(key, &mut decode);
    decode.outcome
}
