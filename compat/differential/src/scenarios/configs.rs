//! DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources.

use milena_wire::kafka_protocol::messages::alter_configs_request::{
    AlterConfigsResource as Replaced, AlterableConfig as Setting,
};
use milena_wire::kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use milena_wire::kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource as Edited, AlterableConfig as Edit,
};
use milena_wire::kafka_protocol::messages::{
    AlterConfigsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest, ListConfigResourcesRequest,
};

use super::words::{create, text};
use crate::duo::{Duo, versions};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;

const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

/// Configs of topics: a value that is not the default, and one that is refused.
const KEYS: [(&str, &str, &str); 33] = [
    ("cleanup.policy", "compact,delete", "shrink"),
    ("compression.gzip.level", "5", "0"),
    ("compression.lz4.level", "5", "99"),
    ("compression.type", "lz4", "best"),
    ("compression.zstd.level", "5", "99"),
    ("delete.retention.ms", "1000", "-1"),
    ("file.delete.delay.ms", "1000", "-1"),
    ("flush.messages", "1000", "0"),
    ("flush.ms", "1000", "-1"),
    ("follower.replication.throttled.replicas", "0:1", "0"),
    ("index.interval.bytes", "1000", "-1"),
    ("leader.replication.throttled.replicas", "0:1,1:1", "x:y"),
    ("local.retention.bytes", "1000", "-3"),
    ("local.retention.ms", "1000", "-3"),
    ("max.compaction.lag.ms", "1000", "0"),
    ("max.message.bytes", "1000", "-1"),
    ("message.timestamp.after.max.ms", "1000", "-1"),
    ("message.timestamp.before.max.ms", "1000", "-1"),
    ("message.timestamp.type", "LogAppendTime", "Never"),
    ("min.cleanable.dirty.ratio", "0.3", "2"),
    ("min.compaction.lag.ms", "1000", "-1"),
    ("min.insync.replicas", "2", "0"),
    ("preallocate", "true", "perhaps"),
    ("remote.log.copy.disable", "false", "perhaps"),
    ("remote.log.delete.on.disable", "false", "perhaps"),
    ("retention.bytes", "1000000000", "soon"),
    ("retention.ms", "1000000000", "-2"),
    ("segment.bytes", "100000000", "13"),
    ("segment.index.bytes", "1000", "3"),
    ("segment.jitter.ms", "1000", "-1"),
    ("segment.ms", "1000000", "0"),
    ("unclean.leader.election.enable", "true", "perhaps"),
    ("remote.storage.enable", "false", "perhaps"),
];

/// Configs of brokers that tools ask for.
const BROKER_KEYS: [&str; 12] = [
    "advertised.listeners",
    "auto.create.topics.enable",
    "compression.type",
    "default.replication.factor",
    "delete.topic.enable",
    "log.cleanup.policy",
    "log.retention.ms",
    "log.retention.bytes",
    "message.max.bytes",
    "min.insync.replicas",
    "num.partitions",
    "offsets.retention.minutes",
];

/// Every config of a topic, set and not set; what is refused; other resources.
pub async fn run(duo: &mut Duo) {
    create(duo, "plain", 1, &[]).await;
    for version in versions::<DescribeConfigsRequest>() {
        shown(duo, version).await;
    }
    for version in versions::<AlterConfigsRequest>() {
        replaced(duo, version).await;
    }
    for version in versions::<IncrementalAlterConfigsRequest>() {
        edited(duo, version).await;
        lists(duo, version).await;
        refused(duo, version).await;
    }
    for version in versions::<ListConfigResourcesRequest>() {
        listed(duo, version).await;
    }
}

fn describe(kind: i8, name: &str, keys: Option<&[&str]>) -> DescribeConfigsRequest {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_configuration_keys(keys.map(|keys| keys.iter().map(|key| text(key)).collect()));
    DescribeConfigsRequest::default().with_resources(vec![resource])
}

