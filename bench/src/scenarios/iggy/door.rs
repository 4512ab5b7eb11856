//! Iggy's SDK at an Iggy server, and at Milena that serves Iggy's protocol over its embedded store.
//!
//! Two processes either way: a client and the server. The topics are created with the same raw options; what is
//! acknowledged was written to the operating system by both.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use milena_testkit::ReservedPort;

use super::{Meter, Options as Shape, sdk};
use crate::Result;
use crate::report::Measures;
use crate::servers::Target;
use crate::servers::iggy::IggyServer;

/// Options of the scenario.
#[derive(Debug, Clone, Args)]
pub struct Options {
    #[command(flatten)]
    shape: Shape,
}

/// A server of Iggy's protocol.
#[derive(Debug)]
pub struct Served {
    address: SocketAddr,
    id: u32,
    _process: Process,
}

#[derive(Debug)]
enum Process {
    Milena { _target: Target, _port: ReservedPort },
    Iggy { _server: IggyServer },
}

impl Options {
    /// Starts the servers.
    ///
    /// # Errors
    /// When one does not start.
    pub fn start(&self, milenas: &[(String, PathBuf)], set: &[String]) -> Result<Vec<(String, Served)>> {
        let mut all = Vec::new();
        for (name, binary) in milenas {
            let port = ReservedPort::take();
            let address = SocketAddr::from(([127, 0, 0, 1], port.number()));
            let target = Target::milena_with_door(binary, set, address);
            let id = target.id().ok_or("a child without a process id")?;
            all.push((
                name.clone(),
                Served { address, id, _process: Process::Milena { _target: target, _port: port } },
            ));
        }
        let server = IggyServer::start(&self.shape.server, &self.shape.server_config)?;
        let (address, id) = (server.address(), server.id());
        all.push(("Iggy server".to_owned(), Served { address, id, _process: Process::Iggy { _server: server } }));
        Ok(all)
    }

    /// One round on one server.
    ///
    /// # Errors
    /// When a request is refused.
    pub async fn round(&self, served: &Served, round: usize) -> Result<Measures> {
        let topic = format!("round-{round}");
        sdk::create(served.address, &topic, self.shape.partitions.unsigned_abs()).await?;
        let processes = vec![("server", served.id)];
        let mut meter = Meter { processes, bytes: self.shape.record_bytes, measures: Measures::default() };
        self.shape.by_sdk(served.address, &topic, &mut meter).await?;
        sdk::delete(served.address, &topic).await?;
        Ok(meter.measures)
    }
}
