//! TLS: certificates and handshakes of the listeners, and of the port for Iggy clients.

use std::fmt;
use std::time::SystemTime;

use milena_server::Broker;
use milena_tls::{Reason, TlsPort};

use crate::writer::Families;

pub(super) fn write(broker: &Broker, families: &mut Families<'_>) -> fmt::Result {
    let ports = || broker.tls.get().into_iter().flatten().map(|(name, port)| (name.as_str(), port));
    families.gauges(
        "milena_tls_certificate_expiry_timestamp_seconds",
        "When the certificate of a listener expires, in seconds since 1970.",
        ports().map(|(name, port)| ([("listener", name)], expiry(port))),
    )?;
    families.counters(
        "milena_tls_handshakes_total",
        "TLS handshakes that succeeded, by listener.",
        ports().map(|(name, port)| ([("listener", name)], port.counts().completed())),
    )?;
    families.counters(
        "milena_tls_handshakes_failed_total",
        "TLS handshakes that failed, by listener and reason.",
        ports().flat_map(|(name, port)| {
            failed(port).map(move |(reason, count)| ([("listener", name), ("reason", reason)], count))
        }),
    )?;
    families.counters(
        "milena_tls_renewals_total",
        "Times that the files of a listener's certificate changed, by what became of it.",
        ports().flat_map(|(name, port)| {
            renewals(port).map(move |(result, count)| ([("listener", name), ("result", result)], count))
        }),
    )
}

/// When its certificate expires, in seconds since 1970.
fn expiry(port: &TlsPort) -> u64 {
    port.validity().not_after.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn failed(port: &TlsPort) -> [(&'static str, u64); Reason::ALL.len()] {
    Reason::ALL.map(|reason| (reason.name(), port.counts().failed(reason)))
}

fn renewals(port: &TlsPort) -> [(&'static str, u64); 2] {
    [("renewed", port.counts().renewed()), ("refused", port.counts().not_renewed())]
}
