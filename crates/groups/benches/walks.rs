//! How long a look at all groups holds up everybody else, with 100,000 groups and 1,000,000 offsets:
//! `cargo bench -p milena-groups`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    missing_docs,
    reason = "a benchmark reports by printing and ends by panicking"
)]

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use milena_groups::{
    CommitPartition, CommitRequest, CommitTopic, Generation, GroupConfig, Groups, JoinRequest, ListFilter, Moment, Now,
    OffsetConfig, Outputs, Sender, Timestamp, Token, TopicId, Walk,
};

const GROUPS: usize = 100_000;
const PARTITIONS: i32 = 10;

fn filled(members: bool) -> Groups {
    let config = GroupConfig { initial_rebalance_delay_ms: 0, ..GroupConfig::default() };
    let mut groups = Groups::new(config, OffsetConfig { restart_grace_ms: 0, ..OffsetConfig::default() });
    groups.loaded(Timestamp(0));
    let mut out = Outputs::default();
    let now = Now { moment: Moment::default(), wall: Timestamp(1_000) };
    for n in 0..GROUPS {
        let name = format!("group-with-a-usual-name-{:08x}", n.wrapping_mul(2_654_435_761) % (1 << 32));
        let partition = |partition| CommitPartition {
            partition,
            exists: true,
            offset: 1 << 40,
            leader_epoch: 0,
            metadata: None,
            expected: None,
        };
        let topic = CommitTopic {
            name: Arc::from(format!("topic-{}", n % 100)),
            id: Some(TopicId(n as u128 % 100 + 1)),
            partitions: (0..PARTITIONS).map(partition).collect(),
        };
        let request = CommitRequest { group: Arc::from(&*name), retention_ms: None, topics: vec![topic] };
        let sender = Sender { group: &name, member_id: "", instance_id: None, generation: Generation::NONE };
        groups.commit(Token(0), &sender, request, now, &mut out);
        if members {
            let fresh = format!("{n:036}");
            let metadata = b"\0\0\0\0\0\x01\0\x07topic-1";
            let join = JoinRequest {
                version: 3,
                group: &name,
                member_id: "",
                instance_id: None,
                client_id: "consumer",
                client_host: "/127.0.0.1",
                session_timeout_ms: 45_000,
                rebalance_timeout_ms: Some(300_000),
                protocol_type: "consumer",
                protocols: &[("range", metadata), ("cooperative-sticky", metadata)],
                fresh: &fresh,
            };
            groups.join(Token(0), &join, now, &mut out);
        }
        for append in out.appends.drain(..) {
            groups.settled(append.ticket, true, &mut Outputs::default());
        }
        out.answers.clear();
    }
    groups
}

/// Says how long the pieces took. A machine that does something else in between shows in the longest one.
fn report(what: &str, mut pieces: Vec<Duration>) {
    let millis = |time: &Duration| time.as_secs_f64() * 1e3;
    pieces.sort();
    let (median, most) = (millis(&pieces[pieces.len() / 2]), millis(&pieces[pieces.len() * 98 / 100]));
    let (longest, sum) = (millis(&pieces[pieces.len() - 1]), millis(&pieces.iter().sum()));
    println!("{what}: median {median:.2} ms, 98% {most:.2} ms, longest {longest:.2} ms, in all {sum:.0} ms");
}

/// Runs slices until the walk is over.
fn slices(what: &str, mut slice: impl FnMut(&mut Walk)) {
    let (mut walk, mut pieces) = (Walk::default(), Vec::new());
    while !walk.is_over() {
        let start = Instant::now();
        slice(&mut walk);
        pieces.push(start.elapsed());
    }
    report(what, pieces);
}

/// Sessions that all end at once, in as many ticks as it takes.
fn ticks(groups: &mut Groups, late: Now, out: &mut Outputs) {
    let mut pieces = Vec::new();
    while groups.deadline().is_some() {
        let start = Instant::now();
        groups.tick(late, out);
        pieces.push(start.elapsed());
    }
    report("tick, all sessions end", pieces);
}

fn main() {
    // Run as a test, it is only built.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    for members in [false, true] {
        let mut groups = filled(members);
        println!("members: {members}, offsets: {}", groups.offsets().len());
        let mut out = Outputs::default();
        let now = Now { moment: Moment::default(), wall: Timestamp(2_000) };
        slices("expire, nothing to do", |walk| groups.expire(walk, now, &mut out));
        slices("freeze", |walk| drop(groups.freeze(walk)));
        let mut records = Vec::new();
        slices("freeze and encode", |walk| records.extend(groups.freeze(walk).records()));
        let mut again = Groups::new(GroupConfig::default(), OffsetConfig::default());
        let start = Instant::now();
        records.iter().for_each(|record| again.replay(record).unwrap());
        assert_eq!(again.offsets().len(), groups.offsets().len());
        println!("replay of the snapshot: {} ms", start.elapsed().as_millis());
        slices("list", |walk| drop(groups.list(&ListFilter::default(), walk)));
        let mut topics = HashSet::new();
        slices("topics", |walk| groups.offsets().topics(walk, &mut topics));
        let late = Now { moment: Moment::from_millis(1_000_000), wall: Timestamp(i64::MAX) };
        if members {
            ticks(&mut groups, late, &mut out);
        }
        for append in out.appends.drain(..) {
            groups.settled(append.ticket, true, &mut Outputs::default());
        }
        slices("expire, all goes", |walk| groups.expire(walk, late, &mut out));
    }
}
