//! Consumer groups through librdkafka: the binary runs as a child process, every member is a process of its own that can be
//! killed and stopped. Of every run it is asserted that each record was delivered, that no partition had two owners in a
//! generation, and that what was acknowledged as committed stayed so.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    missing_docs,
    unreachable_pub,
    reason = "test code"
)]

#[path = "groups/journal.rs"]
mod journal;
#[path = "groups/member.rs"]
mod member;
#[path = "groups/run.rs"]
mod run;
#[path = "groups/verifier.rs"]
mod verifier;

#[cfg(feature = "iggy")]
use std::time::Duration;
use std::time::Instant;

use journal::{Entry, Event};
use member::{Commit, SESSION};
#[cfg(feature = "iggy")]
use milena_testkit::iggy_server::{PASSWORD, USER};
#[cfg(feature = "iggy")]
use milena_testkit::{IggyServers, SharedIggy};
#[cfg(feature = "iggy")]
use milena_wire::kafka_protocol::messages::{FindCoordinatorRequest, MetadataRequest};
#[cfg(feature = "iggy")]
use milena_wire::kafka_protocol::protocol::StrBytes;
use run::{PATIENCE, Run, server, with_client};

/// Not a test by itself: what the other tests start again as a member. Without that it has nothing to do.
#[test]
fn a_member_in_its_own_process() {
    member::run_if_asked();
}

/// Two members, then five, then four after one has left. A session is longer than the run waits for anything, so the others
/// do not wait for the one that left, and no member is lost because the machine is busy.
fn members_come_and_go(strategy: &'static str, commit: Commit) {
    let server = server();
    let mut run = Run::at(server.bootstrap(), strategy, strategy, commit, PATIENCE * 2);
    run.start(&["a", "b"]);
    run.shared_by(2);
    run.work_on();
    run.start(&["c", "d", "e"]);
    run.shared_by(5);
    run.work_on();
    run.leave("b");
    run.shared_by(4);
    run.work_on();
    run.end();
}

#[test]
fn members_of_a_range_group_come_and_go() {
    members_come_and_go("range", Commit::Sync);
}

#[test]
fn members_of_a_roundrobin_group_come_and_go() {
    members_come_and_go("roundrobin", Commit::Async);
}

#[test]
fn members_of_a_cooperative_group_come_and_go() {
    members_come_and_go("cooperative-sticky", Commit::Auto);
}

#[test]
fn the_partitions_of_a_killed_member_go_to_the_others_after_its_session() {
    let server = server();
    let mut run = Run::begin(&server, "killed", "cooperative-sticky", Commit::Sync);
    run.start(&["a", "b", "c"]);
    run.shared_by(3);
    run.work_on();
    run.kill("b");
    let killed = Instant::now();
    run.shared_by(2);
    let waited = killed.elapsed();
    assert!(waited > SESSION / 2, "after {waited:?}: a member that is silent for so short is not gone");
    assert!(waited < SESSION * 2, "after {waited:?}: the session of the killed member was not ended in time");
    run.work_on();
    run.end();
}

#[test]
fn a_member_that_pauses_past_its_session_cannot_commit_and_comes_back() {
    let server = server();
    let mut run = Run::begin(&server, "paused", "range", Commit::Sync);
    run.start(&["a", "b", "c"]);
    run.shared_by(3);
    run.work_on();
    run.member("b").pause();
    run.shared_by(2);
    run.work_on();
    run.member("b").resume();
    run.shared_by(3);
    run.work_on();
    run.end();
}

