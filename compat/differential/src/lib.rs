//! For tests only: the same requests to Apache Kafka and to Milena, and what differs in the answers.
//!
//! - [`scenarios`]: what is asked, in order
//! - [`duo`]: the two servers; sends a request to both and compares the answers
//! - [`tree`]: an answer of any API as a tree
//! - [`normal`]: what two servers must say differently is given a common name
//! - [`compare`]: what differs between two trees
//! - [`accepted`]: the list of differences that are meant
//!
//! Requests are made with the schemas of `kafka-protocol`, as the server reads them; that Kafka understands the requests and its
//! answers are understood shows that the schemas are right.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "for tests only: what goes wrong here is a failed test"
)]

pub mod accepted;
pub mod compare;
pub mod duo;
pub mod normal;
pub mod scenarios;
pub mod tree;
