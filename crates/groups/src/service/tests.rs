use super::*;
use crate::offsets::testing::{ID, part, request, topic};
use crate::offsets::{Committed, DeletePartitions};
use crate::testing::subscription;
use crate::{Generation, JoinRefused, Joined};

mod mandate;
mod slices;
mod under_way;

/// The whole service with a store that takes everything, unless it is told to wait.
struct Desk {
    groups: Groups,
    out: Outputs,
    now: Now,
    log: Vec<Vec<u8>>,
    tokens: u64,
}

impl Desk {
    fn new() -> Self {
        let groups = GroupConfig { initial_rebalance_delay_ms: 0, ..GroupConfig::default() };
        let mut desk = Self {
            groups: Groups::new(groups, OffsetConfig { restart_grace_ms: 0, ..OffsetConfig::default() }),
            out: Outputs::default(),
            now: Now { moment: Moment::from_millis(1_000), wall: Timestamp(1_000_000) },
            log: Vec::new(),
            tokens: 0,
        };
        desk.groups.loaded(desk.now.wall);
        desk
    }

    fn token(&mut self) -> Token {
        self.tokens += 1;
        Token(self.tokens)
    }

    fn settle(&mut self) {
        while !self.out.appends.is_empty() {
            let append = self.out.appends.remove(0);
            self.log.push(append.record);
            self.groups.settled(append.ticket, true, &mut self.out);
        }
    }

    fn take(&mut self, token: Token) -> Answer {
        self.settle();
        let at = self.out.answers.iter().position(|(t, _)| *t == token).expect("an answer");
        self.out.answers.remove(at).1
    }

    fn pass(&mut self, millis: u32) {
        self.now.moment = self.now.moment.plus(u64::from(millis));
        self.now.wall = self.now.wall.plus(i64::from(millis));
        self.groups.tick(self.now, &mut self.out);
        self.settle();
    }

    fn send_join(&mut self, group: &str, topics: &[&str]) -> Result<Joined, JoinRefused> {
        let token = self.token();
        let fresh = token.0.to_string();
        let join = JoinRequest {
            version: 3,
            group,
            member_id: "",
            instance_id: None,
            client_id: "c",
            client_host: "h",
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: Some(10_000),
            protocol_type: "consumer",
            protocols: &[("range", &subscription(topics))],
            fresh: &fresh,
        };
        self.groups.join(token, &join, self.now, &mut self.out);
        match self.take(token) {
            Answer::Join(result) => result,
            other => panic!("{other:?}"),
        }
    }

    /// A lone member in a stable group.
    fn member(&mut self, group: &str, topics: &[&str]) -> Joined {
        let joined = self.send_join(group, topics).unwrap();
        let token = self.token();
        let sync = SyncRequest {
            group,
            member_id: &joined.member_id,
            instance_id: None,
            generation: joined.generation,
            protocol_type: None,
            protocol: None,
            assignments: &[],
        };
        self.groups.sync(token, &sync, self.now, &mut self.out);
        assert!(matches!(self.take(token), Answer::Sync(Ok(_))));
        joined
    }

    fn commit_as(&mut self, group: &str, member_id: &str, generation: Generation) -> Vec<Result<(), GroupError>> {
        let token = self.token();
        let sender = Sender { group, member_id, instance_id: None, generation };
        let request = request(group, vec![topic("t", vec![part(0, 5)])]);
        self.groups.commit(token, &sender, request, self.now, &mut self.out);
        match self.take(token) {
            Answer::Commit(results) => results,
            other => panic!("{other:?}"),
        }
    }

    fn commit(&mut self, group: &str) -> Vec<Result<(), GroupError>> {
        self.commit_as(group, "", Generation::NONE)
    }

    fn get(&self, group: &str) -> Option<i64> {
        self.groups.view(group).unwrap().get("t", ID, 0).map(Committed::offset)
    }

