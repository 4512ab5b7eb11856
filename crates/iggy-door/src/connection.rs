//! One connection: requests are answered one after the other, in the order in which they come.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use bytes::Bytes;
use iggy_binary_protocol::codes::{LOGIN_USER_CODE, LOGIN_WITH_PERSONAL_ACCESS_TOKEN_CODE, PING_CODE};
use iggy_binary_protocol::consensus::{EvictionReason, Operation};
use milena_server::lifecycle::Phase;
use milena_tls::Sink;
use tokio::io::{AsyncRead, AsyncWriteExt};
use tokio::sync::{Mutex, OwnedSemaphorePermit};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::codes::{Code, Refusal};
use crate::frame::{Reply, Request, eviction};
use crate::handlers::{self, Caller, Login, Remembered, RequestKey};
use crate::reader::{ReadEnd, Reader};
use crate::service::Service;

/// Largest answer that is kept in case its request is sent again.
const REMEMBERED_BYTES_MAX: usize = 64 << 10;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error(transparent)]
    Read(#[from] ReadEnd),
    #[error("no request came in time")]
    Idle,
    #[error("the client stopped reading")]
    WriteStalled,
    #[error("writing failed: {0}")]
    Write(std::io::Error),
    #[error("too many failed logins")]
    Guessing,
    #[error("the outcome of a request is unknown")]
    InDoubt,
    #[error("the door is closing")]
    Closing,
    #[cfg(feature = "faults")]
    #[error("a planned fault")]
    Planned,
}

/// What a request leads to.
enum Step {
    Answer(Bytes, Option<OwnedSemaphorePermit>),
    #[cfg(feature = "faults")]
    Nothing,
    Close(End),
    AnswerAndClose(Bytes, End),
}

struct Connection<R, W> {
    service: Arc<Service>,
    caller: Caller,
    reader: Reader<R>,
    writer: W,
    log_in_until: Instant,
    failures: u32,
}

/// Serves a connection between the `local` address and that of the `peer` until it ends. The client has to log in until
/// `log_in_until`.
pub(crate) async fn run<R: AsyncRead + Unpin, W: Sink>(
    service: Arc<Service>,
    read: R,
    writer: W,
    (local, peer): (SocketAddr, SocketAddr),
    log_in_until: Instant,
) {
    let id = service.clients.enter(peer);
    let limits = &service.config.limits;
    let mut connection = Connection {
        reader: Reader::new(read, limits.read_timeout),
        log_in_until,
        caller: Caller { id, local, session: None, last: Mutex::default() },
        failures: 0,
        writer,
        service: Arc::clone(&service),
    };
    let end = tokio::select! {
        biased;
        () = service.lifecycle.reached(Phase::Dropping) => End::Closing,
        end = connection.answer_all() => end,
    };
    connection.log_out();
    service.clients.leave(id);
    note(&service, peer, &end);
}

impl<R: AsyncRead + Unpin, W: Sink> Connection<R, W> {
    async fn answer_all(&mut self) -> End {
        loop {
            let step = match self.next().await {
                Ok((request, charge)) => {
                    let step = self.serve(&request).await;
                    drop(charge);
                    step
                }
                Err(end) => return end,
            };
            let written = match step {
                Step::Answer(bytes, None) => self.write(&bytes).await,
                Step::Answer(bytes, Some(hold)) => {
                    let written = self.write_in_time(&bytes).await;
                    drop(hold);
                    written
                }
                #[cfg(feature = "faults")]
                Step::Nothing => Ok(()),
                Step::Close(end) => return end,
                Step::AnswerAndClose(bytes, end) => return self.write(&bytes).await.err().unwrap_or(end),
            };
            if let Err(end) = written {
                return end;
            }
        }
    }

    /// The next request.
    async fn next(&mut self) -> Result<(Request, milena_server::memory::Charge), End> {
        if self.caller.session.is_some() {
            return self.arrives().await;
        }
        // First, as pings and trickling bytes are always there: whoever has not logged in keeps its place no longer.
        tokio::select! {
            biased;
            () = sleep_until(self.log_in_until) => Err(End::Idle),
            request = self.arrives() => request,
        }
    }

