//! The container files and the systemd unit fit the binary and each other. No engine runs here: that an image can be built is
//! not shown by these tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

const MILENA: &str = env!("CARGO_BIN_EXE_milena");

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Instructions of the container file, with continued lines put together and comments left out.
fn instructions() -> Vec<(String, String)> {
    let text = file("contrib/container/Containerfile").replace("\\\n", " ");
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .map(|line| line.split_once(' ').map(|(word, rest)| (word.to_owned(), rest.trim().to_owned())).unwrap())
        .collect()
}

fn all(word: &str) -> Vec<String> {
    instructions().into_iter().filter(|(found, _)| found == word).map(|(_, rest)| rest).collect()
}

/// The variables that the image sets.
fn variables() -> BTreeMap<String, String> {
    let all = all("ENV").join(" ");
    let pairs = all.split_whitespace().map(|pair| pair.split_once('=').unwrap());
    pairs.map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned())).collect()
}

/// `milena check-config` with these variables and no others, in an empty folder.
fn check(variables: &BTreeMap<String, String>) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(MILENA);
    command.arg("check-config").env_clear().envs(variables).current_dir(folder.path()).output().unwrap()
}

fn accepted(variables: &BTreeMap<String, String>) -> String {
    let output = check(variables);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{variables:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn the_container_file_holds_only_instructions_that_exist_and_begins_with_an_image() {
    let known =
        ["FROM", "RUN", "WORKDIR", "COPY", "USER", "ENV", "VOLUME", "EXPOSE", "STOPSIGNAL", "ENTRYPOINT", "CMD"];
    let instructions = instructions();
    assert_eq!(instructions[0].0, "FROM");
    for (word, rest) in &instructions {
        assert!(known.contains(&word.as_str()), "{word}");
        assert!(!rest.is_empty(), "{word}");
    }
    for words in [all("ENTRYPOINT"), all("CMD")] {
        let words: Vec<String> = serde_json::from_str(&words[0]).unwrap();
        assert_eq!(words.len(), 1);
    }
}

#[test]
fn the_container_file_builds_with_the_compiler_of_the_workspace() {
    let toolchain = file("rust-toolchain.toml");
    let channel = toolchain.lines().find_map(|line| line.strip_prefix("channel = ")).unwrap().trim_matches('"');
    let image = &all("FROM")[0];
    let version = image.split_once("rust:").unwrap().1.split_once('-').unwrap().0;
    assert!(channel == version || channel.starts_with(&format!("{version}.")), "{image} and {channel}");
}

/// With the file of the toolchain in it, rustup would download the compiler that the image has already, with tools that no build
/// needs; with `target` in it, what was built outside would be there.
#[test]
fn the_container_file_is_given_the_sources_alone() {
    let ignored = file(".dockerignore");
    for name in [".git", "target", "fuzz/target", "milena-data", "rust-toolchain.toml"] {
        assert!(ignored.lines().any(|line| line == name), "{name}");
    }
}

#[test]
fn what_one_step_of_the_container_file_makes_is_where_the_next_one_takes_it() {
    let steps = all("RUN");
    let [build, install] = steps[1].split("&&").map(str::trim).collect::<Vec<_>>()[..] else { panic!() };
    assert_eq!(build, "cargo build --release --locked");
    let installed: Vec<&str> = install.split_whitespace().collect();
    assert_eq!(installed[..3], ["install", "-D", "target/release/milena"]);
    let copies = all("COPY");
    let copied: Vec<&str> = copies[1].split_whitespace().collect();
    assert_eq!(copied[..2], ["--from=build", installed[3]]);
    let entry: Vec<String> = serde_json::from_str(&all("ENTRYPOINT")[0]).unwrap();
    assert_eq!(entry, [copied[2]]);
    assert!(all("FROM")[0].ends_with("AS build"));
    let cargo = file("Cargo.toml");
    assert!(cargo.contains("default-members = [\"crates/milena\"]"), "a plain build makes the binary");
}

#[test]
fn the_variables_of_the_image_are_a_configuration_whose_ports_are_exposed_and_whose_data_is_in_the_volume() {
    let variables = variables();
    accepted(&variables);
    assert!(variables["MILENA_DATA_DIR"].starts_with(&format!("{}/", all("VOLUME")[0])));
    let exposed = all("EXPOSE")[0].clone();
    let exposed: Vec<&str> = exposed.split_whitespace().collect();
    for name in ["MILENA_LISTENERS", "MILENA_METRICS_LISTEN"] {
        let address = variables[name].split('@').next().unwrap();
        assert!(exposed.contains(&address.rsplit_once(':').unwrap().1), "{name} and {exposed:?}");
    }
}

#[test]
fn the_compose_file_adds_to_the_image_what_is_a_configuration_too() {
    let compose = file("contrib/container/compose.yaml");
    let value = |key: &str| {
        let line = compose.lines().find_map(|line| line.trim().strip_prefix(key)?.strip_prefix(": "));
        line.unwrap_or_else(|| panic!("no {key}")).trim_matches('"').to_owned()
    };
    let mut variables = variables();
    variables.insert("MILENA_LISTENERS".to_owned(), value("MILENA_LISTENERS"));
    accepted(&variables);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let context = root.join("contrib/container").join(value("context"));
    assert!(context.join(value("dockerfile")).is_file());
    assert!(context.join("Cargo.toml").is_file());
    let inside = compose.lines().filter_map(|line| line.trim().strip_prefix("- \"127.0.0.1:"));
    for port in inside.map(|ports| ports.trim_end_matches('"').rsplit_once(':').unwrap().1) {
        assert!(all("EXPOSE")[0].split_whitespace().any(|exposed| exposed == port), "{port}");
    }
}

#[test]
fn a_variable_that_the_image_misspells_would_be_noticed() {
    let mut variables = variables();
    variables.insert("MILENA_LOGING_FORMAT".to_owned(), "json".to_owned());
    assert!(!check(&variables).status.success());
}

#[test]
fn the_systemd_unit_runs_commands_and_sets_variables_that_exist() {
    let unit = file("contrib/systemd/milena.service");
    let values =
        |key: &str| unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect::<Vec<_>>();
    let variables = values("Environment").into_iter().map(|pair| pair.split_once('=').unwrap());
    let state = |value: &str| value.replace("%S", "/var/lib");
    accepted(&variables.map(|(name, value)| (name.to_owned(), state(value))).collect());
    for command in values("ExecStartPre").into_iter().chain(values("ExecStart")) {
        let words: Vec<&str> = command.split_whitespace().collect();
        assert_eq!(words[0], "/usr/local/bin/milena");
        let help = Command::new(MILENA).args(&words[1..]).arg("--help").env_clear().output().unwrap();
        assert!(help.status.success(), "{command}");
    }
}
