//! Producers and consumers over Iggy's own SDK.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use iggy::prelude::{
    Client as _, Consumer, Identifier, IggyMessage, MessageClient as _, Partitioning, PollingStrategy, TcpClient,
};
use iggy_binary_protocol::codes::CREATE_TOPIC_CODE;
use iggy_binary_protocol::requests::topics::CreateTopicRequest;
use iggy_binary_protocol::{WireEncode as _, WireIdentifier, WireName};
use iggy_common::{
    AutoLogin, BinaryTransport as _, Credentials, StreamClient as _, TcpClientConfig, TopicClient as _,
    TopicCreateOptions,
};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Options, STREAM};
use crate::Result;
use crate::latency::Latencies;
use crate::servers::iggy::{PASSWORD, USER};

/// What producers did.
#[derive(Debug, Default)]
pub(super) struct Sent {
    pub(super) per_partition: BTreeMap<u32, u64>,
    pub(super) latencies: Latencies,
}

async fn connect(address: SocketAddr) -> Result<TcpClient> {
    let credentials = Credentials::UsernamePassword(USER.to_owned(), PASSWORD.to_owned().into());
    let client = TcpClient::create(Arc::new(TcpClientConfig {
        server_address: address.to_string(),
        auto_login: AutoLogin::Enabled(credentials),
        nodelay: true,
        ..TcpClientConfig::default()
    }))?;
    client.connect().await?;
    Ok(client)
}

/// Creates a topic whose messages are written before they are acknowledged. The request is made here: the SDK's own would name
/// options of newer servers.
pub(super) async fn create(address: SocketAddr, topic: &str, partitions: u32) -> Result<()> {
    let client = connect(address).await?;
    if client.get_stream(&Identifier::named(STREAM)?).await?.is_none() {
        client.create_stream(STREAM).await?;
    }
    let options = TopicCreateOptions { messages_required_to_save: Some(1), ..TopicCreateOptions::default() };
    let request = CreateTopicRequest {
        stream_id: WireIdentifier::named(STREAM)?,
        partitions_count: partitions,
        name: WireName::new(topic)?,
        options: options.to_explicit_wire(|_| false)?,
    };
    client.send_raw_with_response(CREATE_TOPIC_CODE, request.to_bytes()).await?;
    Ok(())
}

/// Deletes a topic.
pub(super) async fn delete(address: SocketAddr, topic: &str) -> Result<()> {
    connect(address).await?.delete_topic(&Identifier::named(STREAM)?, &Identifier::named(topic)?).await?;
    Ok(())
}

/// Sends `batches` batches over each connection.
pub(super) async fn produce(address: SocketAddr, topic: &str, options: &Options, batches: u64) -> Result<Sent> {
    let mut sending = JoinSet::new();
    for number in 0..options.connections {
        let (client, topic, options) = (connect(address).await?, topic.to_owned(), options.clone());
        sending.spawn(async move { send(&client, &topic, &options, number, batches).await });
    }
    let mut all = Sent::default();
    while let Some(sent) = sending.join_next().await {
        let sent = sent??;
        all.latencies.merge(&sent.latencies);
        for (partition, records) in sent.per_partition {
            *all.per_partition.entry(partition).or_default() += records;
        }
    }
    Ok(all)
}

async fn send(client: &TcpClient, topic: &str, options: &Options, number: usize, batches: u64) -> Result<Sent> {
    let (stream, topic) = (Identifier::named(STREAM)?, Identifier::named(topic)?);
    let payload = vec![b'x'; options.record_bytes];
    let message = || IggyMessage::builder().payload(payload.clone().into()).build();
    let mut messages: Vec<IggyMessage> = (0..options.records).map(|_| message()).collect::<Result<_, _>>()?;
    let mut sent = Sent::default();
    // All partitions in turn; each connection begins with another one.
    let partitions = (0..options.partitions.max(1).unsigned_abs()).cycle().skip(number);
    for partition in partitions.take(usize::try_from(batches)?) {
        let begun = Instant::now();
        client.send_messages(&stream, &topic, &Partitioning::partition_id(partition), &mut messages).await?;
        sent.latencies.add(begun.elapsed());
        *sent.per_partition.entry(partition).or_default() += u64::from(options.records);
    }
    Ok(sent)
}

/// Reads so many records of each partition.
pub(super) async fn fetch(
    address: SocketAddr,
    topic: &str,
    options: &Options,
    per_partition: &BTreeMap<u32, u64>,
) -> Result<Latencies> {
    let connections = options.connections.max(1);
    let mut polling = JoinSet::new();
    for number in 0..connections {
        let share = per_partition.iter().skip(number).step_by(connections);
        let share: Vec<(u32, u64)> = share.map(|(partition, records)| (*partition, *records)).collect();
        let (client, topic, count) = (connect(address).await?, topic.to_owned(), options.poll_records);
        polling.spawn(async move { poll(&client, &topic, count, share).await });
    }
    let mut all = Latencies::default();
    while let Some(latencies) = polling.join_next().await {
        all.merge(&latencies??);
    }
    Ok(all)
}

async fn poll(client: &TcpClient, topic: &str, count: u32, share: Vec<(u32, u64)>) -> Result<Latencies> {
    let (stream, topic, consumer) = (Identifier::named(STREAM)?, Identifier::named(topic)?, Consumer::default());
    let mut latencies = Latencies::default();
    for (partition, records) in share {
        let mut next = 0;
        while next < records {
            let strategy = PollingStrategy::offset(next);
            let begun = Instant::now();
            let polled =
                client.poll_messages(&stream, &topic, Some(partition), &consumer, &strategy, count, false).await?;
            latencies.add(begun.elapsed());
            let last = polled.messages.last().ok_or("the server does not deliver what it stored")?;
            next = last.header.offset + 1;
        }
    }
    Ok(latencies)
}