#[test]
fn a_static_member_that_restarts_gets_its_partitions_back_without_a_rebalance() {
    let server = server();
    let mut run = Run::begin(&server, "static", "range", Commit::Async);
    run.start_static("a", Some("first"));
    run.start_static("b", Some("second"));
    let before = run.shared_by(2);
    run.work_on();
    let quiet_from = run.journal.entries().len();
    run.kill("b");
    run.start_static("b2", Some("second"));
    let after = run.shared_by(2);
    assert_eq!(after["b2"], before["b"]);
    run.work_on();

    // A third process under the name fences the second, which only slept.
    run.member("b2").pause();
    run.start_static("b3", Some("second"));
    assert_eq!(run.shared_by(2)["b3"], before["b"]);
    run.member("b2").resume();
    run.journal.wait("the older process of the name is not fenced", PATIENCE, || {
        let fenced = |entry: &Entry| matches!(&entry.event, Event::Failed { reason } if reason.to_lowercase().contains("fenced"));
        run.journal.entries().iter().any(|entry| entry.member == "b2" && fenced(entry)).then_some(())
    });
    run.kill("b2");
    let moved = |entry: &Entry| matches!(entry.event, Event::Assigned { .. } | Event::Revoked { .. });
    let disturbed: Vec<_> = run
        .journal
        .entries()
        .into_iter()
        .skip(quiet_from)
        .filter(|entry| entry.member == "a" && moved(entry))
        .collect();
    assert!(disturbed.is_empty(), "a restart under its name made others move: {disturbed:?}");
    run.work_on();
    run.end();
}

#[test]
fn every_group_goes_on_from_its_last_acknowledged_commit_after_the_server_was_killed() {
    let mut server = server();
    let mut runs = [
        Run::begin(&server, "commits-sync", "range", Commit::Sync),
        Run::begin(&server, "commits-async", "roundrobin", Commit::Async),
        Run::begin(&server, "commits-on-revoke", "cooperative-sticky", Commit::OnRevoke),
        Run::begin(&server, "commits-auto", "cooperative-sticky", Commit::Auto),
    ];
    for run in &mut runs {
        run.start(&["a", "b"]);
    }
    for run in &runs {
        run.shared_by(2);
        run.work_on();
    }
    // The group that commits on a revocation only has then committed something.
    runs[2].start(&["c"]);
    runs[2].shared_by(3);
    server.kill();
    for run in &runs {
        run.journal.note("server", "server", Event::ServerRestarted);
    }
    server.restart();
    for (run, members) in runs.iter().zip([2, 2, 3, 2]) {
        run.shared_by(members);
        run.work_on();
    }
    for run in runs {
        run.end();
    }
}

/// What was acknowledged to the two members is not only in the memory of the gateway.
#[cfg(feature = "iggy")]
fn goes_on_without_its_gateway(run: Run, mut server: milena_testkit::ChildServer) {
    server.kill();
    run.journal.note("server", "server", Event::ServerRestarted);
    server.restart();
    run.shared_by(2);
    run.work_on();
    run.end();
}

#[cfg(feature = "iggy")]
#[test]
fn a_group_goes_on_and_keeps_its_commits_when_the_iggy_server_behind_is_killed() {
    let mut iggy = milena_testkit::DoorChild::start(run::MILENA);
    let server = run::builder().alone().over(&iggy).start();
    let mut run = Run::at(server.bootstrap(), "behind", "range", Commit::Sync, PATIENCE * 2);
    run.start(&["a", "b"]);
    run.shared_by(2);
    run.work_on();
    iggy.kill();
    // Members are known to the gateway alone, so they stay; what they commit now has to wait.
    std::thread::sleep(Duration::from_millis(500));
    iggy.restart();
    run.work_on();
    goes_on_without_its_gateway(run, server);
}

/// A follower that is restarted misses messages, those of the group's commits among them, and may lead afterwards.
#[cfg(feature = "iggy")]
#[test]
fn a_group_goes_on_and_keeps_its_commits_while_the_nodes_of_an_iggy_cluster_are_restarted_in_turn() {
    let Some(binary) = IggyServers::binary() else {
        eprintln!("skipped: TEST_IGGY_SERVER names no binary of an Iggy server");
        return;
    };
    let mut iggy = IggyServers::start(&binary, 3, &[]);
    let nodes: Vec<String> = iggy.addresses().iter().map(ToString::to_string).collect();
    let url = format!("iggy://{USER}:{PASSWORD}@{}", nodes.join(","));
    let server = run::builder().alone().over_server(&url).start();
    let mut run = Run::at(server.bootstrap(), "rolling", "range", Commit::Sync, PATIENCE * 2);
    run.start(&["a", "b"]);
    run.shared_by(2);
    run.work_on();
    for node in 0..3 {
        iggy.stop(node);
        iggy.restart(node);
        std::thread::sleep(Duration::from_secs(8));
        run.work_on();
    }
    goes_on_without_its_gateway(run, server);
}

