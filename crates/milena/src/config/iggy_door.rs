//! The keys of section `iggy_door`: the door for clients that speak Iggy's own protocol.

use std::net::SocketAddr;
use std::path::PathBuf;

use milena_iggy_door::{DoorConfig, DoorLimits, OffsetRules, Secret};
use milena_tls::{ClientAuth, TlsFiles};

use super::keys::{Key, WIRE_MAX, chosen, count, number, text, time};
use super::kinds::{Kind, Setting};
use super::settings::Settings;

/// What is configured of the door. Empty text is what nobody set.
#[derive(Debug, Clone)]
pub(crate) struct IggyDoorSettings {
    pub(crate) listen: String,
    pub(crate) advertised: String,
    pub(crate) username: String,
    pub(crate) password: Secret,
    pub(crate) offset_rules: OffsetRules,
    pub(crate) tls_certificate_file: String,
    pub(crate) tls_key_file: String,
    pub(crate) limits: DoorLimits,
}

impl Default for IggyDoorSettings {
    fn default() -> Self {
        Self {
            listen: String::new(),
            advertised: String::new(),
            username: "iggy".to_owned(),
            password: Secret::new(""),
            offset_rules: OffsetRules::Server,
            tls_certificate_file: String::new(),
            tls_key_file: String::new(),
            limits: DoorLimits::default(),
        }
    }
}

/// A bound that is counted, or measured in bytes.
macro_rules! number {
    ($name:ident, $kind:expr, $help:expr) => {
        Key {
            path: concat!("iggy_door.", stringify!($name)),
            kind: $kind,
            help: $help,
            get: |settings| Setting::Number(u64::try_from(settings.iggy_door.limits.$name).unwrap_or(u64::MAX)),
            set: |settings, value| number(&value, &mut settings.iggy_door.limits.$name),
        }
    };
}

/// A bound that is a time.
macro_rules! time {
    ($name:ident, zero: $zero:expr, $help:expr) => {
        Key {
            path: concat!("iggy_door.", stringify!($name)),
            kind: Kind::Time { zero: $zero },
            help: $help,
            get: |settings| Setting::Time(settings.iggy_door.limits.$name),
            set: |settings, value| time(&value, &mut settings.iggy_door.limits.$name),
        }
    };
}

const COUNT: Kind = Kind::Number { min: 1, max: WIRE_MAX };

/// Bytes of a password, as clients can send.
const PASSWORD_BYTES: std::ops::RangeInclusive<usize> = 3..=100;

impl IggyDoorSettings {
    /// Checks what one key alone cannot say without repeating a secret.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let length = self.password.reveal().len();
        if length != 0 && !PASSWORD_BYTES.contains(&length) {
            return Err("iggy_door.password must have 3 to 100 bytes");
        }
        match (self.tls_certificate_file.is_empty(), self.tls_key_file.is_empty()) {
            (false, true) => Err("iggy_door.tls_certificate_file is set and iggy_door.tls_key_file is not"),
            (true, false) => Err("iggy_door.tls_key_file is set and iggy_door.tls_certificate_file is not"),
            _ => Ok(()),
        }
    }

    /// Certificate and key; `None` is plain text.
    pub(super) fn tls(&self) -> Option<TlsFiles> {
        let file = |text: &String| Some(PathBuf::from(text)).filter(|path| !path.as_os_str().is_empty());
        Some(TlsFiles {
            certificate: file(&self.tls_certificate_file)?,
            key: file(&self.tls_key_file)?,
            client_auth: ClientAuth::None,
            client_ca: None,
        })
    }
}

impl Settings {
    /// The part of the door; `None` where it stays shut.
    pub(crate) fn door(&self) -> Option<DoorConfig> {
        let iggy = &self.iggy_door;
        let advertised = || {
            let (host, port) = iggy.advertised.rsplit_once(':')?;
            Some((host.trim_start_matches('[').trim_end_matches(']').to_owned(), port.parse().ok()?))
        };
        Some(DoorConfig {
            listen: iggy.listen.parse().ok()?,
            advertised: advertised(),
            username: iggy.username.clone(),
            password: Some(iggy.password.clone()).filter(|password| !password.reveal().is_empty()),
            offset_rules: iggy.offset_rules,
            instance_id: self.server.instance_id,
            tls: iggy.tls(),
            limits: iggy.limits.clone(),
        })
    }
}

