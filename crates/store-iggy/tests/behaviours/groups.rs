//! Committed offsets.

use iggy::prelude::{Consumer, ConsumerOffsetClient, Identifier};
use milena_records::client::Record;
use milena_testkit::RawClient;
use milena_wire::kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use milena_wire::kafka_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use milena_wire::kafka_protocol::messages::{GroupId, OffsetCommitRequest, OffsetFetchRequest};
use milena_wire::kafka_protocol::protocol::StrBytes;

use crate::case::{Case, Setup, TOPIC, eventually, named};
use crate::kafka::{EARLIEST, fetch, offset, plain, produce, record, records_of, topic_name};

fn group(name: &str) -> GroupId {
    GroupId(StrBytes::from_string(name.to_owned()))
}

async fn commit(client: &mut RawClient, name: &str, partition: i32, offset: i64, metadata: &str) {
    assert_eq!(commit_code(client, name, partition, offset, metadata).await, 0, "{name} {partition} {offset}");
}

/// What a commit is answered with.
pub(crate) async fn commit_code(
    client: &mut RawClient,
    name: &str,
    partition: i32,
    offset: i64,
    metadata: &str,
) -> i16 {
    let entry = OffsetCommitRequestPartition::default()
        .with_partition_index(partition)
        .with_committed_offset(offset)
        .with_committed_metadata(Some(StrBytes::from_string(metadata.to_owned())));
    let topic = OffsetCommitRequestTopic::default().with_name(topic_name(TOPIC)).with_partitions(vec![entry]);
    let request = OffsetCommitRequest::default()
        .with_group_id(group(name))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic]);
    client.request(8, &request).await.topics[0].partitions[0].error_code
}

/// Offset and metadata of a group.
async fn committed(client: &mut RawClient, name: &str, partition: i32) -> (i64, String) {
    let topic =
        OffsetFetchRequestTopics::default().with_name(topic_name(TOPIC)).with_partition_indexes(vec![partition]);
    let wanted = OffsetFetchRequestGroup::default().with_group_id(group(name)).with_topics(Some(vec![topic]));
    let answer = client.request(8, &OffsetFetchRequest::default().with_groups(vec![wanted])).await;
    assert_eq!(answer.groups[0].error_code, 0);
    let found = answer.groups[0].topics[0].partitions[0].clone();
    (found.committed_offset, found.metadata.map(|text| text.to_string()).unwrap_or_default())
}

async fn b24_committed_offsets_do_not_hold_back_retention(case: Case) {
    let mut client = case.raw().await;
    commit(&mut client, "slow", 0, 0, "").await;
    let large = Record { value: Some(vec![b'x'; 200 << 10]), ..record("") };
    assert_eq!(produce(&mut client, plain(std::slice::from_ref(&large))).await.error_code, 0);
    // Nor does a Fetch leave an offset of its reader behind.
    assert_eq!(records_of(&fetch(&mut client, 0, 0).await).len(), 1);
    for _ in 1..20 {
        assert_eq!(produce(&mut client, plain(std::slice::from_ref(&large))).await.error_code, 0);
    }
    commit(&mut client, "slow", 0, 1, "").await;
    let (native, stream, topic) = (case.native().await, named(&case.stream), named(TOPIC));
    let reader = Consumer::new(Identifier::numeric(0).unwrap());
    let stored = native.get_consumer_offset(&reader, &stream, &topic, Some(0)).await.unwrap();
    assert!(stored.is_none(), "{stored:?}");
    eventually("retention goes on", async || offset(&mut client, EARLIEST).await > 1).await;
    assert_eq!(committed(&mut client, "slow", 0).await.0, 1);
}
shown!(b24_committed_offsets_do_not_hold_back_retention in door, one_node with Setup {
    configs: &[("segment.bytes", "1048576"), ("retention.ms", "1500")],
    envs: &[("IGGY_DATA_MAINTENANCE_MESSAGES_INTERVAL", "500 ms")],
    ..Setup::default()
});

async fn b27_any_offset_is_committed_and_comes_back_with_its_metadata(case: Case) {
    let mut client = case.raw().await;
    for _ in 0..3 {
        assert_eq!(produce(&mut client, plain(&[record("x")])).await.error_code, 0);
    }
    // The end of a partition, 0, an empty partition, and one behind the end: Iggy's own offsets can be none of these.
    for (name, partition, offset) in [("end", 0, 3), ("zero", 0, 0), ("empty", 1, 0), ("beyond", 1, 7)] {
        commit(&mut client, name, partition, offset, "my text").await;
        assert_eq!(committed(&mut client, name, partition).await, (offset, "my text".to_owned()), "{name}");
    }
    assert_eq!(committed(&mut client, "unknown", 0).await, (-1, String::new()));
}
shown!(b27_any_offset_is_committed_and_comes_back_with_its_metadata in door, one_node, three_nodes
    with Setup { partitions: 2, ..Setup::default() });

async fn b28_groups_whose_names_have_one_hash_in_iggy_share_no_offset(case: Case) {
    let mut client = case.raw().await;
    commit(&mut client, "group-79597", 0, 1, "").await;
    assert_eq!(committed(&mut client, "group-238340", 0).await.0, -1);
    commit(&mut client, "group-238340", 0, 2, "").await;
    assert_eq!(committed(&mut client, "group-79597", 0).await.0, 1);
}
shown!(b28_groups_whose_names_have_one_hash_in_iggy_share_no_offset in door, one_node, three_nodes);
