//! A small world for tests: a coordinator, a clock that is moved, and clients that remember what they were told.

use std::collections::HashMap;

use crate::{
    Answer, Coordinator, Generation, GroupConfig, GroupError, JoinRefused, JoinRequest, Joined, Leaving, Moment,
    Outputs, Sender, SyncRequest, Synced, Token,
};

pub(crate) const GROUP: &str = "g";

/// What one client says in its requests.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) name: String,
    pub(crate) version: i16,
    pub(crate) member_id: String,
    pub(crate) instance_id: Option<String>,
    pub(crate) generation: Generation,
    pub(crate) session_ms: i32,
    pub(crate) rebalance_ms: Option<i32>,
    pub(crate) protocol_type: String,
    pub(crate) protocols: Vec<(String, Vec<u8>)>,
}

impl Client {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            version: 9,
            member_id: String::new(),
            instance_id: None,
            generation: Generation::NONE,
            session_ms: 10_000,
            rebalance_ms: Some(60_000),
            protocol_type: "consumer".to_owned(),
            protocols: vec![("range".to_owned(), subscription(&["t"]))],
        }
    }

    /// With a `group.instance.id`.
    pub(crate) fn fixed(name: &str) -> Self {
        Self { instance_id: Some(name.to_owned()), ..Self::new(name) }
    }

    pub(crate) fn version(self, version: i16) -> Self {
        Self { version, ..self }
    }

    pub(crate) fn knows(self, protocols: &[&str]) -> Self {
        let protocols = protocols.iter().map(|p| ((*p).to_owned(), subscription(&["t"]))).collect();
        Self { protocols, ..self }
    }

    pub(crate) fn sender(&self) -> Sender<'_> {
        Sender {
            group: GROUP,
            member_id: &self.member_id,
            instance_id: self.instance_id.as_deref(),
            generation: self.generation,
        }
    }
}

/// Metadata of a consumer that subscribes to topics.
pub(crate) fn subscription(topics: &[&str]) -> Vec<u8> {
    let mut blob = vec![0, 0];
    blob.extend(i32::try_from(topics.len()).unwrap().to_be_bytes());
    for topic in topics {
        blob.extend(i16::try_from(topic.len()).unwrap().to_be_bytes());
        blob.extend(topic.as_bytes());
    }
    blob
}

pub(crate) struct World {
    pub(crate) coordinator: Coordinator,
    pub(crate) out: Outputs,
    pub(crate) now: Moment,
    answers: HashMap<Token, Answer>,
    tokens: u64,
}

