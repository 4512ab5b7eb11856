//! The consumer as the application has it.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use tokio::sync::{broadcast, oneshot};

use crate::broker::Broker;
use crate::checkpoint::{CheckpointStore, TopicStore, Writer};
use crate::delivery::{Ack, Delivery, TopicPartition};
use crate::driver::{COMMIT_PATIENCE, Command, Driver, Parts};
use crate::member::{Context, Member};
use crate::shared::Shared;
use crate::wake::Wake;
use crate::{
    Buffers, Checkpoint, Commit, Epoch, Error, Event, Input, Lag, Lane, Order, PartitionStatus, Reset, Settings,
};

/// How a consumer is made.
#[derive(Debug, Clone)]
#[must_use = "a builder builds nothing until it is told to"]
pub struct Builder {
    config: ClientConfig,
    settings: Settings,
}

impl Builder {
    /// In which order records come. [`Order::LiveFirst`] unless set.
    pub fn order(mut self, order: Order) -> Self {
        self.settings.order = order;
        self
    }

    /// The lag above which a partition forks.
    pub fn fork_when(mut self, lag: Lag) -> Self {
        self.settings.fork_when = lag;
        self
    }

    /// When progress is committed.
    pub fn commit(mut self, commit: Commit) -> Self {
        self.settings.commit = commit;
        self
    }

    /// Commits early after so many acknowledgements in one partition.
    pub fn commit_acks(mut self, acks: u64) -> Self {
        self.settings.commit_acks = acks;
        self
    }

    /// How long a partition that leaves waits for acknowledgements. With the 5 s that its last commit may take it must be shorter
    /// than `max.poll.interval.ms`.
    pub fn drain_deadline(mut self, deadline: Duration) -> Self {
        self.settings.drain_deadline = deadline;
        self
    }

    /// How many records of one lane of one partition may be fetched and not acknowledged.
    pub fn in_flight_max(mut self, lane: Lane, records: usize) -> Self {
        self.bound(lane).records = records;
        self
    }

    /// How many bytes of one lane of one partition may be fetched and not acknowledged: keys, values and headers.
    pub fn in_flight_bytes_max(mut self, lane: Lane, bytes: u64) -> Self {
        self.bound(lane).bytes = bytes;
        self
    }

    /// The most that the broker takes as metadata of an offset (`offset.metadata.max.bytes`), in bytes.
    pub fn metadata_bytes_max(mut self, bytes: usize) -> Self {
        self.settings.metadata_bytes_max = bytes;
        self
    }

    /// Where finished ranges are kept. In [`Checkpoint::Metadata`] unless set; what the other kind costs is said at [`Checkpoint::Topic`].
    pub fn checkpoint(mut self, checkpoint: Checkpoint) -> Self {
        self.settings.checkpoint = checkpoint;
        self
    }

    fn bound(&mut self, lane: Lane) -> &mut crate::Bound {
        match lane {
            Lane::Live => &mut self.settings.live,
            Lane::Backfill => &mut self.settings.backfill,
        }
    }

    /// Makes the clients and starts the threads that drive them.
    ///
    /// # Errors
    /// [`Error::Setting`] for settings that are missing or do not fit, [`Error::Client`] when librdkafka refuses the configuration,
    /// [`Error::Thread`] when the system has no threads left.
    pub fn build(self) -> Result<CatchUpConsumer, Error> {
        let Self { config, settings } = self;
        let reset = check(&config, &settings)?;
        let store = match &settings.checkpoint {
            Checkpoint::Metadata => None,
            Checkpoint::Topic(name) => Some(Arc::new(TopicStore::new(&config, name)?) as Arc<dyn CheckpointStore>),
        };
        let wake = Arc::new(Wake::default());
        let member = Member::create(&config, settings.live.bytes, &wake)?;
        let client = Arc::downgrade(member.consumer());
        let (answer, answers) = channel();
        let asker = |name| {
            Broker::start(name, member.consumer(), (reset, store.clone()), answer.clone(), &wake)
                .map_err(|error| Error::Thread(error.to_string()))
        };
        let (asking, committing) = (asker("catchup-ask")?, asker("catchup-commit")?);
        let writer = store.clone().map(|store| Writer::start(store, answer.clone(), &wake)).transpose();
        let writer = writer.map_err(|error| Error::Thread(error.to_string()))?;
        let shared = Arc::new(Shared::new(settings, wake));
        let (command, commands) = channel();
        let parts =
            Parts { shared: Arc::clone(&shared), config, member, commands, answers, asking, committing, writer };
        let driver = Driver::new(parts);
        thread::Builder::new()
            .name("catchup".to_owned())
            .spawn(move || driver.run())
            .map_err(|error| Error::Thread(error.to_string()))?;
        Ok(CatchUpConsumer { shared, client, command })
    }
}

