//! Kinds of values: how each is read from text or TOML, what it may be, and how it is shown.

use std::time::Duration;

use figment::value::{Num, Value};

/// A value after it was read and before it has found its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Setting {
    Text(String),
    Flag(bool),
    Number(u64),
    Time(Duration),
    /// The word `unlimited` in place of a number.
    Unlimited,
}

/// What a value may be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// Text; the sentence says which, the function checks it.
    Text {
        allowed: &'static str,
        check: fn(&str) -> bool,
    },
    Choice(&'static [&'static str]),
    /// A list of some of these, or text with commas between them.
    Names(&'static [&'static str]),
    /// Text that is not shown, and not taken from a command line.
    Secret,
    /// An address; one with a password in it is not taken from a command line, and is shown without.
    #[cfg_attr(not(feature = "iggy"), expect(dead_code, reason = "only the keys of an Iggy server are of this kind"))]
    Url,
    Flag,
    Number {
        min: u64,
        max: u64,
    },
    /// A number, or the word `unlimited`.
    NumberOrUnlimited {
        min: u64,
        max: u64,
    },
    /// Bytes, with or without a unit.
    Size {
        min: u64,
        max: u64,
    },
    /// A time with a unit; zero only where waiting may be switched off.
    Time {
        zero: bool,
    },
}

const UNLIMITED: &str = "unlimited";

/// Longest time that a setting may be: a hundred years, so that adding it to any instant is safe.
const TIME_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);

const UNITS: &[(&str, u64)] = &[
    ("b", 1),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
];

impl Kind {
    /// What a value may be, to stand behind "it must be".
    pub(crate) fn allowed(&self) -> String {
        match self {
            Self::Text { allowed, .. } => (*allowed).to_owned(),
            Self::Choice(names) => {
                let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
                format!("one of {}", names.join(", "))
            }
            Self::Names(names) => format!("a list of some of {}", names.join(", ")),
            Self::Secret => "text".to_owned(),
            Self::Url => "an address like `iggy://user@host:8090`".to_owned(),
            Self::Flag => "`true` or `false`".to_owned(),
            Self::Number { min, max } => format!("a whole number from {min} to {max}"),
            Self::NumberOrUnlimited { min, max } => {
                format!("`{UNLIMITED}` or a whole number from {min} to {max}")
            }
            Self::Size { min, max } => {
                format!("a size like `64 MiB` or a number of bytes, from {} to {}", size_text(*min), size_text(*max))
            }
            Self::Time { zero: false } => "a time with a unit like `30s` or `10m`, above zero".to_owned(),
            Self::Time { zero: true } => "a time with a unit like `30s` or `10m`".to_owned(),
        }
    }

    /// The setting that a value means, or `None` when it is none of the allowed.
    pub(crate) fn read(&self, value: &Value) -> Option<Setting> {
        match (self, value) {
            (Self::Flag, Value::Bool(_, flag)) => Some(Setting::Flag(*flag)),
            (Self::Number { .. } | Self::NumberOrUnlimited { .. } | Self::Size { .. }, Value::Num(_, number)) => {
                self.in_range(whole(*number)?)
            }
            (Self::Names(_), Value::Array(_, names)) => {
                let names: Option<Vec<&str>> = names.iter().map(Value::as_str).collect();
                self.read_text(&names?.join(","))
            }
            (_, Value::String(_, text)) => self.read_text(text),
            _ => None,
        }
    }

    fn read_text(&self, text: &str) -> Option<Setting> {
        match self {
            Self::Text { check, .. } => check(text).then(|| Setting::Text(text.to_owned())),
            Self::Choice(names) => names.contains(&text).then(|| Setting::Text(text.to_owned())),
            Self::Names(known) => {
                let names: Vec<&str> = text.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
                names.iter().all(|name| known.contains(name)).then(|| Setting::Text(names.join(",")))
            }
            Self::Secret | Self::Url => Some(Setting::Text(text.to_owned())),
            Self::Flag => text.parse().ok().map(Setting::Flag),
            Self::NumberOrUnlimited { .. } if text == UNLIMITED => Some(Setting::Unlimited),
            Self::Number { .. } | Self::NumberOrUnlimited { .. } => self.in_range(text.trim().parse().ok()?),
            Self::Size { .. } => self.in_range(size(text)?),
            Self::Time { zero } => {
                let time = humantime::parse_duration(text).ok().filter(|time| *time <= TIME_MAX)?;
                (*zero || !time.is_zero()).then_some(Setting::Time(time))
            }
        }
    }

    fn in_range(&self, number: u64) -> Option<Setting> {
        let (Self::Number { min, max } | Self::NumberOrUnlimited { min, max } | Self::Size { min, max }) = self else {
            return None;
        };
        (min..=max).contains(&&number).then_some(Setting::Number(number))
    }

    /// A value as the user wrote it, for error messages; of one that may be secret only what it is.
    pub(crate) fn as_written(&self, value: &Value) -> String {
        match (self, value) {
            (Self::Secret | Self::Url, Value::String(..) | Value::Char(..)) => "other text".to_owned(),
            (Self::Secret | Self::Url, Value::Num(..)) => "a number".to_owned(),
            _ => as_written(value),
        }
    }

