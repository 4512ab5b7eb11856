//! Every bound of this crate: its default, its reason, and what happens when it is passed.

use std::time::Duration;

/// Connections for appends: a single server answers most requests a second with 8 to 16. Passed: cannot be, each
/// carries one request at a time and the others wait.
pub(crate) const APPEND_CONNECTIONS: usize = 8;

/// Connections for reads, so that a large read does not hold up a small one.
pub(crate) const READ_CONNECTIONS: usize = 4;

/// Connections for topics, ends of partitions and everything else that is small.
pub(crate) const CONTROL_CONNECTIONS: usize = 2;

/// Connections for consumer offsets, where the server keeps those of Kafka groups: one call for each partition.
pub(crate) const OFFSET_CONNECTIONS: usize = 4;

/// Name of a consumer group, as the server has it. Passed: refused.
pub(crate) const GROUP_BYTES_MAX: usize = 255;

/// Time in which a change of a consumer offset or of its group whose call took too long, or whose connection broke, can
/// still take effect: the SDK goes on trying for 30 s, and a server that still lives has read what was sent. Passed: the
/// next change is carried out.
pub(crate) const OFFSET_LATE: Duration = Duration::from_secs(35);
pub(crate) const OFFSET_LOST: Duration = Duration::from_secs(2);

/// Connections of one kind that may be asked for: each costs the server a socket and a session. Passed: the
/// configuration is refused.
pub const CONNECTIONS_MAX: usize = 256;

/// Nodes of a cluster that are known. Passed: the others are not used.
pub(crate) const NODES_MAX: usize = 16;

/// Nodes that are asked whether they lead the cluster, each where the one before sent. Passed: busy, which clients retry.
pub(crate) const LEADER_TURNS: usize = 3;

/// Partitions whose leader is remembered. Passed: all are forgotten, and found again by their next appends.
pub(crate) const HOMES_MAX: usize = 100_000;

/// Time after which another node leads what one led that is away. Passed: its partitions are looked for elsewhere.
pub(crate) const LEADER_LOST: Duration = Duration::from_secs(10);

/// Longest pause between two attempts to reach a node that is away, each of which holds up one connection for as long as
/// [`CONNECT_TIMEOUT`]. Calls in between go to the other nodes.
pub(crate) const NODE_PAUSE_MAX: Duration = Duration::from_secs(10);

/// How long the log of an empty partition is not trusted after an append to it is in doubt, since an empty partition
/// cannot be asked who leads it. Longer than a cluster takes to find a new leader.
pub(crate) const EMPTY_DOUBT: Duration = Duration::from_secs(12);

/// Calls that wait for one connection. Passed: busy, which clients retry.
pub(crate) const WAITING_MAX: usize = 4_096;

/// Longest time of one call for its turn and for reaching a node, and once more for its answer. Well below the 30 s after
/// which producers send again, and below the 30 s after which the SDK gives up by itself. Passed: the connection is replaced;
/// a change is then in doubt.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest time for connecting and logging in. A server of another protocol generation never answers.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time that a node of a cluster has for a login before the next node is tried: while nobody leads the cluster its nodes leave
/// logins unanswered, which takes about 5 s after the death of a leader. Passed: the node is tried again after the others,
/// and in the end with [`CONNECT_TIMEOUT`].
pub(crate) const NODE_GLANCE: Duration = Duration::from_secs(1);

/// Longest time that opening the store tries to reach a server that does not answer. Passed: the start fails.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(15);

/// Pauses between attempts to connect: the first, and the longest. Each failure doubles it. Calls that come in
/// between are busy at once.
pub(crate) const RECONNECT_PAUSE: Duration = Duration::from_millis(50);
pub(crate) const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(2);

/// Age up to which an answer about the ends of a topic's partitions is used again. One fetch asks for each of its
/// partitions, and the server answers for all partitions of a topic at once.
pub(crate) const BOUNDS_MAX_AGE: Duration = Duration::from_millis(5);

