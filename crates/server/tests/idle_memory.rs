//! What an idle connection costs. Alone in its binary, because it measures the memory of the whole process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]
#![allow(clippy::print_stdout, reason = "the test reports what it measured")]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use common::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that are not connections, generously.
const OTHERS: usize = 100;

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size()
}

/// Opens connections with blocking sockets, which take no memory of the process, and asks one request of each.
fn open(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let request = obedient(1, ANSWER, 100);
    let one = |_| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&request).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        stream
    };
    (0..count).map(one).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_idle_connections_fit_into_200_megabytes() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let descriptors = maximum.map_or(usize::MAX, |max| usize::try_from(max).unwrap());
    let count = 2000.min((descriptors - OTHERS) / 4);
    let server = start(config()).await;
    let address = address(&server);
    let (per_connection, held) = tokio::task::spawn_blocking(move || {
        // What the first connections allocate once is not theirs.
        let warm = open(address, count / 10);
        let before = resident_bytes();
        let held = open(address, count);
        ((resident_bytes() - before) / count, (warm, held))
    })
    .await
    .unwrap();
    println!("{count} idle connections cost {per_connection} bytes each");
    assert!(per_connection < 20_000, "{per_connection} bytes per connection");
    drop(held);
}
