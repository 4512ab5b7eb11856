//! Folders that earlier formats left behind open in this version, with everything in them: `tests/data/README.md`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use milena_testkit::ChildServer;
use rdkafka::config::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

const MILENA: &str = env!("CARGO_BIN_EXE_milena");

const FIRST: &str = r#"{"partition":0,"offset":0,"timestamp":1700000000000,"key":"k","value":"plain","headers":[["a","1"],["a",null]]}
{"partition":0,"offset":1,"timestamp":1700000000001,"key":null,"value":null,"headers":[]}
{"partition":0,"offset":2,"timestamp":1700000000002,"key":"","value":"","headers":[]}
{"partition":0,"offset":3,"timestamp":1700000000003,"key":{"base64":"/wA="},"value":{"base64":"AP8="},"headers":[["",""]]}
"#;

fn folders() -> Vec<PathBuf> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut found: Vec<PathBuf> = std::fs::read_dir(data).unwrap().map(|item| item.unwrap().path()).collect();
    found.retain(|path| path.is_dir());
    found
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for item in std::fs::read_dir(from).unwrap() {
        let (path, to) = (item.as_ref().unwrap().path(), to.join(item.unwrap().file_name()));
        if path.is_dir() {
            copy(&path, &to);
        } else {
            std::fs::copy(&path, &to).unwrap();
        }
    }
}

fn run(server: &ChildServer, args: &[&str]) -> String {
    let output = server.run(args, "");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A producer whose id must be a new one: one that was given out before would have its record taken for a stored one.
fn produce_idempotent(server: &ChildServer) {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", server.bootstrap())
        .set("enable.idempotence", "true")
        .create()
        .unwrap();
    producer.send(BaseRecord::<str, str>::to("orders").partition(1).key("key").payload("new")).unwrap();
    producer.flush(Duration::from_secs(30)).unwrap();
}

#[test]
fn every_format_that_was_written_is_read() {
    let folders = folders();
    assert!(folders.iter().any(|folder| folder.ends_with("format-1")));
    for folder in folders {
        let place = tempfile::tempdir().unwrap();
        let data = place.path().join("data");
        copy(&folder, &data);
        let mut server = ChildServer::builder(MILENA)
            .no_args()
            .args(["serve", "--listen", "127.0.0.1:{port}", "--data-dir", &data.display().to_string()])
            .start();
        let name = folder.display();
        assert_eq!(run(&server, &["topics", "list"]), "TOPIC   PARTITIONS\norders  2\n", "{name}");
        let described = run(&server, &["topics", "describe", "orders"]);
        assert!(described.contains("retention.ms = -1"), "{name}: {described}");
        assert!(described.contains("max.message.bytes = 100000"), "{name}: {described}");
        assert_eq!(run(&server, &["consume", "orders", "-p", "0", "--from-beginning", "--json"]), FIRST, "{name}");
        assert_eq!(run(&server, &["consume", "orders", "-p", "1", "--from-beginning"]), "other\nidem\n", "{name}");
        let group = run(&server, &["groups", "describe", "readers", "--json"]);
        assert_eq!(group.matches("\"committed\":1").count(), 2, "{name}: {group}");
        produce_idempotent(&server);
        assert_eq!(run(&server, &["consume", "orders", "-p", "1", "--from-beginning"]), "other\nidem\nnew\n", "{name}");
        assert!(server.stop().success());
        let check = server.run(&["check-data", "--data-dir", &data.display().to_string()], "");
        assert!(check.status.success(), "{name}: {check:?}");
    }
}

/// What a later version wrote may mean something else to this one: nothing is read of it, and nothing written.
#[test]
fn a_folder_of_a_newer_format_is_refused_with_its_name() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    copy(&folders()[0], &data);
    std::fs::write(data.join("format"), "milena-store 2\n").unwrap();
    let catalog = || std::fs::read(data.join("catalog")).unwrap();
    let before = catalog();
    let folder = data.display().to_string();
    let backup = place.path().join("backup").display().to_string();
    for args in [
        &["serve", "--listen", "127.0.0.1:0", "--data-dir", &folder][..],
        &["check-data", "--data-dir", &folder],
        &["repair", "--data-dir", &folder, "--execute"],
        &["backup", &backup, "--data-dir", &folder],
    ] {
        let output = Command::new(MILENA).args(args).env("MILENA_METRICS_LISTEN", "off").output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.contains("has format \"milena-store 2\", which this version does not know"), "{args:?}: {said}");
    }
    assert_eq!(catalog(), before);
}
