//! What connections that do nothing cost in memory.

use std::net::TcpStream;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that are not connections, generously.
const OTHERS: usize = 100;

/// Connections that are opened before it is measured: what the first ones allocate once is not theirs.
const FIRST: usize = 200;

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size()
}

/// Opens as many connections by `open`, or as the system allows, and answers how many that were and the resident bytes that one
/// takes. `open` must keep nothing of its own side but the socket.
pub(crate) async fn bytes_each(most: usize, open: impl Fn(usize) -> Vec<TcpStream> + Send + 'static) -> (usize, usize) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let descriptors = maximum.map_or(usize::MAX, |max| usize::try_from(max).unwrap());
    let count = most.min((descriptors - OTHERS) / 4);
    let measured = tokio::task::spawn_blocking(move || {
        let _first = open(FIRST.min(count));
        let before = resident_bytes();
        let _held = open(count);
        (resident_bytes() - before) / count
    });
    (count, measured.await.unwrap())
}
