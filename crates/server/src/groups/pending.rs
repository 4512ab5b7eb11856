//! A request whose answer comes later.

use std::future::Future;
use std::sync::Arc;

use milena_groups::{Answer, Token};
use tokio::sync::oneshot;
use tokio::time::{Duration, timeout};

use super::shared::Shared;

/// A request that waits. Dropping it takes it back: a join or sync is forgotten, so that the session of its member begins to run;
/// a record on its way to the log goes on to its end, and its answer is thrown away.
pub struct Pending {
    shared: Arc<Shared>,
    token: Token,
    answer: oneshot::Receiver<Answer>,
    /// The group that a join or sync is parked in.
    parked: Option<Box<str>>,
    answered: bool,
}

impl Pending {
    pub(super) fn new(
        shared: &Arc<Shared>,
        (token, answer): (Token, oneshot::Receiver<Answer>),
        parked: Option<&str>,
    ) -> Self {
        Self { shared: Arc::clone(shared), token, answer, parked: parked.map(Box::from), answered: false }
    }

    /// The answer, or `None` when `ending` came first: the client is gone or the server shuts down.
    pub async fn unless(mut self, ending: impl Future<Output = ()>) -> Option<Answer> {
        tokio::select! {
            biased;
            answer = &mut self.answer => self.answered(answer.ok()),
            () = ending => None,
        }
    }

    /// The answer, or `None` when it did not come in time.
    pub async fn within(mut self, time: Duration) -> Option<Answer> {
        match timeout(time, &mut self.answer).await {
            Ok(answer) => self.answered(answer.ok()),
            Err(_) => None,
        }
    }

    fn answered(&mut self, answer: Option<Answer>) -> Option<Answer> {
        self.answered = answer.is_some();
        answer
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        self.shared.give_up(self.token);
        if let Some(group) = &self.parked {
            self.shared.run(|groups, now, out| groups.forget(group, self.token, now, out));
        }
    }
}
