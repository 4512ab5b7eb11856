//! What a scrape says of consumer groups.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

#[path = "../../server/tests/groups_kit/mod.rs"]
mod groups_kit;
mod kit;

use std::sync::Arc;
use std::time::Duration;

use groups_kit::{Member, builder, codes, commits, create, group, join_request, server, text};
use kit::{scrape, until, watch, watch_with};
use milena_monitor::{LagDetail, MonitorSettings};
use milena_server::groups::OffsetStorage;
use milena_store::testing::{Fault, MemoryStore, OffsetFault, OffsetRules};
use milena_testkit::{RawClient, TestServer};
use milena_wire::kafka_protocol::messages::leave_group_request::MemberIdentity;
use milena_wire::kafka_protocol::messages::{DeleteTopicsRequest, LeaveGroupRequest};

const LAG: &str = "milena_group_lag";
const SUM: &str = "milena_group_lag_sum";

async fn commit_for(client: &mut RawClient, name: &str, topic: &str, offsets: &[(i32, i64)]) {
    let answer = client.request(9, &commits(topic, offsets).with_group_id(group(name))).await;
    assert!(codes(&answer).iter().all(|code| *code == 0), "{answer:?}");
}

async fn append(server: &TestServer, topic: &str, partition: u32, records: usize) {
    use milena_store::testing::{TestMessage, batch_of};
    let broker = server.server().broker();
    let at = broker.topics.by_name(topic).unwrap().store.partition(partition);
    // Not every store takes a message without a payload.
    let messages = vec![TestMessage::new(1, b"x"); records];
    broker.store.append(&at, batch_of(&messages)).await.unwrap();
}

#[tokio::test]
async fn a_group_is_counted_in_the_state_it_is_in() {
    let server = server().await;
    let monitor = watch(&server).await;
    let states = |scrape: &kit::Scrape| {
        ["Empty", "PreparingRebalance", "CompletingRebalance", "Stable"]
            .map(|state| scrape.value("milena_groups", &[("state", state)]))
    };
    assert_eq!(states(&scrape(&monitor).await), [0.0; 4]);
    let mut member = Member::new(&server).await;
    member.join().await;
    assert_eq!(states(&scrape(&monitor).await), [0.0, 0.0, 1.0, 0.0]);
    member.sync(&[]).await;
    let now = scrape(&monitor).await;
    assert_eq!((states(&now), now.value("milena_group_members", &[])), ([0.0, 0.0, 0.0, 1.0], 1.0));
    let mut other = Member::fixed(&server, "fixed").await;
    other.send_join().await;
    let prepares = |now: &kit::Scrape| now.value("milena_groups", &[("state", "PreparingRebalance")]) == 1.0;
    let now = until(&monitor, "the group prepares", prepares).await;
    assert_eq!(now.value("milena_group_static_members", &[]), 1.0);
    let leaving = [&member.id, ""].map(|id| MemberIdentity::default().with_member_id(text(id)));
    let [left, fixed] = leaving;
    let members = vec![left, fixed.with_group_instance_id(Some(text("fixed")))];
    member.client.request(5, &LeaveGroupRequest::default().with_group_id(group("g")).with_members(members)).await;
    let now = scrape(&monitor).await;
    assert_eq!((states(&now), now.value("milena_group_members", &[])), ([1.0, 0.0, 0.0, 0.0], 0.0));
    assert_eq!(now.value("milena_group_members_gone_total", &[("reason", "left")]), 2.0);
    assert_eq!(now.value("milena_group_members_joined_total", &[]), 2.0);
}

#[tokio::test]
async fn a_rebalance_is_counted_by_its_cause_and_timed() {
    let server = server().await;
    let monitor = watch(&server).await;
    let mut member = Member::alone(&server).await;
    member.join().await;
    let id = member.id.clone();
    member.sync(&[(&id, "all")]).await;
    let now = scrape(&monitor).await;
    assert_eq!(now.value("milena_group_rebalances_total", &[("reason", "joined")]), 1.0);
    assert_eq!(now.value("milena_group_rebalances_total", &[("reason", "leader")]), 1.0);
    assert_eq!(now.value("milena_group_rebalance_duration_seconds_count", &[]), 2.0);
    assert!(now.value("milena_group_rebalance_duration_seconds_sum", &[]) < 20.0);
}

#[tokio::test]
async fn a_member_that_falls_silent_is_counted_as_a_session_that_ended() {
    let short = |config: &mut milena_server::ServerConfig| {
        config.groups.session_timeout_min = Duration::from_millis(50);
    };
    let server = builder().config(short).start().await;
    let monitor = watch(&server).await;
    let mut client = server.client().await;
    let joined = client.request(3, &join_request("", None).with_session_timeout_ms(50)).await;
    assert_eq!(joined.error_code, 0);
    until(&monitor, "the member is evicted", |now| {
        now.value("milena_group_members_gone_total", &[("reason", "session_ended")]) == 1.0
            && now.value("milena_groups", &[("state", "Empty")]) == 1.0
    })
    .await;
}

