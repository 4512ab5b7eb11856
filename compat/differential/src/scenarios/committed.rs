//! OffsetCommit, OffsetFetch and OffsetDelete.

use milena_wire::kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use milena_wire::kafka_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use milena_wire::kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use milena_wire::kafka_protocol::messages::{OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest};

use super::groups::join_alone;
use super::words::{group, text, topic};
use crate::duo::{Duo, versions};

/// First version of OffsetFetch that asks for several groups.
const SEVERAL: i16 = 8;

/// Topics of a request, with partitions.
type Named<'a> = Option<&'a [(&'a str, &'a [i32])]>;

/// Offsets are stored, read and deleted.
pub async fn run(duo: &mut Duo) {
    duo.step("a group of one");
    join_alone(duo, "commits").await;
    for version in versions::<OffsetCommitRequest>() {
        outsider(duo, version).await;
        member(duo, version).await;
    }
    for version in versions::<OffsetFetchRequest>() {
        fetched(duo, version).await;
    }
    several(duo).await;
    deleted(duo).await;
}

fn partition(index: i32, offset: i64) -> OffsetCommitRequestPartition {
    OffsetCommitRequestPartition::default()
        .with_partition_index(index)
        .with_committed_offset(offset)
        .with_committed_metadata(Some(text("")))
}

fn commit(name: &str, of: &str, partitions: Vec<OffsetCommitRequestPartition>) -> OffsetCommitRequest {
    let topic = OffsetCommitRequestTopic::default().with_name(topic(of)).with_partitions(partitions);
    OffsetCommitRequest::default()
        .with_group_id(group(name))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic])
}

async fn outsider(duo: &mut Duo, version: i16) {
    let name = format!("outsider-v{version}");
    for (step, of, partitions) in [
        ("two partitions", "read", vec![partition(0, 5), partition(1, 0)]),
        ("an unknown topic", "nowhere", vec![partition(0, 5)]),
        ("a bad name", "a/b", vec![partition(0, 5)]),
        ("an unknown partition", "read", vec![partition(7, 5), partition(0, 6)]),
        ("a negative partition", "read", vec![partition(-1, 5)]),
        ("far behind the end", "read", vec![partition(1, i64::MAX)]),
        ("offset -1", "watched", vec![partition(0, -1)]),
        ("no partitions", "read", vec![]),
        ("a partition twice", "watched", vec![partition(1, 3), partition(1, 4)]),
        ("a text", "empty", vec![partition(0, 1).with_committed_metadata(Some(text("a text")))]),
        ("no text", "timely", vec![partition(0, 1).with_committed_metadata(None)]),
        ("the longest text", "compacted", vec![partition(0, 1).with_committed_metadata(Some(text(&"t".repeat(4096))))]),
        ("too long a text", "small", vec![partition(0, 1).with_committed_metadata(Some(text(&"t".repeat(4097))))]),
    ] {
        duo.step(step);
        duo.ask(version, |_| commit(&name, of, partitions.clone())).await;
    }
    if version >= 6 {
        duo.step("an epoch");
        duo.ask(version, |_| commit(&name, "appended", vec![partition(0, 1).with_committed_leader_epoch(0)])).await;
    }
    duo.step("no topics");
    duo.ask(version, |_| commit(&name, "read", vec![]).with_topics(vec![])).await;
    duo.step("the group without a name");
    duo.ask(version, |_| commit("", "read", vec![partition(0, 5)])).await;
    duo.step("a generation of a group without members");
    duo.ask(version, |_| commit(&name, "read", vec![partition(0, 9)]).with_generation_id_or_member_epoch(1)).await;
    duo.step("a generation of no group");
    duo.ask(version, |_| commit("nobody's", "read", vec![partition(0, 9)]).with_generation_id_or_member_epoch(1)).await;
    duo.step("a member of a group without members");
    // As the offset that is stored already, so that whether it is taken shows here and nowhere else.
    duo.ask(version, |_| commit(&name, "read", vec![partition(0, 6)]).with_member_id(text("nobody"))).await;
    if version <= 4 {
        duo.step("a retention");
        duo.ask(version, |_| commit(&name, "read", vec![partition(0, 5)]).with_retention_time_ms(86_400_000)).await;
    }
}

async fn member(duo: &mut Duo, version: i16) {
    for (step, generation, member) in [
        ("a member", 1, None),
        ("a member of an older generation", 0, None),
        ("a member of a newer generation", 2, None),
        ("a member without a generation", -1, None),
        ("who is no member", 1, Some("nobody")),
        ("an outsider beside a member", -1, Some("")),
    ] {
        duo.step(step);
        duo.ask(version, |memory| {
            commit("commits", "read", vec![partition(0, 5)])
                .with_generation_id_or_member_epoch(generation)
                .with_member_id(text(member.unwrap_or_else(|| memory.kept("member"))))
        })
        .await;
    }
    if version >= 7 {
        duo.step("an instance that is not there");
        duo.ask(version, |memory| {
            commit("commits", "read", vec![partition(0, 5)])
                .with_generation_id_or_member_epoch(1)
                .with_member_id(text(memory.kept("member")))
                .with_group_instance_id(Some(text("nobody")))
        })
        .await;
    }
}

