//! See the module above; only in builds with the feature `iggy`.

use std::fmt;
use std::path::PathBuf;

use milena_store_iggy::url::IggyUrl;
use milena_store_iggy::{AckDurability, CONNECTIONS_MAX, IggyConfig, SecretString, TlsConfig};

use crate::config::keys::{Key, chosen, count, flag, number, text, time};
use crate::config::kinds::{Kind, Setting};

/// What is configured of the Iggy server.
#[derive(Debug, Clone)]
pub(crate) struct IggySettings {
    /// Address; empty when the store is an embedded one.
    url: String,
    password: Hidden,
    password_file: String,
    tls: bool,
    tls_domain: String,
    tls_ca_file: String,
    /// Everything that is a number or a time, as it is.
    rest: IggyConfig,
}

/// Text that its debug form does not show.
#[derive(Clone, Default)]
struct Hidden(String);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "hidden" })
    }
}

impl Default for IggySettings {
    fn default() -> Self {
        Self {
            url: String::new(),
            password: Hidden::default(),
            password_file: String::new(),
            tls: false,
            tls_domain: String::new(),
            tls_ca_file: String::new(),
            rest: IggyConfig::new("", "", SecretString::from(String::new())),
        }
    }
}

impl IggySettings {
    /// True when an Iggy server is the store.
    pub(crate) fn is_on(&self) -> bool {
        !self.url.is_empty()
    }

    /// Where the data is, for people: the address without its login.
    pub(crate) fn place(&self) -> String {
        let servers = IggyUrl::parse(&self.url).map(|url| url.servers.join(",")).unwrap_or_default();
        format!("iggy://{servers}")
    }

    /// The configuration of the store; reads the password from its file if it is in one.
    ///
    /// # Errors
    /// A sentence about what is missing or contradicts itself.
    pub(crate) fn config(&self, instance: u16) -> Result<IggyConfig, String> {
        let url = IggyUrl::parse(&self.url).map_err(|problem| format!("iggy.url is no address: {problem}"))?;
        let user = url.user.ok_or("iggy.url does not say a user; write iggy://user@host:8090")?;
        let path = |text: &str| Some(PathBuf::from(text)).filter(|_| !text.is_empty());
        let tls = self.tls.then(|| TlsConfig {
            domain: Some(self.tls_domain.clone()).filter(|domain| !domain.is_empty()),
            ca_file: path(&self.tls_ca_file),
        });
        let says_how = !self.tls_domain.is_empty() || !self.tls_ca_file.is_empty();
        if says_how && !self.tls {
            return Err("iggy.tls_domain and iggy.tls_ca_file need iggy.tls = true".to_owned());
        }
        let password = self.password(url.password)?;
        Ok(IggyConfig { servers: url.servers, user, password, tls, instance, ..self.rest.clone() })
    }

    fn password(&self, of_url: Option<SecretString>) -> Result<SecretString, String> {
        let given = [of_url.is_some(), !self.password.0.is_empty(), !self.password_file.is_empty()];
        if given.iter().filter(|given| **given).count() > 1 {
            return Err("the password of the Iggy server is given more than once: iggy.url, iggy.password and \
                        iggy.password_file exclude each other"
                .to_owned());
        }
        if let Some(password) = of_url {
            return Ok(password);
        }
        if !self.password.0.is_empty() {
            return Ok(SecretString::from(self.password.0.clone()));
        }
        if self.password_file.is_empty() {
            return Err("the password of the Iggy server is missing: set iggy.password_file, or the variable \
                        MILENA_IGGY_PASSWORD"
                .to_owned());
        }
        let text = std::fs::read_to_string(&self.password_file)
            .map_err(|error| format!("iggy.password_file {} cannot be read: {error}", self.password_file))?;
        // Editors end the last line.
        Ok(SecretString::from(text.trim_end_matches(['\r', '\n']).to_owned()))
    }
}

/// A time.
macro_rules! time {
    ($name:ident, zero: $zero:expr, $help:expr) => {
        Key {
            path: concat!("iggy.", stringify!($name)),
            kind: Kind::Time { zero: $zero },
            help: $help,
            get: |settings| Setting::Time(settings.iggy.rest.$name),
            set: |settings, value| time(&value, &mut settings.iggy.rest.$name),
        }
    };
}

/// Text that may be empty.
macro_rules! text {
    ($name:ident, $kind:expr, $help:expr) => {
        Key {
            path: concat!("iggy.", stringify!($name)),
            kind: $kind,
            help: $help,
            get: |settings| Setting::Text(settings.iggy.$name.clone()),
            set: |settings, value| text(value, &mut settings.iggy.$name),
        }
    };
}

const CONNECTIONS: Kind = Kind::Number { min: 1, max: CONNECTIONS_MAX as u64 };
const PATH: Kind = Kind::Text { allowed: "a file", check: |_| true };

