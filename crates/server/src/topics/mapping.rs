//! Kafka names to places in the store, and back.
//!
//! Without an override a topic lives in the default stream under its own name. An override sends one Kafka name to
//! any (stream, topic); a rule sends all names that begin alike to one stream. An override is above a rule, and of two
//! rules the one with more of the name in it counts. The reverse direction holds to the same order, so that each place is
//! seen under one name only, and a name has a place only where that place is seen as it.

use std::collections::{BTreeMap, HashMap};

use milena_store::INTERNAL_STREAM;

use super::names::{self, INTERNAL_PREFIX, NameRefusal};
use crate::config::TopicMapping;

/// Longest stream or topic name that an engine takes, in bytes.
const PLACE_BYTES_MAX: usize = 255;

/// Where a topic lives in the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// Stream.
    pub stream: String,
    /// Topic within it.
    pub topic: String,
}

/// How a place looks from the Kafka side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// A topic of this name.
    As(String),
    /// A topic of Milena's own, under this name.
    Internal(String),
    /// Its name or its stream has no Kafka name; an override can give it one.
    Hidden,
}

/// Why a mapping is refused at start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MappingError {
    /// A Kafka name in the mapping breaks Kafka's rules.
    #[error("topic mapping: '{name}' cannot be a Kafka topic: {reason}")]
    Name {
        /// The name, clipped.
        name: String,
        /// The rule.
        reason: NameRefusal,
    },
    /// A stream or topic name has no bytes or too many, or belongs to Milena itself.
    #[error("topic mapping: '{place}' cannot be the stream or topic of {of}")]
    Place {
        /// The stream or topic name, clipped.
        place: String,
        /// What it was meant for.
        of: String,
    },
    /// Two overrides have one target, or two rules give one place two names.
    #[error("topic mapping: '{first}' and '{second}' have the same target")]
    SharedTarget {
        /// One Kafka name.
        first: String,
        /// The other.
        second: String,
    },
    /// An override's target is where another override's topic would live without it.
    #[error("topic mapping: the target of '{name}' is the default place of '{other}', which is mapped elsewhere")]
    TargetOfOther {
        /// The Kafka name whose target it is.
        name: String,
        /// The Kafka name whose default place it is.
        other: String,
    },
}

/// All Kafka names that begin alike, and where their topics live: what comes behind the beginning is kept.
#[derive(Debug, Clone)]
struct Rule {
    name_prefix: String,
    stream: String,
    topic_prefix: String,
}

impl Rule {
    fn place(&self, name: &str) -> Option<Place> {
        let rest = name.strip_prefix(&self.name_prefix).filter(|rest| !rest.is_empty())?;
        Some(Place { stream: self.stream.clone(), topic: format!("{}{rest}", self.topic_prefix) })
    }

    fn name(&self, place: &Place) -> Option<String> {
        let rest = place.topic.strip_prefix(&self.topic_prefix).filter(|rest| !rest.is_empty())?;
        (place.stream == self.stream).then(|| format!("{}{rest}", self.name_prefix))
    }

    /// True when some place is that of two names, one by each rule.
    fn collides(&self, other: &Rule) -> bool {
        let (short, long) =
            if self.topic_prefix.len() <= other.topic_prefix.len() { (self, other) } else { (other, self) };
        let between = long.topic_prefix.strip_prefix(&short.topic_prefix).filter(|_| short.stream == long.stream);
        // The two lead to the same name where they only differ in how much of it they spell out.
        between.is_some_and(|between| format!("{}{between}", short.name_prefix) != long.name_prefix)
    }

    fn shown(&self) -> String {
        format!("{}*", self.name_prefix)
    }
}

/// The mapping in both directions.
#[derive(Debug, Clone)]
pub struct Mapping {
    default_stream: String,
    /// Those with more of the name in them first.
    rules: Vec<Rule>,
    overrides: BTreeMap<String, Place>,
    reverse: HashMap<Place, String>,
}

impl Mapping {
    /// Checks a configured mapping and builds its reverse index.
    ///
    /// # Errors
    /// When two names would share one place, or a name is none.
    pub fn new(config: &TopicMapping) -> Result<Self, MappingError> {
        check_stream(&config.default_stream, "the default stream")?;
        let default_stream = config.default_stream.clone();
        let mut mapping =
            Self { rules: rules(config)?, default_stream, overrides: BTreeMap::new(), reverse: HashMap::new() };
        let displaced: HashMap<Place, &String> =
            config.topics.keys().map(|name| (mapping.place_without_override(name), name)).collect();
        for (name, target) in &config.topics {
            check_kafka_name(name)?;
            check_stream(&target.stream, name)?;
            check_place(&target.topic, name)?;
            let place = Place { stream: target.stream.clone(), topic: target.topic.clone() };
            if let Some(&other) = displaced.get(&place).filter(|other| **other != name) {
                return Err(MappingError::TargetOfOther { name: name.clone(), other: other.clone() });
            }
            if let Some(first) = mapping.reverse.insert(place.clone(), name.clone()) {
                return Err(MappingError::SharedTarget { first, second: name.clone() });
            }
            mapping.overrides.insert(name.clone(), place);
        }
        Ok(mapping)
    }

