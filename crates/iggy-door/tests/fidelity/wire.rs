//! Requests of our own bytes, and what comes back.

use std::collections::BTreeMap;
use std::time::Duration;

use iggy_binary_protocol::consensus::{
    Command, EvictionHeader, HEADER_SIZE, Operation, ReplyHeader, RequestHeader, result_code,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use xxhash_rust::xxh3::xxh3_64;

use crate::script::{Body, Step, What, login};

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

/// Plays the script at a server, and returns the answers in its order.
pub(crate) async fn play(address: &str, steps: &[Step], silence: Duration, settle: bool) -> Vec<Answer> {
    let mut connections = BTreeMap::new();
    let mut answers: Vec<Answer> = Vec::new();
    for step in steps {
        if settle {
            sleep(Duration::from_millis(step.settle_ms)).await;
        }
        let body = match &step.body {
            Body::Bytes(bytes) => bytes.clone(),
            Body::TokenOf(name) => {
                let at = steps.iter().position(|step| step.name == *name).unwrap();
                let Answer::Reply(0, made) = &answers[at] else { panic!("{name}: {:?}", answers[at]) };
                login::by_token(&made[5..])
            }
        };
        let mut connection = match connections.remove(&step.on) {
            Some(connection) => connection,
            None => Connection::open(address, step, silence).await,
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
    async fn open(address: &str, step: &Step, silence: Duration) -> Self {
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
        let header = self.header(step, body);
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

    fn header(&self, step: &Step, body: &[u8]) -> RequestHeader {
        let mut header = RequestHeader {
            command: Command::Request,
            size: u32::try_from(HEADER_SIZE + body.len()).unwrap(),
            client: self.client,
            session: self.session,
            request: self.request,
            ..RequestHeader::default()
        };
        match step.what {
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
        }
        header
    }

    /// The answer to a request; those to requests before it, which were given up, are passed over.
    async fn receive(&mut self, request: u64) -> std::io::Result<Answer> {
        loop {
            let mut header = [0; HEADER_SIZE];
            self.stream.read_exact(&mut header).await?;
            if header[60] == Command::Eviction as u8 {
                let header: EvictionHeader = bytemuck::checked::pod_read_unaligned(&header);
                return Ok(Answer::Evicted(header.reason as u8));
            }
            let header: ReplyHeader = bytemuck::checked::pod_read_unaligned(&header);
            assert_eq!(header.command, Command::Reply);
            let mut body = vec![0; header.size as usize - HEADER_SIZE];
            self.stream.read_exact(&mut body).await?;
            if header.request == request {
                return Ok(Answer::Reply(header.status, body));
            }
        }
    }
}

fn is_transient(step: &Step, answer: &Answer) -> bool {
    let Answer::Reply(status, body) = answer else { return false };
    let is_framed = matches!(step.what, What::Operation(operation) if operation.is_result_framed());
    let code = if is_framed { result_code(body).unwrap_or(0) } else { 0 };
    TRANSIENT.contains(status) || TRANSIENT.contains(&code)
}
