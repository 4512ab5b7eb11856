//! The nodes of a cluster are restarted in turn, under load.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use milena_store::Store;
use milena_testkit::RawClient;

use crate::case::Case;
use crate::cluster::{PARTITIONS, restart, spread, under_load, value_of};
use crate::held::tell_who_is_in_pieces;
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
