//! Milena in front of a real Iggy server, beside Iggy's own SDK through a proxy that copies bytes.
//!
//! Three processes either way: a client, one in the middle, the server. Both ways write to topics that Milena created, so
//! that an acknowledgement means the same. Measured in turn on one server.

mod door;
mod proxy;
mod sdk;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
pub use door::Options as DoorOptions;
pub use proxy::Options as ProxyOptions;
use proxy::Proxy;

use super::load::{self, Acks};
use super::meter::add_percentiles;
use crate::latency::Latencies;
use crate::report::Measures;
use crate::servers::Target;
use crate::servers::iggy::IggyServer;
use crate::setup::{create_topic, delete_topic};
use crate::usage::Usage;
use crate::{Error, Result};

/// Stream of Kafka's topics.
const STREAM: &str = "kafka";

/// Options of the scenario.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// The Iggy server that is started
    #[arg(long, value_name = "BINARY")]
    pub server: PathBuf,
    /// The configuration file that comes with it
    #[arg(long, value_name = "FILE")]
    pub server_config: PathBuf,
    /// Bytes of the value of a record
    #[arg(long, default_value_t = 1024)]
    pub record_bytes: usize,
    /// Records of a batch
    #[arg(long, default_value_t = 100)]
    pub records: u32,
    /// Records that the SDK asks for at a time
    #[arg(long, default_value_t = 1_000)]
    pub poll_records: u32,
    /// Partitions of the topic
    #[arg(long, default_value_t = 1)]
    pub partitions: i32,
    /// Connections that produce, and that fetch
    #[arg(long, default_value_t = 1)]
    pub connections: usize,
    /// Requests that a Kafka producer has in flight
    #[arg(long, default_value_t = 5)]
    pub depth: usize,
    /// Megabytes of values
    #[arg(long, default_value_t = 300)]
    pub megabytes: u64,
    /// Times that all of it is fetched
    #[arg(long, default_value_t = 3)]
    pub fetches: u32,
}

/// What stands between the client and the Iggy server.
#[derive(Debug)]
pub struct Way {
    /// Creates the topics.
    milena: Target,
    /// None: Milena itself is what stands between.
    proxy: Option<Proxy>,
}

impl Options {
    /// The server, and the ways to it.
    ///
    /// # Errors
    /// When something does not start.
    pub fn start(&self, milenas: &[(String, PathBuf)], set: &[String]) -> Result<(IggyServer, Vec<(String, Way)>)> {
        let server = IggyServer::start(&self.server, &self.server_config)?;
        let mut ways = Vec::new();
        for (number, (name, binary)) in (1..).zip(milenas) {
            // Two gateways would share the log of gateways, and all of them the names of access tokens.
            let own = [format!("instance_id={number}"), format!("iggy.state_stream=__milena{number}")];
            let settings: Vec<String> = set.iter().cloned().chain(own).collect();
            let milena = Target::milena_over_iggy(binary, &settings, server.address());
            ways.push((name.clone(), Way { milena, proxy: None }));
        }
        let (_, binary) = milenas.first().ok_or("name a server to start: --milena BINARY")?;
        let settings = ["instance_id=100".to_owned(), "iggy.state_stream=__milena100".to_owned()];
        let milena = Target::milena_over_iggy(binary, &settings, server.address());
        ways.push(("SDK".to_owned(), Way { milena, proxy: Some(Proxy::start(server.address())?) }));
        Ok((server, ways))
    }

    /// One round on one way.
    ///
    /// # Errors
    /// When a request is refused.
    pub async fn round(&self, server: &IggyServer, way: &Way, name: &str, round: usize) -> Result<Measures> {
        let topic = format!("{}-{round}", name.replace(' ', "-"));
        let mut admin = way.milena.connect().await?;
        create_topic(&mut admin, &topic, self.partitions).await?;
        let between = way.proxy.as_ref().map(Proxy::id).or(way.milena.id());
        let between = between.ok_or_else(|| Error::from("no process in the middle"))?;
        let processes = vec![("in the middle", between), ("Iggy server", server.id())];
        let mut meter = Meter { processes, bytes: self.record_bytes, measures: Measures::default() };
        match &way.proxy {
            None => self.by_kafka(&way.milena.address, &topic, &mut meter).await?,
            Some(proxy) => self.by_sdk(proxy.address(), &topic, &mut meter).await?,
        }
        delete_topic(&mut admin, &topic).await?;
        Ok(meter.measures)
    }

