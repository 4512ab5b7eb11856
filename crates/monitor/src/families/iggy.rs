//! The door for clients that speak Iggy's own protocol.

use std::fmt;

use milena_iggy_door::DoorMetrics;

use super::tls;
use crate::writer::Families;

pub(super) fn write(metrics: &DoorMetrics, connections: usize, families: &mut Families<'_>) -> fmt::Result {
    families.gauge("milena_iggy_connections", "Open connections of Iggy clients.", connections as u64)?;
    let counters = [
        (
            "milena_iggy_connections_accepted_total",
            "Connections of Iggy clients that were accepted and served.",
            &metrics.accepted,
        ),
        (
            "milena_iggy_connections_accept_errors_total",
            "Failures of accept itself, such as too many open files.",
            &metrics.accept_errors,
        ),
        ("milena_iggy_logins_failed_total", "Logins of Iggy clients that were refused.", &metrics.logins_failed),
        ("milena_iggy_requests_total", "Requests of Iggy clients.", &metrics.requests),
        (
            "milena_iggy_requests_refused_total",
            "Requests of Iggy clients that were refused with a code.",
            &metrics.refusals,
        ),
        (
            "milena_iggy_messages_in_total",
            "Messages that Iggy clients sent and that were stored.",
            &metrics.messages_in,
        ),
        ("milena_iggy_messages_out_total", "Messages in answers to polls of Iggy clients.", &metrics.messages_out),
    ];
    for (name, help, counter) in counters {
        families.counter(name, help, counter.get())?;
    }
    families.counters(
        "milena_iggy_connections_refused_total",
        "Connections of Iggy clients that were closed at accept, by the limit that was passed.",
        [
            ([("limit", "connections_max")], metrics.refused.get()),
            ([("limit", "connections_per_address_max")], metrics.refused_per_address.get()),
        ],
    )?;
    families.counters(
        "milena_iggy_logins_total",
        "Logins of Iggy clients, by what they showed.",
        [("password", &metrics.logins_by_password), ("token", &metrics.logins_by_token)]
            .map(|(shown, counter)| ([("shown", shown)], counter.get())),
    )?;
    families.counters(
        "milena_iggy_connections_closed_total",
        "Connections of Iggy clients that the server closed, by reason.",
        [
            ("tls_handshake", &metrics.closed_handshake),
            ("idle", &metrics.closed_idle),
            ("stalled", &metrics.closed_stalled),
            ("protocol_error", &metrics.closed_protocol),
        ]
        .map(|(reason, counter)| ([("reason", reason)], counter.get())),
    )?;
    tls::write_of_door(metrics.tls.get().map(|port| &**port), families)
}
