//! Every bound: default, reason, and the answer when it is passed.

use std::time::Duration;

use tokio::sync::Semaphore;

use crate::config::{ConfigError, in_range};

/// Kinds of client software that are told apart at a time. Passed: counted as `other`.
pub const CLIENT_SOFTWARE_MAX: usize = 200;

/// Time without an answer of the store, while a server starts or takes groups over, after which that has failed. Longer than
/// a device takes that is busy, short enough for an operator who watches. Passed: the start is an error, taking over is tried
/// again.
pub(crate) const STORE_SILENCE_MAX: Duration = Duration::from_secs(60);

/// Bytes of records after which a Fetch answer ends although the client would take more, unless it waits for more. Clients
/// ask for 50 MiB as a rule: this much stays in the cache of a processor from the disk to the socket, and its memory is used
/// again by the next answer. Passed: the client asks again.
pub(crate) const FETCH_ENOUGH_BYTES: usize = 4 << 20;

/// Bounds of the server; all of them are configuration.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Largest request frame. 100 MiB as Kafka: some clients fill requests up to it. Passed: connection closed, logged.
    pub max_frame_bytes: usize,
    /// Connections in all. Passed: closed at accept, counted.
    pub max_connections: usize,
    /// Connections of one client address; `None` is unlimited. Passed: closed at accept, counted.
    pub max_connections_per_address: Option<usize>,
    /// Time from accept until a connection has done its TLS handshake and says who it is, where the listener asks for that.
    /// Passed: closed.
    pub authentication_timeout: Duration,
    /// Time without a request after which a connection is closed.
    pub idle_timeout: Duration,
    /// Time without progress in a frame body after which a connection is closed.
    pub read_timeout: Duration,
    /// Time without progress in writing a response after which a connection is closed.
    pub write_timeout: Duration,
    /// Bytes of requests in flight in the process: a quarter of the memory, at least 256 MiB. Passed: reading pauses.
    pub in_flight_bytes: usize,
    /// Largest Fetch response in bytes of records. Passed: cut at a record.
    pub fetch_response_bytes: usize,
    /// Longest Fetch wait. Passed: answered.
    pub fetch_wait_max: Duration,
    /// Fetch sessions in all. Passed: the answer has no session.
    pub fetch_sessions: usize,
    /// Topics that one Metadata request may create. Passed: the others are answered with 5, and clients ask again.
    pub auto_create_max: usize,
    /// Partitions that one CreateTopics request may ask for, as in Kafka. Passed: every topic of it is answered with 44.
    pub create_partitions_max: u64,
    /// Longest timeout of a request that changes topics. Passed: cut to it.
    pub admin_timeout_max: Duration,
    /// Error text in one answer, in bytes: many bad items must not grow into a much larger answer. Passed: codes only.
    pub error_text_bytes: usize,
    /// Partitions held by all fetch sessions: about 200 bytes each. Passed: the answer has no session.
    pub fetch_session_partitions: usize,
    /// Messages read from the end of a partition to find its producers, after a restart or when others appended: enough for
    /// the last five batches of each recent one. Passed: producers further back are not known, and accepted as they come.
    pub dedup_tail_messages: u64,
    /// Bytes read for the same purpose. Passed: likewise.
    pub dedup_tail_bytes: usize,
    /// How long an append whose outcome was lost may still sit in the store's queue. Passed without a trace of it: the
    /// batch is sent again.
    pub in_doubt_grace: Duration,
    /// How often the topics of a store are looked at on which others change topics too. What they do is seen that
    /// much later.
    pub metadata_refresh: Duration,
    /// Bytes of unused buffers that Produce keeps for the next batches. Passed: buffers are given back.
    pub frame_pool_bytes: usize,
    /// Time that shutdown waits for requests in flight. Passed: connections dropped.
    pub shutdown_drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_frame_bytes: 100 << 20,
            max_connections: 20_000,
            max_connections_per_address: None,
            authentication_timeout: Duration::from_secs(15),
            idle_timeout: Duration::from_secs(600),
            read_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            in_flight_bytes: in_flight_default(),
            fetch_response_bytes: 64 << 20,
            fetch_wait_max: Duration::from_secs(30),
            fetch_sessions: 1_000,
            auto_create_max: 100,
            create_partitions_max: 10_000,
            admin_timeout_max: Duration::from_secs(60),
            error_text_bytes: 64 << 10,
            fetch_session_partitions: 1_000_000,
            dedup_tail_messages: 1 << 18,
            dedup_tail_bytes: 32 << 20,
            in_doubt_grace: Duration::from_secs(2),
            metadata_refresh: Duration::from_secs(5),
            frame_pool_bytes: 64 << 20,
            shutdown_drain: Duration::from_secs(25),
        }
    }
}

