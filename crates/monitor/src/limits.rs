//! Every bound: default, reason, and what happens when it is passed.

use std::time::Duration;

/// Connections at a time. Enough for every scraper and probe of one server; each may hold a page of some megabytes.
/// Passed: the next one waits in the backlog of the socket.
pub const CONNECTIONS_MAX: usize = 64;

/// Life of a connection, which carries one request. Longer than a scraper waits (Prometheus: 10 s). Passed: closed, so that
/// a client that neither writes nor reads holds nothing for long.
pub const CONNECTION_TIME_MAX: Duration = Duration::from_secs(15);

/// Time in which the head of a request must be there. Passed: closed.
pub const HEAD_TIME_MAX: Duration = Duration::from_secs(5);

/// Bytes of the head of a request. Passed: 431.
pub const HEAD_BYTES_MAX: usize = 16 << 10;

/// Lines in the head of a request. Passed: 431.
pub const HEADERS_MAX: usize = 64;

/// Time that the store has to answer a question about readiness. Passed: not ready. A Kubernetes probe that waits for
/// less sees a timeout instead, which means the same to it.
pub const PROBE_TIME_MAX: Duration = Duration::from_secs(2);

/// Time for asking the store about the ends of partitions, of one page. Passed: groups that were not reached have no series.
pub const LAG_TIME_MAX: Duration = Duration::from_secs(3);

/// Partitions whose ends are asked for at a time.
pub const LAG_CONCURRENCY: usize = 32;
