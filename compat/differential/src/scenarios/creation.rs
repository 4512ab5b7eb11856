//! CreateTopics and DeleteTopics.

use milena_wire::kafka_protocol::messages::create_topics_request::{CreatableReplicaAssignment, CreatableTopic};
use milena_wire::kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use milena_wire::kafka_protocol::messages::{BrokerId, CreateTopicsRequest, DeleteTopicsRequest};
use uuid::Uuid;

use super::words::{creatable, create, creation, topic};
use crate::duo::{Duo, versions};

/// Topics come, and go.
pub async fn run(duo: &mut Duo) {
    create(duo, "there", 1, &[]).await;
    for version in versions::<CreateTopicsRequest>() {
        valid(duo, version).await;
        refused(duo, version).await;
        assignments(duo, version).await;
        configs(duo, version).await;
    }
    for version in versions::<DeleteTopicsRequest>() {
        deletion(duo, version).await;
    }
    by_id(duo).await;
}

async fn valid(duo: &mut Duo, version: i16) {
    let name = format!("created-v{version}");
    duo.step("would be created");
    duo.ask(version, |_| creation(vec![creatable(&name, 3, &[])]).with_validate_only(true)).await;
    duo.step("created");
    duo.ask(version, |_| creation(vec![creatable(&name, 3, &[])])).await;
    duo.settled(&name, 3).await;
    duo.step("exists");
    duo.ask(version, |_| creation(vec![creatable(&name, 3, &[])])).await;
    duo.step("would exist");
    duo.ask(version, |_| creation(vec![creatable(&name, 3, &[])]).with_validate_only(true)).await;
    duo.step("no topics");
    duo.ask(version, |_| creation(vec![])).await;
    let configs = [("retention.ms", Some("1000000")), ("cleanup.policy", Some("compact,delete"))];
    duo.step("with configs");
    duo.ask(version, |_| creation(vec![creatable(&format!("configured-v{version}"), 1, &configs)])).await;
    duo.step("counts of the broker");
    let name = format!("default-v{version}");
    duo.ask(version, |_| creation(vec![creatable(&name, -1, &[]).with_replication_factor(-1)])).await;
    duo.step("two at once, one of which exists");
    let names = [format!("one-of-two-v{version}"), "there".to_owned()];
    duo.ask(version, |_| creation(names.iter().map(|name| creatable(name, 1, &[])).collect())).await;
}

async fn refused(duo: &mut Duo, version: i16) {
    let name = format!("refused-v{version}");
    let long = "n".repeat(250);
    for (step, bad) in [
        ("an empty name", ""),
        ("a name of one dot", "."),
        ("a name of two dots", ".."),
        ("a name with a slash", "a/b"),
        ("a name with a letter that is not ASCII", "na\u{ef}ve"),
        ("a name that is too long", long.as_str()),
    ] {
        duo.step(step);
        duo.ask(version, |_| creation(vec![creatable(bad, 1, &[])])).await;
    }
    duo.step("a name twice");
    duo.ask(version, |_| creation(vec![creatable(&name, 1, &[]), creatable(&name, 2, &[])])).await;
    duo.step("a name of 249 characters");
    let long = format!("v{version}-{}", "n".repeat(246));
    duo.ask(version, |_| creation(vec![creatable(&long, 1, &[])])).await;
    for partitions in [0, -2] {
        duo.step(&format!("{partitions} partitions"));
        duo.ask(version, |_| creation(vec![creatable(&name, partitions, &[])])).await;
    }
    for replicas in [0, -2, 3] {
        duo.step(&format!("{replicas} replicas"));
        let name = format!("replicas-v{version}");
        duo.ask(version, |_| {
            creation(vec![creatable(&name, 1, &[]).with_replication_factor(replicas)]).with_validate_only(true)
        })
        .await;
    }
    duo.step("too many partitions in one request");
    duo.ask(version, |_| creation(vec![creatable(&name, 10_001, &[])])).await;
    duo.step("a name that differs from another one by a dot");
    duo.ask(version, |_| creation(vec![creatable(&format!("dotted.name-v{version}"), 1, &[])])).await;
    duo.settled(&format!("dotted.name-v{version}"), 1).await;
    let similar = format!("dotted_name-v{version}");
    duo.ask(version, |_| creation(vec![creatable(&similar, 1, &[])]).with_validate_only(true)).await;
}

