//! Frames of our own to a door, and what comes back.

use std::time::Duration;

use iggy::prelude::*;
use iggy_binary_protocol::consensus::{
    Command, EvictionReason, HEADER_SIZE, Operation, ReplyHeader, RequestHeader, result_code,
};
use iggy_binary_protocol::requests::messages::PollMessagesRequest;
use iggy_binary_protocol::version::IGGY_PROTOCOL_VERSION;
use iggy_binary_protocol::{
    ClientVersionInfo, WireConsumer, WireEncode, WireIdentifier, WireName, WirePollingStrategy,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{PASSWORD, TestDoor, USER, id, topic};

/// A connection that sends what a test makes.
pub(crate) struct Raw(pub(crate) TcpStream);

impl Raw {
    pub(crate) async fn connect(door: &TestDoor) -> Self {
        Self(TcpStream::connect(door.door.address()).await.unwrap())
    }

    pub(crate) async fn send(&mut self, header: RequestHeader, body: &[u8]) {
        let size = u32::try_from(HEADER_SIZE + body.len()).unwrap();
        let header = RequestHeader { command: Command::Request, size, ..header };
        self.0.write_all(&[bytemuck::bytes_of(&header), body].concat()).await.unwrap();
    }

    pub(crate) async fn receive(&mut self) -> (Vec<u8>, Vec<u8>) {
        let mut header = vec![0; HEADER_SIZE];
        self.0.read_exact(&mut header).await.unwrap();
        let size = u32::from_le_bytes(header[48..52].try_into().unwrap()) as usize;
        let mut body = vec![0; size - HEADER_SIZE];
        self.0.read_exact(&mut body).await.unwrap();
        (header, body)
    }

    /// Code in the answer to a metadata operation that is stamped as the SDK does.
    pub(crate) async fn result(&mut self, one: Operation, request: u64, body: &[u8]) -> Option<u32> {
        let request_checksum = u128::from(xxhash_rust::xxh3::xxh3_64(body));
        self.send(RequestHeader { request_checksum, ..operation(one, request) }, body).await;
        result_code(&self.receive().await.1)
    }

    pub(crate) async fn evicted(&mut self) -> EvictionReason {
        let (header, _) = self.receive().await;
        assert_eq!(header[60], Command::Eviction as u8);
        *bytemuck::checked::from_bytes(&header[255..])
    }

    pub(crate) async fn status(&mut self) -> u32 {
        let (header, _) = self.receive().await;
        bytemuck::checked::pod_read_unaligned::<ReplyHeader>(&header).status
    }

    /// True when the door closes the connection.
    pub(crate) async fn is_closed(&mut self) -> bool {
        let read = tokio::time::timeout(Duration::from_secs(20), self.0.read(&mut [0; 1])).await;
        matches!(read, Ok(Ok(0) | Err(_)))
    }

    pub(crate) async fn login(&mut self, client: u128) -> u64 {
        self.send(register(client), &credentials(IGGY_PROTOCOL_VERSION, USER, PASSWORD)).await;
        let (_, body) = self.receive().await;
        assert_eq!(result_code(&body), Some(0));
        u64::from_le_bytes(body[8..16].try_into().unwrap())
    }
}

pub(crate) fn register(client: u128) -> RequestHeader {
    RequestHeader { operation: Operation::Register, client, ..RequestHeader::default() }
}

pub(crate) fn operation(operation: Operation, request: u64) -> RequestHeader {
    RequestHeader { operation, client: 7, request, session: 1, ..RequestHeader::default() }
}

pub(crate) fn ping() -> RequestHeader {
    let size = u32::try_from(HEADER_SIZE).unwrap();
    RequestHeader { command: Command::Request, size, ..command(1) }
}

pub(crate) fn command(code: u32) -> RequestHeader {
    let mut header = operation(Operation::NonReplicated, 1);
    header.reserved[..4].copy_from_slice(&code.to_le_bytes());
    header
}

pub(crate) fn credentials(protocol_version: u32, name: &str, password: &str) -> Vec<u8> {
    let text = |text: &str| WireName::new(text).unwrap();
    let info = ClientVersionInfo { protocol_version, sdk_name: text("test"), sdk_version: text("1") };
    let login = [text(name).to_bytes(), text(password).to_bytes()].concat();
    [&info.to_bytes()[..], &login, &[0; 4]].concat()
}

pub(crate) async fn large_message(client: &TcpClient) {
    topic(client, 1).await;
    let payload = bytes::Bytes::from(vec![1; 20 << 20]);
    let mut messages = [IggyMessage::builder().payload(payload).build().unwrap()];
    client.send_messages(&id("s"), &id("t"), &Partitioning::partition_id(0), &mut messages).await.unwrap();
}

pub(crate) fn poll_first() -> Vec<u8> {
    let poll = PollMessagesRequest {
        consumer: WireConsumer::consumer(WireIdentifier::numeric(1)),
        stream_id: WireIdentifier::named("s").unwrap(),
        topic_id: WireIdentifier::named("t").unwrap(),
        partition_id: Some(0),
        strategy: WirePollingStrategy::first(),
        count: 1,
        auto_commit: false,
    };
    poll.to_bytes().to_vec()
}
