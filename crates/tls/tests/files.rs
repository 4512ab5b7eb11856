//! What is read from files: each form of a key, each mistake, each warning.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, missing_docs, reason = "test code")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use milena_testkit::Authority;
use milena_tls::{ClientAuth, Renewal, TlsFiles, TlsPort, Warning, load};

fn refusal(files: &TlsFiles) -> String {
    load(files, SystemTime::now()).err().unwrap_or_else(|| panic!("{files:?} are taken")).to_string()
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

#[test]
fn what_is_wrong_with_a_file_is_said_with_its_key_and_its_name() {
    let authority = Authority::new();
    let good = authority.sign("server").files();
    let other = authority.folder().join("other.pem");
    let certificate = |text: &str| {
        write(&other, text);
        refusal(&TlsFiles { certificate: other.clone(), ..good.clone() })
    };
    let key = |text: &str| {
        write(&other, text);
        refusal(&TlsFiles { key: other.clone(), ..good.clone() })
    };
    let name = other.display();
    assert!(certificate("").starts_with(&format!("certificate_file {name} holds no certificate")));
    assert!(certificate("-----BEGIN CERTIFICATE-----\n").starts_with(&format!("certificate_file {name} is damaged")));
    let no_der = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(certificate(no_der).contains("its first certificate cannot be read"));
    assert!(key("").starts_with(&format!("key_file {name} holds no private key")));
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    assert!(key(encrypted).starts_with(&format!("key_file {name} is encrypted")));
    let no_key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    assert!(key(no_key).starts_with(&format!("key_file {name} cannot be used")));
    write(&other, &"x".repeat((4 << 20) + 1));
    let large = refusal(&TlsFiles { key: other.clone(), ..good.clone() });
    assert!(large.contains("has more than 4194304 bytes"), "{large}");

    let foreign = TlsFiles { key: authority.sign("foreign").key, ..good.clone() };
    assert!(refusal(&foreign).contains("does not belong to the first certificate of certificate_file"));
    let missing = TlsFiles { certificate: authority.folder().join("none"), ..good.clone() };
    assert!(refusal(&missing).contains("none cannot be read: No such file"));
    let nobody = TlsFiles { client_auth: ClientAuth::Required, ..good.clone() };
    assert!(refusal(&nobody).starts_with("client_auth is `required`, so client_ca_file must"));
    let unused = TlsFiles { client_ca: Some(authority.file()), ..good.clone() };
    assert!(refusal(&unused).starts_with("client_ca_file is set and client_auth is `none`"));
    write(&other, no_der);
    let damaged = TlsFiles { client_auth: ClientAuth::Requested, client_ca: Some(other), ..good };
    assert!(refusal(&damaged).starts_with("client_ca_file "), "{}", refusal(&damaged));
}

/// Keys in the older forms, as `openssl` writes them where it is there; PKCS#8 is what all other tests use.
#[test]
fn keys_in_sec1_and_pkcs1_are_taken() {
    let authority = Authority::new();
    let folder = authority.folder();
    let openssl = |line: &str| Command::new("openssl").args(line.split(' ')).current_dir(folder).output();
    if openssl("version").is_err() {
        return;
    }
    for (make, head) in [
        ("ecparam -name prime256v1 -genkey -noout -out key.pem", "BEGIN EC PRIVATE KEY"),
        ("genrsa -traditional -out key.pem 2048", "BEGIN RSA PRIVATE KEY"),
    ] {
        assert!(openssl(make).unwrap().status.success(), "{make}");
        let text = std::fs::read_to_string(folder.join("key.pem")).unwrap();
        assert!(text.contains(head), "{text}");
        let sign = "req -x509 -key key.pem -subj /CN=kafka.test -days 2 -out certificate.pem";
        assert!(openssl(sign).unwrap().status.success());
        let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
        let files = TlsFiles { certificate, key, client_auth: ClientAuth::None, client_ca: None };
        let left =
            load(&files, SystemTime::now()).unwrap().validity.not_after.duration_since(SystemTime::now()).unwrap();
        assert!(left < Duration::from_secs(3 * 86_400) && left > Duration::from_secs(86_400), "{left:?}");
    }
}

#[test]
fn what_should_not_stay_so_is_a_warning() {
    let authority = Authority::new();
    let signed = authority.sign_until("server", 2030);
    let mode = |mode| std::fs::set_permissions(&signed.key, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o640);
    let at = |seconds| load(&signed.files(), SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap().warnings;
    // The last second of 2029, and the second after the first of 2030.
    let end = 1_893_456_000;
    assert_eq!(at(end - 1), []);
    let expired = at(end + 1);
    assert!(matches!(expired[..], [Warning::Expired { .. }]), "{expired:?}");
    assert!(expired[0].to_string().ends_with("expired on Jan  1 00:00:00 2030 +00:00"), "{}", expired[0]);
    let early = at(0);
    assert!(matches!(early[..], [Warning::NotYet { .. }]), "{early:?}");
    mode(0o644);
    let open = at(end - 1);
    assert!(open[0].to_string().contains("everybody on this machine can read key_file"), "{open:?}");
    assert!(open[0].to_string().contains("(mode 644)"), "{open:?}");
}

#[test]
fn files_are_taken_when_they_changed_and_are_good_and_refused_once_when_they_are_not() {
    let authority = Authority::new();
    let signed = authority.sign_until("server", 2100);
    let (port, _) = TlsPort::open(signed.files()).unwrap();
    let first = port.validity();
    assert!(matches!(port.renew(), Renewal::Unchanged));

    write(&signed.key, "no key");
    assert!(matches!(port.renew(), Renewal::Refused(_)));
    assert!(matches!(port.renew(), Renewal::Unchanged), "told once");
    std::fs::remove_file(&signed.key).unwrap();
    assert!(matches!(port.renew(), Renewal::Refused(_)), "another mistake");
    assert_eq!(port.validity(), first);

    authority.sign_until("server", 2101);
    assert!(matches!(port.renew(), Renewal::Renewed(validity, _) if validity.not_after > first.not_after));
    assert!(port.validity().not_after > first.not_after);
    assert_eq!((port.counts().renewed(), port.counts().not_renewed()), (1, 2));
}

#[test]
fn a_client_is_known_by_its_first_message_and_nothing_less() {
    // Only a whole record that holds one message is taken for one.
    for bytes in [&[0x16, 3, 1, 0, 200, 1, 0, 0, 196][..], &[0x16, 3, 3, 6, 0, 1, 0, 5, 252]] {
        assert!(milena_tls::is_client_hello(bytes));
        for at in [0, 1, 3, 5, 6, 8] {
            let mut other = bytes.to_vec();
            other[at] ^= 0x40;
            assert!(!milena_tls::is_client_hello(&other), "{other:?}");
        }
        assert!(!milena_tls::is_client_hello(&bytes[..8]));
    }
}