/// Whether the settings make sense together; the policy where no offset is committed.
fn check(config: &ClientConfig, settings: &Settings) -> Result<Reset, Error> {
    let wrong = |setting, reason: &str| Error::Setting { setting, reason: reason.to_owned() };
    if config.get("group.id").is_none_or(str::is_empty) {
        return Err(wrong("group.id", "is needed"));
    }
    // librdkafka's own default.
    let interval = config.get("max.poll.interval.ms").map_or(Some(300_000), |text| text.parse().ok());
    let interval = interval.ok_or_else(|| wrong("max.poll.interval.ms", "is not a number"))?;
    if settings.drain_deadline.saturating_add(COMMIT_PATIENCE) >= Duration::from_millis(interval) {
        return Err(wrong(
            "drain_deadline",
            "with the 5 s of the last commit it must be shorter than max.poll.interval.ms",
        ));
    }
    match config.get("auto.offset.reset").unwrap_or("latest") {
        "smallest" | "earliest" | "beginning" => Ok(Reset::Earliest),
        "largest" | "latest" | "end" => Ok(Reset::Latest),
        "error" => Ok(Reset::Error),
        _ => Err(wrong("auto.offset.reset", "is none of earliest, latest, error")),
    }
}

/// A consumer that delivers new records at once while old ones are caught up beside them. See the [crate](crate).
///
/// Dropping it commits what is finished in the background and leaves the group, without waiting for anything;
/// [`CatchUpConsumer::close`] waits for acknowledgements first.
pub struct CatchUpConsumer {
    shared: Arc<Shared>,
    client: Weak<BaseConsumer<Context>>,
    command: Sender<Command>,
}

impl CatchUpConsumer {
    /// A consumer with that configuration of librdkafka, which must have `bootstrap.servers` and `group.id`. Automatic commits are
    /// switched off, whatever it says; `auto.offset.reset` counts where no offset is committed.
    pub fn builder(config: ClientConfig) -> Builder {
        Builder { config, settings: Settings::default() }
    }

    /// Joins the group for these topics, in place of those before.
    ///
    /// # Errors
    /// [`Error::Client`] when librdkafka refuses, [`Error::Closed`] when the consumer has ended.
    pub fn subscribe(&self, topics: &[&str]) -> Result<(), Error> {
        let client = self.client.upgrade().ok_or(Error::Closed)?;
        Ok(client.subscribe(topics)?)
    }

    /// The next record, as soon as there is one. `None` when the consumer has ended. May be called by several tasks at once, and
    /// dropped at any time: no record is lost with it.
    ///
    /// # Errors
    /// [`Error::Fatal`] when the client cannot go on. [`Error::Refused`] when there is no record and the broker refuses this consumer:
    /// once for each time that the client reports it; the consumer is not at its end, and this may be called again.
    pub async fn recv(&self) -> Result<Option<Delivery>, Error> {
        Ok(self.shared.recv().await?.map(|given| Delivery {
            record: given.record.into_message(&given.partition),
            lane: given.lane,
            fork: given.fork,
            ack: Ack {
                shared: Arc::clone(&self.shared),
                partition: given.partition,
                epoch: given.epoch,
                offset: given.offset,
            },
        }))
    }

    /// What happens from now on. A listener that is 1,024 events behind misses the oldest.
    #[must_use]
    pub fn events(&self) -> Events {
        Events { from: self.shared.events() }
    }

    /// All partitions that this consumer has, in order.
    #[must_use]
    pub fn status(&self) -> Vec<(TopicPartition, PartitionStatus)> {
        self.shared.status()
    }

