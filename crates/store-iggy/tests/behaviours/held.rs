//! What each node of a cluster has of a partition.

use std::net::SocketAddr;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use iggy::prelude::{Client as _, Consumer, IggyMessage, MessageClient, PollingStrategy, TcpClient};
use iggy_common::{AutoLogin, IggyError, TcpClientConfig, UserClient};
use milena_testkit::iggy_server::{PASSWORD, USER};

use crate::case::{Case, TOPIC, named};
use crate::cluster::PARTITIONS;

/// A client that stays at that node.
async fn at_node(address: SocketAddr) -> Result<TcpClient, IggyError> {
    let config = TcpClientConfig {
        server_address: address.to_string(),
        // The SDK takes a connection that it logs in by itself to the node that leads.
        auto_login: AutoLogin::Disabled,
        ..TcpClientConfig::default()
    };
    let client = TcpClient::create(Arc::new(config))?;
    client.connect().await?;
    client.login_user(USER, PASSWORD).await?;
    Ok(client)
}

async fn polled(case: &Case, client: &TcpClient, partition: u32, from: u64) -> Result<Vec<IggyMessage>, IggyError> {
    let (stream, topic, consumer) = (named(&case.stream), named(TOPIC), Consumer::default());
    let strategy = PollingStrategy::offset(from);
    let polled = client.poll_messages(&stream, &topic, Some(partition), &consumer, &strategy, 100, false).await?;
    Ok(polled.messages)
}

/// What one node delivers of a partition from its beginning on, in that order.
async fn delivered(case: &Case, address: SocketAddr, partition: u32) -> Result<Vec<RangeInclusive<u64>>, IggyError> {
    let client = at_node(address).await?;
    let (mut ranges, mut next): (Vec<RangeInclusive<u64>>, u64) = (Vec::new(), 0);
    loop {
        let messages = polled(case, &client, partition, next).await?;
        let offsets: Vec<u64> = messages.iter().map(|message| message.header.offset).collect();
        let Some(last) = offsets.iter().max() else { return Ok(ranges) };
        next = last + 1;
        for offset in offsets {
            match ranges.last_mut() {
                Some(range) if range.end() + 1 == offset => *range = *range.start()..=offset,
                _ => ranges.push(offset..=offset),
            }
        }
    }
}

/// Says which nodes do not deliver a partition in one piece: without that nobody knows whether a run that went well met
/// what makes it hard.
pub(crate) async fn tell_who_is_in_pieces(case: &Case) {
    for (node, address) in case.servers.addresses().into_iter().enumerate() {
        for partition in 0..PARTITIONS.cast_unsigned() {
            let ranges = delivered(case, address, partition).await.unwrap();
            if ranges.len() > 1 {
                eprintln!("node {node} delivers of partition {partition}: {ranges:?}");
            }
        }
    }
}

/// What each node has at those offsets, in the order in which it delivers them: offset and text. For the message of a test that
/// fails, so that a node that does not answer is told as such.
pub(crate) async fn held(case: &Case, partition: u32, offsets: Range<u64>) -> Vec<String> {
    let mut said = Vec::new();
    for (node, address) in case.servers.addresses().into_iter().enumerate() {
        let messages = async {
            let client = at_node(address).await?;
            polled(case, &client, partition, offsets.start).await
        };
        let text =
            |message: &IggyMessage| format!("{}={}", message.header.offset, String::from_utf8_lossy(&message.payload));
        said.push(match messages.await {
            Ok(messages) => {
                let of_these = messages.iter().filter(|message| offsets.contains(&message.header.offset));
                format!("node {node}: {}", of_these.map(text).collect::<Vec<_>>().join(" "))
            }
            Err(error) => format!("node {node}: {error}"),
        });
    }
    said
}
