//! What is asked, in order: each scenario leaves behind what the ones after it do not need to be without.
//!
//! - [`negotiation`]: versions, keys, malformed bodies
//! - [`creation`], [`metadata`], [`growth`]: topics
//! - [`produce`], [`batches`]: records in, and batches that are wrong
//! - [`fetch`], [`sessions`], [`offsets`]: records out
//! - [`producers`]: idempotent producers, transactions
//! - [`groups`], [`membership`], [`committed`]: members and their offsets
//! - [`configs`], [`admin`]: what admin tools ask
//! - [`unserved`]: what Milena does not serve
//! - [`words`]: what requests are made of

pub mod admin;
pub mod batches;
pub mod committed;
pub mod configs;
pub mod creation;
pub mod fetch;
pub mod groups;
pub mod growth;
pub mod membership;
pub mod metadata;
pub mod negotiation;
pub mod offsets;
pub mod produce;
pub mod producers;
pub mod sessions;
pub mod unserved;
pub mod words;

use std::pin::Pin;

use crate::duo::Duo;

/// A scenario at work.
pub type Run<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// A scenario and its name.
pub type Scenario = (&'static str, fn(&mut Duo) -> Run<'_>);

/// All, by name.
pub const ALL: [Scenario; 16] = [
    ("negotiation", |duo| Box::pin(negotiation::run(duo))),
    ("creation", |duo| Box::pin(creation::run(duo))),
    ("metadata", |duo| Box::pin(metadata::run(duo))),
    ("growth", |duo| Box::pin(growth::run(duo))),
    ("produce", |duo| Box::pin(produce::run(duo))),
    ("batches", |duo| Box::pin(batches::run(duo))),
    ("fetch", |duo| Box::pin(fetch::run(duo))),
    ("sessions", |duo| Box::pin(sessions::run(duo))),
    ("offsets", |duo| Box::pin(offsets::run(duo))),
    ("producers", |duo| Box::pin(producers::run(duo))),
    ("configs", |duo| Box::pin(configs::run(duo))),
    ("admin", |duo| Box::pin(admin::run(duo))),
    ("groups", |duo| Box::pin(groups::run(duo))),
    ("membership", |duo| Box::pin(membership::run(duo))),
    ("committed", |duo| Box::pin(committed::run(duo))),
    ("unserved", |duo| Box::pin(unserved::run(duo))),
];
