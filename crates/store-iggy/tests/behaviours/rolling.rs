//! The nodes of a cluster are restarted in turn, under load.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use iggy::prelude::{Client as _, Consumer, MessageClient, PollingStrategy, TcpClient};
use iggy_common::{AutoLogin, TcpClientConfig, UserClient};
use milena_store::Store;
use milena_testkit::RawClient;
use milena_testkit::iggy_server::{PASSWORD, USER};

use crate::case::{Case, TOPIC, named};
use crate::cluster::{PARTITIONS, restart, spread, under_load, value_of};
use crate::kafka::{fetch_partition, records_of};

/// Reads all partitions from their beginnings until told to stop: each offset once, in order.
async fn consumer(address: SocketAddr, stop: Arc<AtomicBool>) -> usize {
    let mut client = RawClient::connect(address).await;
    let mut next: BTreeMap<i32, i64> = (0..PARTITIONS).map(|partition| (partition, 0)).collect();
    while !stop.load(Ordering::Relaxed) {
        for (partition, next) in &mut next {
            let data = fetch_partition(&mut client, *partition, *next, 50).await;
            // What passes by itself is asked for again; that an offset is gone would be a loss.
            assert!([0, 3, 5, 6, 56].contains(&data.error_code), "partition {partition}: code {}", data.error_code);
            for record in records_of(&data) {
                assert_eq!(record.offset, *next, "partition {partition}");
                assert_eq!(record.value.unwrap(), value_of(*partition, *next).into_bytes());
                *next += 1;
            }
        }
    }
    next.values().map(|next| usize::try_from(*next).unwrap()).sum()
}

/// What one node delivers of a partition from its beginning on, in that order.
async fn delivered(case: &Case, address: SocketAddr, partition: u32) -> Vec<RangeInclusive<u64>> {
    let config = TcpClientConfig {
        server_address: address.to_string(),
        // The SDK takes a connection that it logs in by itself to the node that leads.
        auto_login: AutoLogin::Disabled,
        ..TcpClientConfig::default()
    };
    let client = TcpClient::create(Arc::new(config)).unwrap();
    client.connect().await.unwrap();
    client.login_user(USER, PASSWORD).await.unwrap();
    let (stream, topic, consumer) = (named(&case.stream), named(TOPIC), Consumer::default());
    let (mut ranges, mut next): (Vec<RangeInclusive<u64>>, u64) = (Vec::new(), 0);
    loop {
        let strategy = PollingStrategy::offset(next);
        let polled = client.poll_messages(&stream, &topic, Some(partition), &consumer, &strategy, 100, false).await;
        let offsets: Vec<u64> = polled.unwrap().messages.iter().map(|message| message.header.offset).collect();
        let Some(last) = offsets.iter().max() else { return ranges };
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
async fn tell_who_is_in_pieces(case: &Case) {
    for (node, address) in case.servers.addresses().into_iter().enumerate() {
        for partition in 0..PARTITIONS.cast_unsigned() {
            let ranges = delivered(case, address, partition).await;
            if ranges.len() > 1 {
                eprintln!("node {node} delivers of partition {partition}: {ranges:?}");
            }
        }
    }
}

async fn b32_a_rolling_restart_under_load_loses_and_doubles_nothing(case: Case) {
    let stop = Arc::new(AtomicBool::new(false));
    let consuming = tokio::spawn(consumer(case.kafka.address(), Arc::clone(&stop)));
    under_load(&case, async |case| {
        for node in 0..3 {
            tokio::task::block_in_place(|| case.real().unwrap().lock().stop(node));
            restart(case, node);
            tokio::time::sleep(Duration::from_secs(8)).await;
        }
        tell_who_is_in_pieces(case).await;
    })
    .await;
    let metrics = case.store.metrics().unwrap();
    let (gaps, lost) = (metrics.gap_reads.get(), metrics.lost_messages.get());
    eprintln!("{gaps} reads from another node, {lost} messages lost, {} stray replies", metrics.stray_replies.get());
    stop.store(true, Ordering::Relaxed);
    let consumed = consuming.await.unwrap();
    eprintln!("{consumed} records consumed meanwhile");
    assert!(consumed > 0);
}
shown!(b32_a_rolling_restart_under_load_loses_and_doubles_nothing in three_nodes with spread());
