//! Requests of our own bytes, and what comes back.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use iggy_binary_protocol::consensus::{
    Command, EvictionHeader, HEADER_SIZE, Operation, ReplyHeader, RequestHeader, result_code,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use xxhash_rust::xxh3::xxh3_64;

use crate::place::Place;
use crate::script::{Body, Host, Step, What, login};

/// What came back for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A reply: its status and its body.
    Reply(u32, Vec<u8>),
    /// The session is ended, for this reason.
    Evicted(u8),
    /// The connection is closed.
    Closed,
    /// Nothing at all.
    Silence,
}

/// Codes that ask a client to try again: the server builds a partition after it has answered the creation of its topic.
const TRANSIENT: [u32; 2] = [57, 58];

/// Times that a request is sent before such a code is taken for the answer.
const TRIES: u32 = 30;

/// Plays the script, and returns the answers in its order. `silence` is how long one is waited for.
pub(crate) async fn play(place: &mut Place, steps: &[Step], silence: Duration) -> Vec<Answer> {
    let mut connections: BTreeMap<char, Connection> = BTreeMap::new();
    let mut answers: Vec<Answer> = Vec::new();
    for step in steps {
        let settle_ms = if place.settles() { step.settle_ms } else { 0 };
        sleep(Duration::from_millis(settle_ms.max(step.wait_ms))).await;
        let body = match (&step.body, step.what) {
            (_, What::Host(what)) => {
                place.act(what).await;
                answers.push(Answer::Reply(0, Vec::new()));
                // Connections do not outlive the process.
                if matches!(what, Host::Kill) {
                    connections.clear();
                }
                continue;
            }
            (Body::Requests(requests), _) => {
                let connection = connections.get_mut(&step.on).expect("a connection that is logged in");
                answers.push(connection.ask_at_once(requests).await);
                continue;
            }
            (Body::Bytes(bytes), _) => bytes.clone(),
            (Body::TokenOf(name), _) => {
                let at = steps.iter().position(|step| step.name == *name).unwrap();
                let Answer::Reply(0, made) = &answers[at] else { panic!("{name}: {:?}", answers[at]) };
                login::by_token(&made[5..])
            }
        };
        let mut connection = match connections.remove(&step.on) {
            Some(connection) => connection,
            None => Connection::open(place.address(), step, silence).await,
        };
        let answer = connection.ask(step, &body).await;
        if answer != Answer::Closed {
            connections.insert(step.on, connection);
        }
        answers.push(answer);
    }
    answers
}

struct Connection {
    stream: TcpStream,
    client: u128,
    session: u64,
    request: u64,
    silence: Duration,
}