    /// Which offsets both lanes of a partition hold; `None` when this consumer does not have it.
    #[must_use]
    pub fn buffers(&self, topic: &str, partition: i32) -> Option<Buffers> {
        self.shared.buffers(&TopicPartition::new(topic, partition))
    }

    /// Sets the user's own part of the metadata beside a partition's committed offset, from its next commit on. It stays from one
    /// assignment to the next, since it is read back; one of more than [`USER_METADATA_BYTES_MAX`](crate::USER_METADATA_BYTES_MAX)
    /// bytes is not taken ([`Event::UserMetadataTooLong`]). Nothing happens when this consumer does not have the partition.
    pub fn set_user_metadata(&self, topic: &str, partition: i32, text: impl Into<String>) {
        self.shared.step(&TopicPartition::new(topic, partition), Input::UserMetadata(text.into()));
    }

    /// Commits what is finished now, of all partitions that this consumer has, and waits for the answers: `Ok` says that all of it is stored,
    /// or was before. Also of a partition that is being revoked, whose last records the application still has in hand. Of one that was taken
    /// away before the call it says nothing: [`Event::Revoked`] and [`Event::Lost`] do. Where several partitions fail, one failure is told.
    ///
    /// # Errors
    /// [`Error::Commit`] when the broker does not take it, [`Error::Checkpoint`] when a checkpoint is not stored, [`Error::AssignmentOver`]
    /// when a partition was taken away before the answer, [`Error::Closed`] when the consumer has ended.
    pub async fn commit(&self) -> Result<(), Error> {
        self.ask(Command::Commit).await
    }

    /// Stops deliveries, waits for acknowledgements until the drain's deadline, commits, and leaves the group.
    ///
    /// # Errors
    /// [`Error::Fatal`] when the client could not go on before.
    pub async fn close(self) -> Result<(), Error> {
        let drain = self.shared.settings().drain_deadline;
        self.close_within(drain).await
    }

    /// As [`CatchUpConsumer::close`], with another deadline for the drain. Commit and goodbye come on top of it.
    ///
    /// # Errors
    /// As for `close`.
    pub async fn close_within(self, drain: Duration) -> Result<(), Error> {
        match self.ask(|reply| Command::Close(reply, drain)).await {
            Err(Error::Closed) => self.shared.ended().unwrap_or(Ok(())),
            ended => ended,
        }
    }

    async fn ask(&self, command: impl FnOnce(oneshot::Sender<Result<(), Error>>) -> Command) -> Result<(), Error> {
        let (reply, answer) = oneshot::channel();
        self.command.send(command(reply)).map_err(|_| Error::Closed)?;
        self.shared.wake.up();
        answer.await.unwrap_or(Err(Error::Closed))
    }
}

impl Drop for CatchUpConsumer {
    fn drop(&mut self) {
        // Nobody is there to take it when the consumer has ended.
        let _ = self.command.send(Command::Abandon);
        self.shared.wake.up();
    }
}

/// What happens to partitions and to the consumer, as it happens.
#[derive(Debug)]
pub struct Events {
    from: broadcast::Receiver<Happened>,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Happened {
    /// To a partition.
    To {
        /// Which one.
        partition: TopicPartition,
        /// In that assignment, as [`Delivery::epoch`] names it: events and deliveries come by different ways, and the partition may have
        /// been assigned anew by the time that this is heard.
        epoch: Epoch,
        /// What happened.
        event: Event,
    },
    /// To the consumer as a whole: the client reports an error, and goes on trying. Broker out of reach, unknown topic, a group that does
    /// not take this member.
    Trouble {
        /// Kafka's, or librdkafka's own below zero.
        code: i16,
        /// What the client says of it.
        reason: String,
    },
    /// So many events were missed here, because the listener was too slow.
    Missed(u64),
}

impl Events {
    /// The next event; `None` when the consumer and all its acknowledgement tokens are gone.
    pub async fn next(&mut self) -> Option<Happened> {
        match self.from.recv().await {
            Ok(happened) => Some(happened),
            Err(broadcast::error::RecvError::Lagged(missed)) => Some(Happened::Missed(missed)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}