async fn shown(duo: &mut Duo, version: i16) {
    for synonyms in [false, true] {
        duo.step(if synonyms { "a topic with synonyms" } else { "a topic" });
        duo.ask(version, |_| describe(TOPIC, "plain", None).with_include_synonyms(synonyms)).await;
        duo.step(if synonyms { "a topic with configs, with synonyms" } else { "a topic with configs" });
        duo.ask(version, |_| describe(TOPIC, "timely", None).with_include_synonyms(synonyms)).await;
        duo.step(if synonyms { "what tools ask of a broker, with synonyms" } else { "what tools ask of a broker" });
        duo.ask(version, |_| describe(BROKER, "1", Some(&BROKER_KEYS)).with_include_synonyms(synonyms)).await;
        duo.step(if synonyms { "every config of a broker, with synonyms" } else { "every config of a broker" });
        duo.ask(version, |_| describe(BROKER, "1", None).with_include_synonyms(synonyms)).await;
    }
    for (step, kind, name, keys) in [
        ("some configs of a topic", TOPIC, "plain", Some(&["retention.ms", "cleanup.policy"][..])),
        ("an unknown config", TOPIC, "plain", Some(&["no.such.config", "retention.ms"])),
        ("no configs", TOPIC, "plain", Some(&[])),
        ("an unknown topic", TOPIC, "nowhere", None),
        ("a bad name", TOPIC, "a/b", None),
        ("an empty name", TOPIC, "", None),
        ("an unknown broker", BROKER, "9", Some(&["num.partitions"])),
        ("a broker that is no number", BROKER, "one", Some(&["num.partitions"])),
        ("all brokers", BROKER, "", Some(&["num.partitions"])),
        ("a kind that nobody knows", 99, "1", None),
        ("no kind", 0, "1", None),
        ("any kind", 1, "1", None),
    ] {
        duo.step(step);
        duo.ask(version, |_| describe(kind, name, keys)).await;
    }
    duo.step("a topic twice");
    duo.ask(version, |_| {
        let mut request = describe(TOPIC, "plain", Some(&["retention.ms"]));
        request.resources.push(request.resources[0].clone());
        request
    })
    .await;
    if version >= 3 {
        duo.step("what a config means");
        duo.ask(version, |_| describe(TOPIC, "plain", Some(&["retention.ms"])).with_include_documentation(true)).await;
    }
    duo.step("nothing");
    duo.ask(version, |_| DescribeConfigsRequest::default()).await;
}

/// A topic's configs with their synonyms, once both have what was changed in place.
async fn look(duo: &mut Duo, step: &str, name: &str) {
    duo.step(step);
    duo.ask_until_same(4, |_| describe(TOPIC, name, None).with_include_synonyms(true)).await;
}

fn replace(kind: i8, name: &str, configs: &[(&str, Option<&str>)]) -> AlterConfigsRequest {
    let config =
        |(name, value): &(&str, Option<&str>)| Setting::default().with_name(text(name)).with_value(value.map(text));
    let resource = Replaced::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_configs(configs.iter().map(config).collect());
    AlterConfigsRequest::default().with_resources(vec![resource])
}

async fn replaced(duo: &mut Duo, version: i16) {
    let name = format!("replaced-v{version}");
    create(duo, &name, 1, &[("retention.ms", Some("5000000"))]).await;
    for (step, configs) in [
        ("replaced", &[("segment.ms", Some("700000")), ("cleanup.policy", Some("compact"))][..]),
        ("an unknown config", &[("no.such.config", Some("1"))]),
        ("a bad value", &[("retention.ms", Some("soon"))]),
        ("no value", &[("retention.ms", None)]),
        ("an empty name", &[("", Some("1"))]),
        ("a config twice", &[("retention.ms", Some("6000000")), ("retention.ms", Some("7000000"))]),
        ("nothing is left", &[]),
    ] {
        duo.step(&format!("would be {step}"));
        duo.ask(version, |_| replace(TOPIC, &name, configs).with_validate_only(true)).await;
        duo.step(step);
        duo.ask(version, |_| replace(TOPIC, &name, configs)).await;
        look(duo, &format!("after a change, {step}"), &name).await;
    }
    for (step, kind, name) in [
        ("an unknown topic", TOPIC, "nowhere"),
        ("a bad name", TOPIC, "a/b"),
        ("an empty name of a topic", TOPIC, ""),
        ("a kind that nobody knows", 99, "plain"),
    ] {
        duo.step(step);
        duo.ask(version, |_| replace(kind, name, &[("retention.ms", Some("5000000"))])).await;
    }
    duo.step("a config of a broker");
    duo.ask(version, |_| replace(BROKER, "1", &[("log.cleaner.threads", Some("1"))]).with_validate_only(true)).await;
    duo.step("a topic twice");
    duo.ask(version, |_| {
        let mut request = replace(TOPIC, &name, &[]);
        request.resources.push(request.resources[0].clone());
        request
    })
    .await;
}

fn edit(kind: i8, name: &str, edits: &[(i8, &str, Option<&str>)]) -> IncrementalAlterConfigsRequest {
    let config = |(operation, name, value): &(i8, &str, Option<&str>)| {
        Edit::default().with_config_operation(*operation).with_name(text(name)).with_value(value.map(text))
    };
    let resource = Edited::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_configs(edits.iter().map(config).collect());
    IncrementalAlterConfigsRequest::default().with_resources(vec![resource])
}