/// Pauses between two looks for other writers' messages in a topic that somebody waits for.
pub(crate) const PROBE_INTERVAL_MIN: Duration = Duration::from_millis(10);
pub(crate) const PROBE_INTERVAL_MAX: Duration = Duration::from_millis(250);

/// Topics that are looked at side by side, one for each connection that such questions take.
pub(crate) const PROBES_AT_ONCE: usize = CONTROL_CONNECTIONS;

/// Longest time of a look at a topic that nobody in particular asked for, so that a topic without an answer holds up the
/// others no longer. Passed: the connection is replaced, and the topic has twice that time when it is looked at next, up to the
/// longest time of a call.
pub(crate) const PROBE_PATIENCE: Duration = Duration::from_secs(2);

/// How long a topic is looked at after somebody last asked for its end. Longer than the longest wait of a fetch.
pub(crate) const INTEREST: Duration = Duration::from_secs(35);

/// Looks a second over all topics. Passed: the pauses become longer.
pub(crate) const PROBES_PER_SECOND: u32 = 500;

/// How long a lower end must be seen before it is believed. A node that lags behind its leader says so for a moment;
/// a server that lost messages says so from then on.
pub(crate) const FALL_GRACE: Duration = Duration::from_secs(2);

/// The same for an end of 0: a server that starts says so of partitions that it still builds.
pub(crate) const FALL_GRACE_EMPTY: Duration = Duration::from_secs(10);

/// Age of the last sight of a lower end up to which the next one is of the same fall.
pub(crate) const FALL_SEEN_AGAIN: Duration = Duration::from_secs(30);

/// For how long it is remembered that a doubt about a partition was over, once there are many of them: longer than any question
/// to the server takes.
pub(crate) const SETTLED_KEPT: Duration = Duration::from_secs(300);

/// How long no node of a cluster has had a message before it is given up: a node that was restarted takes in what it
/// missed within seconds. Passed: the message is counted as lost, and readers go on behind it.
pub(crate) const LOST_GRACE: Duration = Duration::from_secs(30);

/// Age of the last time that no node had a message up to which the next one is of the same absence.
pub(crate) const LOST_SEEN_AGAIN: Duration = Duration::from_secs(30);

/// Pause between two log lines about nodes that have different messages at one offset of a partition.
pub(crate) const DIFFER_PAUSE: Duration = Duration::from_secs(60);

/// Gaps of one partition that are remembered. Passed: the first is forgotten, and waited for once more.
pub(crate) const GAPS_MAX: usize = 64;

/// Longest time for the answer of one node when all are asked. Passed: it counts as one that did not answer, and is not asked
/// for [`NODE_PAUSE_MAX`].
pub(crate) const NODE_PATIENCE: Duration = Duration::from_secs(2);

/// Pause between two questions to all nodes of a cluster about one topic.
pub(crate) const NODES_PAUSE: Duration = Duration::from_millis(500);

/// Age up to which it is believed that other nodes have messages before those of the node that was asked: each removes what
/// is too old by a clock of its own.
pub(crate) const STARTS_PAUSE: Duration = Duration::from_secs(10);

/// Questions to all nodes at once. Passed: they wait for each other.
pub(crate) const VISITS_MAX: usize = 16;

/// Connections to one node that are kept for such questions. Passed: the connection is closed.
pub(crate) const VISITS_KEPT: usize = 4;

/// Pause between two writes of known ends to the journal; Kafka checkpoints high watermarks as often. What a partition grew
/// by since is not known when the gateway is killed.
pub(crate) const ENDS_INTERVAL: Duration = Duration::from_secs(5);

/// Topics whose ends are written at once.
pub(crate) const ENDS_RECORDS_MAX: usize = 256;

/// Epochs of a partition that are kept. Passed: the oldest two are joined, towards telling a reader that it is behind.
pub(crate) const EPOCHS_MAX: usize = 64;

/// Bytes of records behind a snapshot of the journal that make another one due.
pub(crate) const SNAPSHOT_BEHIND_BYTES: usize = 4 << 20;

/// Bytes of one part of a snapshot, and of a whole one. Passed by the whole: none is written, and the journal grows.
pub(crate) const SNAPSHOT_PART_BYTES: usize = 256 << 10;
pub(crate) const SNAPSHOT_BYTES_MAX: usize = 48 << 20;

