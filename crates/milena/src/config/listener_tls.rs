//! The TLS part of a listener: a table of its own within the listener's.

use std::path::PathBuf;

use figment::value::{Dict, Value};
use milena_tls::{ClientAuth, TlsFiles};

use super::kinds::{as_written, quoted, shortened};
use super::load::{Mistakes, nearest};

const FIELDS: [&str; 4] = ["certificate_file", "key_file", "client_auth", "client_ca_file"];

/// Reads the table `tls` of listener `name`.
pub(super) fn read(name: &str, value: &Value, source: &str, mistakes: &mut Mistakes) -> Option<TlsFiles> {
    let Some(fields) = value.as_dict() else {
        mistakes.add(format!(
            "tls of listener `{name}` is {} ({source}); it is a table, write tls.certificate_file and tls.key_file",
            as_written(value)
        ));
        return None;
    };
    let mut is_known = true;
    for field in fields.keys().filter(|field| !FIELDS.contains(&field.as_str())) {
        let hint = nearest(field, FIELDS.map(str::to_owned));
        mistakes.add(format!("`tls.{}` is no key of a listener ({source}){hint}", shortened(field)));
        is_known = false;
    }
    let mut file = |field| path(name, fields, field, source, mistakes);
    let (certificate, key, client_ca) = (file("certificate_file"), file("key_file"), file("client_ca_file"));
    let client_auth = match fields.get("client_auth") {
        None => Some(ClientAuth::None),
        Some(value) => value.as_str().and_then(ClientAuth::of).or_else(|| {
            mistakes.add(format!(
                "tls.client_auth of listener `{name}` is {} ({source}); it must be one of {}",
                as_written(value),
                ClientAuth::NAMES.map(|name| format!("`{name}`")).join(", ")
            ));
            None
        }),
    };
    for (field, path) in [("certificate_file", &certificate), ("key_file", &key)] {
        if matches!(path, Ok(None)) {
            mistakes.add(format!("listener `{name}` ({source}) has TLS and no tls.{field}"));
        }
    }
    if !is_known {
        return None;
    }
    Some(TlsFiles {
        certificate: certificate.ok()??,
        key: key.ok()??,
        client_auth: client_auth?,
        client_ca: client_ca.ok()?,
    })
}

/// The path in `field`, if it is set.
fn path(name: &str, fields: &Dict, field: &str, source: &str, mistakes: &mut Mistakes) -> Result<Option<PathBuf>, ()> {
    match fields.get(field) {
        None => Ok(None),
        Some(Value::String(_, path)) if !path.is_empty() => Ok(Some(PathBuf::from(path))),
        Some(other) => {
            let written = as_written(other);
            mistakes.add(format!("tls.{field} of listener `{name}` is {written} ({source}); it must be a file"));
            Err(())
        }
    }
}

/// The table as TOML, without its source.
pub(super) fn show(files: &TlsFiles) -> String {
    let line = |key: &str, text: &str| format!("tls.{key} = {}\n", quoted(text));
    let path = |key: &str, path: &std::path::Path| line(key, &path.display().to_string());
    let mut text = path("certificate_file", &files.certificate) + &path("key_file", &files.key);
    if files.client_auth != ClientAuth::None {
        text.push_str(&line("client_auth", files.client_auth.name()));
    }
    if let Some(authorities) = &files.client_ca {
        text.push_str(&path("client_ca_file", authorities));
    }
    text
}
