//! What a gateway must make of an Iggy server, behaviour by behaviour: each test runs with Milena and Iggy's SDK in front
//! of Iggy's protocol served in this process, and, where `TEST_IGGY_SERVER` names the binary of a real server, in front of
//! one node and of a cluster of three. The report on the Iggy engine has a row for each behaviour.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    missing_docs,
    reason = "test code"
)]

#[macro_use]
mod case;
mod cluster;
mod connections;
mod doubt;
mod fetch;
mod frames;
mod groups;
mod held;
mod kafka;
#[path = "../common/on_disk.rs"]
mod on_disk;
mod produce;
mod report;
mod rolling;
mod tls;
mod topics;