fn fetch(version: i16, name: &str, topics: Named<'_>) -> OffsetFetchRequest {
    if version >= SEVERAL {
        return OffsetFetchRequest::default().with_groups(vec![of_group(name, topics)]);
    }
    let named = |(name, partitions): &(&str, &[i32])| {
        OffsetFetchRequestTopic::default().with_name(topic(name)).with_partition_indexes(partitions.to_vec())
    };
    OffsetFetchRequest::default()
        .with_group_id(group(name))
        .with_topics(topics.map(|topics| topics.iter().map(named).collect()))
}

fn of_group(name: &str, topics: Named<'_>) -> OffsetFetchRequestGroup {
    let named = |(name, partitions): &(&str, &[i32])| {
        OffsetFetchRequestTopics::default().with_name(topic(name)).with_partition_indexes(partitions.to_vec())
    };
    OffsetFetchRequestGroup::default()
        .with_group_id(group(name))
        .with_topics(topics.map(|topics| topics.iter().map(named).collect()))
}

async fn fetched(duo: &mut Duo, version: i16) {
    for (step, name, topics) in [
        ("what was stored", "outsider-v9", Some(&[("read", &[0, 1][..]), ("empty", &[0]), ("appended", &[0])][..])),
        ("what was not stored", "outsider-v9", Some(&[("read", &[1, 7, -1]), ("nowhere", &[0]), ("a/b", &[0])])),
        ("what was taken away", "outsider-v9", Some(&[("watched", &[0, 1])])),
        ("texts", "outsider-v9", Some(&[("empty", &[0]), ("timely", &[0]), ("small", &[0])])),
        ("no topics", "outsider-v9", Some(&[])),
        ("no partitions", "outsider-v9", Some(&[("read", &[])])),
        ("a partition twice", "outsider-v9", Some(&[("read", &[0, 0])])),
        ("of no group", "nobody's", Some(&[("read", &[0])])),
        ("of the group without a name", "", Some(&[("read", &[0])])),
        ("of a group with members", "commits", Some(&[("read", &[0])])),
    ] {
        duo.step(step);
        duo.ask(version, |_| fetch(version, name, topics)).await;
    }
    if version >= 2 {
        duo.step("all that was stored");
        duo.ask(version, |_| fetch(version, "outsider-v9", None)).await;
        duo.step("all of no group");
        duo.ask(version, |_| fetch(version, "nobody's", None)).await;
    }
    if version >= 7 {
        duo.step("what is stable");
        duo.ask(version, |_| fetch(version, "outsider-v9", Some(&[("read", &[0])])).with_require_stable(true)).await;
    }
}

async fn several(duo: &mut Duo) {
    for version in SEVERAL..=9 {
        duo.step("several groups");
        duo.ask(version, |_| {
            let groups = vec![of_group("outsider-v9", None), of_group("nobody's", None), of_group("commits", None)];
            OffsetFetchRequest::default().with_groups(groups)
        })
        .await;
        duo.step("a group twice");
        duo.ask(version, |_| {
            OffsetFetchRequest::default().with_groups(vec![of_group("commits", None), of_group("commits", None)])
        })
        .await;
        duo.step("no groups");
        duo.ask(version, |_| OffsetFetchRequest::default()).await;
    }
    for (step, member, epoch) in [("a member with an epoch", "nobody", 1), ("a member without an epoch", "nobody", -1)]
    {
        duo.step(step);
        duo.ask(9, |_| {
            let group = of_group("commits", None).with_member_id(Some(text(member))).with_member_epoch(epoch);
            OffsetFetchRequest::default().with_groups(vec![group])
        })
        .await;
    }
}

async fn deleted(duo: &mut Duo) {
    for (step, name, of, partitions) in [
        ("an offset", "outsider-v9", "read", &[0][..]),
        ("an offset that was deleted", "outsider-v9", "read", &[0]),
        ("an unknown partition", "outsider-v9", "read", &[7, -1]),
        ("an unknown topic", "outsider-v9", "nowhere", &[0]),
        ("a bad name", "outsider-v9", "a/b", &[0]),
        ("no partitions", "outsider-v9", "read", &[]),
        ("of no group", "nobody's", "read", &[0]),
        ("of the group without a name", "", "read", &[0]),
        ("of a group with members that reads it", "commits", "read", &[0]),
        ("of a group with members that does not read it", "commits", "empty", &[0]),
    ] {
        duo.step(step);
        duo.ask(0, |_| {
            let partition = |index: &i32| OffsetDeleteRequestPartition::default().with_partition_index(*index);
            let topic = OffsetDeleteRequestTopic::default()
                .with_name(topic(of))
                .with_partitions(partitions.iter().map(partition).collect());
            OffsetDeleteRequest::default().with_group_id(group(name)).with_topics(vec![topic])
        })
        .await;
    }
    duo.step("after a deletion");
    duo.ask(7, |_| fetch(7, "outsider-v9", None)).await;
}
