//! A good request to every API in every version, and an empty one.

mod cluster;
pub(crate) mod empty;
mod groups;
mod records;
mod topics;

use milena_testkit::{RawClient, TestServer};
use milena_wire::decode::decode_response_to;
use milena_wire::encode_response;
use milena_wire::kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use milena_wire::kafka_protocol::messages::{ApiKey, BrokerId, MetadataRequest, SyncGroupRequest};
use milena_wire::kafka_protocol::protocol::{Request, StrBytes};
use uuid::Uuid;

use crate::groups_kit::{create, group, topic};

/// A client of a server with the topic `orders`, one record in it, and the group `readers` with one member.
pub(crate) struct Walk {
    client: RawClient,
    /// Id of `orders`.
    id: Uuid,
    /// Who leads it.
    leader: BrokerId,
    /// The member, whose generation is 1.
    member: StrBytes,
}

impl Walk {
    pub(crate) async fn begin(server: &TestServer) -> Self {
        let mut client = server.client().await;
        create(&mut client, "orders", 1).await;
        let asked = MetadataRequestTopic::default().with_name(Some(topic("orders")));
        let shown = client.request(12, &MetadataRequest::default().with_topics(Some(vec![asked]))).await;
        let (id, leader) = (shown.topics[0].topic_id, shown.topics[0].partitions[0].leader_id);
        let mut walk = Self { client, id, leader, member: StrBytes::default() };
        walk.produce(12).await;
        walk.member = walk.join_as_static(5, "readers").await;
        let sync = SyncGroupRequest::default().with_group_id(group("readers")).with_member_id(walk.member.clone());
        assert_eq!(walk.ask(5, &sync.with_generation_id(1)).await.error_code, 0);
        walk
    }

    /// Asks for one answer, which must decode without a byte left and be, byte for byte, what that version's schema makes of it.
    async fn ask<Q: Request>(&mut self, version: i16, request: &Q) -> Q::Response {
        let key = ApiKey::try_from(Q::KEY).unwrap();
        let id = self.client.send_silent(version, request).await;
        let frame = self.client.read_frame().await.unwrap_or_else(|| panic!("{key:?} {version} is not answered"));
        let (correlation_id, answer) = decode_response_to::<Q>(version, frame.clone())
            .unwrap_or_else(|error| panic!("the answer to {key:?} {version}: {error}: {frame:?}"));
        assert_eq!(correlation_id, id, "{key:?} {version}");
        let by_schema = encode_response(key, version, id, &answer).unwrap();
        assert_eq!(by_schema.slice(4..), frame, "the answer to {key:?} {version}");
        answer
    }

    /// One good request; `false` when none is known for the key.
    pub(crate) async fn step(&mut self, key: ApiKey, version: i16) -> bool {
        self.records(key, version).await
            || self.topics(key, version).await
            || self.configs(key, version).await
            || self.groups(key, version).await
            || self.offsets(key, version).await
            || self.cluster(key, version).await
            || self.absent(key, version).await
    }
}
