//! Ports that are a test's own.

use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

/// A port of the loopback address that nobody listens on, and that no other test gets as long as this is kept.
///
/// It is bound and never listened on: connections to it are refused, the system gives it to nobody who asks for any port,
/// and a server that reuses addresses, as Milena does, can listen on it all the same, again after a restart too. To ask for
/// a free port and let go of it would give the same one to two test processes.
#[derive(Debug)]
pub struct ReservedPort {
    number: u16,
    // Only Linux lets another socket listen on a port that is bound; elsewhere the number has to do.
    #[cfg(target_os = "linux")]
    _bound: Socket,
}

impl ReservedPort {
    /// Takes a port that is free now.
    #[must_use]
    pub fn take() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).expect("a socket");
        // Before it is bound, so that the server may bind it as well.
        socket.set_reuse_address(true).expect("a new socket");
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a port of the loopback address");
        let address = socket.local_addr().ok().and_then(|address| address.as_socket());
        let number = address.expect("a bound address").port();
        Self {
            number,
            #[cfg(target_os = "linux")]
            _bound: socket,
        }
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }
}