/// Smallest default of the bytes in flight.
const IN_FLIGHT_BYTES_MIN: usize = 256 << 20;

impl Limits {
    /// Checks every bound.
    ///
    /// # Errors
    /// The first bound that is outside of what it may be.
    pub fn validate(&self) -> Result<(), ConfigError> {
        // Frames are counted in 31 bits on the wire; the rest are counted by semaphores, which have a maximum.
        let frame_max = i32::MAX.unsigned_abs() as usize;
        let counted_max = Semaphore::MAX_PERMITS;
        let numbers: [(_, usize, usize, usize); _] = [
            ("max_frame_bytes", self.max_frame_bytes, 1024, frame_max),
            ("max_connections", self.max_connections, 1, counted_max),
            ("max_connections_per_address", self.max_connections_per_address.unwrap_or(1), 1, counted_max),
            ("in_flight_bytes", self.in_flight_bytes, 1 << 20, counted_max),
            ("fetch_response_bytes", self.fetch_response_bytes, 1, frame_max),
            ("fetch_sessions", self.fetch_sessions, 0, counted_max),
            ("fetch_session_partitions", self.fetch_session_partitions, 0, counted_max),
        ];
        for (name, value, min, max) in numbers {
            in_range(name, value as u64, min as u64, max as u64)?;
        }
        let times = [
            ("authentication_timeout", self.authentication_timeout),
            ("idle_timeout", self.idle_timeout),
            ("read_timeout", self.read_timeout),
            ("write_timeout", self.write_timeout),
            ("metadata_refresh", self.metadata_refresh),
        ];
        match times.iter().find(|(_, time)| time.is_zero()) {
            Some((name, _)) => Err(ConfigError::Zero { name }),
            None => Ok(()),
        }
    }
}

/// A quarter of the memory that this process may use, at least [`IN_FLIGHT_BYTES_MIN`].
fn in_flight_default() -> usize {
    let of = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let memory = memory_bytes(&of("/proc/meminfo"), &of("/sys/fs/cgroup/memory.max")).unwrap_or(0);
    usize::try_from(memory / 4).unwrap_or(usize::MAX).clamp(IN_FLIGHT_BYTES_MIN, Semaphore::MAX_PERMITS)
}

/// Bytes of memory that this process may use, from the texts of `/proc/meminfo` and of the control group's `memory.max`, which is
/// `max` where there is no limit. A container sees its own group at the root, a service does not.
fn memory_bytes(meminfo: &str, memory_max: &str) -> Option<u64> {
    let group = memory_max.trim().parse::<u64>().ok();
    meminfo_total(meminfo).into_iter().chain(group).min()
}

/// Bytes of memory of the machine, from the text of `/proc/meminfo`.
fn meminfo_total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(Limits::default().validate(), Ok(()));
        assert!(Limits::default().in_flight_bytes >= IN_FLIGHT_BYTES_MIN);
    }

    #[test]
    fn a_limit_above_the_semaphore_maximum_is_an_error_and_no_panic() {
        let at = Limits { max_connections: Semaphore::MAX_PERMITS, ..Limits::default() };
        assert_eq!(at.validate(), Ok(()));
        let over = Limits { max_connections: Semaphore::MAX_PERMITS + 1, ..Limits::default() };
        let error = over.validate().expect_err("over the maximum");
        assert!(
            error.to_string().starts_with("max_connections is 2305843009213693952; it must lie between"),
            "{error}"
        );
        let over = Limits { in_flight_bytes: usize::MAX, ..Limits::default() };
        assert!(over.validate().is_err());
    }

    #[test]
    fn a_timeout_of_zero_is_an_error() {
        let limits = Limits { read_timeout: Duration::ZERO, ..Limits::default() };
        assert_eq!(limits.validate(), Err(ConfigError::Zero { name: "read_timeout" }));
    }

    #[test]
    fn the_memory_of_the_machine_is_read() {
        assert_eq!(meminfo_total("MemTotal:       24684000 kB\nMemFree: 1 kB\n"), Some(24_684_000 * 1024));
        assert_eq!(meminfo_total("MemFree: 1 kB"), None);
    }
    #[test]
    fn the_limit_of_a_container_is_seen_where_there_is_one() {
        let machine = "MemTotal:       24684000 kB\n";
        assert_eq!(memory_bytes(machine, "1073741824\n"), Some(1 << 30));
        assert_eq!(memory_bytes(machine, "max\n"), Some(24_684_000 * 1024));
        assert_eq!(memory_bytes(machine, ""), Some(24_684_000 * 1024));
        // More than the machine has.
        assert_eq!(memory_bytes(machine, "99999999999999\n"), Some(24_684_000 * 1024));
        assert_eq!(memory_bytes("", "1073741824"), Some(1 << 30));
        assert_eq!(memory_bytes("", ""), None);
    }
}