/// Age by the server's clock from which on every node of a cluster lists a topic.
pub(crate) const TOPIC_SETTLED: Duration = Duration::from_secs(3_600);

/// How long a claim on removing segments keeps others out, by the server's clock, and how long it is used by ours. Between
/// them lies the longest way of a deletion: a call, and the SDK's attempts behind it.
pub(crate) const CLAIM_LIFE: Duration = Duration::from_secs(120);
pub(crate) const CLAIM_USE: Duration = Duration::from_secs(30);

/// Payload of one message, as the server has it. Passed: refused.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 64_000_000;

/// User-header block of one message, as the server has it. Passed: refused.
pub(crate) const HEADER_BYTES_MAX: usize = 100_000;

/// One request, header of 256 bytes included: 64 MiB on the server, minus room for names. A larger one makes the
/// server close the connection, which looks like an append in doubt. Passed: refused.
pub(crate) const REQUEST_BYTES_MAX: usize = (64 << 20) - 1024;

/// Partitions of one topic; the server takes no more in one request. Passed: refused.
pub(crate) const PARTITIONS_MAX: u32 = 1_000;

/// Partitions on the server in all: each takes 4 file descriptors and about 120 KB of it, and a server without any left
/// cannot go on. Passed: the topic is not created.
pub(crate) const SERVER_PARTITIONS: u64 = 10_000;

/// Span of origin timestamps in one append, microseconds: the server counts them in 32 bits. Passed: refused.
pub(crate) const TIMESTAMP_SPAN_MICROS: u64 = u32::MAX as u64;

/// Messages of one poll: a reply has no limit in bytes, so the count is what bounds it.
pub(crate) const POLL_COUNT_MAX: u32 = 10_000;

/// Messages of the first poll of a partition; each later one asks for at most twice as many as came.
pub(crate) const POLL_COUNT_FIRST: u32 = 64;

/// Polls of one read.
pub(crate) const POLLS_PER_READ: usize = 4;

/// Attempts of a poll that comes back empty although the partition has messages there. Passed: broken.
pub(crate) const EMPTY_POLLS_MAX: usize = 4;

/// Pause before such a poll is tried again; each doubles it.
pub(crate) const EMPTY_POLL_PAUSE: Duration = Duration::from_millis(20);

/// Pause after a deletion of a segment that is in doubt: the SDK goes on trying for 30 s, and a deletion that arrives
/// late takes what is the oldest segment by then.
pub(crate) const DELETION_DOUBT: Duration = Duration::from_secs(35);

/// Bytes that one step of a search by time reads.
pub(crate) const SEARCH_STEP_BYTES: usize = 1 << 20;

/// Partitions of which a search by time remembers what it saw, and stretches of one. Passed: the oldest is
/// forgotten, or neighbours are joined.
pub(crate) const SEARCHED_PARTITIONS_MAX: usize = 1_024;
pub(crate) const SEARCHED_STRETCHES_MAX: usize = 4_096;

/// Life of an access token, and when it is renewed.
pub(crate) const TOKEN_LIFE: Duration = Duration::from_secs(24 * 3_600);
pub(crate) const TOKEN_RENEWAL: Duration = Duration::from_secs(12 * 3_600);

/// Pause before a renewal that failed is tried again.
pub(crate) const TOKEN_RETRY: Duration = Duration::from_secs(600);

/// Shortest time between two renewals of tokens that the server refused.
pub(crate) const TOKEN_REFUSED_PAUSE: Duration = Duration::from_secs(60);

/// Time for saying goodbye to the server. Passed: the connections are dropped, and the token stays until it is replaced
/// or expires.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Smallest and largest segment of a topic, and what its size is a multiple of.
pub(crate) const SEGMENT_BYTES_MIN: u64 = 1 << 20;
pub(crate) const SEGMENT_BYTES_MAX: u64 = 1 << 30;
pub(crate) const SEGMENT_BYTES_STEP: u64 = 512;