    fn delete(&mut self, group: &str) -> Result<(), GroupError> {
        let token = self.token();
        self.groups.delete_group(token, group, &mut self.out);
        match self.take(token) {
            Answer::DeleteGroup(result) => result,
            other => panic!("{other:?}"),
        }
    }

    fn delete_offset(&mut self, group: &str) -> Result<Vec<Result<(), GroupError>>, GroupError> {
        let token = self.token();
        let topics = vec![DeletePartitions { name: "t".into(), partitions: vec![0] }];
        self.groups.delete_offsets(token, &DeleteRequest { group: group.into(), topics }, &mut self.out);
        match self.take(token) {
            Answer::DeleteOffsets(result) => result,
            other => panic!("{other:?}"),
        }
    }

    fn leave(&mut self, group: &str, joined: &Joined) {
        let leaving = [Leaving { member_id: &joined.member_id, instance_id: None }];
        assert_eq!(self.groups.leave(group, &leaving, self.now, &mut self.out), Ok(vec![Ok(())]));
        self.settle();
    }

    fn restart(&mut self) {
        let mut again = Self::new();
        again.groups.reset();
        for record in &self.log {
            again.groups.replay(record).unwrap();
        }
        again.now = self.now;
        again.groups.loaded(self.now.wall);
        again.log = std::mem::take(&mut self.log);
        *self = again;
    }

    fn days(&mut self, days: u32) {
        for _ in 0..days {
            self.pass(86_400_000);
        }
        self.expire();
        self.settle();
    }

    fn expire(&mut self) {
        let mut walk = Walk::default();
        while !walk.is_over() {
            self.groups.expire(&mut walk, self.now, &mut self.out);
        }
    }

    fn list(&self, filter: &ListFilter) -> Result<Vec<Listed>, GroupError> {
        let (mut walk, mut listed) = (Walk::default(), Vec::new());
        while !walk.is_over() {
            listed.extend(self.groups.list(filter, &mut walk)?);
        }
        Ok(listed)
    }
}

#[test]
fn an_outsiders_commit_makes_an_empty_group_without_a_type() {
    let mut desk = Desk::new();
    assert_eq!(desk.commit("g"), [Ok(())]);
    let listed = desk.list(&ListFilter::default()).unwrap();
    assert_eq!(listed, [Listed { group: "g".into(), state: GroupState::Empty, protocol_type: "".into() }]);
    assert_eq!(desk.groups.describe("g").unwrap(), Description::only_offsets());
    assert_eq!(desk.groups.describe("h").unwrap(), Description::dead());
    assert!(desk.list(&ListFilter::named(&["Stable"], &[])).unwrap().is_empty());
}

#[test]
fn a_generation_in_a_group_of_offsets_alone_is_refused_and_stores_nothing() {
    let mut desk = Desk::new();
    assert_eq!(desk.commit_as("g", "m", Generation(0)), [Err(GroupError::UnknownMember)]);
    assert!(desk.list(&ListFilter::default()).unwrap().is_empty());
    desk.commit("g");
    assert_eq!(desk.commit_as("g", "m", Generation(3)), [Err(GroupError::UnknownMember)]);
    assert_eq!(desk.get("g"), Some(5));
}

#[test]
fn a_member_commits_and_an_outsider_does_not_while_it_is_there() {
    let mut desk = Desk::new();
    let joined = desk.member("g", &["other"]);
    assert_eq!(desk.commit("g"), [Err(GroupError::UnknownMember)]);
    assert_eq!(desk.get("g"), None);
    // Nobody asks whether it owns the partition.
    assert_eq!(desk.commit_as("g", &joined.member_id, joined.generation), [Ok(())]);
    desk.leave("g", &joined);
    assert_eq!(desk.commit("g"), [Ok(())]);
}

