//! Looking at a topic: what the server says of the ends of its partitions.
//!
//! A node of a cluster answers about all partitions from its own state, which counts only for those that it leads.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use iggy::prelude::TcpClient;
use iggy_common::{Partition, TopicClient, TopicDetails};
use milena_store::{PartitionRef, StoreError};

use crate::inner::{Inner, facts_of_details, is_same, missing_topic};
use crate::limits;
use crate::line::For;
use crate::partition::{Described, Floor};
use crate::topics::TopicState;

impl Inner {
    pub(crate) async fn get_topic(&self, stream: &str, topic: &str) -> Result<Option<TopicDetails>, StoreError> {
        let (stream_id, topic_id) = self.names.topic(stream, topic)?;
        let (stream_id, topic_id) = (&stream_id, &topic_id);
        // Ends are read where the partitions are led: the other nodes may lag behind, or show what was never committed.
        let known = self.topics.named(stream, topic);
        let led = known.map(|known| self.dialer.roster.led(&known.topic, known.facts().partitions)).unwrap_or_default();
        let get = |client: Arc<TcpClient>| async move { client.get_topic(stream_id, topic_id).await };
        let mut led = led.into_iter();
        let first = led.next();
        let target = first.as_ref().and_then(|led| led.first()).map_or(For::Any, For::Reading);
        let mut details = match self.ask_at(target, "a topic", get).await {
            // A stream that is not there has no topics.
            Err(StoreError::NotFound { .. }) | Ok(None) => return Ok(None),
            Ok(Some(details)) => details,
            Err(error) => return Err(error),
        };
        for led in led {
            let Some(at) = led.first() else { continue };
            // Where its leader does not answer, what the first one says has to do.
            let said = self.ask_at(For::Reading(at), "a topic", get).await.ok().flatten();
            let said = said.filter(|said| is_same(&at.topic, said) && is_same(&at.topic, &details));
            said.into_iter().for_each(|said| replace(&mut details.partitions, said.partitions, &led));
        }
        Ok(Some(details))
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
        let details = self.get_topic(state.topic.stream(), state.topic.topic()).await?;
        match details {
            Some(details) if is_same(&state.topic, &details) => {
                self.take_in(state, details, &floors, asked).await;
                Ok(())
            }
            _ => {
                self.retire(&state.topic);
                Err(missing_topic(&state.topic))
            }
        }
    }

    pub(crate) async fn take_in(
        &self,
        state: &TopicState,
        mut details: TopicDetails,
        floors: &[Floor],
        asked: Instant,
    ) {
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
            // append that its leader left on its disk alone, and that nobody will ever read again.
            let in_doubt = self.dialer.roster.doubted(&at, asked).is_some();
            if in_doubt && !partition.would_fall(&Described::from(said), floor) {
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