pub(crate) const IGGY: &[Key] = &[
    text!(
        url,
        Kind::Url,
        "Address of an Iggy server, like `iggy://user@host:8090`, to keep everything there instead of in a folder; \
         several hosts of one cluster with commas between."
    ),
    Key {
        path: "iggy.password",
        kind: Kind::Secret,
        help: "Password of the user on the Iggy server. Not taken from a command line.",
        get: |settings| Setting::Text(settings.iggy.password.0.clone()),
        set: |settings, value| text(value, &mut settings.iggy.password.0),
    },
    text!(password_file, PATH, "File that holds the password and nothing else."),
    Key {
        path: "iggy.tls",
        kind: Kind::Flag,
        help: "Speak TLS to the Iggy server. Its certificate is always verified.",
        get: |settings| Setting::Flag(settings.iggy.tls),
        set: |settings, value| flag(&value, &mut settings.iggy.tls),
    },
    text!(
        tls_domain,
        Kind::Text { allowed: "a host name", check: |_| true },
        "Name that the server's certificate must carry, where it is not the host of the address."
    ),
    text!(tls_ca_file, PATH, "Certificates to trust, PEM; without it the public authorities are trusted."),
    Key {
        path: "iggy.durability",
        kind: Kind::Choice(&["persisted", "flushed", "fast"]),
        help: "What an acknowledged record of a new topic survives on the Iggy server: `persisted` the death of the \
               server process; `flushed` that of the machine too; `fast` neither, as is the server's own default: a \
               server that is killed loses records and gives their offsets to others.",
        get: |settings| Setting::Text(ack_name(settings.iggy.rest.durability).to_owned()),
        set: |settings, value| chosen(value, ack, &mut settings.iggy.rest.durability),
    },
    Key {
        path: "iggy.state_stream",
        kind: Kind::Text { allowed: "a stream name of 1 to 255 bytes", check: |text| (1..=255).contains(&text.len()) },
        help: "Stream on the Iggy server that holds Milena's own state. Gateways that are one Kafka cluster share it.",
        get: |settings| Setting::Text(settings.iggy.rest.state_stream.clone()),
        set: |settings, value| text(value, &mut settings.iggy.rest.state_stream),
    },
    Key {
        path: "iggy.append_connections",
        kind: CONNECTIONS,
        help: "Connections to the Iggy server for appends. A partition always uses the same one.",
        get: |settings| count(settings.iggy.rest.append_connections),
        set: |settings, value| number(&value, &mut settings.iggy.rest.append_connections),
    },
    Key {
        path: "iggy.read_connections",
        kind: CONNECTIONS,
        help: "Connections to the Iggy server for reads.",
        get: |settings| count(settings.iggy.rest.read_connections),
        set: |settings, value| number(&value, &mut settings.iggy.rest.read_connections),
    },
    Key {
        path: "iggy.partitions_max",
        kind: Kind::Number { min: 1, max: u32::MAX as u64 },
        help: "Most partitions on the Iggy server, all topics together, up to which topics are created or grow.",
        get: |settings| Setting::Number(settings.iggy.rest.partitions_max),
        set: |settings, value| number(&value, &mut settings.iggy.rest.partitions_max),
    },
    time!(call_timeout, zero: false, "Longest time that one call to the Iggy server may take."),
    time!(connect_timeout, zero: false, "Longest time for connecting to the Iggy server and logging in."),
    time!(start_timeout, zero: false, "How long a start waits for an Iggy server that does not answer."),
    time!(
        bounds_max_age,
        zero: true,
        "How old an answer about the end of a partition may be, as far as other writers are concerned."
    ),
    time!(
        probe_interval_max,
        zero: false,
        "Longest pause between two looks for messages of other writers, while a consumer waits for them."
    ),
];

const ACKS: [(&str, AckDurability); 3] =
    [("persisted", AckDurability::Persisted), ("flushed", AckDurability::Flushed), ("fast", AckDurability::Fast)];

fn ack_name(durability: AckDurability) -> &'static str {
    ACKS.iter().find(|(_, known)| *known == durability).map_or("persisted", |(name, _)| name)
}

fn ack(name: &str) -> Option<AckDurability> {
    ACKS.iter().find(|(known, _)| *known == name).map(|(_, durability)| *durability)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(url: &str) -> IggySettings {
        IggySettings { url: url.to_owned(), ..IggySettings::default() }
    }

    #[test]
    fn a_password_comes_from_exactly_one_place() {
        let missing = on("iggy://me@host").config(0).unwrap_err();
        assert!(missing.contains("MILENA_IGGY_PASSWORD"), "{missing}");
        let config = on("iggy://me:word@host").config(7).unwrap();
        assert_eq!((config.user.as_str(), config.instance), ("me", 7));
        let twice = IggySettings { password: Hidden("x".to_owned()), ..on("iggy://me:word@host") };
        assert!(twice.config(0).unwrap_err().contains("more than once"));
    }

    #[test]
    fn a_password_file_is_read_without_the_end_of_its_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "secret\r\n").unwrap();
        let settings = IggySettings { password_file: file.path().display().to_string(), ..on("iggy://me@host") };
        assert_eq!(secret_of(&settings), "secret");
        let gone = IggySettings { password_file: "/nowhere/password".to_owned(), ..on("iggy://me@host") };
        assert!(gone.config(0).unwrap_err().contains("/nowhere/password cannot be read"));
    }

    fn secret_of(settings: &IggySettings) -> String {
        use milena_store_iggy::ExposeSecret as _;
        settings.config(0).unwrap().password.expose_secret().to_owned()
    }

    #[test]
    fn tls_settings_without_tls_are_a_mistake() {
        let settings = IggySettings { tls_ca_file: "ca.pem".to_owned(), ..on("iggy://me:word@host") };
        assert!(settings.config(0).unwrap_err().contains("iggy.tls = true"));
    }

    #[test]
    fn the_place_of_the_data_is_shown_without_the_login() {
        assert_eq!(on("iggy://me:word@host,other:9").place(), "iggy://host:8090,other:9");
    }
}
