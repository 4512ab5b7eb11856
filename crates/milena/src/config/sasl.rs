//! The keys of section `sasl`: how clients say who they are.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use figment::value::Value;
use milena_auth::verifier::{BadVerifier, ITERATIONS_MIN};
use milena_auth::{Hash, Mechanism, Users, Verifier, prepare, users};
use milena_iggy_door::Secret;
use milena_server::authentication::TokenSettings;

use super::keys::{Key, text, time};
use super::kinds::{Kind, Setting, as_written, shortened};
use super::load::{Mistakes, nearest};
use super::settings::Settings;
use crate::passwords::{password_in, verifier};

/// Names of all mechanisms, as they are configured.
pub(super) const MECHANISMS: &[&str] = &["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"];

/// What is configured of authentication, beside what the server has of it.
#[derive(Debug, Clone)]
pub(crate) struct SaslKeys {
    /// Mechanisms of listeners that do not say their own.
    pub(crate) mechanisms: Vec<Mechanism>,
    /// Names of the listeners that do.
    pub(super) said: BTreeSet<String>,
    username: String,
    password: Secret,
    password_file: String,
    jwks_file: String,
    issuer: String,
    audience: String,
    clock_skew: Duration,
    subject_claim: String,
}

impl Default for SaslKeys {
    fn default() -> Self {
        Self {
            mechanisms: Vec::new(),
            said: BTreeSet::new(),
            username: String::new(),
            password: Secret::new(""),
            password_file: String::new(),
            jwks_file: String::new(),
            issuer: String::new(),
            audience: String::new(),
            clock_skew: Duration::from_secs(30),
            subject_claim: "sub".to_owned(),
        }
    }
}

impl Settings {
    /// Fills in what listeners do not say themselves.
    pub(super) fn spread_mechanisms(&mut self) {
        for listener in &mut self.server.listeners {
            if !self.sasl.said.contains(&listener.name) {
                listener.sasl.clone_from(&self.sasl.mechanisms);
            }
        }
    }

    /// Which tokens are taken, where there are keys to check them with.
    pub(super) fn take_tokens(&mut self) {
        let SaslKeys { jwks_file, issuer, audience, clock_skew, subject_claim, .. } = &self.sasl;
        let said = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let audiences = audience.split(',').map(str::trim).filter(|one| !one.is_empty());
        self.server.sasl.tokens = said(jwks_file).map(|file| TokenSettings {
            jwks_file: PathBuf::from(file),
            issuer: said(issuer),
            audiences: audiences.map(str::to_owned).collect(),
            clock_skew: *clock_skew,
            subject_claim: subject_claim.clone(),
        });
    }

    /// The user that the configuration names. Passwords leave this place as verifiers.
    pub(super) fn name_user(&mut self, mistakes: &mut Mistakes) {
        let SaslKeys { username: name, password, password_file: file, .. } = &self.sasl;
        let mut password = password.reveal().to_owned();
        if !file.is_empty() && !password.is_empty() {
            mistakes.add("sasl.password and sasl.password_file are both set; set one of them".to_owned());
            return;
        }
        if !file.is_empty() {
            match password_in(file.as_ref()) {
                Ok(read) => password = read,
                Err(error) => {
                    mistakes.add(format!("sasl.password_file {file} cannot be read: {error}"));
                    return;
                }
            }
        }
        if name.is_empty() && password.is_empty() {
            return;
        }
        if name.is_empty() || password.is_empty() {
            let together = "sasl.username and sasl.password (or sasl.password_file) name one user together";
            mistakes.add(format!("{together}; set both or neither"));
            return;
        }
        if let Err(problem) = users::check_name(name) {
            mistakes.add(format!("sasl.username cannot be used: {problem}"));
        } else if let Err(problem) = prepare::check(&password) {
            mistakes.add(format!("sasl.password cannot be used: {problem}"));
        } else if let Ok(verifiers) = verifiers(&password) {
            self.server.sasl.users = Users::single(name, verifiers);
        }
    }
}

/// The verifiers of a password, with Kafka's number of iterations.
fn verifiers(password: &str) -> Result<[Verifier; 2], BadVerifier> {
    let of = |hash| verifier(hash, password, ITERATIONS_MIN);
    Ok([of(Hash::Sha256)?, of(Hash::Sha512)?])
}

/// The mechanisms that `names` are; each once, in their order.
pub(super) fn mechanisms(names: &str) -> Option<Vec<Mechanism>> {
    let mut mechanisms = Vec::new();
    for name in names.split(',').filter(|name| !name.is_empty()) {
        let mechanism = Mechanism::of(name)?;
        if !mechanisms.contains(&mechanism) {
            mechanisms.push(mechanism);
        }
    }
    Some(mechanisms)
}

