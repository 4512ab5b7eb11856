//! The effective configuration as TOML that can be used as a file again.

use super::keys::{self, LISTENERS, MAPPED_TOPICS, TOPIC_DEFAULTS};
use super::kinds::{Kind, Setting, quoted};
use super::listeners;
use super::load::Loaded;
use super::settings::Settings;

/// Column at which the sources stand, where the values are short enough.
const SOURCE_COLUMN: usize = 44;

/// Every value that is in force, with its source behind it as a comment.
pub(crate) fn show(loaded: &Loaded) -> String {
    let mut text = String::from("# The effective configuration. Behind each value: where it comes from.\n");
    let mut section = "";
    for key in keys::all() {
        let (in_section, name) = key.path.rsplit_once('.').unwrap_or(("", key.path));
        if in_section != section {
            text.push_str(&format!("\n[{in_section}]\n"));
            section = in_section;
        }
        let value = (key.get)(&loaded.settings);
        if matches!(key.kind, Kind::Secret) && value != Setting::Text(String::new()) {
            text.push_str(&with_source(&format!("# {name} is set and not shown"), loaded.source(key.path)));
            continue;
        }
        let line = format!("{name} = {}", key.kind.show(&value));
        text.push_str(&with_source(&line, loaded.source(key.path)));
    }
    let mapping = &loaded.settings.server.topic_mapping;
    let topics = mapping.topics.iter().map(|(name, target)| (name.clone(), &target.stream, target.topic.clone()));
    let rules = mapping
        .prefixes
        .iter()
        .map(|(name, target)| (format!("{name}*"), &target.stream, format!("{}*", target.topic_prefix)));
    for (name, stream, topic) in topics.chain(rules) {
        let header = with_source(&format!("[{MAPPED_TOPICS}.{}]", quoted(&name)), loaded.source(MAPPED_TOPICS));
        text.push_str(&format!("\n{header}stream = {}\ntopic = {}\n", quoted(stream), quoted(&topic)));
    }
    let header = with_source(&format!("[{TOPIC_DEFAULTS}]"), loaded.source(TOPIC_DEFAULTS));
    text.push_str(&format!("\n{header}"));
    for (name, value) in &loaded.settings.server.topic_defaults {
        text.push_str(&format!("{} = {}\n", quoted(name), quoted(value)));
    }
    for listener in &loaded.settings.server.listeners {
        let header = with_source(&format!("[[{LISTENERS}]]"), loaded.source(LISTENERS));
        text.push_str(&format!("\n{header}{}", listeners::show(listener, !loaded.settings.sasl.mechanisms.is_empty())));
    }
    text
}

/// Every key with what it may be, its default and its variable: for the manual page.
pub(crate) fn reference() -> Vec<(String, String)> {
    let defaults = Settings::default();
    let described = keys::all().map(|key| {
        let (allowed, default) = (key.kind.allowed(), key.kind.show(&(key.get)(&defaults)));
        let text = format!("{} It is {allowed}; {default} unless set. Variable: {}.", key.help, key.variable());
        (key.path.to_owned(), text)
    });
    described.collect()
}

fn with_source(line: &str, source: &str) -> String {
    format!("{line:<SOURCE_COLUMN$} # {source}\n")
}
