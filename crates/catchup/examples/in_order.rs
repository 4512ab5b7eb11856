//! Strict order: everything old first, and new records meanwhile in a buffer that is ready when the old ones are through.
//!
//! `cargo run -p milena-catchup --example in_order -- localhost:9092 ledger`
#![allow(clippy::print_stdout, reason = "an example")]

use milena_catchup::{CatchUpConsumer, Lane, Order};
use rdkafka::ClientConfig;
use rdkafka::message::Message;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(bootstrap), Some(topic)) = (args.next(), args.next()) else {
        return Err("usage: in_order BOOTSTRAP TOPIC".into());
    };
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap).set("group.id", "ledger").set("auto.offset.reset", "earliest");
    let consumer = CatchUpConsumer::builder(config)
        .order(Order::Offset)
        .in_flight_max(Lane::Live, 50_000)
        .in_flight_bytes_max(Lane::Live, 128 << 20)
        .build()?;
    consumer.subscribe(&[&topic])?;
    loop {
        tokio::select! {
            delivery = consumer.recv() => {
                let Some(delivery) = delivery? else { break };
                let record = delivery.record();
                println!("{}/{} {:?}", record.partition(), record.offset(), delivery.lane());
                delivery.ack();
            }
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    Ok(consumer.close().await?)
}
