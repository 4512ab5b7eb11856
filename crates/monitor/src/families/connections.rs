//! Connections and their clients, and memory that requests hold.

use std::fmt;

use milena_server::Broker;

use crate::writer::Families;

pub(super) fn write(broker: &Broker, families: &mut Families<'_>) -> fmt::Result {
    let metrics = &broker.metrics.connections;
    families.gauge("milena_connections", "Open connections.", broker.lifecycle.connections() as u64)?;
    families.counter(
        "milena_connections_accepted_total",
        "Connections that were accepted and served.",
        metrics.accepted.get(),
    )?;
    families.counters(
        "milena_connections_refused_total",
        "Connections that were closed at accept, by the limit that was passed.",
        [
            ([("limit", "max_connections")], metrics.refused_total.get()),
            ([("limit", "max_connections_per_address")], metrics.refused_per_address.get()),
        ],
    )?;
    families.counter(
        "milena_connections_accept_errors_total",
        "Failures of accept itself, such as too many open files.",
        metrics.accept_errors.get(),
    )?;
    families.counters(
        "milena_connections_closed_total",
        "Connections that ended, by reason.",
        [
            ("by_client", &metrics.closed_by_client),
            ("within_frame", &metrics.closed_within_frame),
            ("io_error", &metrics.closed_io),
            ("tls_handshake", &metrics.closed_handshake),
            ("idle", &metrics.closed_idle),
            ("read_stalled", &metrics.closed_read_stalled),
            ("write_stalled", &metrics.closed_write_stalled),
            ("frame_too_large", &metrics.closed_frame_too_large),
            ("protocol_error", &metrics.closed_protocol),
            ("unauthenticated", &metrics.closed_unauthenticated),
            ("refused", &metrics.closed_refused),
            ("session_expired", &metrics.closed_expired),
            ("drained", &metrics.closed_drained),
            ("undrained", &metrics.closed_undrained),
        ]
        .map(|(reason, counter)| ([("reason", reason)], counter.get())),
    )?;
    families.counter("milena_bytes_in_total", "Bytes of requests read.", metrics.bytes_in.get())?;
    families.counter("milena_bytes_out_total", "Bytes of answers written.", metrics.bytes_out.get())?;
    families.counters(
        "milena_authentications_total",
        "Clients that tried to authenticate, also again, by mechanism (other is one that the listener does not have) and outcome.",
        broker.metrics.authentication.all().map(|(mechanism, outcome, counter)| {
            ([("mechanism", mechanism), ("outcome", outcome)], counter.get())
        }),
    )?;
    let clients = broker.metrics.clients.open();
    families.gauges(
        "milena_client_connections",
        "Open connections by the software that clients say they are (ApiVersions 3 and later). The first 200 kinds that are \
         connected at a time, the rest as other.",
        clients.iter().map(|(software, count)| {
            ([("name", &*software.name), ("version", &*software.version)], *count)
        }),
    )?;
    families.gauge(
        "milena_request_memory_free_bytes",
        "Bytes that requests in flight may still take before nothing more is read.",
        broker.memory.available() as u64,
    )?;
    families.counter(
        "milena_request_memory_waits_total",
        "How often a request had to wait for memory.",
        broker.memory.waits(),
    )
}
