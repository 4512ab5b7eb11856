//! The command as people use it: a server as a child process, the client commands beside it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use milena_testkit::{ChildServer, SOON};
use rustix::process::Signal;
use serde_json::Value;

const MILENA: &str = env!("CARGO_BIN_EXE_milena");

fn server() -> ChildServer {
    ChildServer::start(MILENA)
}

/// Runs a client command that succeeds; its standard output.
fn output(server: &ChildServer, args: &[&str], input: &str) -> String {
    let output = server.run(args, input);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a client command that fails; its exit code and standard error.
fn failure(server: &ChildServer, args: &[&str], input: &str) -> (Option<i32>, String) {
    let output = server.run(args, input);
    assert!(!output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stdout));
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn lines_go_in_and_come_out() {
    let server = server();
    assert_eq!(output(&server, &["produce", "greetings", "-o"], "hello\n"), "0@0\n");
    assert_eq!(output(&server, &["produce", "greetings", "-o"], "world\n"), "0@1\n");
    assert_eq!(output(&server, &["consume", "greetings", "--from-beginning"], ""), "hello\nworld\n");
    assert_eq!(output(&server, &["consume", "greetings", "--count", "1"], ""), "hello\n");
    assert_eq!(output(&server, &["consume", "greetings", "--offset", "-1", "-o"], ""), "0@1\tworld\n");
    assert_eq!(
        output(&server, &["consume", "greetings", "--follow", "--offset", "0", "-n", "2"], ""),
        "hello\nworld\n"
    );
}

#[test]
fn records_survive_a_copy_as_json_with_everything() {
    let server = server();
    let odd = "{\"timestamp\":5,\"key\":null,\"value\":{\"base64\":\"/wA=\"},\"headers\":[[\"a\",null],[\"a\",\"1\"]]}\n\
               {\"timestamp\":6,\"key\":\"k\",\"value\":null}\n";
    output(&server, &["produce", "from", "--json"], odd);
    let lines = output(&server, &["consume", "from", "--json"], "");
    assert!(lines.starts_with(
        "{\"partition\":0,\"offset\":0,\"timestamp\":5,\"key\":null,\"value\":{\"base64\":\"/wA=\"},\
         \"headers\":[[\"a\",null],[\"a\",\"1\"]]}\n"
    ));
    output(&server, &["produce", "to", "--json", "-z", "zstd"], &lines);
    assert_eq!(output(&server, &["consume", "to", "--json"], ""), lines);
}

#[test]
fn topics_are_created_described_grown_listed_and_deleted() {
    let server = server();
    output(&server, &["topics", "create", "orders", "-p", "2", "-c", "retention.ms=60000"], "");
    let (code, error) = failure(&server, &["topics", "create", "orders"], "");
    assert_eq!(code, Some(1));
    assert!(error.starts_with("milena: topic `orders` was not created: a topic of that name exists"), "{error}");
    output(&server, &["topics", "create", "orders", "--if-not-exists"], "");
    output(&server, &["topics", "grow", "orders", "3"], "");
    output(&server, &["produce", "orders", "-p", "2"], "x\n");
    let described = output(&server, &["topics", "describe", "orders"], "");
    assert!(described.contains("retention.ms = 60000"), "{described}");
    assert!(described.lines().any(|line| line.split_whitespace().eq(["2", "0", "0", "1"])), "{described}");
    assert_eq!(output(&server, &["topics", "list"], ""), "TOPIC   PARTITIONS\norders  3\n");
    output(&server, &["topics", "delete", "orders"], "");
    assert_eq!(output(&server, &["topics", "list"], ""), "TOPIC  PARTITIONS\n");
    let (_, error) = failure(&server, &["consume", "orders"], "");
    assert!(error.starts_with("milena: there is no topic `orders`"), "{error}");
}

#[test]
fn configs_of_a_topic_are_set_and_put_back_all_or_none() {
    let server = server();
    output(&server, &["topics", "create", "orders", "-c", "retention.ms=60000"], "");
    output(&server, &["topics", "alter", "orders", "-c", "max.message.bytes=2000", "-d", "retention.ms"], "");
    let described = output(&server, &["topics", "describe", "orders"], "");
    assert!(described.ends_with("configs\n  max.message.bytes = 2000\n"), "{described}");
    let (code, error) =
        failure(&server, &["topics", "alter", "orders", "-c", "retention.ms=5", "-c", "segment.ms=soon"], "");
    assert_eq!(code, Some(1));
    assert!(error.starts_with("milena: the configs of topic `orders` were not changed"), "{error}");
    assert!(error.contains("segment.ms"), "{error}");
    assert_eq!(output(&server, &["topics", "describe", "orders"], ""), described);
    let (_, error) = failure(&server, &["topics", "alter", "nowhere", "-c", "retention.ms=5"], "");
    assert!(error.starts_with("milena: there is no topic `nowhere`"), "{error}");
    for wrong in [&["topics", "alter", "orders"][..], &["topics", "alter", "orders", "-c", "a=1", "-d", "a"]] {
        assert_eq!(failure(&server, wrong, "").0, Some(2), "{wrong:?}");
    }
}

#[test]
fn records_before_an_offset_or_all_are_deleted_and_the_rest_is_read() {
    let server = server();
    output(&server, &["topics", "create", "orders", "-p", "2"], "");
    output(&server, &["produce", "orders", "-p", "0"], "a\nb\nc\n");
    output(&server, &["produce", "orders", "-p", "1"], "x\n");
    let delete = |args: &[&str]| output(&server, &[&["topics", "delete-records", "orders"], args].concat(), "");
    assert_eq!(delete(&["-p", "0", "--before", "2"]), "PARTITION         START\n        0             2\n");
    assert_eq!(output(&server, &["consume", "orders", "-p", "0", "--from-beginning"], ""), "c\n");
    let (code, error) = failure(&server, &["topics", "delete-records", "orders", "--before", "3"], "");
    assert_eq!(code, Some(1));
    assert!(error.contains("the records of `orders`-1 were not deleted"), "{error}");
    assert!(delete(&["--all"]).ends_with("        0             3\n        1             1\n"));
    assert_eq!(output(&server, &["consume", "orders", "--from-beginning"], ""), "");
    assert_eq!(failure(&server, &["topics", "delete-records", "orders"], "").0, Some(2));
}

#[test]
fn a_bad_line_is_named_and_what_came_before_it_is_stored() {
    let server = server();
    let (code, error) = failure(&server, &["produce", "lines", "--json"], "{\"value\":\"good\"}\nbad\n{}\n");
    assert_eq!(code, Some(1));
    assert!(error.contains("line 2 is no record: it is no JSON"), "{error}");
    assert_eq!(output(&server, &["consume", "lines"], ""), "good\n");
}

#[test]
fn a_pipe_that_closes_ends_consume_without_a_word() {
    let server = server();
    output(&server, &["produce", "many"], &"a line that is long enough\n".repeat(50_000));
    let mut child = Command::new(MILENA)
        .args(["consume", "many", "--follow", "--offset", "0"])
        .env("MILENA_BOOTSTRAP", server.bootstrap())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
}

#[test]
fn the_banner_says_where_to_connect_and_where_the_data_is() {
    let mut server = ChildServer::builder(MILENA).only_embedded("the folder is named").start();
    server.stop();
    let said = server.output();
    assert!(said.contains(&format!("Kafka clients connect to  {}", server.bootstrap())), "{said}");
    assert!(said.contains(&format!("{}/data\n", server.folder().display())), "{said}");
    assert!(said.contains("echo hello |"), "{said}");
}

#[test]
fn the_first_signal_ends_it_in_order_and_data_is_there_after_a_restart() {
    let mut server = server();
    output(&server, &["produce", "kept"], "one\n");
    assert!(server.stop().success(), "{}", server.output());
    server.restart();
    assert_eq!(output(&server, &["consume", "kept"], ""), "one\n");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let mut server = server();
    // A client that asks and does not read: once no more of its requests are taken, answers to it are under way for as long as
    // the server waits for it.
    let mut client = TcpStream::connect(server.address()).unwrap();
    client.set_write_timeout(Some(Duration::from_secs(3))).unwrap();
    // ApiVersions 0 without a client id.
    let request = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff];
    let requests = request.repeat(5_000);
    let error = (0..2_000).find_map(|_| client.write_all(&requests).err()).unwrap();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    server.signal(Signal::TERM);
    let start = Instant::now();
    while TcpStream::connect(server.address()).is_ok() {
        assert!(start.elapsed() < SOON, "it still listens: {}", server.output());
    }
    server.signal(Signal::TERM);
    assert_eq!(server.exited().code(), Some(130), "{}", server.output());
}

