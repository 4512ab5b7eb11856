//! Whether clients should come here now.

use milena_groups::GroupError;
use milena_server::groups::OFFSETS_TOPIC;
use milena_server::lifecycle::Phase;
use milena_store::{INTERNAL_STREAM, ReadLimit, Store, StoreError};
use tokio::time::timeout;

use crate::limits::PROBE_TIME_MAX;
use crate::monitor::{Server, Watched};

/// `Ok` when requests are answered and the store answers too; else the reason, as a sentence.
pub(crate) async fn readiness(watched: &Watched) -> Result<(), String> {
    let broker = match watched.server() {
        Server::Starting => return Err("the server is starting: it opens its store".to_owned()),
        Server::Running(broker) => broker,
        Server::Stopped => return Err("the server has stopped".to_owned()),
    };
    if broker.lifecycle.phase() >= Phase::Draining {
        return Err("the server is shutting down".to_owned());
    }
    // A server that leaves groups to another one is as good as any.
    if broker.groups.usage().serving == Err(GroupError::Loading) {
        return Err("the committed offsets are being loaded".to_owned());
    }
    match timeout(PROBE_TIME_MAX, probe(broker.store.as_ref())).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(format!("the store does not work: {error}")),
        Err(_) => Err(format!("the store did not answer within {} s", PROBE_TIME_MAX.as_secs())),
    }
}

/// Goes the way that a Fetch goes: the topic, its bounds, and its last entry, if it has one.
async fn probe(store: &dyn Store) -> Result<(), StoreError> {
    // It is not there yet where groups were always coordinated elsewhere; that the store said so is all there is to ask.
    let Some(found) = store.topic(INTERNAL_STREAM, OFFSETS_TOPIC).await? else { return Ok(()) };
    let at = found.topic.partition(0);
    let bounds = store.bounds(&at).await?;
    let Some(last) = bounds.end.checked_sub(1).filter(|last| *last >= bounds.start) else { return Ok(()) };
    match store.read(&at, last, ReadLimit { bytes: 1, at_least_one: true }).await {
        // A snapshot was written and what lay before it trimmed, between the two calls.
        Ok(_) | Err(StoreError::OutOfRange { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
