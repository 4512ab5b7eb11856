//! Topics that a client asks for before this gateway has seen them: another gateway, or a client of the store, has just created
//! them.
//!
//! The look every few seconds would find them, but a client that is told once that a topic is unknown may come back only after
//! minutes (librdkafka consumers), or give up (a commit, an administration tool). So the store is looked at before that answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};
use uuid::Uuid;

use super::directory::TopicDirectory;

/// Between the beginnings of two looks for unknown topics, whoever asks: clients that ask for names of nothing cost the store
/// this much and no more.
const APART: Duration = Duration::from_millis(200);
/// How long an answer waits for a look. A store that takes longer is not waited for, and the topic is unknown for now.
const PATIENCE: Duration = Duration::from_secs(2);

impl TopicDirectory {
    /// Looks at the store if one of these names is none of a known topic, and others may have created it. Names that no topic
    /// can have are not looked for.
    pub(crate) async fn seek_names<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        if self.inner.shared
            && names.into_iter().any(|name| self.by_name(name).is_none() && self.check_name(name).is_ok())
        {
            self.look().await;
        }
    }

    /// [`Self::seek_names`] by Kafka's ids of topics.
    pub(crate) async fn seek_ids(&self, ids: impl IntoIterator<Item = Uuid>) {
        if self.inner.shared && ids.into_iter().any(|id| !id.is_nil() && self.by_id(id).is_none()) {
            self.look().await;
        }
    }

    /// Returns after a look at the store that began after the call, or when that took too long.
    async fn look(&self) {
        let inner = Arc::clone(&self.inner);
        let asked = inner.looks.load(Ordering::SeqCst);
        let looked = async move {
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
            // As a task of its own: whoever waited may go away in the middle, and the log of configs is read here too.
            let look = tokio::spawn(async move {
                if let Err(error) = inner.refresh().await {
                    tracing::debug!(%error, "the topics of the store could not be looked at");
                }
                drop(began);
            });
            // A look that failed changes nothing, and the topic is unknown for now.
            let _ = look.await;
        };
        // Neither does one that takes too long.
        let _ = timeout(PATIENCE, looked).await;
    }
}

#[cfg(test)]
mod tests;
