//! The store as its callers see it.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use iggy::prelude::TcpClient;
use iggy_common::{Client, IggyError, OptionsScope, SystemClient};
use milena_store::metrics::EngineMetrics;
use milena_store::{
    AppendBatch, Appended, Bounds, Capabilities, Entry, Epochs, Found, GrowthWatcher, OffsetStore, PartitionRef,
    PartitionSize, ReadLimit, Store, StoreError, StoreFuture, TimeKind, TopicInfo, TopicRef, TopicSettings,
};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::config::IggyConfig;
use crate::dialer::{DialError, Dialer};
use crate::epochs;
use crate::inner::Inner;
use crate::limits;
use crate::options::Keys;
use crate::probe;

/// Why a store could not be opened.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No server address, or too many connections.
    #[error("{0}")]
    Config(String),
    /// The server refuses this user or this program, or its certificate is not acceptable; trying again is no use.
    #[error("the Iggy server refuses: {0}")]
    Refused(String),
    /// The server did not answer in time.
    #[error("the Iggy server cannot be reached: {0}")]
    Unreachable(String),
    /// Milena's own state on the server cannot be read or written.
    #[error("the state that Milena keeps on the Iggy server cannot be used: {0}")]
    State(StoreError),
}

/// A store on an Iggy server. Needs the tokio runtime in which it was opened for as long as it lives; its futures
/// may be awaited anywhere.
pub struct IggyStore {
    inner: Arc<Inner>,
    runtime: Handle,
    tasks: Vec<AbortHandle>,
}

impl IggyStore {
    /// Connects, logs in, and reads what Milena keeps on the server. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When the server refuses, or does not answer within [`IggyConfig::start_timeout`].
    pub async fn open(config: IggyConfig) -> Result<Self, OpenError> {
        check(&config)?;
        let start_timeout = config.start_timeout;
        let dialer = Arc::new(Dialer::new(config));
        let (client, keys) = reach(&dialer, start_timeout).await?;
        if let Err(error) = dialer.renew_token_over(&client).await {
            tracing::warn!(%error, "no access token: every connection logs in with the password, which is slow");
        }
        let inner = Arc::new(Inner::new(dialer, keys));
        match timeout(start_timeout, inner.open_journal()).await {
            Ok(opened) => opened.map_err(OpenError::State)?,
            Err(_) => {
                return Err(OpenError::Unreachable(format!("no answer about topics within {start_timeout:?}")));
            }
        }
        let tasks = vec![
            tokio::spawn(probe::run(Arc::downgrade(&inner))).abort_handle(),
            tokio::spawn(epochs::run(Arc::downgrade(&inner))).abort_handle(),
            tokio::spawn(renew_tokens(Arc::clone(&inner.dialer))).abort_handle(),
        ];
        Ok(Self { inner, runtime: Handle::current(), tasks })
    }

    /// Runs `work` as a task of the store's runtime: it goes to its end whatever becomes of the caller, so that no
    /// reply is lost that says where an append landed.
    pub(crate) fn run<'a, T, F>(&'a self, work: impl FnOnce(Arc<Inner>) -> F) -> StoreFuture<'a, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        if let Err(error) = self.inner.check_open() {
            return Box::pin(std::future::ready(Err(error)));
        }
        let task = self.runtime.spawn(work(Arc::clone(&self.inner)));
        Box::pin(async move {
            task.await.unwrap_or_else(|error| {
                Err(StoreError::InDoubt { reason: format!("the task that did it ended: {error}") })
            })
        })
    }
}

