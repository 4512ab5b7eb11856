//! An existing group, on and off: the committed offset is a plain one before, meanwhile and afterwards.
//!
//! `migration BOOTSTRAP GROUP TOPIC on` consumes until everything is caught up; `... off` does the same with a plain consumer, which
//! begins at the committed offset and knows nothing of ranges. Stop one before the other is started.
#![allow(clippy::print_stdout, reason = "an example")]

use std::time::Duration;

use milena_catchup::{CatchUpConsumer, Lag, State};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let [bootstrap, group, topic, direction] = args.as_slice() else {
        return Err("usage: migration BOOTSTRAP GROUP TOPIC on|off".into());
    };
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap).set("group.id", group).set("auto.offset.reset", "earliest");
    match direction.as_str() {
        "on" => on(config, topic).await,
        "off" => tokio::task::block_in_place(|| off(config, topic)),
        _ => Err("expected on or off".into()),
    }
}

async fn on(config: ClientConfig, topic: &str) -> Result<(), Box<dyn std::error::Error>> {
    let consumer = CatchUpConsumer::builder(config).fork_when(Lag::records(1_000)).build()?;
    consumer.subscribe(&[topic])?;
    // Nothing for a second, and every partition in one lane: caught up.
    loop {
        let next = tokio::time::timeout(Duration::from_secs(1), consumer.recv()).await;
        let status = consumer.status();
        match next {
            Ok(delivery) => {
                let Some(delivery) = delivery? else { break };
                println!("{:?} {}", delivery.lane(), delivery.record().offset());
                delivery.ack();
            }
            Err(_) if !status.is_empty() && status.iter().all(|(_, status)| status.state == State::Live) => break,
            Err(_) => {}
        }
    }
    Ok(consumer.close().await?)
}

fn off(mut config: ClientConfig, topic: &str) -> Result<(), Box<dyn std::error::Error>> {
    config.set("enable.auto.commit", "false").set("enable.partition.eof", "true");
    let consumer: BaseConsumer = config.create()?;
    consumer.subscribe(&[topic])?;
    loop {
        match consumer.poll(Duration::from_secs(1)) {
            Some(Ok(record)) => {
                println!("plain {}", record.offset());
                consumer.commit_message(&record, CommitMode::Async)?;
            }
            Some(Err(KafkaError::PartitionEOF(_))) => break,
            Some(Err(error)) => return Err(error.into()),
            None => {}
        }
    }
    Ok(())
}