async fn assignments(duo: &mut Duo, version: i16) {
    for (step, places) in [
        ("assigned", &[(0, &[1][..]), (1, &[1])][..]),
        ("assigned in another order", &[(1, &[1]), (0, &[1])]),
        ("assigned with a gap", &[(0, &[1]), (2, &[1])]),
        ("assigned from 1 on", &[(1, &[1])]),
        ("assigned twice", &[(0, &[1]), (0, &[1])]),
        ("assigned to nobody", &[(0, &[])]),
        ("assigned to one broker twice", &[(0, &[1, 1])]),
        ("assigned to a broker that is not there", &[(0, &[9])]),
        ("assigned to a negative broker", &[(0, &[-1])]),
    ] {
        duo.step(step);
        let name = format!("{}-v{version}", step.replace(' ', "-"));
        let only_checked = step.contains("not there");
        duo.ask(version, |_| creation(vec![placed(&name, -1, -1, places)]).with_validate_only(only_checked)).await;
    }
    duo.step("assigned and counted");
    duo.ask(version, |_| creation(vec![placed("both", 1, -1, &[(0, &[1])])])).await;
    duo.step("assigned and replicated");
    duo.ask(version, |_| creation(vec![placed("both", -1, 1, &[(0, &[1])])])).await;
}

fn placed(name: &str, partitions: i32, replicas: i16, places: &[(i32, &[i32])]) -> CreatableTopic {
    let place = |(partition, brokers): &(i32, &[i32])| {
        CreatableReplicaAssignment::default()
            .with_partition_index(*partition)
            .with_broker_ids(brokers.iter().copied().map(BrokerId).collect())
    };
    creatable(name, partitions, &[])
        .with_replication_factor(replicas)
        .with_assignments(places.iter().map(place).collect())
}

async fn configs(duo: &mut Duo, version: i16) {
    for (step, key, value) in [
        ("an unknown config", "no.such.config", Some("1")),
        ("a config without a value", "retention.ms", None),
        ("a config that is no number", "retention.ms", Some("soon")),
        ("a config below its range", "retention.ms", Some("-2")),
        ("a config with an unknown word", "cleanup.policy", Some("shrink")),
        ("a config with an empty word", "cleanup.policy", Some("")),
        ("a config that is neither true nor false", "preallocate", Some("maybe")),
        ("a config with an empty name", "", Some("1")),
    ] {
        duo.step(step);
        duo.ask(version, |_| creation(vec![creatable("misconfigured", 1, &[(key, value)])])).await;
    }
    duo.step("a config twice");
    let twice = [("retention.ms", Some("1000000")), ("retention.ms", Some("2000000"))];
    duo.ask(version, |_| creation(vec![creatable(&format!("twice-v{version}"), 1, &twice)])).await;
}

async fn deletion(duo: &mut Duo, version: i16) {
    let name = format!("deleted-v{version}");
    create(duo, &name, 1, &[]).await;
    for (step, names) in [
        ("an unknown name", &["nowhere"][..]),
        ("an empty name", &[""]),
        ("a bad name", &["a/b"]),
        ("no names", &[]),
        ("an unknown name twice", &["nowhere", "nowhere"]),
        ("deleted beside an unknown one", &[&name, "nowhere"]),
    ] {
        duo.step(step);
        duo.ask(version, |_| deleted(version, names)).await;
    }
    duo.settled(&name, 0).await;
    duo.step("deleted before");
    duo.ask(version, |_| deleted(version, &[&name])).await;
    create(duo, &name, 1, &[]).await;
    duo.step("deleted twice in one request");
    duo.ask(version, |_| deleted(version, &[&name, &name])).await;
}

fn deleted(version: i16, names: &[&str]) -> DeleteTopicsRequest {
    let request = DeleteTopicsRequest::default().with_timeout_ms(30_000);
    match version {
        6.. => request.with_topics(names.iter().map(|name| state(Some(name), Uuid::nil())).collect()),
        _ => request.with_topic_names(names.iter().map(|name| topic(name)).collect()),
    }
}

fn state(name: Option<&str>, id: Uuid) -> DeleteTopicState {
    DeleteTopicState::default().with_name(name.map(topic)).with_topic_id(id)
}

async fn by_id(duo: &mut Duo) {
    create(duo, "by-id", 1, &[]).await;
    let request = |states| DeleteTopicsRequest::default().with_timeout_ms(30_000).with_topics(states);
    duo.step("name and id");
    duo.ask(6, |memory| request(vec![state(Some("by-id"), memory.topic_id("by-id"))])).await;
    duo.step("neither name nor id");
    duo.ask(6, |_| request(vec![state(None, Uuid::nil())])).await;
    duo.step("an unknown id");
    duo.ask(6, |_| request(vec![state(None, Uuid::from_u128(7))])).await;
    duo.step("by name and once more by id");
    duo.ask(6, |memory| request(vec![state(Some("by-id"), Uuid::nil()), state(None, memory.topic_id("by-id"))])).await;
    create(duo, "by-id-2", 1, &[]).await;
    duo.step("by id");
    duo.ask(6, |memory| request(vec![state(None, memory.topic_id("by-id-2"))])).await;
    duo.settled("by-id-2", 0).await;
    create(duo, "by-id-2", 1, &[]).await;
}
