//! Consumer groups: the shell around the coordinator of `milena-groups`.
//!
//! - [`settings`]: what an operator can set
//! - `shared`: the coordinator behind one lock, and what follows each call
//! - [`pending`]: a request whose answer comes later
//! - [`coordinators`]: who coordinates a group: this gateway, or another one
//! - `keeper`: loads the committed offsets when it is this one, gives them up when it no longer is
//! - `appender`, `bundle`: the log of committed offsets, and the form of its records
//! - [`storage`]: where committed offsets are kept: in that log, or as consumer offsets of the store
//! - `external`, `in_store`: the latter; [`migrate`]: from one to the other
//! - `timers`: sessions that end, offsets that expire
//! - [`topics`]: incarnations of topics, and topics that are deleted
//!
//! Membership lives in memory: after a restart every member is answered with 25 and joins again. Committed offsets that are
//! in a topic of the internal stream are in memory too, and nothing is answered about them before all of it was replayed.

mod appender;
mod bundle;
pub mod coordinators;
mod external;
mod in_store;
mod keeper;
pub mod migrate;
pub mod pending;
pub mod settings;
mod shared;
pub mod storage;
mod timers;
pub mod topics;

use std::sync::Arc;

use milena_groups::{
    Answer, CommitRequest, DeleteRequest, Description, GroupError, GroupState, Groups, JoinRefused, JoinRequest,
    Leaving, ListFilter, Listed, Sender, SyncRequest, Walk,
};
use milena_store::state_log::StateLogOptions;
use milena_store::{GrowthWatcher, Store, StoreError};
use parking_lot::Mutex;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Duration, Instant, timeout};

pub use coordinators::{Alone, Coordinator, Coordinators, Endpoint, Node};
pub use external::{Held, Stored};
pub use keeper::OFFSETS_TOPIC;
pub use pending::Pending;
pub use settings::{ForeignOffsets, GroupSettings};
pub use shared::Usage;
pub use storage::{Kept, OffsetStorage, StorageError};

use crate::config::ServerConfig;
use crate::metrics::GroupMetrics;
use crate::topics::mapping::Mapping;
use external::External;
use keeper::Keeper;
use shared::Shared;
use topics::Existing;

/// Groups and offsets of a server, with the tasks that keep them going. They end when it is dropped.
pub struct GroupService {
    shared: Arc<Shared>,
    /// What keeps the offsets in place of the table.
    external: Option<Arc<External>>,
    coordinators: Arc<dyn Coordinators>,
    timers: [JoinHandle<()>; 2],
    keeper: Mutex<Option<JoinHandle<()>>>,
}

impl GroupService {
    /// Begins to coordinate, if that is for this gateway to do, and follows from then on who coordinates. `can_block` says
    /// that the runtime has several threads.
    ///
    /// Where groups are coordinated from the start, the committed offsets are loaded when this returns: what cannot be read
    /// is then an error at start, which an operator sees, and no client is told to wait. Later loads go on beside the other
    /// requests, and are tried until they succeed.
    ///
    /// # Errors
    /// When the offsets cannot be read. It never opens empty because of a failure: consumers would reset their positions.
    pub async fn open(
        config: &ServerConfig,
        store: Arc<dyn Store>,
        mapping: Mapping,
        metrics: Arc<GroupMetrics>,
        can_block: bool,
    ) -> Result<Self, StoreError> {
        let coordinators = Arc::clone(&config.coordinators);
        let record_bytes_max = appender::record_bytes_max(store.as_ref());
        let shared = Arc::new(Shared::new(config.groups.clone(), record_bytes_max, metrics));
        let options = StateLogOptions {
            durability: None,
            writer: u64::from(config.instance_id),
            snapshot_bytes: config.groups.offsets_snapshot_bytes,
            ..StateLogOptions::default()
        };
        let existing = Existing { store: Arc::clone(&store), mapping };
        let keeper = Keeper { shared: Arc::clone(&shared), store, existing: existing.clone(), options, can_block };
        let mut mandate = coordinators.mandate();
        let mandated = *mandate.borrow_and_update();
        let log = if mandated { Some(keeper.load().await?) } else { None };
        let expiry = timers::expire(Arc::clone(&shared), existing);
        let timers = [tokio::spawn(timers::tick(Arc::clone(&shared))), tokio::spawn(expiry)];
        let keeper = Mutex::new(Some(tokio::spawn(keeper.run(mandate, mandated, log))));
        Ok(Self { shared, external: None, coordinators, timers, keeper })
    }

