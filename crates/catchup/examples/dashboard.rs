//! A dashboard that shows the newest value of each key at once, and fills in the older ones beside it.
//!
//! Old records come after newer ones here, so the offset is kept with the value and a lower one is ignored.
//!
//! `cargo run -p milena-catchup --example dashboard -- localhost:9092 prices`
#![allow(clippy::print_stdout, reason = "an example")]

use std::collections::HashMap;

use milena_catchup::{CatchUpConsumer, Lag};
use rdkafka::ClientConfig;
use rdkafka::message::Message;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(bootstrap), Some(topic)) = (args.next(), args.next()) else {
        return Err("usage: dashboard BOOTSTRAP TOPIC".into());
    };
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap).set("group.id", "dashboard").set("auto.offset.reset", "earliest");
    let consumer = CatchUpConsumer::builder(config).fork_when(Lag::records(1_000)).build()?;
    consumer.subscribe(&[&topic])?;

    let mut newest: HashMap<(i32, Vec<u8>), i64> = HashMap::new();
    while let Some(delivery) = consumer.recv().await? {
        let record = delivery.record();
        let key = (record.partition(), record.key().unwrap_or_default().to_vec());
        let known = newest.entry(key).or_insert(-1);
        if record.offset() > *known {
            *known = record.offset();
            let (key, value) = (record.key().unwrap_or_default(), record.payload().unwrap_or_default());
            println!("{} = {}", String::from_utf8_lossy(key), String::from_utf8_lossy(value));
        }
        delivery.ack();
    }
    Ok(())
}
