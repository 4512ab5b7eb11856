//! Consumer groups: the shell around the coordinator of `milena-groups`.
//!
//! - [`settings`]: what an operator can set
//! - `shared`: the coordinator behind one lock, and what follows each call
//! - [`pending`]: a request whose answer comes later
//! - `appender`, `bundle`: the log of committed offsets, and the form of its records
//! - `timers`: sessions that end, offsets that expire
//! - [`topics`]: incarnations of topics, and topics that are deleted
//!
//! Membership lives in memory: after a restart every member is answered with 25 and joins again. Committed offsets are
//! in a topic of the internal stream, which is replayed before the first request is served.

mod appender;
mod bundle;
pub mod pending;
pub mod settings;
mod shared;
mod timers;
pub mod topics;

use std::sync::Arc;

use milena_groups::{
    Answer, CommitRequest, DeleteRequest, Description, GroupError, Groups, JoinRequest, Leaving, ListFilter, Listed,
    Sender, SyncRequest, Timestamp,
};
use milena_store::{GrowthWatcher, Store, StoreError};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Duration, timeout};

pub use pending::Pending;
pub use settings::{ForeignOffsets, GroupSettings};

use crate::config::ServerConfig;
use crate::metrics::GroupMetrics;
use crate::topics::mapping::Mapping;
use appender::Appender;
use shared::Shared;

/// Groups and offsets of a server, with the tasks that keep them going. They end when it is dropped.
pub struct GroupService {
    shared: Arc<Shared>,
    timers: [JoinHandle<()>; 2],
    appender: Mutex<Option<JoinHandle<()>>>,
}

impl GroupService {
    /// Loads the committed offsets and begins to coordinate. `can_block` says that the runtime has several threads.
    ///
    /// # Errors
    /// When the offsets cannot be read. It never opens empty because of a failure: consumers would reset their positions.
    pub async fn open(
        config: &ServerConfig,
        store: Arc<dyn Store>,
        metrics: Arc<GroupMetrics>,
        can_block: bool,
    ) -> Result<Self, StoreError> {
        let settings = config.groups.clone();
        let offsets = settings.offsets(appender::record_bytes_max(store.as_ref()));
        let mut groups = Groups::new(settings.membership(), offsets);
        let log = appender::open(Arc::clone(&store), config, &mut groups).await?;
        let shared = Arc::new(Shared::new(groups, settings, metrics));
        shared.run(|groups, now, _| groups.loaded(Timestamp(now.wall.0)));
        topics::forget_missing(&shared, store.as_ref()).await;
        let appender = Appender { shared: Arc::clone(&shared), log, can_block };
        let timers =
            [tokio::spawn(timers::tick(Arc::clone(&shared))), tokio::spawn(timers::expire(Arc::clone(&shared), store))];
        Ok(Self { shared, timers, appender: Mutex::new(Some(tokio::spawn(appender.run()))) })
    }

    /// What the store has to tell when a topic is deleted.
    #[must_use]
    pub fn watcher(&self, mapping: Mapping) -> Arc<dyn GrowthWatcher> {
        Arc::new(topics::Deletions { shared: Arc::clone(&self.shared), mapping })
    }

    /// Writes what is on its way to the log, for at most `time`, and ends.
    pub async fn close(&self, time: Duration) {
        self.shared.run_on_state(|state, _| state.closing = true);
        self.shared.queued.notify_one();
        let appender = self.appender.lock().take();
        if let Some(mut appender) = appender
            && timeout(time, &mut appender).await.is_err()
        {
            tracing::warn!("the store did not take the last committed offsets in time");
            appender.abort();
        }
    }

    /// JoinGroup; answered with [`Answer::Join`] once the group is complete.
    #[must_use]
    pub fn join(&self, request: &JoinRequest<'_>) -> Pending {
        let asked = self.shared.ask(|groups, token, now, out| groups.join(token, request, now, out));
        Pending::new(&self.shared, asked, Some(request.group))
    }