    fn place_without_override(&self, name: &str) -> Place {
        let by_rule = self.rules.iter().find_map(|rule| rule.place(name));
        by_rule.unwrap_or_else(|| Place { stream: self.default_stream.clone(), topic: name.to_owned() })
    }

    fn leads_to(&self, name: &str) -> Place {
        self.overrides.get(name).cloned().unwrap_or_else(|| self.place_without_override(name))
    }

    /// Where the topic of that Kafka name lives, or would live.
    ///
    /// # Errors
    /// When the name breaks Kafka's rules, is reserved, or its place is seen under another name, by an override or a rule: an
    /// alias would give one log two names, with configs and committed offsets apart.
    pub fn place(&self, name: &str) -> Result<Place, NameRefusal> {
        names::check(name)?;
        if name.starts_with(INTERNAL_PREFIX) {
            return Err(NameRefusal::Reserved);
        }
        let place = self.leads_to(name);
        match self.seen(&place.stream, &place.topic) {
            Seen::As(seen) if seen == name => Ok(place),
            _ => Err(NameRefusal::Taken),
        }
    }

    /// The Kafka name of a place in the store.
    #[must_use]
    pub fn seen(&self, stream: &str, topic: &str) -> Seen {
        if stream == INTERNAL_STREAM {
            let name = format!("{INTERNAL_PREFIX}{topic}");
            return if names::check(&name).is_ok() { Seen::Internal(name) } else { Seen::Hidden };
        }
        let place = Place { stream: stream.to_owned(), topic: topic.to_owned() };
        if let Some(name) = self.reverse.get(&place) {
            return Seen::As(name.clone());
        }
        let by_rules = self.rules.iter().filter_map(|rule| rule.name(&place));
        let by_default = (stream == self.default_stream).then(|| topic.to_owned());
        // A name that leads elsewhere, by an override or a longer rule, means that other place.
        let named =
            by_rules.chain(by_default).find(|name| check_kafka_name(name).is_ok() && self.leads_to(name) == place);
        named.map_or(Seen::Hidden, Seen::As)
    }
}

/// The configured rules, checked against each other.
fn rules(config: &TopicMapping) -> Result<Vec<Rule>, MappingError> {
    let mut rules: Vec<Rule> = Vec::with_capacity(config.prefixes.len());
    for (name_prefix, target) in &config.prefixes {
        let rule = Rule {
            name_prefix: name_prefix.clone(),
            stream: target.stream.clone(),
            topic_prefix: target.topic_prefix.clone(),
        };
        // Any name that begins like this must be one that a topic can have, however the rest reads.
        check_kafka_name(&format!("{name_prefix}x"))?;
        check_stream(&rule.stream, &rule.shown())?;
        let swallows_all = rule.stream == config.default_stream && rule.topic_prefix.is_empty();
        let outgrows = rule.topic_prefix.len() > name_prefix.len() + (PLACE_BYTES_MAX - names::NAME_BYTES_MAX);
        if name_prefix.is_empty() || swallows_all || outgrows {
            let place = format!("{}*", names::clipped(&rule.topic_prefix));
            return Err(MappingError::Place { place, of: rule.shown() });
        }
        if let Some(first) = rules.iter().find(|other| other.collides(&rule)) {
            return Err(MappingError::SharedTarget { first: first.shown(), second: rule.shown() });
        }
        rules.push(rule);
    }
    rules.sort_by_key(|rule| std::cmp::Reverse(rule.name_prefix.len()));
    Ok(rules)
}

fn check_kafka_name(name: &str) -> Result<(), MappingError> {
    let checked = if name.starts_with(INTERNAL_PREFIX) { Err(NameRefusal::Reserved) } else { names::check(name) };
    checked.map_err(|reason| MappingError::Name { name: names::clipped(name).to_string(), reason })
}

fn check_stream(stream: &str, of: &str) -> Result<(), MappingError> {
    if stream == INTERNAL_STREAM {
        return Err(MappingError::Place { place: stream.to_owned(), of: of.to_owned() });
    }
    check_place(stream, of)
}

fn check_place(place: &str, of: &str) -> Result<(), MappingError> {
    if place.is_empty() || place.len() > PLACE_BYTES_MAX {
        return Err(MappingError::Place { place: names::clipped(place).to_string(), of: of.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
