//! What an idle connection over TLS costs. Alone in its binary, because it measures the memory of the whole process.

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
use std::sync::Arc;

use common::*;
use milena_server::config::{ListenerConfig, ServerConfig};
use milena_testkit::tls::{Authority, BOTH, NAME};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, Stream};

/// Opens connections and asks one request of each. Of the client's side the socket alone is kept, which takes no memory of
/// the process.
fn open(client: &Arc<ClientConfig>, address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let request = obedient(1, ANSWER, 100);
    let one = |_| {
        let mut socket = TcpStream::connect(address).unwrap();
        let mut session = ClientConnection::new(Arc::clone(client), NAME.try_into().unwrap()).unwrap();
        let mut stream = Stream::new(&mut session, &mut socket);
        stream.write_all(&request).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        socket
    };
    (0..count).map(one).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_idle_connections_over_tls_fit_into_300_megabytes() {
    let authority = Authority::new();
    let tls = Some(authority.sign("server").files());
    let listeners = vec![ListenerConfig { tls, ..listener("secure", "127.0.0.1:0") }];
    let server = start(ServerConfig { listeners, ..config() }).await;
    let (address, client) = (address(&server), authority.client(BOTH, None));
    let (count, per_connection) = idle_kit::bytes_each(1_000, move |count| open(&client, address, count)).await;
    println!("{count} idle connections over TLS cost {per_connection} bytes each");
    assert!(per_connection < 30_000, "{per_connection} bytes per connection");
}
