//! Consumer offsets and consumer groups.

use iggy_binary_protocol::codes as code;
use iggy_binary_protocol::consensus::Operation;
use iggy_binary_protocol::requests::consumer_groups::CreateConsumerGroupRequest;
use iggy_binary_protocol::requests::consumer_offsets::{
    DeleteConsumerOffsetRequest, GetConsumerOffsetRequest, StoreConsumerOffsetRequest,
};
use iggy_binary_protocol::{AckLevel, WireConsumer, WireIdentifier, WireOptions, WirePollingStrategy as From};

use super::admin::topic;
use super::data::{plain, plain_to, poll_as};
use super::{REBALANCING_TIMEOUT_MS, Script, bytes, ids, named, wire_name};

pub(super) fn store(consumer: &WireConsumer, topic: &str, partition_id: Option<u32>, offset: u64) -> Vec<u8> {
    let (consumer, stream_id, topic_id) = (consumer.clone(), named("s"), named(topic));
    bytes(&StoreConsumerOffsetRequest { consumer, stream_id, topic_id, partition_id, offset, ack: AckLevel::Quorum })
}

pub(super) fn get(consumer: &WireConsumer, topic: &str, partition_id: Option<u32>) -> Vec<u8> {
    let (consumer, stream_id, topic_id) = (consumer.clone(), named("s"), named(topic));
    bytes(&GetConsumerOffsetRequest { consumer, stream_id, topic_id, partition_id })
}

pub(super) fn delete(consumer: &WireConsumer, topic: &str, partition_id: Option<u32>) -> Vec<u8> {
    let (consumer, stream_id, topic_id) = (consumer.clone(), named("s"), named(topic));
    bytes(&DeleteConsumerOffsetRequest { consumer, stream_id, topic_id, partition_id, ack: AckLevel::Quorum })
}

pub(super) fn offsets(script: &mut Script) {
    let one = WireConsumer::consumer(named("one"));
    let number = WireConsumer::consumer(WireIdentifier::numeric(5));
    let nobody = WireConsumer::consumer(named("nobody"));
    let first = Some(0);
    let stores = [
        ("store offset 0", store(&one, "m", first, 0)),
        ("store an offset within", store(&one, "m", first, 3)),
        ("store an offset further back", store(&one, "m", first, 1)),
        ("store the last offset", store(&number, "m", first, 6)),
        ("store an offset behind the end", store(&number, "m", first, 5_000)),
        ("store an offset of an empty partition", store(&one, "t", first, 0)),
        ("store an offset without a partition", store(&one, "m", None, 1)),
        ("store an offset of no partition", store(&one, "m", Some(9), 1)),
        ("store an offset of no topic", store(&one, "none", first, 1)),
        ("store an offset of no group", store(&WireConsumer::consumer_group(named("none")), "m", first, 1)),
    ];
    for (name, body) in stores {
        script.does(name, Operation::StoreConsumerOffset, body);
    }
    let gets = [
        ("get an offset", get(&one, "m", first)),
        ("get an offset by number", get(&number, "m", first)),
        ("get an offset without a partition", get(&one, "m", None)),
        ("get an offset of another partition", get(&one, "m", Some(1))),
        ("get an offset of no partition", get(&one, "m", Some(9))),
        ("get an offset of nobody", get(&nobody, "m", first)),
        ("get an offset of no topic", get(&one, "none", first)),
        ("get an offset of no group", get(&WireConsumer::consumer_group(named("none")), "m", first)),
    ];
    for (name, body) in gets {
        script.asks(name, code::GET_CONSUMER_OFFSET_CODE, body);
    }
    let deletes = [
        ("delete an offset", delete(&one, "m", first)),
        ("delete an offset that is gone", delete(&one, "m", first)),
        ("delete an offset without a partition", delete(&number, "m", None)),
        ("delete an offset of no partition", delete(&number, "m", Some(9))),
        ("delete an offset of no topic", delete(&number, "none", first)),
        ("delete an offset by number", delete(&number, "m", first)),
    ];
    for (name, body) in deletes {
        script.does(name, Operation::DeleteConsumerOffset, body);
    }
    script.asks("get a deleted offset", code::GET_CONSUMER_OFFSET_CODE, get(&one, "m", first));
}