impl Drop for IggyStore {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

fn check(config: &IggyConfig) -> Result<(), OpenError> {
    if config.servers.is_empty() {
        return Err(OpenError::Config("no address of an Iggy server".to_owned()));
    }
    let most = config.append_connections.max(config.read_connections);
    if most > limits::CONNECTIONS_MAX || config.append_connections.min(config.read_connections) == 0 {
        return Err(OpenError::Config(format!("connections must be 1 to {}", limits::CONNECTIONS_MAX)));
    }
    Ok(())
}

/// Tries to reach the server until it answers, refuses, or the time is over. Answers a connection that is logged in with the
/// password, which is slow enough to be done once, and the option keys of topics.
async fn reach(dialer: &Dialer, patience: Duration) -> Result<(Arc<TcpClient>, Keys), OpenError> {
    let deadline = Instant::now() + patience;
    let mut pause = limits::RECONNECT_PAUSE;
    loop {
        match timeout(patience, first_answer(dialer)).await {
            Ok(Ok(answered)) => return Ok(answered),
            Ok(Err(error)) if error.is_final() => return Err(OpenError::Refused(error.to_string())),
            Ok(Err(error)) if Instant::now() + pause >= deadline => {
                return Err(OpenError::Unreachable(error.to_string()));
            }
            Ok(Err(error)) => tracing::info!(%error, "the Iggy server does not answer yet"),
            Err(_) => return Err(OpenError::Unreachable(format!("no answer within {patience:?}"))),
        }
        sleep(pause).await;
        pause = (pause * 2).min(limits::RECONNECT_PAUSE_MAX);
    }
}

async fn first_answer(dialer: &Dialer) -> Result<(Arc<TcpClient>, Keys), DialError> {
    let client = dialer.dial().await?;
    match client.describe_options(OptionsScope::Topic).await {
        Ok(specs) => Ok((client, Keys::new(&specs))),
        // An implementation that has no options to choose from.
        Err(IggyError::FeatureUnavailable | IggyError::InvalidCommand) => Ok((client, Keys::default())),
        Err(error) => {
            let _ = client.disconnect().await;
            Err(DialError::Refused { address: "the server".to_owned(), error })
        }
    }
}

async fn renew_tokens(dialer: Arc<Dialer>) {
    let renewal = dialer.config().token_renewal;
    let mut pause = renewal;
    loop {
        let refused = timeout(pause, dialer.token_refused()).await.is_ok();
        pause = match dialer.renew_token().await {
            Ok(()) => renewal,
            Err(error) => {
                tracing::warn!(%error, "the access token could not be renewed, trying again");
                limits::TOKEN_RETRY
            }
        };
        if refused {
            // Where every token is refused each connection logs in with the password, and a new token is no help.
            sleep(limits::TOKEN_REFUSED_PAUSE).await;
        }
    }
}

impl Store for IggyStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            timestamp_span_micros: Some(limits::TIMESTAMP_SPAN_MICROS),
            payload_bytes_min: 1,
            payload_bytes_max: limits::PAYLOAD_BYTES_MAX,
            header_bytes_max: limits::HEADER_BYTES_MAX,
            partitions_max: limits::PARTITIONS_MAX,
            trims: true,
            foreign_writers: true,
            bounds_age: self.inner.config().bounds_max_age,
        }
    }

    fn topics(&self) -> StoreFuture<'_, Vec<TopicInfo>> {
        self.run(|inner| async move { inner.list().await })
    }

    fn topic<'a>(&'a self, stream: &'a str, topic: &'a str) -> StoreFuture<'a, Option<TopicInfo>> {
        let (stream, topic) = (stream.to_owned(), topic.to_owned());
        self.run(|inner| async move { inner.topic_info(&stream, &topic).await })
    }

    fn create_topic<'a>(
        &'a self,
        stream: &'a str,
        topic: &'a str,
        partitions: u32,
        settings: &'a TopicSettings,
    ) -> StoreFuture<'a, TopicInfo> {
        let (stream, topic, settings) = (stream.to_owned(), topic.to_owned(), settings.clone());
        self.run(move |inner| async move { inner.create(&stream, &topic, partitions, &settings).await })
    }

    fn delete_topic<'a>(&'a self, topic: &'a TopicRef) -> StoreFuture<'a, ()> {
        let topic = topic.clone();
        self.run(|inner| async move { inner.delete(&topic).await })
    }

    fn grow_topic<'a>(&'a self, topic: &'a TopicRef, partitions: u32) -> StoreFuture<'a, TopicInfo> {
        let topic = topic.clone();
        self.run(move |inner| async move { inner.grow(&topic, partitions).await })
    }

    fn update_settings<'a>(&'a self, topic: &'a TopicRef, settings: &'a TopicSettings) -> StoreFuture<'a, TopicInfo> {
        let (topic, settings) = (topic.clone(), settings.clone());
        self.run(|inner| async move { inner.update(&topic, &settings).await })
    }

    fn append<'a>(&'a self, at: &'a PartitionRef, batch: AppendBatch) -> StoreFuture<'a, Appended> {
        let at = at.clone();
        self.run(|inner| async move {
            let (messages, bytes) = (u64::from(batch.count), batch.frames.len() as u64);
            let appended = inner.append(&at, batch).await?;
            inner.metrics.appends.add(1);
            inner.metrics.messages.add(messages);
            inner.metrics.bytes.add(bytes);
            Ok(appended)
        })
    }

    fn read<'a>(&'a self, at: &'a PartitionRef, from: u64, limit: ReadLimit) -> StoreFuture<'a, Vec<Entry>> {
        let at = at.clone();
        self.run(move |inner| async move { inner.read(&at, from, limit).await })
    }

    fn find<'a>(
        &'a self,
        at: &'a PartitionRef,
        from: u64,
        time_micros: u64,
        kind: TimeKind,
    ) -> StoreFuture<'a, Option<Found>> {
        let at = at.clone();
        self.run(move |inner| async move { inner.find(&at, from, time_micros, kind).await })
    }

    fn newest<'a>(&'a self, at: &'a PartitionRef, kind: TimeKind) -> StoreFuture<'a, Option<Found>> {
        let at = at.clone();
        self.run(move |inner| async move { inner.newest(&at, kind).await })
    }

    fn bounds<'a>(&'a self, at: &'a PartitionRef) -> StoreFuture<'a, Bounds> {
        if self.inner.check_open().is_ok()
            && let Some(bounds) = self.inner.recent_bounds(at)
        {
            return Box::pin(std::future::ready(Ok(bounds)));
        }
        let at = at.clone();
        self.run(|inner| async move { inner.bounds(&at).await })
    }

    fn epochs(&self, at: &PartitionRef) -> Epochs {
        self.inner.epochs(at)
    }

    fn trim<'a>(&'a self, at: &'a PartitionRef, before: u64) -> StoreFuture<'a, Bounds> {
        let at = at.clone();
        self.run(move |inner| async move { inner.trim(&at, before).await })
    }

    fn sizes<'a>(&'a self, topic: &'a TopicRef) -> StoreFuture<'a, Vec<PartitionSize>> {
        let topic = topic.clone();
        self.run(|inner| async move { inner.sizes(&topic).await })
    }

    fn watch(&self, watcher: Arc<dyn GrowthWatcher>) {
        *self.inner.watcher.write() = Some(watcher);
    }

    fn offset_store(&self) -> Option<&dyn OffsetStore> {
        Some(self)
    }

    fn metrics(&self) -> Option<&EngineMetrics> {
        Some(&self.inner.metrics)
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        let inner = Arc::clone(&self.inner);
        let was_closed = inner.closed.swap(true, Ordering::AcqRel);
        let task = self.runtime.spawn(async move {
            if was_closed {
                return;
            }
            let goodbye = async {
                if let Err(error) = inner.save_ends().await {
                    tracing::warn!(%error, "the ends of partitions are not saved: one that falls now may go unnoticed");
                }
                inner.visits.close().await;
                for line in inner.pool.all() {
                    for client in line.take().await {
                        inner.dialer.forget_token(&client).await;
                        let _ = client.disconnect().await;
                    }
                }
            };
            let _ = timeout(limits::CLOSE_TIMEOUT, goodbye).await;
        });
        Box::pin(async move {
            // Nothing is unflushed here; what could not be said in parting does not matter.
            let _ = task.await;
            Ok(())
        })
    }
}
