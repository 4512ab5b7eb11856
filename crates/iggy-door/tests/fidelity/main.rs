//! One script of requests, at an Iggy server and at the door: what the door answers otherwise is accepted with a reason, or
//! a fault.
//!
//! `data/server.txt` is what a server answered. `TEST_IGGY_RECORD` names the binary of a server, which is started on an empty
//! folder, and killed on the way, and records it anew. `data/accepted.txt` lists the differences.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    missing_docs,
    reason = "test code"
)]

mod accepted;
mod place;
mod script;
mod transcript;
mod view;
mod wire;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use iggy_binary_protocol::consensus::HEADER_SIZE;
use milena_iggy_door::fuzzing::frame;
use rand::{RngExt, SeedableRng, rngs::StdRng};

use accepted::{Accepted, Difference};
use place::Place;
use script::{Body, script};
use view::{View, view};

const HEAD: &str = "# What an Iggy server of protocol generation 0.11 (0.9.0-edge.5) answered to the script of this test.\n\
                    # Figures of its machine were replaced. Recorded by the test `record`; not edited by hand.\n";

const TRANSCRIPT: &str = "tests/data/server.txt";
const ACCEPTED: &str = "tests/data/accepted.txt";

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn record() {
    let Some(binary) = std::env::var_os("TEST_IGGY_RECORD") else {
        eprintln!("skipped: TEST_IGGY_RECORD names no binary of an Iggy server");
        return;
    };
    let mut place = Place::server(Path::new(&binary));
    let steps = script();
    let answers = Box::pin(wire::play(&mut place, &steps, Duration::from_secs(2))).await;
    let answers: Vec<_> =
        steps.iter().zip(answers).map(|(step, answer)| view::without_machine(step.what, answer)).collect();
    std::fs::write(path(TRANSCRIPT), format!("{HEAD}{}", transcript::write(&steps, &answers))).unwrap();
}

/// What the door answers to the script.
async fn door_answers() -> Vec<View> {
    let mut place = Place::door().await;
    let steps = script();
    let answers = Box::pin(wire::play(&mut place, &steps, Duration::from_secs(20))).await;
    place.end().await;
    steps.iter().zip(&answers).map(|(step, answer)| view(step.what, answer)).collect()
}

#[test]
fn the_transcript_is_one_of_the_script() {
    let text = text(TRANSCRIPT);
    let recorded = transcript::read(&text);
    let steps = script();
    for (step, (name, request, _)) in steps.iter().zip(&recorded) {
        assert_eq!((step.name.as_str(), transcript::request(step).as_str()), (*name, *request), "record it again");
    }
    assert_eq!(steps.len(), recorded.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_door_answers_as_the_server_but_for_what_is_accepted() {
    let (list, text) = (text(ACCEPTED), text(TRANSCRIPT));
    let mut accepted = Accepted::read(&list);
    let mut unexpected = String::new();
    let recorded = transcript::read(&text);
    for ((step, (name, _, answer)), here) in script().iter().zip(&recorded).zip(door_answers().await) {
        for difference in Difference::between(name, &view(step.what, answer), &here) {
            if !accepted.takes(&difference) {
                let _ = writeln!(unexpected, "{difference}");
            }
        }
    }
    assert!(unexpected.is_empty(), "not accepted:\n{unexpected}");
    assert_eq!(accepted.unmet(), Vec::<String>::new(), "these do not occur any more");
}

#[test]
fn the_documentation_lists_what_is_accepted_and_nothing_else() {
    let (list, docs) = (text(ACCEPTED), text("../../docs/iggy-door.md"));
    let rows = accepted::rows_of(&docs, "## What differs from Iggy's server");
    assert!(!rows.is_empty());
    assert_eq!(Accepted::read(&list).reasons(), rows);
}

/// How long requests are changed, beyond the one round that every run has.
fn fuzz_time() -> Duration {
    std::env::var("TEST_FUZZ_SECONDS").map_or(Duration::ZERO, |seconds| Duration::from_secs(seconds.parse().unwrap()))
}

#[test]
fn requests_of_the_script_panic_nowhere_when_they_are_cut_or_changed() {
    let bodies: Vec<_> = script()
        .into_iter()
        .filter_map(|step| if let Body::Bytes(body) = step.body { Some(body) } else { None })
        .collect();
    let requests: Vec<_> = bodies.iter().map(|body| [&[0; HEADER_SIZE], body.as_slice()].concat()).collect();
    let mut noise = StdRng::seed_from_u64(3);
    let (began, mut count) = (Instant::now(), 0u64);
    loop {
        for request in &requests {
            frame(request);
            for _ in 0..if request.len() < 4_096 { 100 } else { 2 } {
                frame(&changed(&mut noise, request));
                count += 1;
            }
        }
        if began.elapsed() >= fuzz_time() {
            break;
        }
    }
    eprintln!("{count} changed requests");
}

/// Other bytes and other sizes behind the header, and an end that is missing.
fn changed(noise: &mut StdRng, request: &[u8]) -> Vec<u8> {
    let mut bytes = request.to_vec();
    for _ in 0..noise.random_range(1..5) {
        let at = noise.random_range(HEADER_SIZE..=request.len());
        let size = [0, 1, 255, 256, u32::MAX, u32::try_from(request.len()).unwrap()][noise.random_range(0..6)];
        match (noise.random_range(0..4), bytes.get_mut(at..)) {
            (0, Some([a, b, c, d, ..])) => [*a, *b, *c, *d] = size.to_le_bytes(),
            (_, Some([byte, ..])) => *byte = noise.random(),
            _ => bytes.truncate(at.saturating_sub(1).max(HEADER_SIZE)),
        }
    }
    bytes
}
