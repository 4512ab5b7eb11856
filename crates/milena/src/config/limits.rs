//! The keys of section `limits`: one for each bound of the server.

use tokio::sync::Semaphore;

use super::keys::{Key, WIRE_MAX, count, number, time};
use super::kinds::{Kind, Setting};

const COUNTED_MAX: u64 = Semaphore::MAX_PERMITS as u64;

/// A bound that is counted, or measured in bytes.
macro_rules! number {
    ($name:ident, $kind:expr, $help:expr) => {
        Key {
            path: concat!("limits.", stringify!($name)),
            kind: $kind,
            help: $help,
            get: |settings| Setting::Number(u64::try_from(settings.server.limits.$name).unwrap_or(u64::MAX)),
            set: |settings, value| number(&value, &mut settings.server.limits.$name),
        }
    };
}

/// A bound that is a time; zero switches waiting off where that is allowed.
macro_rules! time {
    ($name:ident, zero: $zero:expr, $help:expr) => {
        Key {
            path: concat!("limits.", stringify!($name)),
            kind: Kind::Time { zero: $zero },
            help: $help,
            get: |settings| Setting::Time(settings.server.limits.$name),
            set: |settings, value| time(&value, &mut settings.server.limits.$name),
        }
    };
}

const COUNT: Kind = Kind::Number { min: 1, max: WIRE_MAX };
const BYTES: Kind = Kind::Size { min: 0, max: COUNTED_MAX };

pub(super) const LIMITS: &[Key] = &[
    number!(
        max_frame_bytes,
        Kind::Size { min: 1_024, max: WIRE_MAX },
        "Largest request. A larger one closes its connection."
    ),
    number!(
        max_connections,
        Kind::Number { min: 1, max: COUNTED_MAX },
        "Connections in all. One more is closed at once."
    ),
    Key {
        path: "limits.max_connections_per_address",
        kind: Kind::NumberOrUnlimited { min: 1, max: COUNTED_MAX },
        help: "Connections of one client address. One more is closed at once.",
        get: |settings| settings.server.limits.max_connections_per_address.map_or(Setting::Unlimited, count),
        set: |settings, value| {
            settings.server.limits.max_connections_per_address = match value {
                Setting::Unlimited => None,
                Setting::Number(connections) => Some(usize::try_from(connections).ok()?),
                _ => return None,
            };
            Some(())
        },
    },
    time!(
        authentication_timeout,
        zero: false,
        "Time from accept until the TLS handshake is done and the client has said who it is, where the listener asks for \
         that, after which a connection is closed."
    ),
    time!(idle_timeout, zero: false, "Time without a request after which a connection is closed."),
    time!(read_timeout, zero: false, "Time without progress within a request after which its connection is closed."),
    time!(write_timeout, zero: false, "Time without progress within an answer after which its connection is closed."),
    number!(
        in_flight_bytes,
        Kind::Size { min: 1 << 20, max: COUNTED_MAX },
        "Bytes of requests in flight in the process. Above it nothing more is read until some are answered."
    ),
    number!(
        fetch_response_bytes,
        Kind::Size { min: 1, max: WIRE_MAX },
        "Largest answer to a Fetch, in bytes of records. It is cut at a record."
    ),
    time!(fetch_wait_max, zero: true, "Longest time that a Fetch waits for records."),
    number!(
        fetch_sessions,
        Kind::Number { min: 0, max: COUNTED_MAX },
        "Fetch sessions in all. Without one a client names all its partitions in every Fetch."
    ),
    number!(
        fetch_session_partitions,
        Kind::Number { min: 0, max: COUNTED_MAX },
        "Partitions held by all fetch sessions. Above it a client gets no session."
    ),
    number!(auto_create_max, COUNT, "Topics that one Metadata request may create. Clients ask again for the others."),
    number!(
        create_partitions_max,
        COUNT,
        "Partitions that one CreateTopics request may ask for. Above it the request is refused."
    ),
    time!(admin_timeout_max, zero: false, "Longest timeout of a request that changes topics; a longer one is cut to it."),
    number!(error_text_bytes, BYTES, "Bytes of error text in one answer. Above it only error codes are sent."),
    number!(
        dedup_tail_messages,
        Kind::Number { min: 0, max: WIRE_MAX },
        "Messages read from the end of a partition to find its idempotent producers after a restart."
    ),
    number!(dedup_tail_bytes, BYTES, "Bytes read for the same purpose, once per partition."),
    time!(
        in_doubt_grace,
        zero: true,
        "How long an append whose outcome was lost may still land before the batch is stored again."
    ),
    time!(
        metadata_refresh,
        zero: false,
        "How often the topics of an Iggy server are looked at, for those that others created, grew or deleted."
    ),
    number!(frame_pool_bytes, BYTES, "Bytes of unused buffers that Produce keeps for the next batches."),
    time!(shutdown_drain, zero: true, "Time that shutdown waits for requests in flight."),
];
