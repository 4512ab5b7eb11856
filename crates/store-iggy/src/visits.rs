//! Questions to several nodes of a cluster at once.
//!
//! Their connections are not those of the pool: in a queue behind large polls a node that is well would seem not to answer,
//! and one that is away would hold up calls that have nothing to do with it. One that was answered is kept for the next
//! question. A node that does not answer is left out for a while, so that it holds up few questions.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use iggy::prelude::TcpClient;
use iggy_common::{Client, IggyError};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::dialer::Dialer;
use crate::error::breaks_connection;
use crate::limits;
use crate::name::{Name, Nameless};
use crate::roster::Node;

pub(crate) struct Visits {
    dialer: Arc<Dialer>,
    kept: Mutex<HashMap<Node, Vec<Visit>>>,
    /// Nodes that let a question wait, and until when they are left out. They are not said to be unreachable: a reply can be
    /// large, and calls to a leader that is well would go elsewhere.
    silent: Mutex<HashMap<Node, Instant>>,
    turns: Semaphore,
}

/// A connection to one node, as that node calls it.
struct Visit {
    client: Arc<TcpClient>,
    name: Name,
}

/// What came of a question to one node.
enum Heard<T> {
    Said(T),
    /// It answers, but not that.
    Refused,
    /// No answer, or one that is not to be believed.
    Nothing,
}

impl Visits {
    pub(crate) fn new(dialer: &Arc<Dialer>) -> Self {
        let turns = Semaphore::new(limits::VISITS_MAX);
        Self { dialer: Arc::clone(dialer), kept: Mutex::default(), silent: Mutex::default(), turns }
    }

    /// What these nodes answer, as far as they do within [`limits::NODE_PATIENCE`]; it takes no longer, however many there
    /// are. Nobody answers when too many questions are being asked already.
    pub(crate) async fn ask<T, F>(
        self: &Arc<Self>,
        nodes: Vec<Node>,
        question: impl Fn(Arc<TcpClient>) -> F + Clone + Send + Sync + 'static,
    ) -> Vec<(Node, T)>
    where
        F: Future<Output = Result<T, IggyError>> + Send + 'static,
        T: Send + 'static,
    {
        let turn = timeout(self.dialer.config().call_timeout, self.turns.acquire()).await;
        let Ok(Ok(_turn)) = turn else { return Vec::new() };
        let mut asked = JoinSet::new();
        for node in self.awake(nodes, Instant::now()) {
            let (visits, question) = (Arc::clone(self), question.clone());
            asked.spawn(async move {
                let said = visits.ask_one(&node, &question).await;
                said.map(|said| (node, said))
            });
        }
        asked.join_all().await.into_iter().flatten().collect()
    }

    async fn ask_one<T, F>(&self, node: &Node, question: &(impl Fn(Arc<TcpClient>) -> F + Sync)) -> Option<T>
    where
        F: Future<Output = Result<T, IggyError>> + Send,
        T: Send,
    {
        let roster = &self.dialer.roster;
        roster.attempts(node, limits::NODE_PATIENCE, Instant::now());
        let asked = async {
            // One that was kept may have broken since.
            if let Some(visit) = self.kept(node) {
                match self.over(node, visit, question).await {
                    Heard::Nothing => {}
                    heard => return heard,
                }
            }
            match self.visit(node).await {
                Ok(visit) => self.over(node, visit, question).await,
                Err(heard) => heard,
            }
        };
        let Ok(heard) = timeout(limits::NODE_PATIENCE, asked).await else {
            self.let_sleep(node, Instant::now());
            return None;
        };
        match heard {
            Heard::Said(said) => {
                roster.reached(node, Instant::now());
                Some(said)
            }
            Heard::Refused => {
                roster.reached(node, Instant::now());
                None
            }
            Heard::Nothing => {
                roster.unreachable(node, Instant::now());
                None
            }
        }
    }

    fn awake(&self, mut nodes: Vec<Node>, now: Instant) -> Vec<Node> {
        let mut silent = self.silent.lock();
        silent.retain(|_, until| now < *until);
        nodes.retain(|node| !silent.contains_key(node));
        nodes
    }

    fn let_sleep(&self, node: &Node, now: Instant) {
        let mut silent = self.silent.lock();
        if silent.len() >= limits::NODES_MAX {
            silent.clear();
        }
        silent.insert(Arc::clone(node), now + limits::NODE_PAUSE_MAX);
    }

    /// A new connection.
    async fn visit<T>(&self, node: &Node) -> Result<Visit, Heard<T>> {
        let client = match self.dialer.dial_node(node).await {
            Ok(client) => client,
            // It is there, and it is not its fault that an access token has expired.
            Err(error) if error.is_final() => return Err(Heard::Refused),
            Err(_) => return Err(Heard::Nothing),
        };
        match Name::of(&client, limits::NODE_PATIENCE).await {
            Ok(name) => Ok(Visit { client, name }),
            Err(_) => Err(Heard::Nothing),
        }
    }

    async fn over<T, F>(&self, node: &Node, visit: Visit, question: &impl Fn(Arc<TcpClient>) -> F) -> Heard<T>
    where
        F: Future<Output = Result<T, IggyError>>,
    {
        let said = question(Arc::clone(&visit.client)).await;
        if said.as_ref().is_err_and(breaks_connection) {
            return Heard::Nothing;
        }
        // What came may be the reply to the request of somebody else.
        match Name::of(&visit.client, limits::NODE_PATIENCE).await {
            Ok(name) if name == visit.name => {
                self.keep(node, visit);
                said.map_or(Heard::Refused, Heard::Said)
            }
            Ok(_) | Err(Nameless::Another) => {
                self.dialer.metrics.stray_replies.add(1);
                Heard::Nothing
            }
            Err(Nameless::Lost | Nameless::Late) => Heard::Nothing,
        }
    }

    fn kept(&self, node: &Node) -> Option<Visit> {
        self.kept.lock().get_mut(node)?.pop()
    }

    fn keep(&self, node: &Node, visit: Visit) {
        let mut kept = self.kept.lock();
        if kept.len() >= limits::NODES_MAX && !kept.contains_key(node) {
            kept.clear();
        }
        let of_node = kept.entry(Arc::clone(node)).or_default();
        if of_node.len() < limits::VISITS_KEPT {
            of_node.push(visit);
        }
    }

    /// Says goodbye.
    pub(crate) async fn close(&self) {
        let kept = std::mem::take(&mut *self.kept.lock());
        for visit in kept.into_values().flatten() {
            let _ = visit.client.disconnect().await;
        }
    }
}
