//! From layers to settings. All mistakes are collected, so that one start shows all of them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

use figment::Figment;
use figment::value::{Dict, Value};
use milena_server::config::{MappedPrefix, MappedTopic};
use milena_server::topics::configs::ConfigRules;
use milena_server::topics::mapping::Mapping;

use super::keys::{self, LISTENERS, MAPPED_TOPICS, TOPIC_DEFAULTS};
use super::kinds::{as_written, shortened};
use super::layers::Sources;
use super::listeners;
use super::settings::Settings;

/// The name of the source of a value that nobody set.
const DEFAULT: &str = "default";

/// A configuration that holds together, and where each of its values comes from.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) settings: Settings,
    /// What should not stay so, and keeps nobody from starting: one sentence each.
    pub(crate) warnings: Vec<String>,
    sources: BTreeMap<String, String>,
}

impl Loaded {
    /// True when somebody set the key.
    pub(crate) fn is_set(&self, path: &str) -> bool {
        self.sources.contains_key(path)
    }

    /// Where the value of the key comes from, as the user knows it.
    pub(crate) fn source(&self, path: &str) -> &str {
        self.sources.get(path).map_or(DEFAULT, String::as_str)
    }
}

/// What is wrong with a configuration: one sentence each.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Mistakes(Vec<String>);

impl Mistakes {
    pub(super) fn add(&mut self, sentence: String) {
        self.0.push(sentence);
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, sentence) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{sentence}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}

/// Reads, merges and checks the configuration.
pub(crate) fn load(sources: &Sources) -> Result<Loaded, Mistakes> {
    let mut mistakes = Mistakes::default();
    let figment = sources.layered(&mut mistakes);
    let mut loading = Loading { figment: &figment, loaded: Loaded::new(), mistakes };
    match figment.extract::<Dict>() {
        Ok(values) => loading.section("", &values),
        Err(error) => loading.mistakes.add(error.to_string()),
    }
    let Loading { mut loaded, mut mistakes, .. } = loading;
    loaded.finish();
    loaded.settings.name_user(&mut mistakes);
    if mistakes.0.is_empty() {
        loaded.check(&mut mistakes);
    }
    if mistakes.0.is_empty() { Ok(loaded) } else { Err(mistakes) }
}

struct Loading<'a> {
    figment: &'a Figment,
    loaded: Loaded,
    mistakes: Mistakes,
}

