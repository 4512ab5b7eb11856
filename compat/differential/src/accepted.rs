//! The list of differences that are meant, a table in Markdown: one row for differences of one reason.
//!
//! A cell is text in backquotes, where `*` stands for anything. A row must name exactly the versions in which its differences occur.

use std::collections::{BTreeMap, BTreeSet};

use crate::compare::Difference;

/// A difference of one step, and the versions of the request that show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// API and step.
    pub step: String,
    /// Where, and what each says.
    pub difference: Difference,
    /// Versions.
    pub versions: BTreeSet<i16>,
}

/// The list.
#[derive(Debug, Default)]
pub struct Accepted {
    rows: Vec<Row>,
    unreadable: Vec<String>,
}

/// A row.
#[derive(Debug)]
struct Row {
    line: usize,
    step: String,
    versions: String,
    path: String,
    kafka: String,
    milena: String,
}

/// Differences by step and place, each once.
#[must_use]
pub fn collect(all: &[(String, i16, Difference)]) -> Vec<Found> {
    let mut found = BTreeMap::<_, BTreeSet<i16>>::new();
    for (step, version, difference) in all {
        found.entry((step, difference)).or_default().insert(*version);
    }
    let found = found.into_iter().map(|((step, difference), versions)| Found {
        step: step.clone(),
        difference: difference.clone(),
        versions,
    });
    found.collect()
}

impl Accepted {
    /// Reads the tables of a document. Lines that should be a row and are not are told by [`Accepted::check`].
    #[must_use]
    pub fn read(document: &str) -> Self {
        let mut list = Self::default();
        for (number, line) in document.lines().enumerate().map(|(at, line)| (at + 1, line)) {
            if !line.starts_with("| `") {
                continue;
            }
            match Row::read(number, line) {
                Some(row) => list.rows.push(row),
                None => list
                    .unreadable
                    .push(format!("line {number}: is not step, versions, place, Kafka, Milena and a reason")),
            }
        }
        list
    }

    /// True when a row has that difference, in whatever version.
    #[must_use]
    pub fn covers(&self, step: &str, difference: &Difference) -> bool {
        self.rows.iter().any(|row| row.covers(step, difference))
    }

    /// What is wrong between the list and what was found: differences that are not in it, and rows that say what is not so. Empty
    /// when nothing is.
    #[must_use]
    pub fn check(&self, found: &[Found]) -> Vec<String> {
        let mut wrong = self.unreadable.clone();
        let mut versions = vec![BTreeSet::new(); self.rows.len()];
        for one in found {
            for (row, seen) in self.rows.iter().zip(&mut versions) {
                if row.covers(&one.step, &one.difference) {
                    seen.extend(&one.versions);
                }
            }
            if !self.covers(&one.step, &one.difference) {
                let Difference { path, kafka, milena } = &one.difference;
                let (step, versions) = (&one.step, spans(&one.versions));
                wrong.push(format!("| `{step}` | {versions} | `{path}` | `{kafka}` | `{milena}` |"));
            }
        }
        for (row, seen) in self.rows.iter().zip(&versions) {
            if seen.is_empty() {
                wrong.push(format!("line {}: does not occur any more", row.line));
            } else if spans(seen) != row.versions {
                wrong.push(format!("line {}: is so in versions {}, not {}", row.line, spans(seen), row.versions));
            }
        }
        wrong
    }
}

impl Row {
    fn read(line: usize, text: &str) -> Option<Self> {
        let cells: Vec<&str> = text.trim_matches('|').split(" | ").map(|cell| cell.trim().trim_matches('`')).collect();
        let [step, versions, path, kafka, milena, reason] = cells.as_slice() else { return None };
        let row = Self {
            line,
            step: (*step).to_owned(),
            versions: (*versions).to_owned(),
            path: (*path).to_owned(),
            kafka: (*kafka).to_owned(),
            milena: (*milena).to_owned(),
        };
        (!reason.is_empty()).then_some(row)
    }

    fn covers(&self, step: &str, difference: &Difference) -> bool {
        let Difference { path, kafka, milena } = difference;
        let cells = [(&self.step, step), (&self.path, path), (&self.kafka, kafka), (&self.milena, milena)];
        cells.into_iter().all(|(pattern, text)| matches(pattern, text))
    }
}

/// True when the text is the pattern, with anything in the place of each `*`.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(start) else { return false };
    let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    ends.into_iter().any(|at| text.get(at..).is_some_and(|tail| matches(rest, tail)))
}

/// `0-3, 5`.
fn spans(versions: &BTreeSet<i16>) -> String {
    let mut spans: Vec<(i16, i16)> = Vec::new();
    for &version in versions {
        match spans.last_mut() {
            Some((_, last)) if *last + 1 == version => *last = version,
            _ => spans.push((version, version)),
        }
    }
    let text = |(first, last): &(i16, i16)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    spans.iter().map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(versions: &[i16]) -> Vec<Found> {
        let difference =
            Difference { path: "topics[a].error_code".to_owned(), kafka: "38".to_owned(), milena: "0".to_owned() };
        let all: Vec<_> = versions
            .iter()
            .map(|version| ("CreateTopics: replicas".to_owned(), *version, difference.clone()))
            .collect();
        collect(&all)
    }

    fn checked(document: &str, found: &[Found]) -> Vec<String> {
        Accepted::read(document).check(found)
    }

    fn row(versions: &str, path: &str) -> String {
        format!("| `CreateTopics: *` | {versions} | `{path}` | `38` | `0` | why |\n")
    }

    #[test]
    fn a_difference_that_is_listed_with_its_versions_is_accepted() {
        assert_eq!(checked(&row("2-4, 7", "topics[*].error_code"), &found(&[2, 3, 4, 7])), [""; 0]);
    }

    #[test]
    fn a_difference_that_is_not_listed_is_told_as_a_row_that_would() {
        let wrong = checked("", &found(&[2]));
        assert_eq!(wrong, ["| `CreateTopics: replicas` | 2 | `topics[a].error_code` | `38` | `0` |"]);
    }

    #[test]
    fn a_row_that_does_not_occur_or_not_in_these_versions_is_wrong() {
        assert_eq!(checked(&row("2", "topics[*].error_code"), &[]), ["line 1: does not occur any more"]);
        let more = checked(&row("2", "topics[*].error_code"), &found(&[2, 3]));
        assert_eq!(more, ["line 1: is so in versions 2-3, not 2"]);
        assert_eq!(checked("| `a` | 1 | `b` | `c` | `d` | |", &[]).len(), 1);
    }

    #[test]
    fn a_star_stands_for_anything_between_what_must_be_there() {
        assert!(matches("a*c", "abbc") && matches("*", "") && matches("a*b*c", "a-b-b-c"));
        assert!(!matches("a*c", "abcd") && !matches("a", "ab") && !matches("a*bc*d", "acd"));
    }
}