/// Their names, with commas between.
pub(super) fn names(mechanisms: &[Mechanism]) -> String {
    let names: Vec<&str> = mechanisms.iter().map(|mechanism| mechanism.name()).collect();
    names.join(",")
}

/// Fields of the table `sasl` of a listener.
const FIELDS: [&str; 1] = ["mechanisms"];

/// What the table `sasl` of a listener says.
pub(super) fn of_listener(name: &str, value: &Value, source: &str, mistakes: &mut Mistakes) -> Option<Vec<Mechanism>> {
    let Some(fields) = value.as_dict() else {
        mistakes.add(format!(
            "sasl of listener `{name}` is {} ({source}); it must be a table, like sasl.mechanisms = [\"SCRAM-SHA-512\"]",
            as_written(value)
        ));
        return None;
    };
    for field in fields.keys().filter(|field| !FIELDS.contains(&field.as_str())) {
        let hint = nearest(field, FIELDS.map(str::to_owned));
        mistakes.add(format!("`sasl.{}` is no key of a listener ({source}){hint}", shortened(field)));
    }
    let kind = Kind::Names(MECHANISMS);
    let Some(value) = fields.get("mechanisms") else {
        mistakes.add(format!("sasl of listener `{name}` ({source}) says nothing; set `sasl.mechanisms`"));
        return None;
    };
    let Some(Setting::Text(names)) = kind.read(value) else {
        let (written, allowed) = (as_written(value), kind.allowed());
        mistakes.add(format!("sasl.mechanisms of listener `{name}` is {written} ({source}); it must be {allowed}"));
        return None;
    };
    mechanisms(&names)
}

/// The mechanisms of a listener as TOML.
pub(super) fn show(mechanisms: &[Mechanism]) -> String {
    let names = Kind::Names(MECHANISMS).show(&Setting::Text(names(mechanisms)));
    format!("sasl.mechanisms = {names}\n")
}