    /// A setting as TOML.
    pub(crate) fn show(&self, setting: &Setting) -> String {
        match (self, setting) {
            (Self::Url, Setting::Text(text)) => quoted(&without_password(text)),
            (Self::Names(_), Setting::Text(names)) => {
                let names: Vec<String> = names.split(',').filter(|name| !name.is_empty()).map(quoted).collect();
                format!("[{}]", names.join(", "))
            }
            (_, Setting::Text(text)) => quoted(text),
            (_, Setting::Flag(flag)) => flag.to_string(),
            (Self::Size { .. }, Setting::Number(bytes)) => quoted(&size_text(*bytes)),
            (_, Setting::Number(number)) => number.to_string(),
            (_, Setting::Time(time)) => quoted(&humantime::format_duration(*time).to_string()),
            (_, Setting::Unlimited) => quoted(UNLIMITED),
        }
    }
}

/// An address without the password in it.
fn without_password(address: &str) -> String {
    let parts = address.rsplit_once('@').and_then(|(login, host)| {
        let (scheme, login) = login.split_once("://")?;
        let (user, _) = login.split_once(':')?;
        Some(format!("{scheme}://{user}@{host}"))
    });
    parts.unwrap_or_else(|| address.to_owned())
}

/// True when an address has a password in it.
pub(crate) fn has_password(address: &str) -> bool {
    without_password(address) != address
}

/// Text as a TOML string.
pub(crate) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// A value as the user wrote it, cut short: for error messages.
pub(crate) fn as_written(value: &Value) -> String {
    let text = match value {
        Value::String(_, text) => format!("`{text}`"),
        Value::Char(_, character) => format!("`{character}`"),
        Value::Bool(_, flag) => flag.to_string(),
        Value::Num(_, number) => number
            .to_u128()
            .map(|number| number.to_string())
            .or_else(|| number.to_i128().map(|number| number.to_string()))
            .or_else(|| number.to_f64().map(|number| number.to_string()))
            .unwrap_or_default(),
        Value::Empty(..) => "empty".to_owned(),
        Value::Dict(..) => "a table".to_owned(),
        Value::Array(..) => "a list".to_owned(),
    };
    shortened(&text)
}

/// Text of at most 80 characters: error messages do not repeat long input.
pub(crate) fn shortened(text: &str) -> String {
    const CHARACTERS_MAX: usize = 80;
    match text.char_indices().nth(CHARACTERS_MAX) {
        Some((at, _)) => format!("{}...", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// A number of TOML, which is signed, as ours, which are not.
fn whole(number: Num) -> Option<u64> {
    let signed = || number.to_i128().and_then(|number| u64::try_from(number).ok());
    number.to_u128().and_then(|number| u64::try_from(number).ok()).or_else(signed)
}

fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    let unit = unit.trim().to_ascii_lowercase();
    let factor = if unit.is_empty() { 1 } else { UNITS.iter().find(|(name, _)| *name == unit)?.1 };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

fn size_text(bytes: u64) -> String {
    let units = [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let fitting = units.iter().find(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor));
    match fitting {
        Some((name, factor)) => format!("{} {name}", bytes / factor),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Kind = Kind::Size { min: 0, max: u64::MAX };

    #[test]
    fn sizes_are_read_with_binary_and_decimal_units_and_without() {
        let expected = [
            ("17", 17),
            ("17 B", 17),
            ("1KiB", 1_024),
            ("64 MiB", 64 << 20),
            ("2gb", 2_000_000_000),
            (" 1 TiB ", 1 << 40),
        ];
        for (text, bytes) in expected {
            assert_eq!(SIZE.read_text(text), Some(Setting::Number(bytes)), "{text}");
        }
        for text in ["", "MiB", "-1", "1.5 MiB", "1 parsec", "99999999999 TiB", "1 Mi B"] {
            assert_eq!(SIZE.read_text(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_shown_reads_back_as_the_same() {
        for bytes in [0, 1, 1_023, 1_024, 100 << 20, (256 << 20) + 1, 3 << 40, u64::MAX] {
            assert_eq!(SIZE.read_text(&size_text(bytes)), Some(Setting::Number(bytes)));
        }
        let time = Kind::Time { zero: true };
        for seconds in [0, 1, 90, 600, 86_400] {
            let setting = Setting::Time(Duration::from_secs(seconds));
            assert_eq!(time.read_text(time.show(&setting).trim_matches('"')), Some(setting));
        }
    }

    #[test]
    fn a_number_is_taken_at_its_bounds_and_not_beyond() {
        let kind = Kind::Number { min: 1, max: 9 };
        for (text, taken) in [("0", false), ("1", true), ("9", true), ("10", false), ("-1", false), ("x", false)] {
            assert_eq!(kind.read_text(text).is_some(), taken, "{text}");
        }
    }

    #[test]
    fn a_time_needs_a_unit_and_may_not_be_zero_where_that_would_wait_for_nothing() {
        let kind = Kind::Time { zero: false };
        assert_eq!(kind.read_text("30s"), Some(Setting::Time(Duration::from_secs(30))));
        for text in ["30", "0s", "", "300 years", "soon"] {
            assert_eq!(kind.read_text(text), None, "{text}");
        }
    }
}