impl Loading<'_> {
    fn section(&mut self, prefix: &str, values: &Dict) {
        for (name, value) in values {
            let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            self.value(&path, value);
        }
    }

    fn value(&mut self, path: &str, value: &Value) {
        let source = self.source_of(value);
        match path {
            LISTENERS => {
                if let Some(list) = listeners::read(value, &source, &mut self.mistakes) {
                    let settings = &mut self.loaded.settings;
                    let says = |listener: &&listeners::Listener| listener.says_mechanisms;
                    settings.sasl.said = list.iter().filter(says).map(|one| one.config.name.clone()).collect();
                    settings.server.listeners = list.into_iter().map(|one| one.config).collect();
                }
            }
            TOPIC_DEFAULTS => self.topic_defaults(value, &source),
            MAPPED_TOPICS => self.mapped_topics(value, &source),
            _ => {
                if let Some(key) = keys::find(path) {
                    self.key(key, value, &source);
                } else {
                    self.unknown(path, value, &source);
                    return;
                }
            }
        }
        self.loaded.sources.insert(path.to_owned(), source);
    }

    fn key(&mut self, key: &keys::Key, value: &Value, source: &str) {
        let set = key.kind.read(value).and_then(|setting| (key.set)(&mut self.loaded.settings, setting));
        if set.is_none() {
            let (written, allowed) = (key.kind.as_written(value), key.kind.allowed());
            self.mistakes.add(format!("{} is {written} ({source}); it must be {allowed}", key.path));
        }
    }

    fn unknown(&mut self, path: &str, value: &Value, source: &str) {
        let section = format!("{path}.");
        let is_section = keys::all().any(|key| key.path.starts_with(&section));
        match value.as_dict().filter(|_| is_section) {
            Some(values) => self.section(path, values),
            None if is_section => {
                let written = as_written(value);
                self.mistakes.add(format!("{path} is {written} ({source}); it is a section, write [{path}]"));
            }
            None => {
                let hint = nearest(path, key_names());
                self.mistakes.add(format!("the key `{}` is not known ({source}){hint}", shortened(path)));
            }
        }
    }

    fn topic_defaults(&mut self, value: &Value, source: &str) {
        let Some(values) = value.as_dict() else {
            self.mistakes.add(format!(
                "topic_defaults is {} ({source}); it must be a table of topic configs",
                as_written(value)
            ));
            return;
        };
        for (name, value) in flattened(values) {
            let text = match &value {
                Value::String(_, text) => text.clone(),
                other => as_written(other),
            };
            self.loaded.settings.server.topic_defaults.insert(name, text);
        }
    }

    fn mapped_topics(&mut self, value: &Value, source: &str) {
        for (name, target) in value.as_dict().into_iter().flatten() {
            let part = |field: &str| target.find_ref(field).and_then(Value::as_str).map(str::to_owned);
            let fields = target.as_dict().into_iter().flat_map(Dict::keys);
            for field in fields.filter(|field| !["stream", "topic"].contains(&field.as_str())) {
                let hint = nearest(field, ["stream", "topic"].map(str::to_owned));
                self.mistakes.add(format!("`{}` is no key of a mapped topic ({source}){hint}", shortened(field)));
            }
            if let Some(prefix) = name.strip_suffix(ANY) {
                match mapped_prefix(name, part("stream"), target.find_ref("topic").map(Value::as_str)) {
                    Some(mapped) => {
                        self.loaded.settings.server.topic_mapping.prefixes.insert(prefix.to_owned(), mapped);
                    }
                    None => self.mistakes.add(format!(
                        "the rule for topics `{}` ({source}) must say `stream`, and may say a `topic` that ends in {ANY}",
                        shortened(name)
                    )),
                }
                continue;
            }
            let (Some(stream), Some(topic)) = (part("stream"), part("topic")) else {
                self.mistakes.add(format!(
                    "the mapping of topic `{}` ({source}) must say both `stream` and `topic`, as text",
                    shortened(name)
                ));
                continue;
            };
            let mapped = MappedTopic { stream, topic };
            self.loaded.settings.server.topic_mapping.topics.insert(name.clone(), mapped);
        }
        if value.as_dict().is_none() {
            self.mistakes.add(format!("{MAPPED_TOPICS} is {} ({source}); it must be a table", as_written(value)));
        }
    }

    fn source_of(&self, value: &Value) -> String {
        // A table has no source of its own when several layers filled it; its first value speaks for it.
        let mut value = value;
        while let Some(first) = value.as_dict().and_then(|values| values.values().next()) {
            value = first;
        }
        let metadata = self.figment.get_metadata(value.tag());
        metadata.map_or_else(|| DEFAULT.to_owned(), |metadata| metadata.name.to_string())
    }
}

impl Loaded {
    fn new() -> Self {
        let mut settings = Settings::default();
        // What an operator says is told apart from what comes with the program.
        settings.server.topic_defaults.clear();
        Self { settings, warnings: Vec::new(), sources: BTreeMap::new() }
    }

    /// Fills in what follows from other values.
    fn finish(&mut self) {
        let settings = &mut self.settings;
        settings.spread_mechanisms();
        settings.take_tokens();
        let size = settings.segment_bytes.to_string();
        settings.server.topic_defaults.entry("segment.bytes".to_owned()).or_insert(size);
        for (name, value) in Settings::default().server.topic_defaults {
            settings.server.topic_defaults.entry(name).or_insert(value);
        }
    }

