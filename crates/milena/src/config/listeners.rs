//! Listeners: a list of tables in the file, a line of text in a variable or flag.

use std::net::{Ipv6Addr, SocketAddr};

use figment::value::{Dict, Value};
use milena_server::ListenerConfig;

use super::kinds::{as_written, quoted, shortened};
use super::listener_tls;
use super::load::{Mistakes, nearest};
use super::sasl;

const FIELDS: [&str; 5] = ["name", "bind", "advertised", "tls", "sasl"];

/// What a listener looks like as text.
pub(crate) const TEXT_FORM: &str = "[NAME=]ADDRESS:PORT[@HOST[:PORT]]";

/// The list of listeners that `text` names, as the file would hold it: [`TEXT_FORM`], several with commas between.
pub(super) fn from_text(text: &str) -> Result<Value, String> {
    let mut listeners = Vec::new();
    for one in text.split(',').map(str::trim) {
        let (name, rest) = one.split_once('=').map_or((None, one), |(name, rest)| (Some(name), rest));
        let (bind, advertised) = rest.split_once('@').map_or((rest, None), |(bind, host)| (bind, Some(host)));
        if bind.is_empty() {
            return Err(format!("`{}` is no listener; the form is {TEXT_FORM}", shortened(one)));
        }
        let fields = [("name", name), ("bind", Some(bind)), ("advertised", advertised)];
        let fields = fields.into_iter().filter_map(|(field, value)| Some((field.to_owned(), Value::from(value?))));
        listeners.push(Value::from(fields.collect::<Dict>()));
    }
    Ok(Value::from(listeners))
}

/// A listener as it was written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Listener {
    pub(super) config: ListenerConfig,
    /// True when it says its own mechanisms, be it that it has none.
    pub(super) says_mechanisms: bool,
}

/// Reads the list of listeners from `source`.
pub(super) fn read(value: &Value, source: &str, mistakes: &mut Mistakes) -> Option<Vec<Listener>> {
    let Some(list) = value.as_array() else {
        mistakes.add(format!(
            "listeners is {} ({source}); it must be a list: one [[listeners]] table for each",
            as_written(value)
        ));
        return None;
    };
    let count = list.len();
    let read = list.iter().enumerate().map(|(index, listener)| {
        let default_name = if count == 1 { "default".to_owned() } else { format!("listener-{}", index + 1) };
        one(listener, default_name, source, mistakes)
    });
    // All of them are looked at, so that all mistakes are found.
    read.collect::<Vec<_>>().into_iter().collect()
}

fn one(value: &Value, default_name: String, source: &str, mistakes: &mut Mistakes) -> Option<Listener> {
    let Some(fields) = value.as_dict() else {
        mistakes.add(format!("listeners holds {} ({source}); each must be a table", as_written(value)));
        return None;
    };
    for field in fields.keys().filter(|field| !FIELDS.contains(&field.as_str())) {
        let hint = nearest(field, FIELDS.map(str::to_owned));
        mistakes.add(format!("`{}` is no key of a listener ({source}){hint}", shortened(field)));
    }
    let name = match fields.get("name") {
        None => default_name,
        Some(Value::String(_, name)) if !name.is_empty() => name.clone(),
        Some(other) => {
            mistakes.add(format!("the name of a listener is {} ({source}); it must be text", as_written(other)));
            return None;
        }
    };
    let Some(bind) = fields.get("bind") else {
        mistakes.add(format!("listener `{name}` ({source}) does not say where to listen; set `bind`"));
        return None;
    };
    let Some(bind) = bind.as_str().and_then(|bind| bind.parse::<SocketAddr>().ok()) else {
        mistakes.add(format!(
            "bind of listener `{name}` is {} ({source}); it must be an address and a port like 127.0.0.1:9092 or \
             [::1]:9092",
            as_written(bind)
        ));
        return None;
    };
    let advertised = match fields.get("advertised") {
        None => (None, None),
        Some(value) => match value.as_str().and_then(host_and_port) {
            Some((host, port)) => (Some(host), port),
            None => {
                mistakes.add(format!(
                    "advertised of listener `{name}` is {} ({source}); it must be the host that clients connect to, \
                     with or without a port, like kafka.example:9092",
                    as_written(value)
                ));
                return None;
            }
        },
    };
    let (advertised_host, advertised_port) = advertised;
    let tls = match fields.get("tls") {
        None => None,
        Some(value) => Some(listener_tls::read(&name, value, source, mistakes)?),
    };
    let mechanisms = match fields.get("sasl") {
        None => None,
        Some(value) => Some(sasl::of_listener(&name, value, source, mistakes)?),
    };
    let says_mechanisms = mechanisms.is_some();
    let sasl = mechanisms.unwrap_or_default();
    Some(Listener {
        config: ListenerConfig { name, bind, advertised_host, advertised_port, tls, sasl },
        says_mechanisms,
    })
}

