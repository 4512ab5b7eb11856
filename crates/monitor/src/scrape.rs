//! One page of metrics.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use milena_server::Broker;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, prometheus_text};
use prometheus_client::registry::Registry;

use crate::families;
use crate::lag::{self, Lag};
use crate::monitor::{Server, Watched};
use crate::process::Process;
use crate::writer::Families;

/// A page, and when it was begun.
pub(crate) struct Page {
    begun: Instant,
    text: Bytes,
}

/// A page that was begun after this call was: whoever comes while another page is being made waits for it to be over, and
/// all who waited share the next one. So any number of scrapers cost no more than one at a time.
pub(crate) async fn page(watched: &Arc<Watched>) -> Result<Bytes, fmt::Error> {
    let asked = Instant::now();
    let mut last = watched.page.lock().await;
    if let Some(page) = last.as_ref().filter(|page| page.begun >= asked) {
        return Ok(page.text.clone());
    }
    let begun = Instant::now();
    let text = Bytes::from(write(watched).await?);
    *last = Some(Page { begun, text: text.clone() });
    Ok(text)
}

async fn write(watched: &Arc<Watched>) -> Result<String, fmt::Error> {
    let process = tokio::task::spawn_blocking(Process::read).await.unwrap_or_default();
    let broker = match watched.server() {
        Server::Running(broker) => Some(broker),
        Server::Starting | Server::Stopped => None,
    };
    let lag = match &broker {
        Some(broker) => lag::measure(broker, watched.settings.lag, watched.settings.lag_series_max).await,
        None => Lag::default(),
    };
    let now = Now { watched: Arc::clone(watched), process, broker, lag };
    // Ten thousand series take milliseconds, for which no heartbeat should wait.
    tokio::task::spawn_blocking(move || encode(now)).await.unwrap_or(Err(fmt::Error))
}

fn encode(now: Now) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(now));
    let mut text = String::new();
    prometheus_text::encode(&mut text, &registry)?;
    Ok(text)
}

/// Everything that one page tells.
pub(crate) struct Now {
    pub(crate) watched: Arc<Watched>,
    pub(crate) process: Process,
    /// The server, while it runs.
    pub(crate) broker: Option<Arc<Broker>>,
    pub(crate) lag: Lag,
}

impl fmt::Debug for Now {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Now").field("process", &self.process).finish_non_exhaustive()
    }
}

impl Collector for Now {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        families::write(self, &mut Families::new(encoder))
    }
}
