//! From the start of the process, on an empty folder, to the first answers.
//!
//! The clock starts when the process does; a Kafka broker's folder is formatted before. A client asks again every millisecond: for
//! metadata of a topic that is created by that, and then for its first record to be stored, as a service does that is started
//! together with its broker.

use std::time::Duration;

use clap::Args;
use milena_wire::kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use milena_wire::kafka_protocol::messages::{MetadataRequest, ProduceRequest};
use tokio::time::{Instant, sleep, timeout};

use super::load::{Acks, one_record};
use super::meter::add_memory;
use crate::Result;
use crate::client::Connection;
use crate::report::Measures;
use crate::servers::{Launch, Target};
use crate::setup::topic_name;

/// Version of Metadata in which topics are created, and that Kafka 4 and Milena speak.
const METADATA: i16 = 9;

/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(1);

/// An answer that takes longer is not waited for: a broker that is just starting may never give it.
const ANSWER_WAIT: Duration = Duration::from_secs(1);

/// Longest start.
const PATIENCE: Duration = Duration::from_secs(120);

const TOPIC: &str = "first";

/// Options of the scenario.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// When a record counts as stored
    #[arg(long, value_enum, default_value_t = Acks::All)]
    pub acks: Acks,
}

impl Options {
    /// One round, on a server of its own.
    ///
    /// # Errors
    /// When the server does not get ready.
    pub async fn round(&self, launch: &Launch) -> Result<Measures> {
        let (target, start) = launch.spawn().await?;
        self.answers(&target, start).await
    }

    /// How long after `start` a server, which is on its way, gives its first answers.
    ///
    /// # Errors
    /// When it does not get ready.
    pub async fn answers(&self, target: &Target, start: Instant) -> Result<Measures> {
        let metadata = until(target, start, async || has_leader(target).await).await?;
        let request = one_record(TOPIC, self.acks)?;
        let stored = until(target, start, async || is_stored(target, &request).await).await?;
        let mut measures = Measures::default();
        measures.add("start to the first metadata, ms", metadata.as_secs_f64() * 1e3);
        measures.add("start to the first stored record, ms", stored.as_secs_f64() * 1e3);
        add_memory(&mut measures, target)?;
        Ok(measures)
    }
}

/// Time from `start` until `done` says yes. Errors are a no: nobody may be listening yet.
async fn until(target: &Target, start: Instant, done: impl AsyncFn() -> Result<bool>) -> Result<Duration> {
    loop {
        if let Ok(Ok(true)) = timeout(ANSWER_WAIT, done()).await {
            return Ok(start.elapsed());
        }
        if start.elapsed() > PATIENCE {
            return Err(format!("{} does not get ready{}", target.address, target.last_words()).into());
        }
        sleep(PAUSE).await;
    }
}

async fn has_leader(target: &Target) -> Result<bool> {
    let mut connection = Connection::open(&target.address).await?;
    let topic = MetadataRequestTopic::default().with_name(Some(topic_name(TOPIC)));
    let request = MetadataRequest::default().with_topics(Some(vec![topic])).with_allow_auto_topic_creation(true);
    let answer = connection.call(METADATA, &request).await?;
    let led = answer.topics.iter().flat_map(|topic| &topic.partitions).any(|partition| partition.error_code == 0);
    Ok(led && !answer.brokers.is_empty())
}

async fn is_stored(target: &Target, request: &ProduceRequest) -> Result<bool> {
    let mut connection = Connection::open(&target.address).await?;
    let answer = connection.call(super::load::PRODUCE, request).await?;
    let mut partitions = answer.responses.iter().flat_map(|topic| &topic.partition_responses);
    Ok(partitions.next().is_some_and(|partition| partition.error_code == 0))
}
