//! Every bound of the door: default, reason, and the answer when it is passed.

use std::time::Duration;

/// Bounds of the door.
#[derive(Debug, Clone)]
pub struct DoorLimits {
    /// Largest request with its header: 64 MiB, as the server's. Passed: connection closed.
    pub frame_bytes_max: usize,
    /// Largest request of a connection that has not logged in: a login needs less than 1 KiB. Passed: connection closed.
    pub login_frame_bytes_max: usize,
    /// Connections in all. Passed: closed at accept, counted.
    pub connections_max: usize,
    /// Connections from one client address; `None` is no bound. Passed: closed at accept, counted.
    pub connections_per_address_max: Option<usize>,
    /// Time that a connection has to log in. Passed: closed.
    pub login_timeout: Duration,
    /// Failed logins of one connection. Passed: closed, so that guessing costs a connection each time.
    pub login_failures_max: u32,
    /// Time without a request after which a connection is closed. A pool of clients that do not ping keeps connections
    /// idle for long, and cannot tell a connection that was closed in between from one that broke.
    pub idle_timeout: Duration,
    /// Time without a request after which a member of a consumer group is evicted, as the server does: its partitions
    /// wait for it. Clients ping every 5 to 30 seconds.
    pub heartbeat_timeout: Duration,
    /// Time that a partition which another member shall have stays with who was given messages of it, until these are
    /// committed; as the server's. Passed: it moves, and they are given out again.
    pub rebalancing_timeout: Duration,
    /// Time without progress within a request after which its connection is closed.
    pub read_timeout: Duration,
    /// Time without progress within an answer after which its connection is closed.
    pub write_timeout: Duration,
    /// Bytes per second at which an answer to a poll is taken, on top of `write_timeout`: it keeps room from others.
    /// Passed: connection closed.
    pub write_rate_min: usize,
    /// Time that a poll waits for room for its answer. Passed: an empty answer, after which a client polls again.
    pub poll_wait: Duration,
    /// Bytes of messages in one answer to a poll. Passed: the answer holds fewer messages than asked for, at least one.
    pub poll_bytes_max: usize,
    /// Mebibytes of answers to polls that are under way, counted by what was read for them. Passed: the answer ends where it
    /// is; the first read of a poll waits for `poll_wait`.
    pub polls_mib_max: usize,
    /// Streams. Passed: 1020.
    pub streams_max: usize,
    /// Consumer groups of one topic. Passed: 5007.
    pub groups_max: usize,
    /// Members of one consumer group. Passed: 5007.
    pub members_max: usize,
    /// Stored consumer offsets in all: about 200 bytes each. Passed: 3024.
    pub offsets_max: usize,
    /// Personal access tokens, as the server's default. Passed: 52.
    pub tokens_max: usize,
    /// Time that shutdown waits for requests in flight. Passed: connections dropped.
    pub shutdown_drain: Duration,
}

impl Default for DoorLimits {
    fn default() -> Self {
        Self {
            frame_bytes_max: 64 << 20,
            login_frame_bytes_max: 16 << 10,
            connections_max: 10_000,
            connections_per_address_max: None,
            login_timeout: Duration::from_secs(30),
            login_failures_max: 8,
            idle_timeout: Duration::from_secs(3_600),
            heartbeat_timeout: Duration::from_secs(36),
            rebalancing_timeout: Duration::from_secs(30),
            read_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            write_rate_min: 256 << 10,
            poll_wait: Duration::from_secs(5),
            poll_bytes_max: 64 << 20,
            polls_mib_max: 256,
            streams_max: 4_096,
            groups_max: 1_000,
            members_max: 1_000,
            offsets_max: 1_000_000,
            tokens_max: 100,
            shutdown_drain: Duration::from_secs(10),
        }
    }
}

/// Bytes of a payload, as the SDK allows: 1 to this many.
pub const PAYLOAD_BYTES_MAX: usize = 64_000_000;

/// Bytes of the user headers of one message.
pub const HEADERS_BYTES_MAX: usize = 100_000;

/// Partitions that one request may create or delete.
pub const PARTITIONS_PER_REQUEST_MAX: u32 = iggy_binary_protocol::MAX_PARTITIONS_PER_REQUEST;