    /// What no single value shows.
    fn check(&mut self, mistakes: &mut Mistakes) {
        self.check_tls(mistakes);
        let server = &self.settings.server;
        if let Err(error) = server.validate() {
            mistakes.add(error.to_string());
        }
        #[cfg(feature = "iggy")]
        if self.settings.iggy.is_on()
            && let Err(problem) = self.settings.iggy.config(server.instance_id)
        {
            mistakes.add(problem);
        }
        if let Err(error) = self.settings.cluster.validate() {
            mistakes.add(error.to_string());
        }
        if let Err(problem) = self.settings.iggy_door.check() {
            mistakes.add(problem.to_owned());
        }
        #[cfg(feature = "iggy")]
        if self.settings.iggy.is_on() && self.settings.door().is_some() {
            let problem =
                "iggy_door.listen serves Iggy clients on the embedded store; with iggy.url they have their server";
            mistakes.add(problem.to_owned());
        }
        if let Err(error) = Mapping::new(&server.topic_mapping) {
            mistakes.add(format!("topic_mapping: {error}"));
        }
        if let Err(error) = ConfigRules::new(server) {
            mistakes.add(format!("topic_defaults: {error}"));
        }
    }
}

impl Loaded {
    /// The files of certificates: that they are there, can be used and belong together.
    fn check_tls(&mut self, mistakes: &mut Mistakes) {
        let listeners = self.settings.server.listeners.iter();
        let of_listeners = listeners
            .filter_map(|listener| Some((format!("listener `{}`: ", listener.name), "tls.", listener.tls.clone()?)));
        let of_door = self.settings.iggy_door.tls().map(|files| (String::new(), "iggy_door.tls_", files));
        for (place, section, files) in of_listeners.chain(of_door) {
            match milena_tls::load(&files, SystemTime::now()) {
                Ok(loaded) => self.warnings.extend(loaded.warnings.iter().map(|warning| format!("{place}{warning}"))),
                Err(error) => mistakes.add(format!("{place}{section}{error}")),
            }
        }
    }
}

fn key_names() -> impl Iterator<Item = String> {
    let names = keys::all().map(|key| key.path).chain([LISTENERS, TOPIC_DEFAULTS, MAPPED_TOPICS]);
    names.map(str::to_owned)
}

/// What stands for the rest of a name, at its end.
const ANY: char = '*';

/// Where topics live whose names match `name`, which ends in `*`. Without a topic they keep their names.
fn mapped_prefix(name: &str, stream: Option<String>, topic: Option<Option<&str>>) -> Option<MappedPrefix> {
    let topic = topic.unwrap_or(Some(name))?;
    Some(MappedPrefix { stream: stream?, topic_prefix: topic.strip_suffix(ANY)?.to_owned() })
}

/// Names of topic configs have dots, which TOML reads as tables unless they are quoted.
fn flattened(values: &Dict) -> Vec<(String, Value)> {
    let mut flat = Vec::new();
    for (name, value) in values {
        match value.as_dict() {
            Some(inner) => {
                flat.extend(flattened(inner).into_iter().map(|(rest, value)| (format!("{name}.{rest}"), value)));
            }
            None => flat.push((name.clone(), value.clone())),
        }
    }
    flat
}

/// `; did you mean ...?` when a known name is near, else nothing.
pub(super) fn nearest(name: &str, known: impl IntoIterator<Item = String>) -> String {
    let last = |name: &str| name.rsplit('.').next().unwrap_or(name).to_owned();
    let near = known.into_iter().map(|candidate| {
        let whole = strsim::damerau_levenshtein(name, &candidate);
        // A key in the wrong section is as near as its own name.
        let distance = whole.min(strsim::damerau_levenshtein(&last(name), &last(&candidate)));
        (distance, whole, candidate)
    });
    let bound = last(name).chars().count().div_ceil(3).max(2);
    match near.min().filter(|(distance, _, _)| *distance <= bound) {
        Some((_, _, candidate)) => format!("; did you mean `{candidate}`?"),
        None => String::new(),
    }
}