    async fn arrives(&mut self) -> Result<(Request, milena_server::memory::Charge), End> {
        let service = Arc::clone(&self.service);
        let deadline = self.deadline();
        tokio::select! {
            biased;
            ready = self.reader.ready() => ready?,
            () = service.lifecycle.reached(Phase::Draining) => return Err(End::Closing),
            () = sleep_until(deadline) => {
                self.evict_if_member().await;
                return Err(End::Idle);
            }
        }
        let limits = &service.config.limits;
        let limit = if self.caller.session.is_some() { limits.frame_bytes_max } else { limits.login_frame_bytes_max };
        match self.reader.request(limit, self.patience(), &service.memory).await {
            Err(ReadEnd::TooSlow) => {
                self.evict_if_member().await;
                Err(End::Idle)
            }
            read => Ok(read?),
        }
    }

    /// A client that has not logged in has one time for all, and a member of a group must show that it lives.
    fn deadline(&self) -> Instant {
        if self.caller.session.is_none() { self.log_in_until } else { Instant::now() + self.patience() }
    }

    /// How long a client may say nothing.
    fn patience(&self) -> Duration {
        let limits = &self.service.config.limits;
        match &self.caller.session {
            None => limits.login_timeout,
            Some(session) if session.is_member() && self.service.members.is_member(session.client) => {
                limits.heartbeat_timeout
            }
            Some(_) => limits.idle_timeout,
        }
    }

    async fn evict_if_member(&mut self) {
        let session = self.caller.session.clone();
        if let Some(session) = session.filter(|session| session.is_member()) {
            // It may not listen any more.
            let _ = self.write(&eviction(session.client, EvictionReason::StaleClient)).await;
        }
    }

    async fn serve(&mut self, request: &Request) -> Step {
        self.service.metrics.requests.add(1);
        let operation = request.header.operation;
        // A client of another generation, which may make its checksum in another way, is to hear which ones are served.
        if !request.is_intact() && !handlers::is_of_another_generation(request) {
            return self.refuse(request, Refusal::Denied(Code::INVALID_FORMAT));
        }
        if self.caller.session.as_ref().is_some_and(|session| session.is_fenced()) {
            self.log_out();
            return Step::Answer(eviction(request.header.client, EvictionReason::NoSession), None);
        }
        match operation {
            Operation::Register => {
                // Clients count their requests from 1 again after a login.
                *self.caller.last.lock().await = None;
                return self.login(request);
            }
            Operation::Logout => {
                *self.caller.last.lock().await = None;
                self.log_out();
                return self.finish(request, Reply::empty(operation));
            }
            Operation::NonReplicated if is_old_login(request.code()) => {
                return Step::Answer(eviction(request.header.client, EvictionReason::MalformedLogin), None);
            }
            Operation::NonReplicated if request.code() == PING_CODE => {}
            _ if self.caller.session.is_some() => {}
            Operation::NonReplicated => return self.refuse(request, Refusal::Denied(Code::UNAUTHENTICATED)),
            // Whoever sends these believes to have a session.
            _ => return Step::Answer(eviction(request.header.client, EvictionReason::NoSession), None),
        }
        #[cfg(feature = "faults")]
        if let Some(fault) = self.service.faults.meets(request) {
            return self.faulty(request, fault).await;
        }
        self.handled(request).await
    }

    async fn handled(&mut self, request: &Request) -> Step {
        if let Some(answer) = self.remembered(request).await {
            return Step::Answer(answer, None);
        }
        let outcome = handlers::handle(&self.service, &self.caller, request).await;
        match outcome {
            Ok(reply) => {
                let step = self.finish(request, reply);
                if let Step::Answer(answer, _) = &step {
                    self.remember(request, answer).await;
                }
                step
            }
            // Not kept: nothing was done, and a client that sends the same request again wants it to be tried again.
            Err(refusal) => self.refuse(request, refusal),
        }
    }

    fn login(&mut self, request: &Request) -> Step {
        let current = self.caller.session.as_ref();
        match handlers::login(&self.service, self.caller.id, current, request) {
            Login::Done(reply, session) => {
                self.caller.session = Some(session);
                self.finish(request, reply)
            }
            Login::Refused(reason) => {
                self.failures += 1;
                let answer = eviction(request.header.client, reason);
                if self.failures < self.service.config.limits.login_failures_max {
                    Step::Answer(answer, None)
                } else {
                    Step::AnswerAndClose(answer, End::Guessing)
                }
            }
        }
    }

    fn log_out(&mut self) {
        if let Some(session) = self.caller.session.take() {
            handlers::logout(&self.service, self.caller.id, &session);
            self.log_in_until = Instant::now() + self.service.config.limits.login_timeout;
        }
    }

    fn finish(&self, request: &Request, mut reply: Reply) -> Step {
        let clients = &self.service.clients;
        let changes = request.header.operation != Operation::NonReplicated;
        let commit = if changes { clients.next_commit() } else { clients.commit() };
        let hold = reply.hold.take();
        Step::Answer(reply.finish(&request.header, 0, commit), hold)
    }