#[cfg(feature = "iggy")]
#[test]
fn a_group_of_two_gateways_goes_on_at_the_other_one_when_its_coordinator_is_killed() {
    goes_on_at_the_other_gateway(&SharedIggy::start(run::MILENA), "topic");
}

#[cfg(feature = "iggy")]
#[test]
fn a_group_whose_offsets_are_consumer_offsets_goes_on_at_the_other_gateway_when_its_coordinator_is_killed() {
    // Iggy's own server does not let groups of others have offsets.
    let door = milena_testkit::DoorChild::with_free_offsets(run::MILENA);
    goes_on_at_the_other_gateway(&SharedIggy::of_door(door), "consumer-offsets");
}

/// Three members of one group over two gateways, of which the one that coordinates is killed under load.
#[cfg(feature = "iggy")]
fn goes_on_at_the_other_gateway(iggy: &SharedIggy, storage: &str) {
    let gateway = |index| {
        let sets = ["--set", &format!("offset_storage={storage}")];
        iggy.hold(index, run::builder()).args(sets).start()
    };
    let mut gateways = [gateway(0), gateway(1)];
    let number = |index| Some(i32::from(iggy.instance(index)));
    let bootstrap = format!("{},{}", gateways[0].bootstrap(), gateways[1].bootstrap());
    let mut run = Run::at(&bootstrap, "between", "cooperative-sticky", Commit::Sync, SESSION * 2);
    // The second is listed by the first within seconds. Until then a librdkafka that is told of it by one and not by the other
    // may drop what it asked it, and ask again after minutes.
    let started = Instant::now();
    while !gateways.iter().all(|gateway| brokers(gateway) == 2) {
        assert!(started.elapsed() < PATIENCE, "one gateway stays unknown to the other");
        std::thread::sleep(Duration::from_millis(50));
    }
    run.start(&["a", "b", "c"]);
    run.shared_by(3);
    run.work_on();

    // The first to start has the lease.
    assert_eq!(coordinator(&gateways[1]), number(0));
    gateways[0].kill();
    let killed = Instant::now();
    run.journal.note("server", "server", Event::ServerRestarted);
    while coordinator(&gateways[1]) != number(1) {
        assert!(killed.elapsed() < Duration::from_secs(15), "nobody coordinates groups");
        std::thread::sleep(Duration::from_millis(50));
    }
    run.shared_by(3);
    run.work_on();
    run.end();
}

/// How many gateways that one lists.
#[cfg(feature = "iggy")]
fn brokers(gateway: &milena_testkit::ChildServer) -> usize {
    let request = MetadataRequest::default().with_topics(Some(Vec::new()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { gateway.client().await.request(9, &request).await }).brokers.len()
}

/// The number of the gateway that coordinates groups, as that one says.
#[cfg(feature = "iggy")]
fn coordinator(gateway: &milena_testkit::ChildServer) -> Option<i32> {
    let request = FindCoordinatorRequest::default().with_key(StrBytes::from_static_str("between"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let answer = runtime.block_on(async { gateway.client().await.request(3, &request).await });
    (answer.error_code == 0).then_some(answer.node_id.0)
}

#[test]
fn a_group_is_described_with_its_members_while_they_are_there_and_with_its_offsets_after_that() {
    let server = server();
    let mut run = Run::begin(&server, "described", "range", Commit::Sync);
    run.start(&["a", "b"]);
    run.shared_by(2);
    run.work_on();
    let bootstrap = run.plan.bootstrap.clone();
    let group = with_client(&bootstrap, async |client| client.describe_group("described").await.unwrap());
    assert_eq!((group.state.as_str(), group.protocol.as_str(), group.members.len()), ("Stable", "range", 2));
    let partitions: usize = group.members.iter().map(|member| member.partitions.as_ref().unwrap().len()).sum();
    assert_eq!(partitions, run::ALL);
    let mut clients: Vec<&str> = group.members.iter().map(|member| member.client_id.as_str()).collect();
    clients.sort_unstable();
    assert_eq!(clients, ["a", "b"]);
    run.end();
    let (group, committed) = with_client(&bootstrap, async |client| {
        (client.describe_group("described").await.unwrap(), client.committed("described").await.unwrap())
    });
    assert_eq!((group.state.as_str(), group.members.len()), ("Empty", 0));
    assert_eq!(committed.len(), run::ALL);
}
