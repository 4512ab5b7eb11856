//! The families of metrics, one file for each part of the server.

mod connections;
mod data;
mod groups;
mod iggy;
mod process;
mod requests;
mod store;
mod tls;

use std::fmt;

use crate::scrape::Now;
use crate::writer::Families;

/// Writes all of them. While there is no server, only what concerns the process is known.
pub(crate) fn write(now: &Now, families: &mut Families<'_>) -> fmt::Result {
    process::write(now, families)?;
    let Some(broker) = &now.broker else { return Ok(()) };
    connections::write(broker, families)?;
    tls::write(broker, families)?;
    requests::write(broker, families)?;
    data::write(broker, families)?;
    store::write(broker, families)?;
    groups::write(broker, &now.lag, families)?;
    groups::write_lag(&now.lag, families)?;
    let Some(door) = now.watched.door.get() else { return Ok(()) };
    door.look(|metrics, connections| iggy::write(metrics, connections, families)).unwrap_or(Ok(()))
}