#[tokio::test]
async fn a_commit_is_counted_with_its_partitions_and_its_append() {
    let server = server().await;
    let monitor = watch(&server).await;
    let mut client = server.client().await;
    create(&mut client, "t", 2).await;
    assert_eq!(codes(&client.request(9, &commits("t", &[(0, 1), (1, 1), (9, 1)])).await), [0, 0, 3]);
    let now = scrape(&monitor).await;
    assert_eq!(now.value("milena_offset_commits_total", &[]), 1.0);
    assert_eq!(now.value("milena_offset_commit_partitions_total", &[("result", "stored")]), 2.0);
    assert_eq!(now.value("milena_offset_commit_partitions_total", &[("result", "refused")]), 1.0);
    assert_eq!((now.value("milena_offsets", &[]), now.value("milena_groups_with_offsets", &[])), (2.0, 1.0));
    assert_eq!(now.value("milena_offsets_log_append_duration_seconds_count", &[]), 1.0);
    assert_eq!(now.value("milena_offsets_log_append_records_sum", &[]), 1.0);
    assert!(now.value("milena_offsets_log_append_bytes_total", &[]) > 0.0);
    assert_eq!(now.value("milena_offsets_log_waiting_bytes", &[]), 0.0);
}

#[tokio::test]
async fn a_commit_that_the_store_refuses_or_sits_on_is_counted() {
    let memory = MemoryStore::new();
    let short = |config: &mut milena_server::ServerConfig| {
        config.groups.session_timeout_min = Duration::from_millis(200);
    };
    let server = builder().config(short).store(Arc::new(memory.clone())).start().await;
    let monitor = watch(&server).await;
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    memory.plan(Fault::Full);
    assert_eq!(codes(&client.request(9, &commits("t", &[(0, 1)])).await), [14]);
    let now = scrape(&monitor).await;
    assert_eq!(now.value("milena_offsets_log_append_failures_total", &[]), 1.0);
    assert_eq!(now.value("milena_offset_commit_partitions_total", &[("result", "refused")]), 1.0);
    memory.plan(Fault::Hangs { applied: false });
    assert_eq!(codes(&client.request(9, &commits("t", &[(0, 1)])).await), [14]);
    let now = scrape(&monitor).await;
    assert_eq!(now.value("milena_offset_commits_late_total", &[]), 1.0);
    assert!(now.value("milena_offsets_log_waiting_bytes", &[]) > 0.0);
}

#[tokio::test]
async fn lag_is_the_end_less_the_committed_offset_and_where_nothing_is_committed_there_is_none() {
    let server = server().await;
    let monitor = watch(&server).await;
    let mut client = server.client().await;
    create(&mut client, "t", 3).await;
    append(&server, "t", 0, 10).await;
    append(&server, "t", 1, 5).await;
    append(&server, "t", 2, 7).await;
    assert_eq!(scrape(&monitor).await.count(LAG), 0);
    commit_for(&mut client, "g", "t", &[(0, 4), (1, 5)]).await;
    commit_for(&mut client, "h", "t", &[(2, 100)]).await;
    let now = scrape(&monitor).await;
    let lag = |group, partition| now.find(LAG, &[("group", group), ("topic", "t"), ("partition", partition)]);
    assert_eq!((lag("g", "0"), lag("g", "1"), lag("g", "2")), (Some(6.0), Some(0.0), None));
    assert_eq!(lag("h", "2"), Some(0.0), "a commit beyond the end is not behind");
    assert_eq!((now.value(SUM, &[("group", "g")]), now.value(SUM, &[("group", "h")])), (6.0, 0.0));
}

