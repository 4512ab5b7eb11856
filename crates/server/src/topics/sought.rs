//! Topics and partitions that a client asks for before this gateway has seen them: another gateway, or a client of the store,
//! has just created them.
//!
//! The look every few seconds would find them, but a client that is told once that a topic is unknown may come back only after
//! minutes (librdkafka consumers), or give up (a commit, an administration tool). So the store is looked at before that answer.
//!
//! Producers and readers are told at once, and the look begins meanwhile: Kafka answers "unknown" for a moment, too, when
//! partitions are new, and their clients come again after some 100 ms. What they ask for may also be gone for good, and on such a
//! connection the other partitions must not wait with every retry.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until, timeout};
use uuid::Uuid;

use super::directory::{Inner, TopicDirectory};

/// Between the beginnings of two looks for unknown topics, whoever asks: clients that ask for names of nothing cost the store
/// this much and no more.
const APART: Duration = Duration::from_millis(200);
/// How long an answer waits for a look. A store that takes longer is not waited for, and the topic is unknown for now.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a client asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sought<'a> {
    /// The topic of that Kafka name.
    Name(&'a str),
    /// The topic of that Kafka id.
    Id(Uuid),
    /// Partitions of the topic of that Kafka name, up to this index.
    Partitions(&'a str, i32),
}

impl<'a> Sought<'a> {
    /// These partitions of the topic of that Kafka name.
    pub(crate) fn partitions(name: &'a str, indexes: impl IntoIterator<Item = i32>) -> Self {
        Self::Partitions(name, indexes.into_iter().max().unwrap_or(-1))
    }
}

/// Resolves after the look, if there is one.
pub(crate) type Seeking = Pin<Box<dyn Future<Output = ()> + Send>>;

impl TopicDirectory {
    /// Looks at the store if one of these is not known, and others may have created it. What cannot be there, as the topic of a
    /// name against the rules, is not looked for.
    pub(crate) fn seek<'a>(&self, wanted: impl IntoIterator<Item = Sought<'a>>) -> Seeking {
        if self.inner.shared && wanted.into_iter().any(|wanted| self.may_be_new(wanted)) {
            let looked = timeout(PATIENCE, look(Arc::clone(&self.inner)));
            // Neither a look that failed changes anything, nor one that takes too long: the topic is unknown for now.
            return Box::pin(async { drop(looked.await) });
        }
        Box::pin(ready(()))
    }

    /// [`Self::seek`] for topics by their names.
    pub(crate) fn seek_names<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Seeking {
        self.seek(names.into_iter().map(Sought::Name))
    }

    /// Has the store looked at soon, for a client that was told that something is unknown. Nobody waits for it.
    pub(crate) fn look_soon(&self) {
        let Ok(runtime) = Handle::try_current() else { return };
        // One that has not begun serves whoever asks until then.
        if !self.inner.shared || self.inner.look_is_due.swap(true, Ordering::SeqCst) {
            return;
        }
        let inner = Arc::clone(&self.inner);
        runtime.spawn(look(inner));
    }

    fn may_be_new(&self, wanted: Sought<'_>) -> bool {
        match wanted {
            Sought::Name(name) => self.by_name(name).is_none() && self.check_name(name).is_ok(),
            Sought::Id(id) => !id.is_nil() && self.by_id(id).is_none(),
            Sought::Partitions(name, last) => match self.by_name(name) {
                Some(topic) => u32::try_from(last).is_ok_and(|last| last >= topic.partitions),
                None => self.check_name(name).is_ok(),
            },
        }
    }
}

/// Returns after a look at the store that began after the call.
async fn look(inner: Arc<Inner>) {
    let asked = inner.looks.load(Ordering::SeqCst);
    let mut began = Arc::clone(&inner.sought).lock_owned().await;
    // Somebody else has begun a look after the question, for all who wait.
    if inner.looks.load(Ordering::SeqCst) != asked {
        return;
    }
    if let Some(last) = *began {
        sleep_until(last + APART).await;
    }
    *began = Some(Instant::now());
    inner.looks.fetch_add(1, Ordering::SeqCst);
    // In this order: whoever finds that a look has begun since it was asked for relies on the mark being taken away.
    inner.look_is_due.store(false, Ordering::SeqCst);
    // As a task of its own: whoever waited may go away in the middle, and the log of configs is read here too.
    let look = tokio::spawn(async move {
        if let Err(error) = inner.refresh().await {
            tracing::debug!(%error, "the topics of the store could not be looked at");
        }
        drop(began);
    });
    let _ = look.await;
}

#[cfg(test)]
mod tests;