fn group(topic: &str, name: &str) -> Vec<u8> {
    bytes(&CreateConsumerGroupRequest { stream_id: named("s"), topic_id: named(topic), name: wire_name(name) })
}

pub(super) fn groups(script: &mut Script) {
    let create = Operation::CreateConsumerGroup;
    script.asks("list no groups", code::GET_CONSUMER_GROUPS_CODE, ids(&["s", "m"]));
    script.does("create a group", create, group("m", "g"));
    script.does("create a group of that name", create, group("m", "g"));
    script.does("create a group of no topic", create, group("none", "g"));
    script.does("create a group with a name of digits", create, group("m", "9"));
    script.asks("list groups", code::GET_CONSUMER_GROUPS_CODE, ids(&["s", "m"]));
    script.asks("list groups of no topic", code::GET_CONSUMER_GROUPS_CODE, ids(&["s", "none"]));
    script.asks("a group", code::GET_CONSUMER_GROUP_CODE, ids(&["s", "m", "g"]));
    script.asks("a group that is none", code::GET_CONSUMER_GROUP_CODE, ids(&["s", "m", "none"]));
    script.asks("a group of no topic", code::GET_CONSUMER_GROUP_CODE, ids(&["s", "none", "g"]));
    script.does("delete a group", Operation::DeleteConsumerGroup, ids(&["s", "m", "9"]));
    script.does("delete a group that is gone", Operation::DeleteConsumerGroup, ids(&["s", "m", "9"]));
    script.does("delete a group of no topic", Operation::DeleteConsumerGroup, ids(&["s", "none", "9"]));
    script.does("create a group after a deletion", create, group("m", "later"));
}

/// Two members of a group of a topic with two partitions, of which one holds a message.
pub(super) fn members(script: &mut Script) {
    script.does("create a topic for a group", Operation::CreateTopic, topic("s", "w", 2, WireOptions::empty()));
    script.does("send for a group", Operation::SendMessages, plain("w", b"work"));
    script.does("create a group of workers", Operation::CreateConsumerGroup, group("w", "w"));
    let this = || ids(&["s", "w", "w"]);
    let who = WireConsumer::consumer_group(named("w"));
    let poll = |partition| poll_as(who.clone(), "w", partition, From::next(), 5, true);
    script.asks("sync of who is no member", code::SYNC_CONSUMER_GROUP_CODE, this());
    script.asks("poll of who is no member", code::POLL_MESSAGES_CODE, poll(Some(0)));
    script.does(
        "store for a group of which one is no member",
        Operation::StoreConsumerOffset,
        store(&who, "w", Some(0), 0),
    );
    script.does("leave a group without being a member", Operation::LeaveConsumerGroup, this());
    script.does("join no group", Operation::JoinConsumerGroup, ids(&["s", "w", "none"]));
    script.does("join a group", Operation::JoinConsumerGroup, this());
    script.does("join a group again", Operation::JoinConsumerGroup, this());
    script.asks("a group with a member", code::GET_CONSUMER_GROUP_CODE, this());
    script.asks("sync of the only member", code::SYNC_CONSUMER_GROUP_CODE, this());
    script.asks("me as a member", code::GET_ME_CODE, Vec::new());
    script.asks("poll of a member", code::POLL_MESSAGES_CODE, poll(Some(0)));
    script.asks("poll of a member without a partition", code::POLL_MESSAGES_CODE, poll(None));
    script.asks("get the offset of a group", code::GET_CONSUMER_OFFSET_CODE, get(&who, "w", Some(0)));
    script.does("store for a group", Operation::StoreConsumerOffset, store(&who, "w", Some(0), 0));
    script.does("store for a group beyond the end", Operation::StoreConsumerOffset, store(&who, "w", Some(0), 9));
    script.on('b');
    script.does("join a group as the second", Operation::JoinConsumerGroup, this());
    script.settle(2_000);
    script.asks("a group with two members", code::GET_CONSUMER_GROUP_CODE, this());
    script.asks("sync of the second member", code::SYNC_CONSUMER_GROUP_CODE, this());
    script.asks("poll of the second member what is not its own", code::POLL_MESSAGES_CODE, poll(Some(0)));
    script.does(
        "store of the second member what is not its own",
        Operation::StoreConsumerOffset,
        store(&who, "w", Some(0), 0),
    );
    script.on('a');
    script.asks("sync of the first member", code::SYNC_CONSUMER_GROUP_CODE, this());
    script.does("leave a group", Operation::LeaveConsumerGroup, this());
    script.settle(2_000);
    script.asks("a group after a member has left", code::GET_CONSUMER_GROUP_CODE, this());
    script.on('b');
    script.asks("sync of the member that is left", code::SYNC_CONSUMER_GROUP_CODE, this());
    script.does("log out as a member", Operation::Logout, Vec::new());
    script.on('a');
    script.settle(500);
    script.asks("a group after its last member", code::GET_CONSUMER_GROUP_CODE, this());
    script.does("delete the group of workers", Operation::DeleteConsumerGroup, this());
    script.asks("get the offset of a deleted group", code::GET_CONSUMER_OFFSET_CODE, get(&who, "w", Some(0)));
    script.does("delete the topic for a group", Operation::DeleteTopic, ids(&["s", "w"]));
}

