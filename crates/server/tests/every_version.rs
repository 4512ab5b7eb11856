//! Whatever is advertised is served: a good and an empty request to every API in every version, and an answer of exactly that
//! version.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod every_version_kit;
mod groups_kit;

use std::collections::BTreeMap;

use every_version_kit::{Walk, empty};
use milena_server::dispatch::APIS;
use milena_testkit::TestServer;

/// Clients turn features off by the minimum versions they see, and use what is in the table.
#[tokio::test]
async fn what_is_advertised_is_answered_in_every_served_version() {
    let server = groups_kit::server().await;
    let mut walk = Walk::begin(&server).await;
    for api in APIS {
        for version in api.served.0..=api.served.1 {
            assert!(walk.step(api.key, version).await, "no request is known for {}", api.name);
        }
    }
    let mut refusals = BTreeMap::new();
    for api in APIS {
        let errors = &server.server().broker().metrics.requests.of(api.key as i16).unwrap().errors;
        let codes: Vec<i16> = errors.counted().map(|(code, _)| code).collect();
        if !codes.is_empty() {
            refusals.insert(api.name, codes);
        }
    }
    let expected = BTreeMap::from([
        // A member of version 4 is given its id.
        ("JoinGroup", vec![79]),
        // The listener asks for no login.
        ("SaslHandshake", vec![34]),
        ("SaslAuthenticate", vec![34]),
        // There is no authorizer.
        ("DescribeAcls", vec![54]),
        ("CreateAcls", vec![54]),
        ("DeleteAcls", vec![54]),
        // The leader is the one it should be.
        ("ElectLeaders", vec![84]),
        // No transaction is known.
        ("DescribeTransactions", vec![105]),
    ]);
    assert_eq!(refusals, expected);
}

/// An answer that the client cannot read is worse for it than an error, whatever it asked for.
#[tokio::test]
async fn an_empty_request_is_answered_in_the_layout_of_its_version() {
    empty::ask(&TestServer::start().await).await;
}