pub(super) const SASL: &[Key] = &[
    Key {
        path: "sasl.mechanisms",
        kind: Kind::Names(MECHANISMS),
        help: "Mechanisms by which clients authenticate, on listeners that do not say their own; without any nobody is \
               asked.",
        get: |settings| Setting::Text(names(&settings.sasl.mechanisms)),
        set: |settings, value| {
            let Setting::Text(names) = value else { return None };
            settings.sasl.mechanisms = mechanisms(&names)?;
            Some(())
        },
    },
    Key {
        path: "sasl.users_file",
        kind: Kind::Text { allowed: "empty, or a file", check: |_| true },
        help: "File of users, as `milena users` writes it; read again when it changes.",
        get: |settings| {
            let file = settings.server.sasl.users_file.as_ref();
            Setting::Text(file.map(|file| file.to_string_lossy().into_owned()).unwrap_or_default())
        },
        set: |settings, value| {
            let Setting::Text(file) = value else { return None };
            settings.server.sasl.users_file = Some(file).filter(|file| !file.is_empty()).map(PathBuf::from);
            Some(())
        },
    },
    Key {
        path: "sasl.username",
        kind: Kind::Text { allowed: "empty, or a name", check: |_| true },
        help: "Name of a user that needs no file.",
        get: |settings| Setting::Text(settings.sasl.username.clone()),
        set: |settings, value| text(value, &mut settings.sasl.username),
    },
    Key {
        path: "sasl.password",
        kind: Kind::Secret,
        help: "Password of that user.",
        get: |settings| Setting::Text(settings.sasl.password.reveal().to_owned()),
        set: |settings, value| {
            let Setting::Text(password) = value else { return None };
            settings.sasl.password = Secret::new(&password);
            Some(())
        },
    },
    Key {
        path: "sasl.password_file",
        kind: Kind::Text { allowed: "empty, or a file", check: |_| true },
        help: "File whose first line is the password of that user.",
        get: |settings| Setting::Text(settings.sasl.password_file.clone()),
        set: |settings, value| text(value, &mut settings.sasl.password_file),
    },
    Key {
        path: "sasl.max_reauth",
        kind: Kind::Time { zero: true },
        help: "Time after which a client has to authenticate again, or its connection is closed; `0s` is never.",
        get: |settings| Setting::Time(settings.server.sasl.max_reauth),
        set: |settings, value| time(&value, &mut settings.server.sasl.max_reauth),
    },
    Key {
        path: "sasl.failure_delay",
        kind: Kind::Time { zero: true },
        help: "Time after which a client that is not let in hears so.",
        get: |settings| Setting::Time(settings.server.sasl.failure_delay),
        set: |settings, value| time(&value, &mut settings.server.sasl.failure_delay),
    },
    Key {
        path: "sasl.reload_interval",
        kind: Kind::Time { zero: false },
        help: "Time between two looks at the files of users and of keys.",
        get: |settings| Setting::Time(settings.server.sasl.reload_interval),
        set: |settings, value| time(&value, &mut settings.server.sasl.reload_interval),
    },
    Key {
        path: "sasl.oauthbearer.jwks_file",
        kind: Kind::Text { allowed: "empty, or a file", check: |_| true },
        help: "File of the public keys that tokens are signed with, a JSON Web Key Set; read again when it changes.",
        get: |settings| Setting::Text(settings.sasl.jwks_file.clone()),
        set: |settings, value| text(value, &mut settings.sasl.jwks_file),
    },
    Key {
        path: "sasl.oauthbearer.issuer",
        kind: Kind::Text { allowed: "empty, or text", check: |_| true },
        help: "Who must have issued a token (`iss`); empty is anybody who has one of the keys.",
        get: |settings| Setting::Text(settings.sasl.issuer.clone()),
        set: |settings, value| text(value, &mut settings.sasl.issuer),
    },
    Key {
        path: "sasl.oauthbearer.audience",
        kind: Kind::Text { allowed: "empty, or names with commas between", check: |_| true },
        help: "For whom a token must be (`aud`), one of these; empty takes any, also those for other services.",
        get: |settings| Setting::Text(settings.sasl.audience.clone()),
        set: |settings, value| text(value, &mut settings.sasl.audience),
    },
    Key {
        path: "sasl.oauthbearer.clock_skew",
        kind: Kind::Time { zero: true },
        help: "By how much the clocks of this machine and of whoever signs tokens may differ.",
        get: |settings| Setting::Time(settings.sasl.clock_skew),
        set: |settings, value| time(&value, &mut settings.sasl.clock_skew),
    },
    Key {
        path: "sasl.oauthbearer.subject_claim",
        kind: Kind::Text { allowed: "the name of a claim", check: |name| !name.is_empty() },
        help: "Claim of a token that says who the client is.",
        get: |settings| Setting::Text(settings.sasl.subject_claim.clone()),
        set: |settings, value| text(value, &mut settings.sasl.subject_claim),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_user_of_the_configuration_needs_a_name_and_one_password() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password").to_string_lossy().into_owned();
        std::fs::write(&file, "secret\nnot this\n").unwrap();
        let of = |username: &str, password: &str, password_file: &str| {
            let mut settings = Settings::default();
            (settings.sasl.username, settings.sasl.password) = (username.to_owned(), Secret::new(password));
            settings.sasl.password_file = password_file.to_owned();
            let mut mistakes = Mistakes::default();
            settings.name_user(&mut mistakes);
            (settings.server.sasl.users.is("alice", "secret"), mistakes.to_string())
        };
        for (password, file) in [("secret", ""), ("", file.as_str())] {
            assert_eq!(of("alice", password, file), (true, String::new()));
        }
        assert_eq!(of("", "", ""), (false, String::new()));
        let wrong = [
            (("alice", "", ""), "set both or neither"),
            (("", "secret", ""), "set both or neither"),
            (("alice", "secret", file.as_str()), "set one of them"),
            (("alice", "", "/not/there"), "cannot be read"),
            (("#alice", "secret", ""), "sasl.username cannot be used"),
            (("alice", "a\u{a0}b", ""), "sasl.password cannot be used"),
        ];
        for ((name, password, file), why) in wrong {
            let (known, said) = of(name, password, file);
            assert!(!known && said.contains(why), "{said}");
            assert!(!said.contains("secret"), "{said}");
        }
    }

    #[test]
    fn every_mechanism_can_be_configured() {
        assert_eq!(Mechanism::ALL.map(Mechanism::name).as_slice(), MECHANISMS);
        assert_eq!(mechanisms(&names(&Mechanism::ALL)).as_deref(), Some(Mechanism::ALL.as_slice()));
        assert_eq!(mechanisms(""), Some(Vec::new()));
        assert_eq!(mechanisms("PLAIN,PLAIN"), Some(vec![Mechanism::Plain]));
        assert_eq!(mechanisms("PLAIN,GSSAPI"), None);
    }
}