/// A second member, while the first one holds messages of every partition that it has not committed.
pub(super) fn handover(script: &mut Script) {
    script.does("create a topic to hand over", Operation::CreateTopic, topic("s", "h", 2, WireOptions::empty()));
    for partition in 0..2 {
        let body = plain_to("h", partition, b"work");
        script.does(&format!("send work to partition {partition}"), Operation::SendMessages, body);
    }
    script.does("create a group to hand over", Operation::CreateConsumerGroup, group("h", "h"));
    let this = || ids(&["s", "h", "h"]);
    let who = WireConsumer::consumer_group(named("h"));
    let poll = |partition| poll_as(who.clone(), "h", Some(partition), From::next(), 5, false);
    script.does("join a group with work", Operation::JoinConsumerGroup, this());
    for partition in 0..2 {
        script.asks(&format!("poll work of partition {partition}"), code::POLL_MESSAGES_CODE, poll(partition));
    }
    script.on('c');
    script.does("join while work is uncommitted", Operation::JoinConsumerGroup, this());
    script.asks("sync of who joined", code::SYNC_CONSUMER_GROUP_CODE, this());
    script.asks("poll of who joined", code::POLL_MESSAGES_CODE, poll(1));
    script.on('a');
    script.asks("a group before the work is committed", code::GET_CONSUMER_GROUP_CODE, this());
    script.asks("sync of who has work", code::SYNC_CONSUMER_GROUP_CODE, this());
    script.asks("poll of who has work", code::POLL_MESSAGES_CODE, poll(1));
    script.does("commit of who has work", Operation::StoreConsumerOffset, store(&who, "h", Some(1), 0));
    script.settle(2_000);
    script.asks("a group after the work was committed", code::GET_CONSUMER_GROUP_CODE, this());
    script.on('c');
    script.asks("sync of who joined, after the commit", code::SYNC_CONSUMER_GROUP_CODE, this());
    script.asks("poll of who joined, after the commit", code::POLL_MESSAGES_CODE, poll(1));
    script.does("leave with a partition", Operation::LeaveConsumerGroup, this());
    script.on('a');
    script.does("leave with work", Operation::LeaveConsumerGroup, this());
    script.does("delete the topic to hand over", Operation::DeleteTopic, ids(&["s", "h"]));
}

/// A group of a topic of its own whose first member, `a`, was given a message of each partition and commits none.
fn at_work(script: &mut Script, name: &str, partitions: u32) {
    let create = topic("s", name, partitions, WireOptions::empty());
    script.does(&format!("create topic {name}"), Operation::CreateTopic, create);
    for partition in 0..partitions {
        let body = plain_to(name, partition, b"work");
        script.does(&format!("send work to partition {partition} of {name}"), Operation::SendMessages, body);
    }
    script.does(&format!("create a group of {name}"), Operation::CreateConsumerGroup, group(name, name));
    script.does(&format!("join {name} first"), Operation::JoinConsumerGroup, ids(&["s", name, name]));
    let who = WireConsumer::consumer_group(named(name));
    for partition in 0..partitions {
        let body = poll_as(who.clone(), name, Some(partition), From::next(), 5, false);
        script.asks(&format!("poll work of partition {partition} of {name}"), code::POLL_MESSAGES_CODE, body);
    }
}