#[tokio::test]
async fn lag_and_numbers_of_offsets_are_told_where_the_store_keeps_the_offsets_too() {
    let memory = MemoryStore::with_offsets(OffsetRules::Free);
    let storage = |config: &mut milena_server::ServerConfig| config.offset_storage = OffsetStorage::ConsumerOffsets;
    let server = builder().memory(memory.clone()).config(storage).start().await;
    let monitor = watch(&server).await;
    let mut client = server.client().await;
    create(&mut client, "t", 3).await;
    create(&mut client, "u", 1).await;
    append(&server, "t", 0, 10).await;
    append(&server, "u", 0, 5).await;
    commit_for(&mut client, "g", "t", &[(0, 4), (1, 5)]).await;
    commit_for(&mut client, "g", "u", &[(0, 3)]).await;
    commit_for(&mut client, "h", "t", &[(0, 0)]).await;
    let now = scrape(&monitor).await;
    let lag = |group, topic, partition| now.find(LAG, &[("group", group), ("topic", topic), ("partition", partition)]);
    assert_eq!((lag("g", "t", "0"), lag("g", "t", "1"), lag("g", "t", "2")), (Some(6.0), Some(0.0), None));
    assert_eq!((lag("g", "u", "0"), lag("h", "t", "0")), (Some(2.0), Some(10.0)));
    assert_eq!((now.value(SUM, &[("group", "g")]), now.value(SUM, &[("group", "h")])), (8.0, 10.0));
    assert_eq!((now.value("milena_offsets", &[]), now.value("milena_groups_with_offsets", &[])), (4.0, 2.0));

    // One call for each topic, then those of group g: the first of them fails.
    (0..2).for_each(|_| memory.plan_offsets(None));
    memory.plan_offsets(OffsetFault::Busy);
    let now = scrape(&monitor).await;
    assert_eq!((now.find(SUM, &[("group", "g")]), now.find("milena_offsets", &[])), (None, None));
    assert_eq!((now.value("milena_group_lag_unknown", &[]), now.value(SUM, &[("group", "h")])), (1.0, 10.0));

    // The very list of groups fails.
    memory.plan_offsets(OffsetFault::Busy);
    let now = scrape(&monitor).await;
    assert_eq!((now.value("milena_group_lag_unknown", &[]), now.count(SUM)), (1.0, 0));
    assert_eq!(scrape(&monitor).await.value("milena_group_lag_unknown", &[]), 0.0);
}

#[tokio::test]
async fn offsets_of_a_topic_that_is_gone_have_no_lag() {
    let server = server().await;
    let monitor = watch(&server).await;
    let mut client = server.client().await;
    for name in ["gone", "stays"] {
        create(&mut client, name, 1).await;
        commit_for(&mut client, "g", name, &[(0, 0)]).await;
    }
    let delete =
        DeleteTopicsRequest::default().with_topic_names(vec![groups_kit::topic("gone")]).with_timeout_ms(5_000);
    assert_eq!(client.request(5, &delete).await.responses[0].error_code, 0);
    create(&mut client, "gone", 1).await;
    append(&server, "gone", 0, 3).await;
    let now = scrape(&monitor).await;
    assert_eq!((now.count(LAG), now.value(SUM, &[("group", "g")])), (1, 0.0));
}

#[tokio::test]
async fn series_about_lag_are_bounded_and_what_is_left_out_is_counted() {
    let server = server().await;
    let mut client = server.client().await;
    create(&mut client, "t", 3).await;
    for name in ["a", "b", "c", "d"] {
        commit_for(&mut client, name, "t", &[(0, 0), (1, 0), (2, 0)]).await;
    }
    let dropped = "milena_group_lag_series_dropped";
    for (series_max, sums, partitions) in
        [(100, 4, 12), (16, 4, 12), (15, 4, 9), (7, 4, 3), (4, 4, 0), (2, 2, 0), (0, 0, 0)]
    {
        let monitor =
            watch_with(&server, MonitorSettings { lag_series_max: series_max, ..MonitorSettings::default() }).await;
        let now = scrape(&monitor).await;
        assert_eq!((now.count(SUM), now.count(LAG)), (sums, partitions), "{series_max}");
        assert!(now.count(SUM) + now.count(LAG) <= series_max);
        assert_eq!(now.value(dropped, &[]) > 0.0, series_max < 16, "{series_max}");
    }
    for (lag, sums, partitions) in [(LagDetail::Off, 0, 0), (LagDetail::Group, 4, 0)] {
        let monitor = watch_with(&server, MonitorSettings { lag, ..MonitorSettings::default() }).await;
        let now = scrape(&monitor).await;
        assert_eq!((now.count(SUM), now.count(LAG), now.value(dropped, &[])), (sums, partitions, 0.0), "{lag:?}");
    }
}

#[tokio::test]
async fn any_group_name_survives_as_a_label() {
    let server = server().await;
    let monitor = watch(&server).await;
    let mut client = server.client().await;
    create(&mut client, "t", 1).await;
    let names = ["quo\"te", "back\\slash", "new\nline", "{brace},=", "größe \u{1f980}", "tab\t\u{7f}\u{0}", ""];
    for name in names {
        commit_for(&mut client, name, "t", &[(0, 0)]).await;
    }
    let now = scrape(&monitor).await;
    for name in names {
        assert_eq!(now.find(SUM, &[("group", name)]), Some(0.0), "{name:?}");
    }
}