#[test]
fn while_the_table_loads_joins_and_offsets_are_put_off() {
    let mut desk = Desk::new();
    desk.groups.reset();
    assert_eq!(desk.send_join("g", &["t"]).unwrap_err().error, GroupError::Loading);
    assert_eq!(desk.commit("g"), [Err(GroupError::Loading)]);
    assert_eq!(desk.groups.view("g").err(), Some(GroupError::Loading));
    assert_eq!(desk.delete("g"), Err(GroupError::Loading));
    assert_eq!(desk.delete_offset("g"), Err(GroupError::Loading));
}

#[test]
fn a_group_with_members_is_not_deleted_and_an_unknown_one_is_not_found() {
    let mut desk = Desk::new();
    assert_eq!(desk.delete("g"), Err(GroupError::GroupIdNotFound));
    assert_eq!(desk.delete(""), Err(GroupError::InvalidGroupId));
    let joined = desk.member("g", &["t"]);
    desk.commit_as("g", &joined.member_id, joined.generation);
    assert_eq!(desk.delete("g"), Err(GroupError::NonEmptyGroup));
    desk.leave("g", &joined);
    assert_eq!(desk.delete("g"), Ok(()));
    assert_eq!(desk.get("g"), None);
    assert_eq!(desk.groups.describe("g").unwrap(), Description::dead());
    assert_eq!(desk.delete("g"), Err(GroupError::GroupIdNotFound));
}

#[test]
fn a_group_without_offsets_is_deleted_too() {
    let mut desk = Desk::new();
    let joined = desk.member("g", &["t"]);
    desk.leave("g", &joined);
    assert_eq!(desk.delete("g"), Ok(()));
    assert_eq!(desk.groups.describe("g").unwrap(), Description::dead());
}

/// The join of a client that is told no name first.
fn joining(group: &str) -> JoinRequest<'_> {
    JoinRequest {
        version: 0,
        group,
        member_id: "",
        instance_id: None,
        client_id: "c",
        client_host: "h",
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: None,
        protocol_type: "consumer",
        protocols: &[("range", b"")],
        fresh: "x",
    }
}

#[test]
fn who_joins_while_the_deletion_is_under_way_stays_a_member() {
    let mut desk = Desk::new();
    desk.commit("g");
    let token = desk.token();
    desk.groups.delete_group(token, "g", &mut desk.out);
    let token_of_join = desk.token();
    desk.groups.join(token_of_join, &joining("g"), desk.now, &mut desk.out);
    assert_eq!(desk.take(token), Answer::DeleteGroup(Ok(())));
    assert!(matches!(desk.take(token_of_join), Answer::Join(Ok(_))));
    assert_eq!(desk.groups.describe("g").unwrap().members.len(), 1);
}

#[test]
fn offsets_of_subscribed_topics_are_not_deleted() {
    let mut desk = Desk::new();
    assert_eq!(desk.delete_offset("g"), Err(GroupError::GroupIdNotFound));
    let joined = desk.member("g", &["t"]);
    desk.commit_as("g", &joined.member_id, joined.generation);
    assert_eq!(desk.delete_offset("g"), Ok(vec![Err(GroupError::SubscribedToTopic)]));
    desk.leave("g", &joined);
    assert_eq!(desk.delete_offset("g"), Ok(vec![Ok(())]));
    assert_eq!(desk.delete_offset("g"), Ok(vec![Ok(())]), "the group is still there, the offset is not");
    assert_eq!(desk.get("g"), None);
    let other = desk.member("g", &["u"]);
    desk.commit_as("g", &other.member_id, other.generation);
    assert_eq!(desk.delete_offset("g"), Ok(vec![Ok(())]));
    assert_eq!(desk.get("g"), None);
}

#[test]
fn a_group_that_never_had_members_goes_with_its_last_offset() {
    let mut desk = Desk::new();
    desk.commit("g");
    assert_eq!(desk.delete_offset("g"), Ok(vec![Ok(())]));
    assert_eq!(desk.delete("g"), Err(GroupError::GroupIdNotFound));
    desk.commit("g");
    assert_eq!(desk.delete("g"), Ok(()));
}

