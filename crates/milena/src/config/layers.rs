//! Where values come from: a file, the environment, flags.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use figment::providers::{Format as _, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};

use super::keys::{self, CONFIG_VARIABLE, LISTENERS, OTHER_VARIABLES, PREFIX};
use super::kinds::{Kind, has_password, shortened};
use super::listeners;
use super::load::{Mistakes, nearest};

/// The file that is read from the working directory when it is there and no other is named.
const DEFAULT_FILE: &str = "milena.toml";

/// One value from a flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Assignment {
    /// Path of the key.
    pub(crate) path: String,
    /// The value as text.
    pub(crate) value: String,
    /// The flag, as the user knows it.
    pub(crate) source: String,
}

/// All that a configuration is made from.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sources {
    /// File named by a flag.
    pub(crate) file: Option<PathBuf>,
    /// The environment; only variables of ours matter.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// Values from flags; of two for one key the later wins.
    pub(crate) flags: Vec<Assignment>,
    /// Folder in which the default file is looked for.
    pub(crate) folder: PathBuf,
}

impl Sources {
    /// The environment of this process, its working directory, and what the command line said.
    pub(crate) fn of_process(file: Option<PathBuf>, flags: Vec<Assignment>) -> Self {
        Self { file, flags, environment: std::env::vars_os().collect(), folder: PathBuf::from(".") }
    }

    /// The layers, lowest first, with what was wrong in them.
    pub(super) fn layered(&self, mistakes: &mut Mistakes) -> Figment {
        let mut figment = Figment::new();
        if let Some(path) = self.path() {
            figment = merge_file(figment, &path, mistakes);
        }
        for (name, value) in &self.environment {
            let Some(assignment) = from_variable(name, value, mistakes) else { continue };
            figment = merge(figment, &assignment, mistakes);
        }
        for assignment in self.joined_flags() {
            if is_secret(&assignment) {
                let Assignment { path, source, .. } = &assignment;
                mistakes.add(format!(
                    "{path} ({source}) is a secret, and other users of the machine can read a command line; put it \
                     into the configuration file, a file of its own, or the variable {}",
                    keys::variable(path)
                ));
                continue;
            }
            figment = merge(figment, &assignment, mistakes);
        }
        figment
    }

    fn path(&self) -> Option<PathBuf> {
        let from_environment =
            || self.environment.iter().find(|(name, _)| name == CONFIG_VARIABLE).map(|(_, path)| PathBuf::from(path));
        let default = || Some(self.folder.join(DEFAULT_FILE)).filter(|path| path.is_file());
        self.file.clone().or_else(from_environment).or_else(default)
    }

    /// Listeners may be named by several flags; together they are one value.
    fn joined_flags(&self) -> Vec<Assignment> {
        let mut joined: Vec<Assignment> = Vec::new();
        for flag in &self.flags {
            match joined.iter_mut().find(|other| flag.path == LISTENERS && other.path == LISTENERS) {
                Some(other) => other.value = format!("{},{}", other.value, flag.value),
                None => joined.push(flag.clone()),
            }
        }
        joined
    }
}

/// True when a flag says what nobody else should read: a secret, or an address with a password in it.
fn is_secret(flag: &Assignment) -> bool {
    let key = keys::find(&flag.path);
    key.is_some_and(|key| match key.kind {
        Kind::Secret => true,
        Kind::Url => has_password(&flag.value),
        _ => false,
    })
}

fn merge_file(figment: Figment, path: &Path, mistakes: &mut Mistakes) -> Figment {
    let shown = path.strip_prefix("./").unwrap_or(path).display().to_string();
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            mistakes.add(format!("the configuration file {shown} cannot be read: {error}"));
            return figment;
        }
    };
    if let Err(error) = text.parse::<toml::Table>() {
        // Not the line itself, as the error's own text has it: a password may be in it.
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        mistakes
            .add(format!("the configuration file {shown} is not TOML: line {line}: {}", error.message().trim_end()));
        return figment;
    }
    figment.merge(Named { data: Toml::string(&text).data(), source: shown })
}

fn from_variable(name: &OsString, value: &OsString, mistakes: &mut Mistakes) -> Option<Assignment> {
    let shown = name.to_string_lossy();
    if !shown.starts_with(PREFIX) || OTHER_VARIABLES.iter().any(|other| name == other) {
        return None;
    }
    let path = if shown == keys::variable(LISTENERS) {
        LISTENERS
    } else if let Some(key) = keys::all().find(|key| key.variable() == shown) {
        key.path
    } else {
        let known = keys::all().map(keys::Key::variable);
        let known = known.chain(OTHER_VARIABLES.map(str::to_owned));
        let hint = nearest(&shown, known.chain([keys::variable(LISTENERS)]));
        mistakes.add(format!("the environment variable {} is not known{hint}", shortened(&shown)));
        return None;
    };
    let Some(value) = value.to_str() else {
        mistakes.add(format!("the value of the environment variable {shown} is not UTF-8"));
        return None;
    };
    Some(Assignment { path: path.to_owned(), value: value.to_owned(), source: shown.into_owned() })
}

fn merge(figment: Figment, assignment: &Assignment, mistakes: &mut Mistakes) -> Figment {
    let Assignment { path, value, source } = assignment;
    let value = if path == LISTENERS {
        match listeners::from_text(value) {
            Ok(value) => value,
            Err(problem) => {
                mistakes.add(format!("{source}: {problem}"));
                return figment;
            }
        }
    } else {
        Value::from(value.as_str())
    };
    let data = Ok(Profile::Default.collect(nested(path, value)));
    figment.merge(Named { data, source: source.clone() })
}

/// The table that holds `value` at `path`.
fn nested(path: &str, value: Value) -> Dict {
    match path.split_once('.') {
        Some((section, rest)) => Dict::from([(section.to_owned(), Value::from(nested(rest, value)))]),
        None => Dict::from([(path.to_owned(), value)]),
    }
}

/// Values under the name that the user knows their source by.
struct Named {
    data: Result<Map<Profile, Dict>, figment::Error>,
    source: String,
}

impl Provider for Named {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.source.clone())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        self.data.clone()
    }
}