#[test]
fn a_log_in_json_has_an_object_in_each_line_and_nothing_else() {
    let builder = ChildServer::builder(MILENA).env("MILENA_LOGGING_FORMAT", "json");
    let mut server = builder.env("MILENA_LOGGING_LEVEL", "debug").start();
    output(&server, &["produce", "logged"], "one\n");
    assert!(server.stop().success());
    let said = server.output();
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert!(!lines.is_empty());
    for line in lines {
        let of = |name: &str| line.get(name).and_then(Value::as_str).unwrap_or_else(|| panic!("no {name}: {line}"));
        assert!(["DEBUG", "INFO", "WARN"].contains(&of("level")), "{line}");
        assert!(!of("message").is_empty() && !of("timestamp").is_empty(), "{line}");
    }
}

#[test]
fn a_folder_in_use_and_a_port_in_use_are_sentences() {
    let running = ChildServer::builder(MILENA).only_embedded("the folder is locked").start();
    let data = running.folder().join("data");
    let fails = |args: &[&str]| {
        let output = Command::new(MILENA).args(args).current_dir(running.folder()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let error = fails(&["--listen", running.bootstrap(), "--data-dir", data.to_str().unwrap()]);
    assert!(error.contains("is in use by another process"), "{error}");
    let error = fails(&["--listen", running.bootstrap(), "--data-dir", "memory://"]);
    assert!(error.contains("another program listens there; choose another address"), "{error}");
}

#[test]
fn a_mistake_in_the_configuration_ends_with_code_2_before_anything_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(MILENA).current_dir(folder.path()).env("MILENA_DATADIR", "elsewhere").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    let expected = "milena: the environment variable MILENA_DATADIR is not known; did you mean `MILENA_DATA_DIR`?\n";
    assert_eq!(error, expected);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn without_a_server_the_client_says_where_it_looked() {
    let output = Command::new(MILENA).args(["topics", "list", "-b", "127.0.0.1:1"]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.starts_with("milena: cannot connect to 127.0.0.1:1: "), "{error}");
}

#[test]
fn the_banner_says_where_iggy_clients_connect_and_tells_a_made_up_password_once() {
    let builder = ChildServer::builder(MILENA).only_embedded("what Iggy clients are told is for the embedded store");
    let mut server = builder.args(["--iggy-listen", "127.0.0.1:0"]).start();
    server.stop();
    let said = server.output();
    assert!(said.contains("Iggy clients connect to   127.0.0.1:"), "{said}");
    let (_, rest) = said.split_once("with the password").unwrap();
    let password = rest.split_whitespace().next().unwrap();
    assert!(password.len() >= 16 && rest.contains(&format!("{password} (printed this once)")), "{said}");
    server.restart();
    server.stop();
    let again = server.output();
    let count = |text: &str| again.matches(text).count();
    let counts = [count("Iggy clients connect to"), count("printed this once"), count(password)];
    assert_eq!(counts, [2, 1, 1], "{again}");
}
