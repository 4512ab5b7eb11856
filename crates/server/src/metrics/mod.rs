//! Counters of the server. An exporter reads them; nothing here allocates or locks.

mod authentication;
mod clients;
mod groups;
mod requests;

use std::sync::Arc;

pub use authentication::AuthenticationMetrics;
pub(crate) use clients::Entered;
pub use clients::{ClientMetrics, OTHER, Software};
pub use groups::GroupMetrics;
pub use milena_store::metrics::{Counter, Histogram, HistogramSnapshot, LATENCY_BOUNDS};
pub use requests::{API_KEYS, ApiMetrics, ERROR_CODES_END, ErrorCodes, ErrorCounters, RequestMetrics};

/// All counters.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Sockets and frames.
    pub connections: ConnectionMetrics,
    /// Open connections by client software.
    pub clients: Arc<ClientMetrics>,
    /// Clients that tried to authenticate.
    pub authentication: AuthenticationMetrics,
    /// Requests by api key.
    pub requests: RequestMetrics,
    /// Produce.
    pub produce: Arc<ProduceMetrics>,
    /// Fetch.
    pub fetch: FetchMetrics,
    /// Consumer groups.
    pub groups: Arc<GroupMetrics>,
}

/// Counters of sockets and frames. Each `closed_` and `refused_` names the bound that was passed.
#[derive(Debug, Default)]
pub struct ConnectionMetrics {
    /// Connections that were accepted and served.
    pub accepted: Counter,
    /// Closed at accept: connections in all.
    pub refused_total: Counter,
    /// Closed at accept: connections of one address.
    pub refused_per_address: Counter,
    /// Failures of accept itself, such as too many open files.
    pub accept_errors: Counter,
    /// Closed because the TLS handshake failed.
    pub closed_handshake: Counter,
    /// Closed because no request came.
    pub closed_idle: Counter,
    /// Closed because a frame stopped arriving.
    pub closed_read_stalled: Counter,
    /// Closed because the client stopped reading.
    pub closed_write_stalled: Counter,
    /// Closed because a frame declared more than the bound.
    pub closed_frame_too_large: Counter,
    /// Closed because bytes were no request of ours: unknown key, version out of range, body that does not decode.
    pub closed_protocol: Counter,
    /// Closed because the client did not say who it is in time, or asked for something before.
    pub closed_unauthenticated: Counter,
    /// Closed because the client was not let in.
    pub closed_refused: Counter,
    /// Closed because the client did not authenticate again in time.
    pub closed_expired: Counter,
    /// Closed because the drain time of shutdown was over.
    pub closed_undrained: Counter,
    /// Closed at shutdown with nothing in flight.
    pub closed_drained: Counter,
    /// Closed by the client between two frames.
    pub closed_by_client: Counter,
    /// Closed by the client within a frame.
    pub closed_within_frame: Counter,
    /// Closed because the socket failed.
    pub closed_io: Counter,
    /// Bytes of frames read, length prefixes included.
    pub bytes_in: Counter,
    /// Bytes of answers written, length prefixes included.
    pub bytes_out: Counter,
}

/// Counters of Produce.
#[derive(Debug, Default)]
pub struct ProduceMetrics {
    /// Batches stored.
    pub batches: Counter,
    /// Records stored.
    pub records: Counter,
    /// Bytes of batches as the client sent them.
    pub bytes: Counter,
    /// Of the records, those that no plain message can hold: what reads the store without Milena sees the envelope.
    pub enveloped: Counter,
    /// Batches that were stored before and were answered with the offset they have.
    pub duplicates: Counter,
    /// Batches that were answered with an error.
    pub refused: Counter,
    /// Of those, batches that left a gap in their producer's sequence.
    pub out_of_sequence: Counter,
    /// Batches accepted in the middle of a producer that is not known here: none of their copies would be noticed.
    pub unknown_producers: Counter,
    /// Appends whose outcome the store did not know.
    pub in_doubt: Counter,
    /// Copies that landed although they had been given up (`produce_doubled_total`).
    pub doubled: Counter,
    /// Times that the end of a log was read to learn what producers stored in it.
    pub tail_reads: Counter,
    /// Producers found in the tails of logs.
    pub rebuilt_producers: Counter,
}

/// Counters of Fetch.
#[derive(Debug, Default)]
pub struct FetchMetrics {
    /// Records sent.
    pub records: Counter,
    /// Bytes of batches sent.
    pub bytes: Counter,
    /// Requests that waited for data.
    pub parked: Counter,
    /// Messages delivered as they are stored, because a marker or their header block is malformed.
    pub unmapped: Counter,
    /// Header names in which bytes that are not UTF-8 were replaced.
    pub lossy_names: Counter,
    /// New sessions that did not fit: the client goes on without.
    pub sessions_refused: Counter,
    /// Partitions that were answered with an error.
    pub errors: Counter,
}
