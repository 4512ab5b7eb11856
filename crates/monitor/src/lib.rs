//! Metrics and health over HTTP: what a running server says about itself.
//!
//! - [`settings`]: what an operator can set
//! - [`monitor`]: the listener, and which server it looks at
//! - `http`: the paths
//! - `health`: whether clients should come here now
//! - `scrape`: one page of metrics; `families/`: one file per part of the server; `writer`: the form
//! - `lag`: how far groups are behind
//! - `process`: what the system knows of this process
//! - [`limits`]: every bound
//!
//! Counting is not here: the parts of the server count in plain atomics, this crate reads them. The text form is that of
//! `prometheus-client`, HTTP is that of `hyper`.

mod families;
mod health;
mod http;
mod lag;
pub mod limits;
pub mod monitor;
mod process;
mod scrape;
pub mod settings;
mod writer;

pub use monitor::Monitor;
pub use settings::{LagDetail, MonitorSettings};