#[test]
fn a_restart_forgets_members_and_no_offset() {
    let mut desk = Desk::new();
    let joined = desk.member("g", &["t"]);
    desk.commit_as("g", &joined.member_id, joined.generation);
    desk.restart();
    assert_eq!(desk.commit_as("g", &joined.member_id, joined.generation), [Err(GroupError::UnknownMember)]);
    let sender = Sender { group: "g", member_id: &joined.member_id, instance_id: None, generation: joined.generation };
    assert_eq!(desk.groups.heartbeat(&sender, desk.now), Err(GroupError::UnknownMember));
    assert_eq!(desk.get("g"), Some(5));
    desk.member("g", &["t"]);
    assert_eq!(desk.get("g"), Some(5), "a new member finds where the old one was");
}

#[test]
fn offsets_of_a_live_group_never_expire_and_those_of_an_evicted_one_do() {
    let mut desk = Desk::new();
    let joined = desk.member("g", &["t"]);
    desk.commit_as("g", &joined.member_id, joined.generation);
    desk.now.wall = desk.now.wall.plus(100 * 86_400_000);
    desk.expire();
    desk.settle();
    assert_eq!(desk.get("g"), Some(5));
    // The session ends on the way, without a word from anybody.
    desk.days(7);
    assert_eq!(desk.get("g"), Some(5), "it is empty for less than seven days");
    desk.days(1);
    assert_eq!(desk.get("g"), None);
    assert_eq!(desk.groups.describe("g").unwrap(), Description::dead(), "the group goes with its last offset");
}

#[test]
fn a_group_loses_old_offsets_of_what_it_does_not_read_when_it_is_stable_and_not_while_it_rebalances() {
    for rebalancing in [true, false] {
        let mut desk = Desk::new();
        let joined = desk.member("g", &["another topic"]);
        desk.commit_as("g", &joined.member_id, joined.generation);
        desk.now.wall = desk.now.wall.plus(100 * 86_400_000);
        if rebalancing {
            let token = desk.token();
            let join = JoinRequest { fresh: "second", ..joining("g") };
            desk.groups.join(token, &join, desk.now, &mut desk.out);
            assert_eq!(desk.groups.describe("g").unwrap().state, GroupState::PreparingRebalance);
        }
        desk.expire();
        desk.settle();
        assert_eq!(desk.get("g"), rebalancing.then_some(5));
    }
}

#[test]
fn emptiness_counts_through_a_restart() {
    let mut desk = Desk::new();
    let joined = desk.member("g", &["t"]);
    desk.commit_as("g", &joined.member_id, joined.generation);
    desk.leave("g", &joined);
    desk.days(6);
    desk.restart();
    desk.expire();
    assert_eq!(desk.get("g"), Some(5));
    desk.days(1);
    assert_eq!(desk.get("g"), None);
}

#[test]
fn an_empty_group_that_never_committed_goes_with_the_next_round() {
    let mut desk = Desk::new();
    let joined = desk.member("g", &["t"]);
    desk.leave("g", &joined);
    assert_eq!(desk.groups.describe("g").unwrap().state, GroupState::Empty);
    desk.expire();
    assert_eq!(desk.groups.describe("g").unwrap().state, GroupState::Dead);
}

#[test]
fn a_deleted_topic_takes_its_offsets_along() {
    let mut desk = Desk::new();
    desk.commit("g");
    desk.groups.topic_deleted(&TopicKey { name: "t".into(), id: ID }, &mut desk.out);
    assert_eq!(desk.get("g"), None);
    desk.settle();
    desk.restart();
    assert_eq!(desk.get("g"), None);
}

#[test]
fn the_deadline_is_that_of_the_members() {
    let mut desk = Desk::new();
    assert_eq!(desk.groups.deadline(), None);
    desk.member("g", &["t"]);
    assert_eq!(desk.groups.deadline(), Some(desk.now.moment.plus(10_000)));
    desk.pass(10_000);
    assert_eq!(desk.groups.coordinator().members(), 0);
    assert_eq!(desk.groups.offsets().len(), 0);
}
