//! Defaults of the sections for Iggy, as its documents tell them. Each is read as a user would write it.

use std::path::Path;

use figment::value::Value;

use super::iggy::IGGY;
use super::iggy_door::IGGY_DOOR;
use super::keys::Key;
use super::kinds::{Kind, Setting};
use super::settings::Settings;

/// Keys and defaults in the rows of the tables of a document that have them in these columns.
fn told(document: &str, key_at: usize, default_at: usize) -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(document);
    let text = std::fs::read_to_string(path).unwrap();
    let mut told = Vec::new();
    for row in text.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let (Some(keys), Some(defaults)) = (cells.get(key_at), cells.get(default_at)) else { continue };
        let keys: Vec<&str> = keys.split(", ").filter_map(|key| key.strip_prefix('`')?.strip_suffix('`')).collect();
        let defaults: Vec<&str> = defaults.trim_end_matches(" each").split(", ").collect();
        for (at, key) in keys.iter().enumerate() {
            // One default is that of all keys of its row.
            let default = defaults.get(at).or_else(|| defaults.last()).unwrap();
            told.push(((*key).to_owned(), default.trim_matches('`').to_owned()));
        }
    }
    told
}

/// Text, secrets and addresses that are empty unless set are told in words.
fn is_told_in_words(key: &Key, default: &Setting) -> bool {
    matches!(key.kind, Kind::Secret | Kind::Url) || *default == Setting::Text(String::new())
}

#[test]
fn every_key_for_iggy_is_in_a_document_and_wherever_it_is_told_with_its_default() {
    let mut told_of = told("configuration.md", 0, 2);
    // There one row stands for all bounds of the door, whose defaults are in their own document.
    told_of.retain(|(_, default)| !default.is_empty());
    told_of.extend(told("iggy-door.md", 0, 1));
    told_of.extend(told("limits.md", 1, 2));
    let defaults = Settings::default();
    for key in IGGY.iter().chain(IGGY_DOOR) {
        let default = (key.get)(&defaults);
        if is_told_in_words(key, &default) {
            continue;
        }
        let told: Vec<&String> = told_of.iter().filter(|(path, _)| path == key.path).map(|(_, told)| told).collect();
        assert!(!told.is_empty(), "no document tells the default of {}", key.path);
        for told in told {
            let number = told.replace(',', "");
            let read = key.kind.read(&Value::from(number));
            assert_eq!(read.as_ref(), Some(&default), "{} is told to be {told}", key.path);
        }
    }
}