pub(crate) fn config() -> GroupConfig {
    GroupConfig { initial_rebalance_delay_ms: 0, ..GroupConfig::default() }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(config())
    }

    pub(crate) fn with(config: GroupConfig) -> Self {
        Self {
            coordinator: Coordinator::new(config),
            out: Outputs::default(),
            now: Moment::from_millis(1_000_000),
            answers: HashMap::new(),
            tokens: 0,
        }
    }

    fn token(&mut self) -> Token {
        self.tokens += 1;
        Token(self.tokens)
    }

    fn absorb(&mut self) {
        for (token, answer) in self.out.answers.drain(..) {
            assert!(self.answers.insert(token, answer).is_none(), "{token:?} was answered twice");
        }
    }

    /// Moves the clock and runs what is due.
    pub(crate) fn pass(&mut self, millis: u64) {
        let end = self.now.plus(millis);
        while let Some(at) = self.coordinator.deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.coordinator.tick(self.now, &mut self.out);
            self.absorb();
        }
        self.now = end;
    }

    pub(crate) fn send_join(&mut self, client: &Client) -> Token {
        let token = self.token();
        let protocols: Vec<(&str, &[u8])> = client.protocols.iter().map(|(n, m)| (n.as_str(), m.as_slice())).collect();
        let fresh = format!("fresh{}", token.0);
        let request = JoinRequest {
            version: client.version,
            group: GROUP,
            member_id: &client.member_id,
            instance_id: client.instance_id.as_deref(),
            client_id: &client.name,
            client_host: "/127.0.0.1",
            session_timeout_ms: client.session_ms,
            rebalance_timeout_ms: client.rebalance_ms,
            protocol_type: &client.protocol_type,
            protocols: &protocols,
            fresh: &fresh,
        };
        self.coordinator.join(token, &request, self.now, &mut self.out);
        self.absorb();
        token
    }

    /// Joins, under the id that is given out if one is required.
    pub(crate) fn enter(&mut self, client: &mut Client) -> Token {
        let token = self.send_join(client);
        if let Some(Answer::Join(Err(refused))) = self.answers.get(&token)
            && refused.error == GroupError::MemberIdRequired
        {
            client.member_id = refused.member_id.to_string();
            return self.send_join(client);
        }
        token
    }

    pub(crate) fn send_sync(&mut self, client: &Client, assignments: &[(&str, &[u8])]) -> Token {
        self.send_sync_with(client, assignments, None, None)
    }

    pub(crate) fn send_sync_with(
        &mut self,
        client: &Client,
        assignments: &[(&str, &[u8])],
        protocol_type: Option<&str>,
        protocol: Option<&str>,
    ) -> Token {
        let token = self.token();
        let request = SyncRequest {
            group: GROUP,
            member_id: &client.member_id,
            instance_id: client.instance_id.as_deref(),
            generation: client.generation,
            protocol_type,
            protocol,
            assignments,
        };
        self.coordinator.sync(token, &request, self.now, &mut self.out);
        self.absorb();
        token
    }

    pub(crate) fn heartbeat(&mut self, client: &Client) -> Result<(), GroupError> {
        self.coordinator.heartbeat(&client.sender(), self.now)
    }

    pub(crate) fn leave(&mut self, leaving: &[(&str, Option<&str>)]) -> Vec<Result<(), GroupError>> {
        let leaving: Vec<_> =
            leaving.iter().map(|(member_id, instance_id)| Leaving { member_id, instance_id: *instance_id }).collect();
        let result = self.coordinator.leave(GROUP, &leaving, self.now, &mut self.out).unwrap();
        self.absorb();
        result
    }

    pub(crate) fn forget(&mut self, token: Token) {
        self.coordinator.forget(GROUP, token, self.now, &mut self.out);
        self.absorb();
    }

    pub(crate) fn waits(&self, token: Token) -> bool {
        !self.answers.contains_key(&token)
    }

    pub(crate) fn join_answer(&mut self, token: Token) -> Result<Joined, JoinRefused> {
        match self.answers.remove(&token) {
            Some(Answer::Join(result)) => result,
            other => panic!("{token:?} has {other:?}"),
        }
    }

    /// The answer to a join, which the client takes to heart.
    pub(crate) fn joined(&mut self, token: Token, client: &mut Client) -> Joined {
        let joined = self.join_answer(token).unwrap();
        client.member_id = joined.member_id.to_string();
        client.generation = joined.generation;
        joined
    }

    pub(crate) fn refused(&mut self, token: Token) -> GroupError {
        self.join_answer(token).unwrap_err().error
    }

    pub(crate) fn synced(&mut self, token: Token) -> Result<Synced, GroupError> {
        match self.answers.remove(&token) {
            Some(Answer::Sync(result)) => result,
            other => panic!("{token:?} has {other:?}"),
        }
    }

    pub(crate) fn state(&self) -> &'static str {
        self.coordinator.state(GROUP).name()
    }

    /// Makes these clients a generation; the first of them that leads is told. Nothing is synced yet.
    pub(crate) fn gather(&mut self, clients: &mut [Client]) -> usize {
        let mut tokens: Vec<Token> = Vec::new();
        for client in clients.iter_mut() {
            tokens.push(self.enter(client));
        }
        // With no initial delay the first one is alone in a generation; it has to join again.
        for round in 0..2 {
            for (at, client) in clients.iter_mut().enumerate() {
                if let Some(Answer::Join(Ok(joined))) = self.answers.get(&tokens[at]) {
                    client.member_id = joined.member_id.to_string();
                    client.generation = joined.generation;
                    if round == 0 && self.state() == "PreparingRebalance" {
                        self.answers.remove(&tokens[at]);
                        tokens[at] = self.send_join(client);
                    }
                }
            }
        }
        let mut leader = None;
        for (at, client) in clients.iter_mut().enumerate() {
            let joined = self.joined(tokens[at], client);
            if joined.leader == joined.member_id {
                leader = Some(at);
            }
        }
        assert_eq!(self.state(), "CompletingRebalance");
        leader.expect("somebody leads")
    }

    /// Makes these clients a stable group, in which each has its own name as assignment. Answers who leads.
    pub(crate) fn settle(&mut self, clients: &mut [Client]) -> usize {
        let leader = self.gather(clients);
        let ids: Vec<(String, Vec<u8>)> =
            clients.iter().map(|c| (c.member_id.clone(), c.name.clone().into_bytes())).collect();
        let filed: Vec<(&str, &[u8])> = ids.iter().map(|(id, blob)| (id.as_str(), blob.as_slice())).collect();
        for (at, client) in clients.iter().enumerate() {
            let assignments = if at == leader { filed.as_slice() } else { &[] };
            self.send_sync(client, assignments);
        }
        self.answers.clear();
        assert_eq!(self.state(), "Stable");
        leader
    }
}
