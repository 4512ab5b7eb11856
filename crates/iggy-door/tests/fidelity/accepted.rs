//! Differences that are accepted, each for a reason that the documentation gives.

use std::collections::BTreeSet;
use std::fmt;

use crate::view::View;

/// In place of a value where there is none.
const NOTHING: &str = "nothing";

/// A field that the server has otherwise than the door.
pub(crate) struct Difference {
    step: String,
    field: String,
    server: String,
    here: String,
}

impl Difference {
    pub(crate) fn between(step: &str, server: &View, here: &View) -> Vec<Self> {
        let fields: BTreeSet<_> = server.keys().chain(here.keys()).collect();
        let value = |view: &View, field: &String| view.get(field).map_or(NOTHING, String::as_str).to_owned();
        let all = fields.into_iter().map(|field| Self {
            step: step.to_owned(),
            field: field.clone(),
            server: value(server, field),
            here: value(here, field),
        });
        all.filter(|difference| difference.server != difference.here).collect()
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} | {} | {} | {}", self.step, self.field, self.server, self.here)
    }
}

/// The list: under the name of a row of the documentation, lines of step, field, value of the server and value of the door,
/// in which `*` is any text.
pub(crate) struct Accepted<'a> {
    rows: Vec<Row<'a>>,
}

struct Row<'a> {
    reason: &'a str,
    line: &'a str,
    fields: [&'a str; 4],
    met: bool,
}

/// In place of a line, with the reason behind it: the script cannot show it.
const NOT_SHOWN: &str = "not shown by the script: ";

impl<'a> Accepted<'a> {
    pub(crate) fn read(list: &'a str) -> Self {
        let mut rows = Vec::new();
        let mut reason = "";
        for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with("# ")) {
            if let Some(name) = line.strip_prefix("== ") {
                reason = name;
            } else if let Some(why) = line.strip_prefix(NOT_SHOWN) {
                assert!(!why.is_empty(), "{reason}: no reason");
                rows.push(Row { reason, line, fields: [""; 4], met: true });
            } else {
                let fields: Vec<_> = line.split(" | ").collect();
                rows.push(Row { reason, line, fields: fields.try_into().expect(line), met: false });
            }
        }
        Self { rows }
    }

    /// True for a difference that is on the list.
    pub(crate) fn takes(&mut self, difference: &Difference) -> bool {
        let Difference { step, field, server, here } = difference;
        let values = [step, field, server, here];
        let mut taken = false;
        for row in &mut self.rows {
            if row.fields.iter().zip(values).all(|(pattern, value)| matches(pattern, value)) {
                (row.met, taken) = (true, true);
            }
        }
        taken
    }

    /// Lines that no difference has met.
    pub(crate) fn unmet(&self) -> Vec<String> {
        self.rows.iter().filter(|row| !row.met).map(|row| format!("{}: {}", row.reason, row.line)).collect()
    }

    pub(crate) fn reasons(&self) -> BTreeSet<&str> {
        self.rows.iter().map(|row| row.reason).collect()
    }
}

fn matches(pattern: &str, value: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == value };
    let Some(value) = value.strip_prefix(start) else { return false };
    (0..=value.len()).any(|at| value.is_char_boundary(at) && matches(rest, &value[at..]))
}

/// First cells of the first table below a heading.
pub(crate) fn rows_of<'a>(docs: &'a str, heading: &str) -> BTreeSet<&'a str> {
    let (_, section) = docs.split_once(heading).unwrap();
    let table = section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    table.skip(2).filter_map(|line| line.split('|').nth(1)).map(str::trim).collect()
}