/// Three members, of whom two wait for partitions of the first: one gets its own by a commit, one when it waited long enough.
pub(super) fn handovers(script: &mut Script) {
    at_work(script, "three", 3);
    let this = || ids(&["s", "three", "three"]);
    let who = WireConsumer::consumer_group(named("three"));
    let poll = |partition| poll_as(who.clone(), "three", Some(partition), From::next(), 5, false);
    for on in ['c', 'd'] {
        script.on(on);
        script.does(&format!("{on} joins three"), Operation::JoinConsumerGroup, this());
        script.asks(&format!("sync of {on}, which waits"), code::SYNC_CONSUMER_GROUP_CODE, this());
    }
    script.on('a');
    script.asks("three while two wait", code::GET_CONSUMER_GROUP_CODE, this());
    script.asks("sync of who is waited for", code::SYNC_CONSUMER_GROUP_CODE, this());
    script.does("commit for one who waits", Operation::StoreConsumerOffset, store(&who, "three", Some(2), 0));
    script.settle(1_500);
    script.asks("three while one waits", code::GET_CONSUMER_GROUP_CODE, this());
    script.does(
        "commit what is not one's own any more",
        Operation::StoreConsumerOffset,
        store(&who, "three", Some(2), 0),
    );
    script.wait(REBALANCING_TIMEOUT_MS + 2_000);
    script.asks("three when nobody waits", code::GET_CONSUMER_GROUP_CODE, this());
    script.does("commit too late", Operation::StoreConsumerOffset, store(&who, "three", Some(1), 0));
    script.on('d');
    script.asks("sync of who waited long enough", code::SYNC_CONSUMER_GROUP_CODE, this());
    script.asks("poll of who waited long enough", code::POLL_MESSAGES_CODE, poll(1));
    for on in ['a', 'c', 'd'] {
        script.on(on);
        script.does(&format!("{on} leaves three"), Operation::LeaveConsumerGroup, this());
    }
    script.does("delete topic three", Operation::DeleteTopic, ids(&["s", "three"]));
}

/// Who leaves is not waited for, and who waited and leaves gets nothing.
pub(super) fn partings(script: &mut Script) {
    for (name, leaves, stays) in [("source", 'a', 'c'), ("target", 'c', 'a')] {
        script.on('a');
        at_work(script, name, 2);
        let this = || ids(&["s", name, name]);
        let who = WireConsumer::consumer_group(named(name));
        script.on('c');
        script.does(&format!("c joins {name}"), Operation::JoinConsumerGroup, this());
        script.on(leaves);
        script.does(&format!("{leaves} leaves {name}"), Operation::LeaveConsumerGroup, this());
        script.on(stays);
        script.settle(500);
        script.asks(&format!("{name} after that"), code::GET_CONSUMER_GROUP_CODE, this());
        script.asks(&format!("sync of who stays in {name}"), code::SYNC_CONSUMER_GROUP_CODE, this());
        let poll = poll_as(who, name, Some(1), From::next(), 5, false);
        script.asks(&format!("poll of who stays in {name}"), code::POLL_MESSAGES_CODE, poll);
        script.does(&format!("{stays} leaves {name}, too"), Operation::LeaveConsumerGroup, this());
        script.does(&format!("delete topic {name}"), Operation::DeleteTopic, ids(&["s", name]));
    }
}

/// A purge takes what was given out, too: nothing of it is waited for.
pub(super) fn purged_at_work(script: &mut Script) {
    at_work(script, "purged", 2);
    let this = || ids(&["s", "purged", "purged"]);
    script.does("purge a topic at work", Operation::PurgeTopic, ids(&["s", "purged"]));
    script.settle(500);
    script.on('c');
    script.does("join after a purge", Operation::JoinConsumerGroup, this());
    script.settle(1_500);
    script.asks("a group after a purge", code::GET_CONSUMER_GROUP_CODE, this());
    script.asks("sync of who joined after a purge", code::SYNC_CONSUMER_GROUP_CODE, this());
    for on in ['a', 'c'] {
        script.on(on);
        script.does(&format!("{on} leaves purged"), Operation::LeaveConsumerGroup, this());
    }
    script.does("delete topic purged", Operation::DeleteTopic, ids(&["s", "purged"]));
}
