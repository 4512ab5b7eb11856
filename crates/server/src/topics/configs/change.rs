//! What a client wants of configs that are set already.

use std::collections::{BTreeMap, HashSet};

use super::keys::{ConfigKey, Kind};
use super::rules::{ConfigError, ConfigRules, known};
use super::value;

/// A change of the configs that are set on a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigChange {
    /// These, by name and value, in place of all that are set.
    Replace(Vec<(String, String)>),
    /// Each by itself, on top of what is set (KIP-339).
    Edit(Vec<ConfigEdit>),
}

/// A change of one config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigEdit {
    /// Name of the config.
    pub name: String,
    /// What becomes of it.
    pub op: EditOp,
}

/// What becomes of a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EditOp {
    /// It gets this value.
    Set(String),
    /// It is set no longer, and falls back to its default.
    Delete,
    /// These words are added to its list.
    Append(String),
    /// These words are taken out of its list.
    Subtract(String),
}

impl ConfigRules {
    /// What `now` becomes: all of the change, or nothing.
    ///
    /// Deleting a name that Kafka does not know succeeds, as it does there: mirroring tools reset every config of the
    /// other cluster, names of older releases among them, and the outcome is what they want.
    ///
    /// # Errors
    /// The first unknown name or bad value, or a conflict.
    pub fn changed(
        &self,
        now: &BTreeMap<String, String>,
        change: &ConfigChange,
    ) -> Result<BTreeMap<String, String>, ConfigError> {
        let edits = match change {
            ConfigChange::Replace(pairs) => {
                return self.check(pairs.iter().map(|(name, value)| (name.as_str(), Some(value.as_str()))));
            }
            ConfigChange::Edit(edits) => edits,
        };
        let mut set = now.clone();
        for ConfigEdit { name, op } in edits {
            match op {
                EditOp::Set(value) => {
                    let (key, value) = self.check_one(name, value)?;
                    set.insert(key.name.to_owned(), value);
                }
                EditOp::Delete => {
                    set.remove(name);
                }
                EditOp::Append(words) => {
                    let key = list_key(name)?;
                    let mut list: Vec<&str> = value::words(self.text(&set, name)).collect();
                    for word in value::words(words) {
                        if !list.contains(&word) {
                            list.push(word);
                        }
                    }
                    let value = self.check_one(name, &list.join(","))?.1;
                    set.insert(key.name.to_owned(), value);
                }
                EditOp::Subtract(words) => {
                    let key = list_key(name)?;
                    let gone: HashSet<&str> = value::words(words).collect();
                    let kept: Vec<&str> =
                        value::words(self.text(&set, name)).filter(|word| !gone.contains(word)).collect();
                    let value = self.check_one(name, &kept.join(","))?.1;
                    set.insert(key.name.to_owned(), value);
                }
            }
        }
        self.check_together(&set)?;
        Ok(set)
    }
}

fn list_key(name: &str) -> Result<&'static ConfigKey, ConfigError> {
    let key = known(name)?;
    if key.kind == Kind::List { Ok(key) } else { Err(ConfigError::NotAList(key.name)) }
}
