//! What AlterConfigs and IncrementalAlterConfigs share: a change for each resource, and its outcome.

use std::collections::{HashMap, HashSet};

use milena_wire::kafka_protocol::protocol::StrBytes;

use super::admin::{AdminError, Deadline, Texts};
use crate::dispatch::Context;
use crate::topics::TopicError;
use crate::topics::configs::{ConfigChange, EditOp};

/// Resource type of topics, as Kafka numbers it.
pub(super) const TOPIC: i8 = 2;
/// Resource type of brokers.
pub(super) const BROKER: i8 = 4;
/// Resource type of subscriptions to client metrics (KIP-714).
pub(super) const CLIENT_METRICS: i8 = 16;
/// Resource type of groups (KIP-848).
pub(super) const GROUP: i8 = 32;

/// What a request asks for one resource.
pub(super) struct Alteration {
    /// Resource type.
    pub(super) kind: i8,
    /// Name of the resource.
    pub(super) name: StrBytes,
    /// The change, or what is wrong with it whatever the resource.
    pub(super) change: Result<ConfigChange, AdminError>,
}

/// A resource, and the code and text of its outcome.
pub(super) type Altered = (i8, StrBytes, (i16, Option<StrBytes>));

/// Carries out the changes in order; each succeeds or fails by itself.
///
/// A resource that is named twice is refused at every occurrence: which of the two should win cannot be known.
pub(super) async fn alter(context: &Context, alterations: Vec<Alteration>, validate_only: bool) -> Vec<Altered> {
    let limits = &context.broker.config.limits;
    // The request has no timeout of its own.
    let deadline = Deadline::new(i32::MAX, limits);
    let mut texts = Texts::new(limits);
    let asked = alterations.iter().filter(|item| item.kind == TOPIC);
    context.broker.topics.seek_names(asked.map(|item| item.name.as_str())).await;
    let mut times: HashMap<(i8, StrBytes), u32> = HashMap::new();
    for item in &alterations {
        *times.entry((item.kind, item.name.clone())).or_insert(0) += 1;
    }
    let mut altered = Vec::with_capacity(alterations.len());
    for Alteration { kind, name, change } in alterations {
        let resource = (kind, name);
        let outcome = match change {
            _ if times.get(&resource).is_some_and(|times| *times > 1) => {
                Err(AdminError::Request("the request names this resource more than once"))
            }
            Ok(change) => alter_one(context, &resource, change, validate_only, deadline).await,
            Err(error) => Err(error),
        };
        let answer = outcome.map_or_else(|error| texts.of(&error), |()| (0, None));
        altered.push((resource.0, resource.1, answer));
    }
    altered
}

async fn alter_one(
    context: &Context,
    (kind, name): &(i8, StrBytes),
    change: ConfigChange,
    validate_only: bool,
    deadline: Deadline,
) -> Result<(), AdminError> {
    match *kind {
        TOPIC => {}
        BROKER => {
            let text = "broker configs are read only: they come from the configuration of Milena (its file, MILENA_ \
                        variables, flags)";
            return Err(AdminError::Request(text));
        }
        GROUP | CLIENT_METRICS => return alter_other(*kind, name, &change),
        _ => return Err(AdminError::Request("only the configs of topics can be changed")),
    }
    if name.is_empty() {
        return Err(AdminError::Request("no topic is named: there are no configs of all topics"));
    }
    let topics = &context.broker.topics;
    let Some(topic) = topics.by_name(name) else {
        topics.check_name(name)?;
        return Err(AdminError::Topic(TopicError::NotFound));
    };
    topics.check_alteration(&topic, &change)?;
    if !validate_only {
        deadline.within(topics.alter(&topic, change)).await?;
    }
    Ok(())
}

/// Nothing is ever set on a group or on a subscription to client metrics, since none of their configs would do
/// anything. Taking away what is not set succeeds, as in Kafka.
fn alter_other(kind: i8, name: &StrBytes, change: &ConfigChange) -> Result<(), AdminError> {
    check_other_name(kind, name)?;
    let sets_nothing = match change {
        ConfigChange::Replace(configs) => configs.is_empty(),
        ConfigChange::Edit(edits) => edits.iter().all(|edit| edit.op == EditOp::Delete),
    };
    if sets_nothing {
        return Ok(());
    }
    Err(AdminError::Request(match kind {
        GROUP => "configs of groups have no effect on this server and cannot be set: it has only classic groups",
        _ => "configs of client metrics cannot be set: this server collects none",
    }))
}

/// The name of a group or of a subscription to client metrics: any but an empty one, whether it exists or not.
pub(super) fn check_other_name(kind: i8, name: &str) -> Result<(), AdminError> {
    match (kind, name.is_empty()) {
        (_, false) => Ok(()),
        (GROUP, true) => Err(AdminError::Request("Group name must not be empty")),
        (_, true) => Err(AdminError::Request("Client metrics subscription name must not be empty")),
    }
}

/// Refuses a list of configs in which one is named twice.
pub(super) fn check_names<'a>(names: impl Iterator<Item = &'a StrBytes>) -> Result<(), AdminError> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(AdminError::Request("the request names a config of this resource more than once"));
        }
    }
    Ok(())
}

/// The value of a config that cannot be without one.
pub(super) fn value(value: Option<StrBytes>) -> Result<String, AdminError> {
    value.map(|value| value.to_string()).ok_or(AdminError::Request("a config needs a value unless it is deleted"))
}