    fn refuse(&self, request: &Request, refusal: Refusal) -> Step {
        self.service.metrics.refusals.add(1);
        match Reply::refusal(request.header.operation, refusal) {
            Some((reply, status)) => {
                Step::Answer(reply.finish(&request.header, status, self.service.clients.commit()), None)
            }
            None => Step::Close(End::InDoubt),
        }
    }

    /// The answer to a metadata operation that was done before, under the same number and with the same body. Without a
    /// checksum nobody knows whether the body is the same.
    async fn remembered(&self, request: &Request) -> Option<Bytes> {
        let last = self.caller.last.lock().await;
        let last = last.as_ref().filter(|_| request.header.operation.is_metadata())?;
        (last.request == RequestKey::of(request)).then(|| last.answer.clone())
    }

    async fn remember(&self, request: &Request, answer: &Bytes) {
        let header = &request.header;
        if header.operation.is_metadata() && header.request_checksum != 0 && answer.len() <= REMEMBERED_BYTES_MAX {
            let remembered = Remembered { request: RequestKey::of(request), answer: answer.clone() };
            *self.caller.last.lock().await = Some(remembered);
        }
    }

    /// Writes an answer that takes room from others: a client that reads just enough not to stall may not keep it.
    async fn write_in_time(&mut self, bytes: &[u8]) -> Result<(), End> {
        let limits = &self.service.config.limits;
        let seconds = bytes.len() / limits.write_rate_min.max(1);
        let time = limits.write_timeout + Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX));
        timeout_at(Instant::now() + time, self.write(bytes)).await.unwrap_or(Err(End::WriteStalled))
    }

    async fn write(&mut self, mut bytes: &[u8]) -> Result<(), End> {
        while !bytes.is_empty() {
            let writing = timeout(self.service.config.limits.write_timeout, self.writer.write(bytes));
            let written = writing.await.map_err(|_| End::WriteStalled)?.map_err(End::Write)?;
            bytes = bytes.get(written..).unwrap_or_default();
        }
        let pushed = milena_tls::push(&mut self.writer, self.service.config.limits.write_timeout).await;
        pushed.map_err(|_| End::WriteStalled)?.map_err(End::Write)
    }

    #[cfg(feature = "faults")]
    async fn faulty(&mut self, request: &Request, fault: crate::faults::Fault) -> Step {
        use crate::faults::Fault;
        match fault {
            Fault::CutBeforeApply => Step::Close(End::Planned),
            Fault::CutAfterApply => {
                self.handled(request).await;
                Step::Close(End::Planned)
            }
            Fault::SwallowReply => {
                self.handled(request).await;
                Step::Nothing
            }
            Fault::DelayBefore(time) => {
                tokio::time::sleep(time).await;
                self.handled(request).await
            }
            Fault::DelayAfter(time) => {
                let step = self.handled(request).await;
                tokio::time::sleep(time).await;
                step
            }
            Fault::Answer(code) => self.refuse(request, Refusal::Rejected(Code::from_number(code))),
            Fault::NoOffset => {
                self.handled(request).await;
                self.finish(request, Reply::empty(request.header.operation))
            }
            Fault::Body(body) => self.finish(request, Reply::raw(request.header.operation, body)),
        }
    }
}

/// Logins of clients of an older generation.
fn is_old_login(code: u32) -> bool {
    matches!(code, LOGIN_USER_CODE | LOGIN_WITH_PERSONAL_ACCESS_TOKEN_CODE)
}

/// Counts and logs the end of a connection.
fn note(service: &Service, peer: SocketAddr, end: &End) {
    let metrics = &service.metrics;
    let counter = match end {
        End::Idle => Some(&metrics.closed_idle),
        End::WriteStalled | End::Read(ReadEnd::Stalled) => Some(&metrics.closed_stalled),
        End::Read(ReadEnd::Frame(_) | ReadEnd::TlsClient) | End::Guessing => Some(&metrics.closed_protocol),
        _ => None,
    };
    if let Some(counter) = counter {
        counter.add(1);
    }
    let is_wrong = matches!(end, End::Read(ReadEnd::Frame(_) | ReadEnd::TlsClient) | End::Guessing | End::InDoubt);
    if !is_wrong {
        tracing::debug!(%peer, reason = %end, "iggy connection closed");
    } else if let Some(suppressed) = service.quiet.admit(peer.ip(), Clock::now()) {
        tracing::warn!(%peer, reason = %end, suppressed, "iggy connection closed");
    }
}
