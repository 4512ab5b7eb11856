//! The table of APIs against what stock clients speak: those that never negotiate, or know few versions, need theirs in it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

use std::ops::RangeInclusive;

use milena_server::dispatch::{APIS, Api};
use milena_wire::kafka_protocol::messages::ApiKey::{self, *};

fn api(key: ApiKey) -> &'static Api {
    APIS.iter().find(|api| api.key == key).unwrap_or_else(|| panic!("{key:?} is not served"))
}

/// Versions of a key, one of which must be served for the client to work.
type Speaks = (ApiKey, &'static [i16]);

/// A Go client whose connections never ask for versions.
const KAFKA_GO: &[Speaks] = &[
    (ApiVersions, &[0]),
    (Metadata, &[1]),
    (Produce, &[3]),
    (Produce, &[7]),
    (Fetch, &[5]),
    (Fetch, &[10]),
    (ListOffsets, &[1]),
    (FindCoordinator, &[0]),
    (JoinGroup, &[1]),
    (JoinGroup, &[2]),
    (SyncGroup, &[0]),
    (Heartbeat, &[0]),
    (LeaveGroup, &[0]),
    (OffsetCommit, &[2]),
    (OffsetFetch, &[1]),
];

/// librdkafka 2.0, as Debian's kcat has it: features are on when exactly these versions are in the table.
const KCAT: &[Speaks] = &[
    (Produce, &[3]),
    (Produce, &[7]),
    (Fetch, &[4]),
    (Fetch, &[10]),
    (FindCoordinator, &[0]),
    (JoinGroup, &[0]),
    (ListOffsets, &[1]),
    (InitProducerId, &[0]),
];

/// A JavaScript client that knows flexible versions only.
const PLATFORMATIC: &[Speaks] = &[
    (ApiVersions, &[3]),
    (Metadata, &[9, 10, 11, 12]),
    (Produce, &[7, 8, 9, 10, 11]),
    (Fetch, &[12, 13, 14, 15, 16, 17]),
    (ListOffsets, &[5, 6, 7, 8, 9]),
    (FindCoordinator, &[4, 5, 6]),
    (JoinGroup, &[6, 7, 8, 9]),
    (SyncGroup, &[4, 5]),
    (Heartbeat, &[4]),
    (LeaveGroup, &[4, 5]),
    (OffsetCommit, &[8, 9]),
    (OffsetFetch, &[8, 9]),
    (InitProducerId, &[3, 4, 5]),
    (CreateTopics, &[7]),
    (DeleteTopics, &[6]),
    (DescribeGroups, &[5]),
    (ListGroups, &[4, 5]),
    (DeleteGroups, &[2]),
    (DescribeAcls, &[2, 3]),
];

/// A Rust client with few versions of each.
const RSKAFKA: &[Speaks] = &[
    (Metadata, &[0, 1, 2, 3, 4]),
    (Produce, &[3, 4, 5, 6, 7]),
    (Fetch, &[4]),
    (ListOffsets, &[0, 1, 2, 3]),
    (CreateTopics, &[0, 1, 2, 3, 4, 5]),
    (DeleteTopics, &[0, 1, 2, 3, 4, 5]),
    (DeleteRecords, &[0, 1, 2]),
];

/// A Python client without flexible versions.
const AIOKAFKA: &[Speaks] = &[
    (ApiVersions, &[0]),
    (Metadata, &[0, 1, 2, 3, 4, 5]),
    (Produce, &[3, 4, 5, 6, 7]),
    (Fetch, &[4, 5, 6, 7, 8, 9, 10, 11]),
    (JoinGroup, &[0, 1, 2, 5]),
    (SyncGroup, &[0, 1, 3]),
    (Heartbeat, &[0, 1]),
    (LeaveGroup, &[0, 1]),
    (OffsetCommit, &[2, 3]),
    (OffsetFetch, &[1, 2, 3]),
    (InitProducerId, &[0]),
    (CreateTopics, &[2, 3]),
];

/// Java's client and tools, and librdkafka's check of positions, which is of one version.
const JAVA: &[Speaks] = &[
    (OffsetForLeaderEpoch, &[2]),
    (DescribeTopicPartitions, &[0]),
    (DescribeCluster, &[1, 2]),
    (IncrementalAlterConfigs, &[1]),
    (ListPartitionReassignments, &[0]),
    (OffsetDelete, &[0]),
];

#[test]
fn every_client_finds_versions_that_it_speaks() {
    let clients = [KAFKA_GO, KCAT, PLATFORMATIC, RSKAFKA, AIOKAFKA, JAVA];
    for (key, speaks) in clients.into_iter().flatten() {
        let (lowest, highest) = api(*key).served;
        assert!(speaks.iter().any(|version| (lowest..=highest).contains(version)), "{key:?}: {speaks:?}");
    }
}

/// kafkajs takes the lower of its own highest version and ours, and never looks at our lowest.
#[test]
fn a_client_that_does_not_look_at_the_lowest_version_is_served() {
    const KAFKAJS: [(ApiKey, i16); 12] = [
        (Metadata, 6),
        (Produce, 7),
        (Fetch, 11),
        (ListOffsets, 3),
        (FindCoordinator, 2),
        (JoinGroup, 5),
        (SyncGroup, 3),
        (Heartbeat, 3),
        (LeaveGroup, 3),
        (OffsetCommit, 5),
        (OffsetFetch, 4),
        (InitProducerId, 1),
    ];
    for (key, best) in KAFKAJS {
        let (lowest, highest) = api(key).served;
        assert!(best.min(highest) >= lowest, "{key:?}");
    }
}

/// UIs ask for the ends of partitions in whatever version their library has.
#[test]
fn list_offsets_is_served_in_every_version_of_the_last_ten_years() {
    let (lowest, highest) = api(ListOffsets).served;
    assert!(lowest <= 1 && highest >= 10, "{lowest} to {highest}");
}

/// kafka-python takes the release of a broker from single versions. Each of these marks would make it use what is not there,
/// and each of the others not use what is.
#[test]
fn kafka_python_takes_us_for_a_release_that_has_what_we_have() {
    assert!(api(DescribeLogDirs).advertised.1 < 5, "4.3");
    assert!(api(ListOffsets).advertised.1 < 11, "4.2");
    assert!(api(Fetch).advertised.1 >= 10, "2.1, below which zstd is refused");
    assert_eq!(api(Produce).advertised.0, 0, "below 0 no codec");
}

/// Clients that see one of them use it, and find that it does not do what it says. What listeners with SASL alone have is
/// in the table; `tests/sasl.rs` has who sees it.
#[test]
fn what_is_not_there_is_not_in_the_table() {
    const TRANSACTIONS: [ApiKey; 4] = [AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit];
    const OF_BROKERS: RangeInclusive<i16> = 4..=7;
    let absent = [
        WriteTxnMarkers,
        CreateDelegationToken,
        AlterReplicaLogDirs,
        DescribeQuorum,
        UpdateFeatures,
        AlterClientQuotas,
        ConsumerGroupHeartbeat,
        ConsumerGroupDescribe,
        GetTelemetrySubscriptions,
        PushTelemetry,
        ShareGroupHeartbeat,
        ShareFetch,
    ];
    for api in APIS {
        assert!(!TRANSACTIONS.contains(&api.key) && !absent.contains(&api.key), "{}", api.name);
        assert!(!OF_BROKERS.contains(&(api.key as i16)), "{}", api.name);
    }
}
