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
mod idle_kit;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use common::*;

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
    let server = start(config()).await;
    let address = address(&server);
    let (count, per_connection) = idle_kit::bytes_each(2_000, move |count| open(address, count)).await;
    println!("{count} idle connections cost {per_connection} bytes each");
    assert!(per_connection < 20_000, "{per_connection} bytes per connection");
}
