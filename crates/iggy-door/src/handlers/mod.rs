//! The commands: a table from codes and operations to handlers, one file per family.

mod groups;
mod messages;
mod offsets;
mod options;
mod partitions;
mod poll;
mod session;
mod streams;
mod system;
mod tokens;
mod topics;
mod users;
mod view;

use std::net::SocketAddr;
use std::sync::Arc;

use iggy_binary_protocol::codes as wire;
use iggy_binary_protocol::consensus::Operation;
use tokio::sync::Mutex;

use crate::clients::Session;
use crate::codes::{Code, Refusal};
use crate::frame::{Reply, Request};
use crate::service::Service;

pub(crate) use session::{Login, is_of_another_generation, login, logout};

/// Runs what handlers read by themselves: the options of a topic, the credentials of a login.
pub(crate) fn fuzz_body(body: &[u8]) {
    let _ = session::split_password(body);
    if let Ok(options) = iggy_binary_protocol::WireOptions::from_slice(body) {
        let _ = options::settings(&options, 3);
    }
}

/// The batch in the body of a send.
pub(crate) fn fuzz_split(body: &[u8]) -> Option<&[u8]> {
    messages::split(body).ok().map(|(_, batch)| batch)
}

/// Who asks.
pub(crate) struct Caller {
    /// Number of the connection, as clients see it.
    pub(crate) id: u32,
    /// Address that the client reached.
    pub(crate) local: SocketAddr,
    /// The session, after the login.
    pub(crate) session: Option<Arc<Session>>,
    /// The answer to the last metadata operation: one that is sent again is answered again and not done again.
    pub(crate) last: Mutex<Option<Remembered>>,
}

/// An answer that is kept.
pub(crate) struct Remembered {
    pub(crate) request: RequestKey,
    pub(crate) answer: bytes::Bytes,
}

/// What two sendings of one request have in common.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RequestKey {
    operation: Operation,
    client: u128,
    session: u64,
    request: u64,
    checksum: u128,
}

impl RequestKey {
    pub(crate) fn of(request: &Request) -> Self {
        let header = &request.header;
        Self {
            operation: header.operation,
            client: header.client,
            session: header.session,
            request: header.request,
            checksum: header.request_checksum,
        }
    }
}

impl Caller {
    /// The client's own number; 0 before the login.
    pub(crate) fn client(&self) -> u128 {
        self.session.as_ref().map_or(0, |session| session.client)
    }
}

/// Answer of a handler.
pub(crate) type Answer = Result<Reply, Refusal>;

/// Runs the handler of a request of a connection that has logged in, or a ping.
pub(crate) async fn handle(service: &Service, caller: &Caller, request: &Request) -> Answer {
    let operation = request.header.operation;
    match operation {
        Operation::NonReplicated => Box::pin(read(service, caller, request)).await,
        Operation::SendMessages => messages::send(service, request).await,
        Operation::StoreConsumerOffset => offsets::store(service, caller, request).await,
        Operation::DeleteConsumerOffset => offsets::delete(service, caller, request).await,
        _ => Box::pin(change(service, caller, request)).await,
    }
}

/// Commands that change nothing but, for a poll with auto commit, an offset.
async fn read(service: &Service, caller: &Caller, request: &Request) -> Answer {
    match request.code() {
        wire::PING_CODE => Ok(Reply::empty(Operation::NonReplicated)),
        wire::GET_CLUSTER_METADATA_CODE => Ok(system::cluster(service, caller)),
        wire::DESCRIBE_OPTIONS_CODE => options::describe(&request.body),
        wire::GET_STATS_CODE => system::stats(service).await,
        wire::GET_ME_CODE => Ok(system::client(service, caller.id).await),
        wire::GET_CLIENT_CODE => system::one_client(service, &request.body).await,
        wire::GET_CLIENTS_CODE => Ok(system::clients(service)),
        wire::GET_USER_CODE => users::one(service, &request.body),
        wire::GET_USERS_CODE => users::all(service),
        wire::GET_PERSONAL_ACCESS_TOKENS_CODE => Ok(tokens::list(service)),
        wire::GET_STREAM_CODE => streams::one(service, &request.body).await,
        wire::GET_STREAMS_CODE => streams::all(service).await,
        wire::GET_TOPIC_CODE => topics::one(service, &request.body).await,
        wire::GET_TOPICS_CODE => topics::all(service, &request.body).await,
        wire::POLL_MESSAGES_CODE => poll::poll(service, caller, &request.body).await,
        wire::GET_CONSUMER_OFFSET_CODE => offsets::get(service, &request.body).await,
        wire::GET_CONSUMER_GROUP_CODE => groups::one(service, &request.body).await,
        wire::GET_CONSUMER_GROUPS_CODE => groups::all(service, &request.body).await,
        wire::SYNC_CONSUMER_GROUP_CODE => groups::sync(service, caller, &request.body).await,
        wire::GET_SNAPSHOT_FILE_CODE | wire::FLUSH_UNSAVED_BUFFER_CODE => {
            Err(Refusal::Denied(Code::FEATURE_UNAVAILABLE))
        }
        // Among them the routing of clusters, which clients of one node do without.
        _ => Err(Refusal::Denied(Code::INVALID_COMMAND)),
    }
}

/// Operations on streams, topics, groups and tokens.
async fn change(service: &Service, caller: &Caller, request: &Request) -> Answer {
    let body = &request.body;
    match request.header.operation {
        Operation::CreateStream => streams::create(service, body).await,
        Operation::UpdateStream => streams::update(service, body).await,
        Operation::DeleteStream => streams::delete(service, body).await,
        Operation::PurgeStream => streams::purge(service, body).await,
        Operation::CreateTopic => topics::create(service, body).await,
        Operation::UpdateTopic => topics::update(service, body).await,
        Operation::DeleteTopic => topics::delete(service, body).await,
        Operation::PurgeTopic => topics::purge(service, body).await,
        Operation::CreatePartitions => partitions::create(service, body).await,
        Operation::DeletePartitions => partitions::delete(service, body).await,
        Operation::DeleteSegments => partitions::delete_segments(service, body).await,
        Operation::CreateConsumerGroup => groups::create(service, body).await,
        Operation::DeleteConsumerGroup => groups::delete(service, body).await,
        Operation::JoinConsumerGroup => groups::join(service, caller, body).await,
        Operation::LeaveConsumerGroup => groups::leave(service, caller, body).await,
        Operation::CreatePersonalAccessToken => tokens::create(service, body).await,
        Operation::DeletePersonalAccessToken => tokens::delete(service, body).await,
        // Users other than root, and operations that only servers send to each other.
        _ => Err(Refusal::Denied(Code::FEATURE_UNAVAILABLE)),
    }
}