/// Splits `host`, `host:port`, `[::1]:port`, `[::1]` or `::1`.
fn host_and_port(text: &str) -> Option<(String, Option<u16>)> {
    if text.parse::<Ipv6Addr>().is_ok() {
        return Some((text.to_owned(), None));
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            host.parse::<Ipv6Addr>().ok()?;
            (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
        }
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = match port {
        Some(port) => Some(port.parse::<u16>().ok()?),
        None => None,
    };
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

/// A listener as a TOML table, without its source. `says_mechanisms` has it say that it has none.
pub(super) fn show(listener: &ListenerConfig, says_mechanisms: bool) -> String {
    let mut text = format!("name = {}\nbind = {}\n", quoted(&listener.name), quoted(&listener.bind.to_string()));
    if let Some(host) = &listener.advertised_host {
        let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.clone() };
        let port = listener.advertised_port.map(|port| format!(":{port}")).unwrap_or_default();
        text.push_str(&format!("advertised = {}\n", quoted(&format!("{host}{port}"))));
    }
    if let Some(files) = &listener.tls {
        text.push_str(&listener_tls::show(files));
    }
    if says_mechanisms || !listener.sasl.is_empty() {
        text.push_str(&sasl::show(&listener.sasl));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Vec<ListenerConfig>, String> {
        let mut mistakes = Mistakes::default();
        let listeners = read(&from_text(text)?, "here", &mut mistakes).ok_or_else(|| mistakes.to_string())?;
        Ok(listeners.into_iter().map(|listener| listener.config).collect())
    }

    #[test]
    fn a_line_of_text_names_several_listeners() {
        let listeners = read_text("in=[::]:9092@[fd00::1]:19092, 127.0.0.1:9093").unwrap();
        let expected = [
            ListenerConfig {
                advertised_host: Some("fd00::1".to_owned()),
                advertised_port: Some(19_092),
                ..ListenerConfig::new("in", "[::]:9092".parse().unwrap())
            },
            ListenerConfig::new("listener-2", "127.0.0.1:9093".parse().unwrap()),
        ];
        assert_eq!(listeners, expected);
    }

    #[test]
    fn a_bind_that_is_no_address_says_what_one_looks_like() {
        let error = read_text("localhost:9092").unwrap_err();
        assert!(error.contains("bind of listener `default` is `localhost:9092`"), "{error}");
        assert!(error.contains("like 127.0.0.1:9092 or [::1]:9092"), "{error}");
        assert!(read_text("").unwrap_err().contains(TEXT_FORM));
    }

    #[test]
    fn an_advertised_address_is_a_host_with_or_without_a_port() {
        let expected = [
            ("kafka.example", Some(("kafka.example", None))),
            ("kafka.example:9092", Some(("kafka.example", Some(9_092)))),
            ("10.0.0.1:1", Some(("10.0.0.1", Some(1)))),
            ("::1", Some(("::1", None))),
            ("[::1]", Some(("::1", None))),
            ("[::1]:9092", Some(("::1", Some(9_092)))),
            ("", None),
            (":9092", None),
            ("host:", None),
            ("host:70000", None),
            ("[host]:1", None),
            ("[::1]9092", None),
        ];
        for (text, found) in expected {
            let found = found.map(|(host, port)| (host.to_owned(), port));
            assert_eq!(host_and_port(text), found, "{text}");
        }
    }
}