    /// SyncGroup; answered with [`Answer::Sync`] once the leader has filed the assignments.
    #[must_use]
    pub fn sync(&self, request: &SyncRequest<'_>) -> Pending {
        let asked = self.shared.ask(|groups, token, now, out| groups.sync(token, request, now, out));
        Pending::new(&self.shared, asked, Some(request.group))
    }

    /// Heartbeat.
    ///
    /// # Errors
    /// What the member has to know.
    pub fn heartbeat(&self, sender: &Sender<'_>) -> Result<(), GroupError> {
        self.shared.run(|groups, now, _| groups.heartbeat(sender, now))
    }

    /// LeaveGroup: one result per identity, in order.
    ///
    /// # Errors
    /// One for the whole request.
    pub fn leave(&self, group: &str, leaving: &[Leaving<'_>]) -> Result<Vec<Result<(), GroupError>>, GroupError> {
        self.shared.run(|groups, now, out| groups.leave(group, leaving, now, out))
    }

    /// OffsetCommit: one result per partition, in order, once they are durable. `None` when the store was too slow; the
    /// commit may still take effect.
    pub async fn commit(&self, sender: &Sender<'_>, request: CommitRequest) -> Option<Vec<Result<(), GroupError>>> {
        let metrics = &self.shared.metrics;
        metrics.commits.add(1);
        if self.shared.is_full() {
            metrics.commits_late.add(1);
            return None;
        }
        let asked = self.shared.ask(|groups, token, now, out| groups.commit(token, sender, request, now, out));
        match self.offset_answer(asked).await {
            Some(Answer::Commit(results)) => Some(results),
            _ => {
                metrics.commits_late.add(1);
                None
            }
        }
    }

    /// What `look` makes of the offsets of a group.
    ///
    /// # Errors
    /// [`GroupError::Loading`]. Never answer "no offset" instead.
    pub fn offsets<T>(
        &self,
        group: &str,
        look: impl FnOnce(milena_groups::GroupView<'_>) -> T,
    ) -> Result<T, GroupError> {
        self.shared.read(|groups| groups.view(group).map(look))
    }

    /// OffsetDelete: one result per partition, in order. `None` when the store was too slow.
    pub async fn delete_offsets(
        &self,
        request: &DeleteRequest,
    ) -> Option<Result<Vec<Result<(), GroupError>>, GroupError>> {
        let asked = self.shared.ask(|groups, token, _, out| groups.delete_offsets(token, request, out));
        match self.offset_answer(asked).await {
            Some(Answer::DeleteOffsets(results)) => Some(results),
            _ => None,
        }
    }

    /// DeleteGroups for one group, under way when this returns.
    #[must_use]
    pub fn delete_group(&self, group: &str) -> Pending {
        let asked = self.shared.ask(|groups, token, _, out| groups.delete_group(token, group, out));
        Pending::new(&self.shared, asked, None)
    }

    /// A group as DescribeGroups shows it.
    #[must_use]
    pub fn describe(&self, group: &str) -> Description {
        self.shared.read(|groups| groups.describe(group))
    }

    /// The groups as ListGroups shows them.
    #[must_use]
    pub fn list(&self, filter: &ListFilter<'_>) -> Vec<Listed> {
        self.shared.read(|groups| groups.list(filter))
    }

    /// Whether a group id may be used where the empty one may not.
    ///
    /// # Errors
    /// [`GroupError::InvalidGroupId`].
    pub fn check_group_id(&self, group: &str) -> Result<(), GroupError> {
        self.shared.read(|groups| groups.coordinator().check_group_id(group))
    }

    /// How long an offset request may wait.
    #[must_use]
    pub fn offset_wait(&self) -> Duration {
        self.shared.settings.offset_wait()
    }

    async fn offset_answer(
        &self,
        asked: (milena_groups::Token, tokio::sync::oneshot::Receiver<Answer>),
    ) -> Option<Answer> {
        Pending::new(&self.shared, asked, None).within(self.offset_wait()).await
    }
}

impl Drop for GroupService {
    fn drop(&mut self) {
        for task in self.timers.iter().chain(self.appender.lock().iter()) {
            task.abort();
        }
    }
}
