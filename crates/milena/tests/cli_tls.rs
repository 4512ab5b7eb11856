//! TLS as people set it up: a configuration file, `check-config`, a server, and the client commands over it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use milena_testkit::tls::Signed;
use milena_testkit::{Authority, ReservedPort, SOON};

const MILENA: &str = env!("CARGO_BIN_EXE_milena");

/// The command without the variables of whoever runs the test.
fn milena(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(MILENA);
    command.args(args).env_clear().current_dir(folder);
    command
}

fn run(folder: &Path, args: &[&str], input: &str) -> Output {
    let mut command = milena(folder, args);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A command that needs no input may have ended.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A file with a listener in plain text and one with TLS.
fn write_config(folder: &Path, plain: u16, secure: u16, signed: &Signed) {
    let (certificate, key) = (signed.certificate.display(), signed.key.display());
    let config = format!(
        "data_dir = \"memory://\"\nmetrics.listen = \"off\"\n\
         [[listeners]]\nname = \"inside\"\nbind = \"127.0.0.1:{plain}\"\n\
         [[listeners]]\nname = \"outside\"\nbind = \"127.0.0.1:{secure}\"\n\
         tls.certificate_file = \"{certificate}\"\ntls.key_file = \"{key}\"\n"
    );
    std::fs::write(folder.join("milena.toml"), config).unwrap();
}

fn only_for_the_owner(file: &Path) {
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn client_commands_reach_a_listener_with_tls_and_only_one_that_they_can_trust() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let (plain, secure) = (ReservedPort::take(), ReservedPort::take());
    let folder = authority.folder();
    let signed = authority.sign("server");
    only_for_the_owner(&signed.key);
    write_config(folder, plain.number(), secure.number(), &signed);
    let mut command = milena(folder, &["serve"]);
    let _server = Running(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let (plain, secure) = (format!("127.0.0.1:{}", plain.number()), format!("127.0.0.1:{}", secure.number()));
    let trusted = authority.file().display().to_string();
    let over_tls = |args: &[&str], input: &str| {
        run(folder, &[args, &["--bootstrap", &secure, "--tls-ca-file", &trusted]].concat(), input)
    };
    let start = Instant::now();
    while !over_tls(&["topics", "list"], "").status.success() {
        assert!(start.elapsed() < SOON, "the server does not answer");
        std::thread::sleep(Duration::from_millis(50));
    }

    let lines: String = (0..3_000).map(|n| format!("line {n} that is sealed on its way\n")).collect();
    let produced = over_tls(&["produce", "sealed"], &lines);
    assert!(produced.status.success(), "{}", text(&produced.stderr));
    let consumed = over_tls(&["consume", "sealed", "--from-beginning"], "");
    assert_eq!(text(&consumed.stdout), lines, "{}", text(&consumed.stderr));
    // By a variable too, and beside the listener in plain text.
    let mut command = milena(folder, &["topics", "list", "--bootstrap", &secure]);
    let listed = command.env("MILENA_TLS", "true").env("SSL_CERT_FILE", &trusted).output().unwrap();
    assert!(text(&listed.stdout).contains("sealed"), "{}", text(&listed.stderr));
    assert!(text(&run(folder, &["topics", "list", "--bootstrap", &plain], "").stdout).contains("sealed"));

    let fails = |args: &[&str]| {
        let output = run(folder, &[&["topics", "list"][..], args].concat(), "");
        assert!(!output.status.success(), "{args:?}: {}", text(&output.stdout));
        text(&output.stderr)
    };
    let foreign = stranger.file().display().to_string();
    let error = fails(&["--bootstrap", &secure, "--tls-ca-file", &foreign]);
    assert!(error.contains(&format!("no TLS with {secure}: invalid peer certificate")), "{error}");
    let error = fails(&["--bootstrap", &secure]);
    assert!(error.contains("wants --tls"), "{error}");
    let error = fails(&["--bootstrap", &plain, "--tls-ca-file", &trusted]);
    assert!(
        error.contains(&format!("no TLS with {plain}")) && error.contains("does it speak TLS on this port"),
        "{error}"
    );
    let error = fails(&["--bootstrap", &secure, "--tls-ca-file", "nowhere.pem"]);
    assert!(error.contains("tls-ca-file nowhere.pem cannot be read"), "{error}");
}

#[test]
fn check_config_looks_at_certificates_and_keys() {
    let authority = Authority::new();
    let folder = authority.folder();
    let signed = authority.sign_until("server", 2001);
    std::fs::set_permissions(&signed.key, std::fs::Permissions::from_mode(0o644)).unwrap();
    write_config(folder, 9092, 9094, &signed);
    let check = || run(folder, &["check-config"], "");

    let output = check();
    let (shown, warned) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{warned}");
    assert!(shown.contains(&format!("tls.key_file = \"{}\"", signed.key.display())), "{shown}");
    assert_eq!(warned.lines().count(), 2, "{warned}");
    assert!(warned.contains("warning: listener `outside`: the certificate in certificate_file "), "{warned}");
    assert!(warned.contains(" expired on Jan  1 ") && warned.contains("2001"), "{warned}");
    assert!(warned.contains("everybody on this machine can read key_file "), "{warned}");
    // What it prints is a file that says the same.
    std::fs::write(folder.join("milena.toml"), &shown).unwrap();
    let without_sources =
        |text: &str| text.lines().map(|line| line.split(" #").next().unwrap().trim().to_owned()).collect::<Vec<_>>();
    assert_eq!(without_sources(&text(&check().stdout)), without_sources(&shown));

    let other = authority.sign("other");
    write_config(folder, 9092, 9094, &Signed { key: other.key.clone(), ..signed.clone() });
    let output = check();
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    let expected = format!("listener `outside`: tls.key_file {} does not belong to", other.key.display());
    assert!(error.contains(&expected), "{error}");

    let config = std::fs::read_to_string(folder.join("milena.toml")).unwrap();
    for (changed, expected) in [
        (config.replace("tls.key_file", "tls.keyfile"), "`tls.keyfile` is no key of a listener"),
        (config.replace("tls.key_file", "#"), "listener `outside` (milena.toml) has TLS and no tls.key_file"),
        (format!("{config}tls.client_auth = \"always\"\n"), "it must be one of `none`, `requested`, `required`"),
        (format!("{config}tls.client_auth = \"required\"\n"), "client_ca_file must name the authorities"),
        (format!("{config}tls.client_ca_file = 5\n"), "tls.client_ca_file of listener `outside` is 5"),
    ] {
        std::fs::write(folder.join("milena.toml"), changed).unwrap();
        let output = check();
        assert_eq!(output.status.code(), Some(2), "{expected}");
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    }
}