impl Connection {
    /// Connects, and logs in unless the name of the connection is in upper case.
    async fn open(address: SocketAddr, step: &Step, silence: Duration) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let client = 0x1000 + u128::from(u32::from(step.on));
        let mut connection = Self { stream, client, session: 0, request: 0, silence };
        if step.on.is_lowercase() {
            let answer = connection.ask(&login::step(step.on), &login::good()).await;
            assert!(matches!(answer, Answer::Reply(0, _)), "login before {}: {answer:?}", step.name);
        }
        connection
    }

    /// Sends a request until the answer is none that asks for that.
    async fn ask(&mut self, step: &Step, body: &[u8]) -> Answer {
        let mut left = TRIES;
        loop {
            if !step.is_again {
                self.request += 1;
            }
            let answer = self.exchange(step, body).await;
            left -= 1;
            if left == 0 || !is_transient(step, &answer) {
                if let Answer::Reply(0, reply) = &answer {
                    self.keep_session(step, reply);
                }
                return answer;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    fn keep_session(&mut self, step: &Step, reply: &[u8]) {
        match step.what {
            What::Operation(Operation::Register) if result_code(reply) == Some(0) => {
                self.session = u64::from_le_bytes(reply[8..16].try_into().unwrap());
            }
            What::Operation(Operation::Logout) => self.session = 0,
            _ => {}
        }
    }

    async fn exchange(&mut self, step: &Step, body: &[u8]) -> Answer {
        let header = self.header(step.what, body);
        let sent = self.stream.write_all(&[bytemuck::bytes_of(&header), body].concat()).await;
        if sent.is_err() {
            return Answer::Closed;
        }
        match timeout(self.silence, self.receive(header.request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Answer::Closed,
            Err(_) => Answer::Silence,
        }
    }

    /// Sends all of them, then takes the answers: which ones they are to, in their order, when all went well.
    async fn ask_at_once(&mut self, requests: &[(What, Vec<u8>)]) -> Answer {
        let first = self.request + 1;
        let mut bytes = Vec::new();
        for (what, body) in requests {
            self.request += 1;
            bytes.extend_from_slice(bytemuck::bytes_of(&self.header(*what, body)));
            bytes.extend_from_slice(body);
        }
        match timeout(self.silence, self.order(&bytes, first, requests.len())).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Answer::Closed,
            Err(_) => Answer::Silence,
        }
    }

    async fn order(&mut self, requests: &[u8], first: u64, count: usize) -> std::io::Result<Answer> {
        self.stream.write_all(requests).await?;
        let mut order = Vec::new();
        while order.len() < count {
            match self.next().await? {
                (request, Answer::Reply(0, _)) => order.push(u8::try_from(request.wrapping_sub(first)).unwrap()),
                (_, other) => return Ok(other),
            }
        }
        Ok(Answer::Reply(0, order))
    }

    fn header(&self, what: What, body: &[u8]) -> RequestHeader {
        let mut header = RequestHeader {
            command: Command::Request,
            size: u32::try_from(HEADER_SIZE + body.len()).unwrap(),
            client: self.client,
            session: self.session,
            request: self.request,
            ..RequestHeader::default()
        };
        match what {
            What::Operation(operation) => {
                header.operation = operation;
                if operation == Operation::Register {
                    (header.request, header.session) = (0, 0);
                }
                if operation.is_metadata() {
                    header.request_checksum = u128::from(xxh3_64(body));
                }
            }
            What::Command(code) => {
                header.operation = Operation::NonReplicated;
                header.reserved[..4].copy_from_slice(&code.to_le_bytes());
            }
            What::AtOnce | What::Host(_) => unreachable!("no request of its own"),
        }
        header
    }

    /// The answer to a request; those to requests before it, which were given up, are passed over.
    async fn receive(&mut self, request: u64) -> std::io::Result<Answer> {
        loop {
            match self.next().await? {
                (number, Answer::Reply(..)) if number != request => {}
                (_, answer) => return Ok(answer),
            }
        }
    }

    /// The next answer, and the number of its request.
    async fn next(&mut self) -> std::io::Result<(u64, Answer)> {
        let mut header = [0; HEADER_SIZE];
        self.stream.read_exact(&mut header).await?;
        if header[60] == Command::Eviction as u8 {
            let header: EvictionHeader = bytemuck::checked::pod_read_unaligned(&header);
            return Ok((0, Answer::Evicted(header.reason as u8)));
        }
        let header: ReplyHeader = bytemuck::checked::pod_read_unaligned(&header);
        assert_eq!(header.command, Command::Reply);
        let mut body = vec![0; header.size as usize - HEADER_SIZE];
        self.stream.read_exact(&mut body).await?;
        Ok((header.request, Answer::Reply(header.status, body)))
    }
}

fn is_transient(step: &Step, answer: &Answer) -> bool {
    let Answer::Reply(status, body) = answer else { return false };
    let is_framed = matches!(step.what, What::Operation(operation) if operation.is_result_framed());
    let code = if is_framed { result_code(body).unwrap_or(0) } else { 0 };
    TRANSIENT.contains(status) || TRANSIENT.contains(&code)
}
