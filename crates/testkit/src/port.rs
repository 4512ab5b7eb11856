//! Free ports.

use std::net::{Ipv4Addr, TcpListener};

/// A port of the loopback address that nobody listens on now. Prefer port 0 where the server can say what it got: two
/// processes that ask at the same time can get the same answer.
#[must_use]
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of the loopback address");
    listener.local_addr().expect("a bound address").port()
}
