//! Rounds on several servers in turn, and what they come to.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::Result;

/// What one round measured, by name and in order. Names end in their unit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measures(Vec<(String, f64)>);

impl Measures {
    /// Adds a figure.
    pub fn add(&mut self, name: impl Into<String>, value: f64) {
        self.0.push((name.into(), value));
    }

    /// A figure by its name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }
}

/// What was measured about several servers.
#[derive(Debug, Clone)]
pub struct Report {
    scenario: String,
    servers: Vec<(String, Vec<Measures>)>,
}

/// How often servers are measured.
#[derive(Debug, Clone, Copy)]
pub struct Rounds {
    /// Rounds before those that count, for servers that compile themselves while they run.
    pub warm_ups: usize,
    /// Rounds that count.
    pub counted: usize,
}

/// Measures each server once per round, one after the other, so that what else happens on the machine hits all alike.
///
/// # Errors
/// What ends a measurement.
pub async fn alternate<T>(
    scenario: &str,
    targets: &mut [(String, T)],
    rounds: Rounds,
    mut measure: impl AsyncFnMut(&mut T, usize) -> Result<Measures>,
) -> Result<Report> {
    let mut servers: Vec<_> = targets.iter().map(|(name, _)| (name.clone(), Vec::new())).collect();
    for round in 0..rounds.warm_ups + rounds.counted {
        for ((_, target), (name, measures)) in targets.iter_mut().zip(&mut servers) {
            let measured = measure(target, round).await.map_err(|error| format!("{name}, round {round}: {error}"))?;
            if round >= rounds.warm_ups {
                measures.push(measured);
            }
        }
    }
    Ok(Report { scenario: scenario.to_owned(), servers })
}

impl Report {
    /// Medians over the rounds of a server, which is the first one unless it is named.
    #[must_use]
    pub fn medians(&self, server: Option<&str>) -> Measures {
        let found = self.servers.iter().find(|(name, _)| server.is_none_or(|server| server == name));
        found.map(|(_, rounds)| medians(rounds)).unwrap_or_default()
    }

    /// The medians as a table in Markdown; with a second server, how often its figure goes into the first one's.
    #[must_use]
    pub fn table(&self) -> String {
        let columns: Vec<Measures> = self.servers.iter().map(|(_, rounds)| medians(rounds)).collect();
        let names: Vec<&str> = self.servers.iter().map(|(name, _)| name.as_str()).collect();
        let (Some(first), Some(first_name)) = (columns.first(), names.first()) else { return String::new() };
        let mut head = format!("| {} | {} |", self.scenario, names.join(" | "));
        let mut rule = "| --- |".to_owned() + &" ---: |".repeat(names.len());
        for name in names.iter().skip(1) {
            let _ = write!(head, " {first_name} / {name} |");
            rule.push_str(" ---: |");
        }
        let mut rows = String::new();
        for (measure, value) in &first.0 {
            let _ = write!(rows, "| {measure} | {} |", figure(*value));
            let others: Vec<Option<f64>> = columns.iter().skip(1).map(|column| column.get(measure)).collect();
            for other in &others {
                let _ = write!(rows, " {} |", other.map_or_else(|| "-".to_owned(), figure));
            }
            for other in &others {
                let ratio = other.filter(|other| *other != 0.0).map(|other| value / other);
                let _ = write!(rows, " {} |", ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")));
            }
            rows.push('\n');
        }
        format!("{head}\n{rule}\n{rows}")
    }

    /// Every round of every server.
    #[must_use]
    pub fn json(&self) -> Value {
        let object = |measures: &Measures| -> Value {
            measures
                .0
                .iter()
                .map(|(name, value)| (name.clone(), json!(value)))
                .collect::<serde_json::Map<_, _>>()
                .into()
        };
        let servers: Vec<Value> = self
            .servers
            .iter()
            .map(|(name, rounds)| {
                json!({
                    "server": name,
                    "medians": object(&medians(rounds)),
                    "rounds": rounds.iter().map(object).collect::<Vec<_>>(),
                })
            })
            .collect();
        json!({ "scenario": self.scenario, "servers": servers })
    }

    /// Writes [`Report::json`] to a file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_json(&self, path: &Path) -> Result<()> {
        Ok(std::fs::write(path, format!("{:#}\n", self.json()))?)
    }
}

fn medians(rounds: &[Measures]) -> Measures {
    let Some(first) = rounds.first() else { return Measures::default() };
    let median = |name: &str| {
        let mut values: Vec<f64> = rounds.iter().filter_map(|round| round.get(name)).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    };
    Measures(first.0.iter().map(|(name, _)| (name.clone(), median(name))).collect())
}

/// Three significant digits or more.
fn figure(value: f64) -> String {
    let size = value.abs();
    if size >= 100.0 || value == 0.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(values: &[f64]) -> Vec<Measures> {
        values.iter().map(|value| Measures(vec![("p99, ms".to_owned(), *value)])).collect()
    }

    fn report() -> Report {
        let servers =
            vec![("milena".to_owned(), rounds(&[9.0, 2.0, 3.0])), ("kafka".to_owned(), rounds(&[12.0, 12.0, 1.0]))];
        Report { scenario: "test".to_owned(), servers }
    }

    #[test]
    fn a_table_has_medians_and_their_ratio() {
        let expected = "| test | milena | kafka | milena / kafka |\n| --- | ---: | ---: | ---: |\n\
                        | p99, ms | 3.00 | 12.0 | 0.25 |\n";
        assert_eq!(report().table(), expected);
    }

    #[test]
    fn the_json_has_every_round() {
        let json = report().json();
        assert_eq!(json["servers"][0]["rounds"][0]["p99, ms"], 9.0);
        assert_eq!(json["servers"][1]["medians"]["p99, ms"], 12.0);
    }

    #[test]
    fn a_figure_that_one_server_lacks_has_no_ratio() {
        let mut report = report();
        report.servers[1].1 = vec![Measures::default()];
        assert!(report.table().contains("| p99, ms | 3.00 | - | - |"));
    }
}
