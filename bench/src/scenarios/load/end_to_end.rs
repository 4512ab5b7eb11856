//! From the producer to the consumer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::{Plan, fetch, produce};
use crate::Result;
use crate::client::Connection;
use crate::latency::Latencies;
use crate::pulse::{Rhythm, pulse};
use crate::servers::Target;
use crate::setup::{create_topic, delete_topic};

/// How long a fetch waits for a record: longer than any pause between two of them.
const WAIT_MS: i32 = 500;

/// Single records to one partition, and a consumer that waits for them; the time from sending one to having it. The n-th
/// record that is sent has offset n, since nobody else produces there.
pub(super) async fn singles(plan: &Plan, target: &Target, round: usize) -> Result<Latencies> {
    let topic = format!("singles-{round}");
    let mut connection = target.connect().await?;
    create_topic(&mut connection, &topic, 1).await?;
    let plan = Plan { topic: topic.clone(), batch: produce::Batch::new(plan.options.record_bytes, 0)?, ..plan.clone() };
    let sent: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let start = Instant::now();
    let from = start + Duration::from_secs(1);
    let interval = Some(Duration::from_secs(1) / plan.options.singles.max(1));
    let until = from + Duration::from_secs(plan.options.seconds);
    let rhythm = Rhythm { start, interval, depth: 100, from, until };
    let reading = tokio::spawn(read(plan.address.clone(), topic.clone(), Arc::clone(&sent), from, until));
    let mut producer = Connection::open(&plan.address).await?;
    let ask = || {
        sent.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
        plan.request(0, &plan.batch)
    };
    pulse(&mut producer, produce::PRODUCE, &rhythm, ask, produce::stored).await?;
    let latencies = reading.await??;
    delete_topic(&mut connection, &topic).await?;
    Ok(latencies)
}

async fn read(
    address: String,
    topic: String,
    sent: Arc<Mutex<Vec<Instant>>>,
    from: Instant,
    until: Instant,
) -> Result<Latencies> {
    let mut connection = Connection::open(&address).await?;
    let mut positions: fetch::Positions = BTreeMap::from([(0, (0, i64::MAX))]);
    let mut latencies = Latencies::default();
    while Instant::now() < until {
        let before = position(&positions)?;
        let answer = connection.call(fetch::FETCH, &fetch::request(&topic, &positions, WAIT_MS)).await?;
        let now = Instant::now();
        fetch::advance(&answer, &mut positions)?;
        let sent = sent.lock().unwrap_or_else(PoisonError::into_inner);
        let new = sent.get(before..position(&positions)?).ok_or("a record that was not sent")?;
        for sent in new.iter().filter(|sent| **sent >= from) {
            latencies.add(now - *sent);
        }
    }
    Ok(latencies)
}

fn position(positions: &fetch::Positions) -> Result<usize> {
    Ok(usize::try_from(positions.get(&0).map_or(0, |(next, _)| *next))?)
}
