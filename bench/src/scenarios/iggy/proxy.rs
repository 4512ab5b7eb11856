//! A proxy that copies bytes and understands none of them: what a process between client and server costs at least.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use milena_testkit::ReservedPort;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::{TcpListener, TcpStream};

use crate::Result;

/// Bytes that are copied at a time.
const BUFFER_BYTES: usize = 256 << 10;

/// Longest time in which it gets ready.
const PATIENCE: Duration = Duration::from_secs(30);

/// Options of the proxy.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Where it listens
    #[arg(long)]
    pub listen: SocketAddr,
    /// Where it connects to
    #[arg(long)]
    pub to: SocketAddr,
}

impl Options {
    /// Copies until it is killed.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn run(&self) -> Result<()> {
        let listener = TcpListener::bind(self.listen).await?;
        loop {
            let (mut client, _) = listener.accept().await?;
            let to = self.to;
            tokio::spawn(async move {
                let mut server = TcpStream::connect(to).await?;
                client.set_nodelay(true)?;
                server.set_nodelay(true)?;
                copy_bidirectional_with_sizes(&mut client, &mut server, BUFFER_BYTES, BUFFER_BYTES).await
            });
        }
    }
}

/// A proxy in a process of its own. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Proxy {
    process: Child,
    port: ReservedPort,
}

impl Proxy {
    pub(super) fn start(to: SocketAddr) -> Result<Self> {
        let port = ReservedPort::take();
        let listen = format!("127.0.0.1:{}", port.number());
        let process = Command::new(std::env::current_exe()?)
            .args(["proxy", "--listen", &listen, "--to", &to.to_string()])
            .stdin(Stdio::null())
            .spawn()?;
        let proxy = Self { process, port };
        let start = Instant::now();
        while std::net::TcpStream::connect(proxy.address()).is_err() {
            if start.elapsed() > PATIENCE {
                return Err("the proxy does not get ready".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(proxy)
    }

    pub(super) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port.number()))
    }

    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
