//! A group that exists goes over to the catch-up consumer, and back.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod support;

use support::migration;
use support::milena::{TOPIC, create, server};

#[tokio::test(flavor = "multi_thread")]
async fn b65_switched_on_for_an_existing_group_it_starts_from_the_plain_offset() {
    let (_server, bootstrap) = server().await;
    create(&bootstrap, TOPIC, 1).await;
    migration::on(&bootstrap, TOPIC).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b66_switched_off_a_plain_consumer_goes_on_at_the_floor_and_loses_nothing() {
    let (_server, bootstrap) = server().await;
    create(&bootstrap, TOPIC, 1).await;
    migration::off(&bootstrap, TOPIC).await;
}
