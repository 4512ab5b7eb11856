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

/// The same of the port for Iggy clients, which are zeros while there is no TLS.
pub(super) fn write_of_door(port: Option<&TlsPort>, families: &mut Families<'_>) -> fmt::Result {
    families.gauges(
        "milena_iggy_tls_certificate_expiry_timestamp_seconds",
        "When the certificate of the port for Iggy clients expires, in seconds since 1970; without a series where there is no TLS.",
        port.map(|port| ([], expiry(port))),
    )?;
    families.counter(
        "milena_iggy_tls_handshakes_total",
        "TLS handshakes of Iggy clients that succeeded.",
        port.map_or(0, |port| port.counts().completed()),
    )?;
    families.counters(
        "milena_iggy_tls_handshakes_failed_total",
        "TLS handshakes of Iggy clients that failed, by reason.",
        Reason::ALL.map(|reason| ([("reason", reason.name())], port.map_or(0, |port| port.counts().failed(reason)))),
    )?;
    families.counters(
        "milena_iggy_tls_renewals_total",
        "Times that the files of that certificate changed, by what became of it.",
        port.map_or([("renewed", 0), ("refused", 0)], renewals).map(|(result, count)| ([("result", result)], count)),
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
