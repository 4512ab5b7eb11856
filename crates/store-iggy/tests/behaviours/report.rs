//! The committed report names every behaviour with a test that is there.

use std::path::Path;

/// The text of every source file below `folder`.
fn sources(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn the_report_names_every_behaviour_with_tests_that_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let report = std::fs::read_to_string(root.join("docs/iggy-report.md")).unwrap();
    let mut code = String::new();
    sources(&root.join("crates"), &mut code);
    let rows: Vec<Vec<&str>> = report
        .lines()
        .filter(|line| line.starts_with("| ") && line.chars().nth(2).is_some_and(|first| first.is_ascii_digit()))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let numbers: Vec<String> = rows.iter().map(|row| row[0].to_owned()).collect();
    assert_eq!(numbers, (1..=36).map(|number: u32| number.to_string()).collect::<Vec<_>>());
    for row in &rows {
        assert!(row[2].starts_with('`'), "behaviour {} has no test", row[0]);
        for name in row[2].split(", ").map(|name| name.trim_matches('`')) {
            assert!(code.contains(&format!("fn {name}(")), "behaviour {}: no test is named {name}", row[0]);
        }
    }
    // No test of this suite is left out; others have behaviours with numbers of their own.
    let mut suite = String::new();
    sources(&root.join("crates/store-iggy/tests/behaviours"), &mut suite);
    for line in suite.lines().filter(|line| line.starts_with("async fn b")) {
        let name = line.trim_start_matches("async fn ").split('(').next().unwrap();
        if name[1..].starts_with(|first: char| first.is_ascii_digit()) {
            assert!(report.contains(&format!("`{name}`")), "{name} is not in the report");
        }
    }
}
