//! Looking at a topic: what the server says of the ends of its partitions.
//!
//! A node of a cluster answers about all partitions from its own state, which counts only for those that it leads.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use iggy::prelude::TcpClient;
use iggy_common::{Partition, TopicClient, TopicDetails};
use milena_store::{PartitionRef, StoreError};
use tokio::time::timeout;

use crate::inner::{Inner, facts_of_details, is_same, missing_topic};
use crate::limits;
use crate::line::For;
use crate::partition::{Described, Floor};
use crate::topics::TopicState;

/// What the server says of a topic.
pub(crate) struct Told {
    pub(crate) details: TopicDetails,
    /// Partitions that are known to be led by a node that did not say this.
    pub(crate) unheard: HashSet<u32>,
}

impl Inner {
    pub(crate) async fn get_topic(&self, stream: &str, topic: &str) -> Result<Option<Told>, StoreError> {
        let (stream_id, topic_id) = self.names.topic(stream, topic)?;
        let (stream_id, topic_id) = (&stream_id, &topic_id);
        // Ends are read where the partitions are led: the other nodes may lag behind, or show what was never committed.
        let known = self.topics.named(stream, topic);
        let led = known.map(|known| self.dialer.roster.led(&known.topic, known.facts().partitions)).unwrap_or_default();
        let get = |client: Arc<TcpClient>| async move { client.get_topic(stream_id, topic_id).await };
        let (mut told, mut unheard) = (None::<TopicDetails>, HashSet::new());
        for led in led {
            let Some(at) = led.first() else { continue };
            // One that is frozen must not keep what the others say waiting for long.
            let said = timeout(limits::NODE_PATIENCE, self.ask_at(For::Led(at), "a topic", get)).await;
            match (said.ok().and_then(Result::ok).flatten().filter(|said| is_same(&at.topic, said)), &mut told) {
                (Some(said), Some(told)) => replace(&mut told.partitions, said.partitions, &led),
                (Some(said), None) => told = Some(said),
                (None, _) => unheard.extend(led.iter().map(|at| at.partition)),
            }
        }
        let told = match told {
            Some(told) => Ok(Some(told)),
            None => self.ask_at(For::Any, "a topic", get).await,
        };
        match told {
            // A stream that is not there has no topics.
            Err(StoreError::NotFound { .. }) | Ok(None) => Ok(None),
            Ok(Some(details)) => Ok(Some(Told { details, unheard })),
            Err(error) => Err(error),
        }
    }

    /// Asks the server for the ends of a topic, unless an answer is there to a question that was not asked before
    /// `since`. Calls that come at once share one question.
    pub(crate) async fn look(&self, state: &Arc<TopicState>, since: Instant) -> Result<(), StoreError> {
        let _one_question = state.looking.lock().await;
        if state.looked_since(since) {
            return Ok(());
        }
        let floors = floors(state);
        let asked = Instant::now();
        let told = self.get_topic(state.topic.stream(), state.topic.topic()).await?;
        match told {
            Some(told) if is_same(&state.topic, &told.details) => {
                self.take_in(state, told, &floors, asked).await;
                Ok(())
            }
            _ => {
                self.retire(&state.topic);
                Err(missing_topic(&state.topic))
            }
        }
    }

    pub(crate) async fn take_in(&self, state: &TopicState, told: Told, floors: &[Floor], asked: Instant) {
        let Told { mut details, unheard } = told;
        state.learn(facts_of_details(&details));
        let unproven = self.hear(state, &mut details.partitions, floors).await;
        self.check_starts(state, &mut details.partitions).await;
        for said in &details.partitions {
            let Some(partition) = state.partition(said.id) else { continue };
            let floor = floors.get(said.id as usize).copied().unwrap_or_default();
            let grace = if unproven.contains(&said.id) { Duration::MAX } else { limits::FALL_GRACE };
            let at = state.topic.partition(said.id);
            let mut partition = partition.lock();
            // Of a partition in doubt only the leader tells what is there, behind what it took over: another node may show an
            // append that its leader left on its disk alone, and that nobody will ever read again. So it is while its leader is
            // not heard, and what was asked before a doubt was over does not count behind it.
            let (in_doubt, is_heard) = (self.dialer.roster.doubted_since(&at, asked), !unheard.contains(&said.id));
            if partition.is_hearsay(&Described::from(said), floor, in_doubt, is_heard) {
                partition.pass_over();
                if !is_heard {
                    self.dialer.roster.suspect(&at, Instant::now());
                }
                continue;
            }
            let seen = partition.observe(Described::from(said), floor, grace, asked);
            self.tell(&at, seen);
        }
        state.note_look(asked);
    }
}

pub(crate) fn floors(state: &TopicState) -> Vec<Floor> {
    state.partitions().iter().map(|partition| partition.lock().floor()).collect()
}

/// Puts what is said of the partitions of `led` in the place of what is there.
fn replace(partitions: &mut [Partition], said: Vec<Partition>, led: &[PartitionRef]) {
    let led: HashSet<u32> = led.iter().map(|at| at.partition).collect();
    let mut said: HashMap<u32, Partition> =
        said.into_iter().filter(|said| led.contains(&said.id)).map(|said| (said.id, said)).collect();
    for there in partitions {
        if let Some(said) = said.remove(&there.id) {
            *there = said;
        }
    }
}
