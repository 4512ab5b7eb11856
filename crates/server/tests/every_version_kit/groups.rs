//! Requests about groups and their offsets.

use milena_wire::kafka_protocol::messages::*;
use milena_wire::kafka_protocol::protocol::StrBytes;

use super::Walk;
use crate::groups_kit::{group, join_request, text, topic};

impl Walk {
    /// Joins as an instance with a name, which is let in at once; the member's id.
    pub(super) async fn join_as_static(&mut self, version: i16, name: &str) -> StrBytes {
        let request = join_request("", Some("instance")).with_group_id(group(name));
        let answer = self.ask(version, &request).await;
        assert_eq!((answer.error_code, answer.generation_id), (0, 1), "{name} {version}");
        answer.member_id
    }

    pub(super) async fn groups(&mut self, key: ApiKey, version: i16) -> bool {
        let readers = || group("readers");
        match key {
            ApiKey::FindCoordinator if version < 4 => {
                self.ask(version, &FindCoordinatorRequest::default().with_key(text("readers"))).await;
            }
            ApiKey::FindCoordinator => {
                let keys = vec![text("readers"), text("others")];
                let request = FindCoordinatorRequest::default().with_coordinator_keys(keys);
                assert_eq!(self.ask(version, &request).await.coordinators.len(), 2);
            }
            ApiKey::JoinGroup if version < 5 => {
                let request = join_request("", None).with_group_id(group(&format!("joined-{version}")));
                let request = if version == 0 { request.with_rebalance_timeout_ms(-1) } else { request };
                // From version 4 on, a member without a name is given its id first.
                let answer = self.ask(version, &request).await;
                assert_eq!(answer.members.len(), usize::from(version < 4));
            }
            ApiKey::JoinGroup => {
                self.join_as_static(version, &format!("joined-{version}")).await;
            }
            ApiKey::Heartbeat => {
                let request = HeartbeatRequest::default().with_group_id(readers()).with_generation_id(1);
                self.ask(version, &request.with_member_id(self.member.clone())).await;
            }
            ApiKey::LeaveGroup => {
                let name = format!("left-{version}");
                let member = self.join_as_static(5, &name).await;
                let request = LeaveGroupRequest::default().with_group_id(group(&name));
                let request = if version < 3 {
                    request.with_member_id(member)
                } else {
                    let identity = leave_group_request::MemberIdentity::default().with_member_id(member);
                    request.with_members(vec![identity.with_group_instance_id(Some(text("instance")))])
                };
                self.ask(version, &request).await;
            }
            ApiKey::SyncGroup => {
                let request = SyncGroupRequest::default().with_group_id(readers()).with_generation_id(1);
                self.ask(version, &request.with_member_id(self.member.clone())).await;
            }
            ApiKey::DescribeGroups => {
                let answer = self.ask(version, &DescribeGroupsRequest::default().with_groups(vec![readers()])).await;
                assert_eq!(answer.groups[0].members.len(), 1);
            }
            ApiKey::ListGroups => {
                assert!(!self.ask(version, &ListGroupsRequest::default()).await.groups.is_empty());
            }
            ApiKey::DeleteGroups => {
                let names = vec![group(&format!("left-{version}"))];
                let answer = self.ask(version, &DeleteGroupsRequest::default().with_groups_names(names)).await;
                assert_eq!(answer.results.len(), 1);
            }
            _ => return false,
        }
        true
    }

    pub(super) async fn offsets(&mut self, key: ApiKey, version: i16) -> bool {
        match key {
            ApiKey::OffsetCommit => {
                use offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
                let committed = OffsetCommitRequestTopic::default()
                    .with_name(topic("orders"))
                    .with_partitions(vec![OffsetCommitRequestPartition::default().with_committed_offset(1)]);
                let request = OffsetCommitRequest::default().with_topics(vec![committed]);
                let by_member = request
                    .clone()
                    .with_group_id(group("readers"))
                    .with_member_id(self.member.clone())
                    .with_generation_id_or_member_epoch(1);
                self.ask(version, &by_member).await;
                let by_nobody = request.with_group_id(group("outsiders")).with_generation_id_or_member_epoch(-1);
                assert_eq!(self.ask(version, &by_nobody).await.topics[0].partitions.len(), 1);
            }
            ApiKey::OffsetFetch if version < 8 => {
                use offset_fetch_request::OffsetFetchRequestTopic;
                let wanted =
                    OffsetFetchRequestTopic::default().with_name(topic("orders")).with_partition_indexes(vec![0]);
                let request =
                    OffsetFetchRequest::default().with_group_id(group("readers")).with_topics(Some(vec![wanted]));
                assert_eq!(self.ask(version, &request).await.topics[0].partitions[0].committed_offset, 1);
            }
            ApiKey::OffsetFetch => {
                use offset_fetch_request::OffsetFetchRequestGroup;
                let of = |name| OffsetFetchRequestGroup::default().with_group_id(group(name)).with_topics(None);
                let request = OffsetFetchRequest::default().with_groups(vec![of("readers"), of("outsiders")]);
                assert_eq!(self.ask(version, &request).await.groups[1].topics[0].partitions[0].committed_offset, 1);
            }
            ApiKey::OffsetDelete => {
                use offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
                let deleted = OffsetDeleteRequestTopic::default()
                    .with_name(topic("orders"))
                    .with_partitions(vec![OffsetDeleteRequestPartition::default()]);
                let request =
                    OffsetDeleteRequest::default().with_group_id(group("outsiders")).with_topics(vec![deleted]);
                assert_eq!(self.ask(version, &request).await.topics[0].partitions.len(), 1);
            }
            _ => return false,
        }
        true
    }
}