pub(super) const IGGY_DOOR: &[Key] = &[
    Key {
        path: "iggy_door.listen",
        kind: Kind::Text { allowed: "empty, or an address and a port like 127.0.0.1:8090", check: is_listen },
        help: "Where clients that speak Iggy's own protocol connect; empty is nowhere.",
        get: |settings| Setting::Text(settings.iggy_door.listen.clone()),
        set: |settings, value| text(value, &mut settings.iggy_door.listen),
    },
    Key {
        path: "iggy_door.advertised",
        kind: Kind::Text { allowed: "empty, or a host and a port like iggy.example:8090", check: is_advertised },
        help: "Where Iggy clients are told to connect; empty tells each the address that it reached.",
        get: |settings| Setting::Text(settings.iggy_door.advertised.clone()),
        set: |settings, value| text(value, &mut settings.iggy_door.advertised),
    },
    Key {
        path: "iggy_door.username",
        kind: Kind::Text { allowed: "a name of 3 to 50 bytes", check: |name| (3..=50).contains(&name.len()) },
        help: "Name of the one user of Iggy clients.",
        get: |settings| Setting::Text(settings.iggy_door.username.clone()),
        set: |settings, value| text(value, &mut settings.iggy_door.username),
    },
    Key {
        path: "iggy_door.password",
        kind: Kind::Secret,
        help: "Password of that user. Without one it is made up at the first start and printed once.",
        get: |settings| Setting::Text(settings.iggy_door.password.reveal().to_owned()),
        set: |settings, value| {
            let Setting::Text(password) = value else { return None };
            settings.iggy_door.password = Secret::new(&password);
            Some(())
        },
    },
    Key {
        path: "iggy_door.offset_rules",
        kind: Kind::Choice(&["server", "free"]),
        help: "Consumer offsets of Iggy clients: `server` has the rules of Iggy's server, `free` stores any offset of any \
               consumer or group.",
        get: |settings| Setting::Text(rules_name(settings.iggy_door.offset_rules).to_owned()),
        set: |settings, value| chosen(value, rules, &mut settings.iggy_door.offset_rules),
    },
    Key {
        path: "iggy_door.tls_certificate_file",
        kind: Kind::Text { allowed: "empty, or a PEM file", check: |_| true },
        help: "Certificate of the port for Iggy clients, then those between it and the authority; empty is plain text.",
        get: |settings| Setting::Text(settings.iggy_door.tls_certificate_file.clone()),
        set: |settings, value| text(value, &mut settings.iggy_door.tls_certificate_file),
    },
    Key {
        path: "iggy_door.tls_key_file",
        kind: Kind::Text { allowed: "empty, or a PEM file", check: |_| true },
        help: "Private key of that certificate.",
        get: |settings| Setting::Text(settings.iggy_door.tls_key_file.clone()),
        set: |settings, value| text(value, &mut settings.iggy_door.tls_key_file),
    },
    number!(
        frame_bytes_max,
        Kind::Size { min: 1_024, max: WIRE_MAX },
        "Largest request of an Iggy client, with its header. A larger one closes its connection."
    ),
    number!(
        login_frame_bytes_max,
        Kind::Size { min: 1_024, max: WIRE_MAX },
        "Largest request of an Iggy client that has not logged in. A larger one closes its connection."
    ),
    number!(connections_max, COUNT, "Connections of Iggy clients. One more is closed at once."),
    Key {
        path: "iggy_door.connections_per_address_max",
        kind: Kind::NumberOrUnlimited { min: 1, max: WIRE_MAX },
        help: "Connections of Iggy clients from one address. One more is closed at once.",
        get: |settings| settings.iggy_door.limits.connections_per_address_max.map_or(Setting::Unlimited, count),
        set: |settings, value| {
            settings.iggy_door.limits.connections_per_address_max = match value {
                Setting::Unlimited => None,
                Setting::Number(connections) => Some(usize::try_from(connections).ok()?),
                _ => return None,
            };
            Some(())
        },
    },
    time!(login_timeout, zero: false, "Time that an Iggy client has to log in before its connection is closed."),
    number!(login_failures_max, COUNT, "Failed logins of one connection before it is closed."),
    time!(idle_timeout, zero: false, "Time without a request after which a connection of an Iggy client is closed."),
    time!(
        heartbeat_timeout,
        zero: false,
        "Time without a request after which a member of an Iggy consumer group loses its place."
    ),
    time!(
        rebalancing_timeout,
        zero: false,
        "Time that a partition of an Iggy consumer group waits for messages to be committed before another member gets it."
    ),
    time!(read_timeout, zero: false, "Time without progress within a request after which its connection is closed."),
    time!(write_timeout, zero: false, "Time without progress within an answer after which its connection is closed."),
    number!(
        write_rate_min,
        Kind::Size { min: 1, max: WIRE_MAX },
        "Bytes per second at which an answer to a poll must be taken, on top of the write timeout."
    ),
    time!(poll_wait, zero: true, "Time that a poll waits for room for its answer before it is answered empty."),
    number!(
        poll_bytes_max,
        Kind::Size { min: 1, max: WIRE_MAX },
        "Bytes of messages in one answer to a poll. Above it the answer holds fewer messages, at least one."
    ),
    number!(
        polls_mib_max,
        COUNT,
        "Mebibytes of answers to polls that are under way. Above it a poll waits, or is cut short."
    ),
    number!(streams_max, COUNT, "Streams. One more is refused with 1020."),
    number!(groups_max, COUNT, "Iggy consumer groups of one topic. One more is refused with 5007."),
    number!(members_max, COUNT, "Members of one Iggy consumer group. One more is refused with 5007."),
    number!(offsets_max, COUNT, "Offsets that Iggy consumers and groups store. One more is refused with 3024."),
    number!(tokens_max, COUNT, "Personal access tokens. One more is refused with 52."),
    time!(shutdown_drain, zero: true, "Time that shutdown waits for requests of Iggy clients."),
];

fn is_listen(text: &str) -> bool {
    text.is_empty() || text.parse::<SocketAddr>().is_ok()
}

fn is_advertised(text: &str) -> bool {
    let host_and_port =
        || text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    text.is_empty() || host_and_port()
}

fn rules_name(rules: OffsetRules) -> &'static str {
    match rules {
        OffsetRules::Server => "server",
        OffsetRules::Free => "free",
    }
}

fn rules(name: &str) -> Option<OffsetRules> {
    [OffsetRules::Server, OffsetRules::Free].into_iter().find(|choice| rules_name(*choice) == name)
}