    /// Who coordinates a group.
    #[must_use]
    pub fn coordinator_of(&self, group: &str) -> Coordinator {
        self.coordinators.coordinator_of(group)
    }

    /// Whether a group is coordinated here. Asked for each request, since a mandate that ran out may not have been given up
    /// yet.
    fn check_here(&self, group: &str) -> Result<(), GroupError> {
        match self.coordinator_of(group) {
            Coordinator::Here => Ok(()),
            Coordinator::At(_) | Coordinator::Unknown => Err(GroupError::NotCoordinator),
        }
    }

    /// What the store has to tell when a topic is deleted; nothing where offsets go with their topic by themselves.
    #[must_use]
    pub fn watcher(&self, mapping: Mapping) -> Option<Arc<dyn GrowthWatcher>> {
        let deletions = || topics::Deletions { shared: Arc::clone(&self.shared), mapping };
        self.external.is_none().then(|| Arc::new(deletions()) as Arc<dyn GrowthWatcher>)
    }

    /// Whether a group of that id can be here. One that cannot is told so before it looks for its coordinator.
    #[must_use]
    pub fn is_group_id(&self, group: &str) -> bool {
        group.len() <= self.shared.group_id_bytes_max()
    }

    /// Writes what is on its way to the log, for at most `time`, and ends.
    pub async fn close(&self, time: Duration) {
        self.shared.close();
        let keeper = self.keeper.lock().take();
        if let Some(mut keeper) = keeper
            && timeout(time, &mut keeper).await.is_err()
        {
            tracing::warn!("the store did not take the last committed offsets in time");
            keeper.abort();
        }
    }

    /// JoinGroup; answered with [`Answer::Join`] once the group is complete.
    #[must_use]
    pub fn join(&self, request: &JoinRequest<'_>) -> Pending {
        let here = self.check_here(request.group);
        let asked = self.shared.ask(|groups, token, now, out| match here {
            Ok(()) => groups.join(token, request, now, out),
            Err(error) => {
                let refused = JoinRefused { error, member_id: Arc::from(request.member_id) };
                out.answers.push((token, Answer::Join(Err(refused))));
            }
        });
        Pending::new(&self.shared, asked, Some(request.group))
    }

    /// SyncGroup; answered with [`Answer::Sync`] once the leader has filed the assignments.
    #[must_use]
    pub fn sync(&self, request: &SyncRequest<'_>) -> Pending {
        let here = self.check_here(request.group);
        let asked = self.shared.ask(|groups, token, now, out| match here {
            Ok(()) => groups.sync(token, request, now, out),
            Err(error) => out.answers.push((token, Answer::Sync(Err(error)))),
        });
        Pending::new(&self.shared, asked, Some(request.group))
    }

    /// Heartbeat.
    ///
    /// # Errors
    /// What the member has to know.
    pub fn heartbeat(&self, sender: &Sender<'_>) -> Result<(), GroupError> {
        self.check_here(sender.group)?;
        self.shared.run(|groups, now, _| groups.heartbeat(sender, now))
    }

