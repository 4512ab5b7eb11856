//! `milena users`, and a server that reads what it writes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use milena_testkit::ChildServer;
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};

const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `milena users` on a file, with that on standard input.
fn users(args: &[&str], file: &Path, input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_milena"))
        .arg("users")
        .args(args)
        .arg("--file")
        .arg(file)
        .env("A_SECRET", "from the environment")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may have ended without reading.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

#[test]
fn users_are_added_changed_listed_and_removed_and_no_password_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users");
    let ok = |args: &[&str], input: &str| {
        let output = users(args, &file, input);
        assert!(output.status.success(), "{}", said(&output));
        said(&output)
    };
    assert_eq!(ok(&["add", "alice"], "correct horse\n"), "user alice was added\n");
    assert_eq!(ok(&["add", "alice", "--password-variable", "A_SECRET"], ""), "user alice has a new password\n");
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "from a file\n").unwrap();
    let secret = secret.to_str().unwrap();
    ok(&["add", "bob", "--mechanism", "SCRAM-SHA-512", "--iterations", "8192", "--password-file", secret], "");
    assert_eq!(ok(&["list"], ""), "alice\tSCRAM-SHA-256 (4096), SCRAM-SHA-512 (4096)\nbob\tSCRAM-SHA-512 (8192)\n");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(["horse", "environment", "from a"].iter().all(|word| !text.contains(word)), "{text}");
    assert_eq!(ok(&["remove", "alice"], ""), "user alice was removed\n");
    assert_eq!(ok(&["list"], ""), "bob\tSCRAM-SHA-512 (8192)\n");
}

#[test]
fn what_cannot_be_done_is_said_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users");
    let fails = |args: &[&str], input: &str, why: &str| {
        let output = users(args, &file, input);
        assert!(!output.status.success() && said(&output).contains(why), "{args:?}: {}", said(&output));
    };
    fails(&["add", "alice"], "", "the password cannot be used: it is empty");
    fails(&["add", "alice"], "\u{fb01}ne\n", "some clients send in another form");
    fails(&["add", "#alice"], "secret\n", "the name cannot be used");
    fails(&["add", "alice", "--iterations", "100"], "secret\n", "4096");
    fails(&["add", "alice", "--password-variable", "NOT_SET"], "", "NOT_SET is not set");
    fails(&["add", "alice", "secret"], "", "unexpected argument");
    fails(&["remove", "alice"], "", "there is no user alice");
    fails(&["list"], "", "cannot be used");
    assert!(!file.exists());
}

#[test]
fn a_server_lets_in_who_is_added_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users");
    assert!(users(&["add", "alice"], &file, "secret\n").status.success());
    let server = ChildServer::builder(env!("CARGO_BIN_EXE_milena"))
        .env("MILENA_SASL_MECHANISMS", "PLAIN")
        .env("MILENA_SASL_USERS_FILE", file.to_str().unwrap())
        .env("MILENA_SASL_RELOAD_INTERVAL", "100ms")
        .start();
    let is_let_in = |name: &str, password: &str| {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", server.bootstrap()).set("broker.address.family", "v4");
        config.set("security.protocol", "sasl_plaintext").set("sasl.mechanism", "PLAIN");
        config.set("sasl.username", name).set("sasl.password", password);
        let consumer: BaseConsumer = config.create().unwrap();
        consumer.fetch_metadata(None, Duration::from_secs(5)).is_ok()
    };
    let start = Instant::now();
    while !is_let_in("alice", "secret") {
        assert!(start.elapsed() < PATIENCE, "{}", server.output());
    }
    assert!(!is_let_in("bob", "other"));
    assert!(users(&["add", "bob"], &file, "other\n").status.success());
    let start = Instant::now();
    while !is_let_in("bob", "other") {
        assert!(start.elapsed() < PATIENCE, "{}", server.output());
    }
}

/// Milena's own commands know SCRAM, which librdkafka as it is built here does not.
#[test]
fn commands_log_in_by_every_mechanism_and_say_why_they_are_not_let_in() {
    let server = ChildServer::builder(env!("CARGO_BIN_EXE_milena"))
        .env("MILENA_SASL_MECHANISMS", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512")
        .env("MILENA_SASL_USERNAME", "alice")
        .env("MILENA_SASL_PASSWORD", "secret")
        .env("MILENA_SASL_MAX_REAUTH", "1h")
        .start();
    let list = |mechanism: Option<&str>, password: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_milena"));
        command.args(["topics", "list", "--bootstrap", server.bootstrap()]);
        if let Some(mechanism) = mechanism {
            command.args(["--sasl-mechanism", mechanism, "--sasl-username", "alice"]);
        }
        command.env("MILENA_SASL_PASSWORD", password).output().unwrap()
    };
    for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
        let output = list(Some(mechanism), "secret");
        assert!(output.status.success(), "{mechanism}: {}", said(&output));
        let output = list(Some(mechanism), "wrong");
        assert!(!output.status.success() && said(&output).contains("alice is not let in"), "{}", said(&output));
    }
    let output = list(None, "secret");
    assert!(!output.status.success() && said(&output).contains("closed the connection"), "{}", said(&output));
    let open = ChildServer::start(env!("CARGO_BIN_EXE_milena"));
    let output = open.run(&["topics", "list", "--sasl-mechanism", "PLAIN", "--sasl-username", "a"], "");
    assert!(said(&output).contains("MILENA_SASL_PASSWORD"), "{}", said(&output));
}
