//! Produce, fetch, and the way from one to the other.
//!
//! Four phases per round, on a topic of its own: producers that keep requests in flight until a volume is stored; consumers
//! that read all of it; producers at a fixed rate, for the time that a server takes when it is not flooded; and single
//! records at a fixed rate to a consumer that waits for them.
//!
//! Batches are built once and sent again and again, so that the client's work is one copy of each.

mod end_to_end;
pub(super) mod fetch;
pub(super) mod produce;

pub(super) use produce::PRODUCE;

use clap::{Args, ValueEnum};
use milena_wire::kafka_protocol::messages::ProduceRequest;

use super::meter::{Meter, add_memory, add_percentiles};
use crate::Result;
use crate::report::Measures;
use crate::servers::Target;
use crate::setup::{create_topic, delete_topic};

/// Options of the scenario.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Bytes of the value of a record
    #[arg(long, default_value_t = 1024)]
    pub record_bytes: usize,
    /// Bytes of a batch, about
    #[arg(long, default_value_t = 64 << 10)]
    pub batch_bytes: usize,
    /// Partitions of the topic
    #[arg(long, default_value_t = 1)]
    pub partitions: i32,
    /// When a batch counts as stored
    #[arg(long, value_enum, default_value_t = Acks::All)]
    pub acks: Acks,
    /// Connections that produce
    #[arg(long, default_value_t = 2)]
    pub producers: usize,
    /// Connections that fetch
    #[arg(long, default_value_t = 1)]
    pub consumers: usize,
    /// Requests that a producer has in flight
    #[arg(long, default_value_t = 5)]
    pub depth: usize,
    /// Megabytes of values that are produced and fetched
    #[arg(long, default_value_t = 1_000)]
    pub megabytes: u64,
    /// Times that all of it is fetched: one takes too few clock ticks of CPU time to be told from the next
    #[arg(long, default_value_t = 5)]
    pub fetches: u32,
    /// Megabytes of values per second in the phase at a fixed rate
    #[arg(long, default_value_t = 20)]
    pub rate: u64,
    /// Single records per second in the last phase
    #[arg(long, default_value_t = 500)]
    pub singles: u32,
    /// Seconds of each phase at a fixed rate; 0 leaves them out
    #[arg(long, default_value_t = 5)]
    pub seconds: u64,
}

/// When a batch counts as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Acks {
    /// When the leader has it
    #[value(name = "1")]
    Leader,
    /// When all replicas that keep up have it
    All,
}

impl Acks {
    pub(super) fn code(self) -> i16 {
        match self {
            Self::Leader => 1,
            Self::All => -1,
        }
    }
}

/// What the phases of a round share.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    options: Options,
    address: String,
    topic: String,
    batch: produce::Batch,
}

/// A load on a topic that exists.
///
/// # Errors
/// When no batch can be made as the options say.
#[cfg(feature = "iggy")]
pub(super) fn plan(options: Options, address: &str, topic: &str) -> Result<Plan> {
    let batch = produce::Batch::new(options.record_bytes, options.batch_bytes)?;
    Ok(Plan { options, address: address.to_owned(), topic: topic.to_owned(), batch })
}

/// A request with one record for partition 0.
///
/// # Errors
/// When no batch can be made.
pub(super) fn one_record(topic: &str, acks: Acks) -> Result<ProduceRequest> {
    let batch = produce::Batch::new(1, 0)?;
    Ok(produce::request(topic, acks, 0, &batch))
}

/// Stores that many megabytes of values of 1 KiB in batches of 1 MB, over one connection, for scenarios that need a log of
/// some size, and adds what it took.
///
/// # Errors
/// When a request is refused.
pub async fn store(target: &Target, partitions: i32, megabytes: u64, measures: &mut Measures) -> Result<()> {
    let options = Options {
        record_bytes: 1024,
        batch_bytes: 1_000_000,
        partitions,
        acks: Acks::All,
        producers: 1,
        consumers: 1,
        depth: 5,
        megabytes,
        fetches: 0,
        rate: 1,
        singles: 1,
        seconds: 0,
    };
    let topic = format!("stored-{partitions}");
    create_topic(&mut target.connect().await?, &topic, partitions).await?;
    let batch = produce::Batch::new(options.record_bytes, options.batch_bytes)?;
    let plan = Plan { options, address: target.address.clone(), topic, batch };
    let meter = Meter::start(target)?;
    let produced = produce::volume(&plan).await?;
    meter.stop(target, "store", produced.records, plan.options.record_bytes, measures)?;
    add_memory(measures, target)
}

impl Options {
    /// One round.
    ///
    /// # Errors
    /// When a request is refused.
    pub async fn round(&self, target: &Target, round: usize) -> Result<Measures> {
        let topic = format!("load-{}-{round}", self.partitions);
        let mut connection = target.connect().await?;
        create_topic(&mut connection, &topic, self.partitions).await?;
        let plan = Plan {
            options: self.clone(),
            address: target.address.clone(),
            topic: topic.clone(),
            batch: produce::Batch::new(self.record_bytes, self.batch_bytes)?,
        };
        let mut measures = Measures::default();
        let meter = Meter::start(target)?;
        let produced = produce::volume(&plan).await?;
        meter.stop(target, "produce", produced.records, self.record_bytes, &mut measures)?;
        add_percentiles(&mut measures, "produce: request", produced.latencies);
        let meter = Meter::start(target)?;
        let mut fetched = fetch::Fetched::default();
        for _ in 0..self.fetches {
            fetched.merge(&fetch::all(&plan, &produced.per_partition).await?);
        }
        meter.stop(target, "fetch", fetched.records, self.record_bytes, &mut measures)?;
        add_percentiles(&mut measures, "fetch: request", fetched.latencies);
        if self.seconds > 0 {
            self.at_fixed_rates(&plan, target, round, &mut measures).await?;
        }
        add_memory(&mut measures, target)?;
        delete_topic(&mut connection, &topic).await?;
        Ok(measures)
    }

    async fn at_fixed_rates(&self, plan: &Plan, target: &Target, round: usize, measures: &mut Measures) -> Result<()> {
        let steady = produce::steady(plan).await?;
        add_percentiles(measures, &format!("{} MB/s: request", self.rate), steady.latencies);
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
        measures.add(format!("{} MB/s: requests skipped", self.rate), steady.skipped as f64);
        let singles = end_to_end::singles(plan, target, round).await?;
        add_percentiles(measures, "end to end", singles);
        Ok(())
    }
}