    async fn by_kafka(&self, address: &str, topic: &str, meter: &mut Meter) -> Result<()> {
        let plan = load::plan(self.load(), address, topic)?;
        let mut per_partition = BTreeMap::new();
        let produce = async {
            let produced = load::produce::volume(&plan).await?;
            per_partition = produced.per_partition;
            Ok((produced.records, produced.latencies))
        };
        meter.measure("produce", produce).await?;
        let fetch = async {
            let mut all = load::fetch::Fetched::default();
            for _ in 0..self.fetches {
                all.merge(&load::fetch::all(&plan, &per_partition).await?);
            }
            Ok((all.records, all.latencies))
        };
        meter.measure("fetch", fetch).await
    }

    async fn by_sdk(&self, address: SocketAddr, topic: &str, meter: &mut Meter) -> Result<()> {
        let batch_bytes = self.record_bytes.max(1) as u64 * u64::from(self.records.max(1));
        let connections = self.connections.max(1) as u64;
        let batches = (self.megabytes * 1_000_000).div_ceil(batch_bytes).div_ceil(connections);
        let mut per_partition = BTreeMap::new();
        let produce = async {
            let sent = sdk::produce(address, topic, self, batches).await?;
            per_partition = sent.per_partition;
            Ok((per_partition.values().sum(), sent.latencies))
        };
        meter.measure("produce", produce).await?;
        let fetch = async {
            let (mut records, mut latencies) = (0, Latencies::default());
            for _ in 0..self.fetches {
                latencies.merge(&sdk::fetch(address, topic, self, &per_partition).await?);
                records += per_partition.values().sum::<u64>();
            }
            Ok((records, latencies))
        };
        meter.measure("fetch", fetch).await
    }

    fn load(&self) -> load::Options {
        load::Options {
            record_bytes: self.record_bytes,
            batch_bytes: (self.record_bytes + load::produce::RECORD_OVERHEAD) * self.records as usize,
            partitions: self.partitions,
            acks: Acks::All,
            producers: self.connections,
            consumers: self.connections,
            depth: self.depth,
            megabytes: self.megabytes,
            fetches: self.fetches,
            rate: 1,
            singles: 1,
            seconds: 0,
        }
    }
}

/// Throughput, and CPU time of processes.
struct Meter {
    processes: Vec<(&'static str, u32)>,
    bytes: usize,
    measures: Measures,
}

impl Meter {
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    async fn measure(&mut self, name: &str, work: impl Future<Output = Result<(u64, Latencies)>>) -> Result<()> {
        let usage = || self.processes.iter().map(|(_, id)| Usage::of(*id)).collect::<Result<Vec<_>>>();
        let before = usage()?;
        let (client, start) = (Usage::own()?, Instant::now());
        let (records, latencies) = work.await?;
        let seconds = start.elapsed().as_secs_f64();
        let after = usage()?;
        let client = Usage::own()?.cpu.saturating_sub(client.cpu).as_secs_f64();
        let gigabytes = records as f64 * self.bytes as f64 / 1e9;
        self.measures.add(format!("{name}: MB/s"), gigabytes * 1e3 / seconds);
        self.measures.add(format!("{name}: thousand records/s"), records as f64 / 1e3 / seconds);
        for (((name_of, _), before), after) in self.processes.iter().zip(before).zip(after) {
            let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64();
            self.measures.add(format!("{name}: CPU-s per GB, {name_of}"), cpu / gigabytes);
        }
        self.measures.add(format!("{name}: CPU-s per GB, client"), client / gigabytes);
        add_percentiles(&mut self.measures, &format!("{name}: request"), latencies);
        Ok(())
    }
}