    /// LeaveGroup: one result per identity, in order.
    ///
    /// # Errors
    /// One for the whole request.
    pub fn leave(&self, group: &str, leaving: &[Leaving<'_>]) -> Result<Vec<Result<(), GroupError>>, GroupError> {
        self.check_here(group)?;
        self.shared.run(|groups, now, out| groups.leave(group, leaving, now, out))
    }

    /// OffsetCommit: one result per partition, in order, once they are durable. `None` when the store was too slow; the
    /// commit may still take effect.
    pub async fn commit(&self, sender: &Sender<'_>, request: CommitRequest) -> Option<Vec<Result<(), GroupError>>> {
        let metrics = &self.shared.metrics;
        metrics.commits.add(1);
        if let Err(error) = self.check_here(sender.group) {
            return Some(request.refused(error));
        }
        if let Some(external) = &self.external {
            let results = external.commit(sender, &request, self.offset_wait()).await;
            if results.contains(&Err(GroupError::StoreFailed)) {
                metrics.commits_late.add(1);
            }
            metrics.note_commit(&results);
            return Some(results);
        }
        if self.shared.is_full() {
            metrics.commits_late.add(1);
            return None;
        }
        let asked = self.shared.ask(|groups, token, now, out| groups.commit(token, sender, request, now, out));
        match self.offset_answer(asked).await {
            Some(Answer::Commit(results)) => {
                metrics.note_commit(&results);
                Some(results)
            }
            _ => {
                metrics.commits_late.add(1);
                None
            }
        }
    }

    /// What `look` makes of the offsets of a group, which are in memory.
    ///
    /// # Errors
    /// [`GroupError::NotCoordinator`], [`GroupError::Loading`]. Never answer "no offset" instead.
    pub fn offsets<T>(
        &self,
        group: &str,
        look: impl FnOnce(milena_groups::GroupView<'_>) -> T,
    ) -> Result<T, GroupError> {
        self.check_here(group)?;
        self.shared.read(|groups| groups.view(group).map(look))
    }

    /// OffsetDelete: one result per partition, in order. `None` when the store was too slow.
    pub async fn delete_offsets(
        &self,
        request: &DeleteRequest,
    ) -> Option<Result<Vec<Result<(), GroupError>>, GroupError>> {
        if let Err(error) = self.check_here(&request.group) {
            return Some(Err(error));
        }
        if let Some(external) = &self.external {
            return Some(external.delete_offsets(request).await);
        }
        if self.shared.is_full() {
            return None;
        }
        let asked = self.shared.ask(|groups, token, _, out| groups.delete_offsets(token, request, out));
        match self.offset_answer(asked).await {
            Some(Answer::DeleteOffsets(results)) => Some(results),
            _ => None,
        }
    }

    /// DeleteGroups: one result per group, in order.
    pub async fn delete_groups(&self, groups: &[&str]) -> Vec<Result<(), GroupError>> {
        if let Some(external) = &self.external {
            // A mandate that ends in between is that of all groups: nothing is done then, so nobody is told that it was.
            return match groups.iter().find_map(|group| self.check_here(group).err()) {
                Some(error) => vec![Err(error); groups.len()],
                None => external.delete_groups(groups).await,
            };
        }
        let deadline = Instant::now() + self.offset_wait();
        // All under way first, so that they share the waits for the store.
        let pending: Vec<_> = groups.iter().map(|group| self.delete_group(group)).collect();
        let mut results = Vec::with_capacity(pending.len());
        for pending in pending {
            let left = deadline.saturating_duration_since(Instant::now());
            results.push(match pending.within(left).await {
                Some(Answer::DeleteGroup(result)) => result,
                _ => Err(GroupError::StoreFailed),
            });
        }
        results
    }

    fn delete_group(&self, group: &str) -> Pending {
        let full = if self.shared.is_full() { Err(GroupError::StoreFailed) } else { Ok(()) };
        let may = self.check_here(group).and(full);
        let asked = self.shared.ask(|groups, token, _, out| match may {
            Ok(()) => groups.delete_group(token, group, out),
            Err(error) => out.answers.push((token, Answer::DeleteGroup(Err(error)))),
        });
        Pending::new(&self.shared, asked, None)
    }

    /// A group as DescribeGroups shows it.
    ///
    /// # Errors
    /// As [`Groups::describe`](milena_groups::Groups::describe).
    pub fn describe(&self, group: &str, held: &Held) -> Result<Description, GroupError> {
        self.check_here(group)?;
        held.describe(group, self.shared.read(|groups| groups.describe(group))?)
    }

    /// How much there is of everything, for gauges.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.shared.usage()
    }

    /// The groups that have committed offsets, in order: the next slice of a walk over all of them.
    #[must_use]
    pub fn with_offsets(&self, walk: &mut Walk) -> Vec<Arc<str>> {
        self.shared.read(|groups| groups.offsets().next_groups(walk))
    }

    /// The groups as ListGroups shows them: those that are coordinated here.
    ///
    /// # Errors
    /// [`GroupError::Loading`], and when the store keeps the offsets and does not say of which groups.
    pub async fn list(&self, filter: &ListFilter) -> Result<Vec<Listed>, GroupError> {
        let (mut walk, mut listed) = (Walk::default(), Vec::new());
        while !walk.is_over() {
            listed.extend(self.shared.read(|groups| groups.list(filter, &mut walk))?);
            // Between two slices others have their turn.
            yield_now().await;
        }
        if let Some(external) = &self.external
            && filter.wants(GroupState::Empty)
            && self.shared.read(Groups::check_serving).is_ok()
        {
            let only_offsets =
                |name: &String| self.shared.read(|groups| groups.coordinator().state(name)) == GroupState::Dead;
            let names = external.names().await?.into_iter().filter(only_offsets);
            listed.extend(names.map(|name| Listed {
                group: Arc::from(name),
                state: GroupState::Empty,
                protocol_type: Arc::from(""),
            }));
            listed.sort_by(|a, b| a.group.cmp(&b.group));
        }
        listed.retain(|group| self.check_here(&group.group).is_ok());
        Ok(listed)
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
        for task in self.timers.iter().chain(self.keeper.lock().iter()) {
            task.abort();
        }
    }
}