async fn edited(duo: &mut Duo, version: i16) {
    let name = format!("edited-v{version}");
    create(duo, &name, 1, &[]).await;
    for (key, good, bad) in KEYS {
        duo.step(&format!("{key} is set"));
        duo.ask(version, |_| edit(TOPIC, &name, &[(SET, key, Some(good))])).await;
        duo.step(&format!("{key} is refused"));
        duo.ask(version, |_| edit(TOPIC, &name, &[(SET, key, Some(bad))])).await;
        duo.step(&format!("{key} is set to nothing"));
        duo.ask(version, |_| edit(TOPIC, &name, &[(SET, key, Some(""))]).with_validate_only(true)).await;
        duo.step(&format!("{key} is set to null"));
        duo.ask(version, |_| edit(TOPIC, &name, &[(SET, key, None)]).with_validate_only(true)).await;
    }
    look(duo, "everything is set", &name).await;
    duo.step("half of them are deleted");
    let deletions: Vec<_> = KEYS.iter().step_by(2).map(|(key, _, _)| (DELETE, *key, None)).collect();
    duo.ask(version, |_| edit(TOPIC, &name, &deletions)).await;
    look(duo, "half are left", &name).await;
    duo.step("all are deleted");
    let deletions: Vec<_> = KEYS.iter().map(|(key, _, _)| (DELETE, *key, None)).collect();
    duo.ask(version, |_| edit(TOPIC, &name, &deletions)).await;
    look(duo, "none is left", &name).await;
}

async fn lists(duo: &mut Duo, version: i16) {
    let name = format!("listed-v{version}");
    create(duo, &name, 1, &[]).await;
    for (step, edits) in [
        ("a word is appended to the default", &[(APPEND, "cleanup.policy", Some("compact"))][..]),
        ("a word that is there is appended", &[(APPEND, "cleanup.policy", Some("compact"))]),
        ("a word is taken away", &[(SUBTRACT, "cleanup.policy", Some("delete"))]),
        ("a word that is not there is taken away", &[(SUBTRACT, "cleanup.policy", Some("delete"))]),
        ("the last word is taken away", &[(SUBTRACT, "cleanup.policy", Some("compact"))]),
        ("a bad word is appended", &[(APPEND, "cleanup.policy", Some("shrink"))]),
        ("nothing is appended", &[(APPEND, "cleanup.policy", Some(""))]),
        ("two words at once", &[(APPEND, "leader.replication.throttled.replicas", Some("0:1,1:1"))]),
        ("one of two words", &[(SUBTRACT, "leader.replication.throttled.replicas", Some("0:1"))]),
        ("null is appended", &[(APPEND, "cleanup.policy", None)]),
        ("appended to what is no list", &[(APPEND, "retention.ms", Some("1"))]),
        ("taken from what is no list", &[(SUBTRACT, "retention.ms", Some("1"))]),
        ("an operation that nobody knows", &[(9, "retention.ms", Some("1"))]),
    ] {
        duo.step(step);
        duo.ask(version, |_| edit(TOPIC, &name, edits)).await;
        look(duo, &format!("after an edit, {step}"), &name).await;
    }
}

async fn refused(duo: &mut Duo, version: i16) {
    let name = format!("listed-v{version}");
    for (step, kind, name, edits) in [
        ("an unknown config", TOPIC, &*name, &[(SET, "no.such.config", Some("1"))][..]),
        ("an unknown config is deleted", TOPIC, &name, &[(DELETE, "no.such.config", None)]),
        ("an empty name", TOPIC, &name, &[(SET, "", Some("1"))]),
        ("a config twice", TOPIC, &name, &[(SET, "retention.ms", Some("1")), (DELETE, "retention.ms", None)]),
        (
            "one good edit beside a bad one",
            TOPIC,
            &name,
            &[(SET, "retention.ms", Some("9")), (SET, "flush.ms", Some("x"))],
        ),
        ("a deletion with a value", TOPIC, &name, &[(DELETE, "retention.ms", Some("1"))]),
        ("no edits", TOPIC, &name, &[]),
        ("an unknown topic", TOPIC, "nowhere", &[(SET, "retention.ms", Some("1"))]),
        ("a bad name", TOPIC, "a/b", &[(SET, "retention.ms", Some("1"))]),
        ("an empty name of a topic", TOPIC, "", &[(SET, "retention.ms", Some("1"))]),
        ("a kind that nobody knows", 99, "plain", &[(SET, "retention.ms", Some("1"))]),
        ("remote storage", TOPIC, &name, &[(SET, "remote.storage.enable", Some("true"))]),
    ] {
        duo.step(step);
        duo.ask(version, |_| edit(kind, name, edits)).await;
    }
    duo.step("a config of a broker");
    duo.ask(version, |_| edit(BROKER, "1", &[(SET, "log.cleaner.threads", Some("1"))]).with_validate_only(true)).await;
    duo.step("a topic twice");
    duo.ask(version, |_| {
        let mut request = edit(TOPIC, &name, &[]);
        request.resources.push(request.resources[0].clone());
        request
    })
    .await;
    look(duo, "after what was refused", &name).await;
}

async fn listed(duo: &mut Duo, version: i16) {
    if version == 0 {
        duo.step("resources of client metrics");
        duo.ask(version, |_| ListConfigResourcesRequest::default()).await;
        return;
    }
    for kinds in [&[][..], &[BROKER], &[TOPIC], &[8], &[16], &[32], &[99], &[0], &[BROKER, 16, BROKER]] {
        duo.step(&format!("resources of the kinds {kinds:?}"));
        duo.ask(version, |_| ListConfigResourcesRequest::default().with_resource_types(kinds.to_vec())).await;
    }
}
