//! What is read, and where, in a cluster whose nodes have different things.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod common;
#[path = "common/door.rs"]
mod door;
#[path = "common/nodes.rs"]
mod nodes;

use std::time::{Duration, Instant};

use iggy_binary_protocol::codes::{GET_ME_CODE, POLL_MESSAGES_CODE};
use iggy_binary_protocol::consensus::Operation;
use iggy_common::IggyError;
use milena_iggy_door::faults::{Fault, On};
use milena_store::testing::{TestMessage, batch_of};
use milena_store::{Bounds, OffsetStore, Store, StoreError};
use nodes::{GROUP, MANY, Nodes};
use pollster::block_on;

#[test]
fn an_offset_is_read_where_the_partition_is_led_whoever_leads_the_cluster() {
    let nodes = Nodes::new();
    let at = nodes.topic.partition(0);
    nodes.commit();
    nodes.all_say(0);
    assert_eq!(block_on(nodes.store.has_group(&nodes.topic, GROUP)), Ok(true));
    assert_eq!(block_on(nodes.store.load(&at, GROUP)), Ok(Some(5)));
    nodes.all_say(1);
    assert_eq!(
        block_on(nodes.store.has_group(&nodes.topic, GROUP)),
        Ok(false),
        "the one that lags leads the cluster now"
    );
    assert_eq!(block_on(nodes.store.load(&at, GROUP)), Ok(Some(5)));
}

#[test]
fn who_does_not_know_yet_where_a_partition_is_led_finds_out_before_it_reads_an_offset() {
    let nodes = Nodes::new();
    let at = nodes.topic.partition(0);
    nodes.commit();
    nodes.all_say(1);
    assert_eq!(block_on(nodes.other.has_group(&nodes.topic, GROUP)), Ok(false), "it has heard of the node that lags");
    nodes.all_say(0);
    {
        let door = nodes.nodes[1].door.lock();
        let refusal = Fault::Answer(IggyError::TransientNotAccepted.as_code());
        let barrier = On::Operation(Operation::StoreConsumerOffset);
        (0..MANY).for_each(|_| door.as_ref().unwrap().faults().plan(barrier, refusal));
    }
    assert_eq!(block_on(nodes.other.load(&at, GROUP)), Ok(Some(5)));
}

#[test]
fn groups_are_created_and_listed_at_the_node_that_says_that_it_leads() {
    let nodes = Nodes::new();
    nodes.all_say(1);
    // The connections go where they hear that the leader is, and stay there.
    let unread = nodes.topic.partition(1);
    assert_eq!(block_on(nodes.store.load(&unread, GROUP)), Ok(None));
    block_on(nodes.store.bounds(&unread)).unwrap();
    nodes.all_say(0);
    block_on(nodes.store.create_group(&nodes.topic, GROUP)).unwrap();
    assert_eq!(block_on(nodes.store.groups(&nodes.topic)).unwrap(), [GROUP]);
    assert_eq!(block_on(nodes.store.has_group(&nodes.topic, GROUP)), Ok(true));
    assert_eq!((nodes.groups(0), nodes.groups(1)), (vec![GROUP.to_owned()], Vec::new()));
}

#[test]
fn while_each_node_says_that_the_other_one_leads_no_group_is_said_to_be_missing() {
    let nodes = Nodes::new();
    block_on(nodes.store.create_group(&nodes.topic, GROUP)).unwrap();
    nodes.says(0, 1);
    nodes.says(1, 0);
    let has = block_on(nodes.other.has_group(&nodes.topic, GROUP));
    assert!(matches!(has, Err(StoreError::Busy { .. })), "{has:?}");
    let listed = block_on(nodes.other.groups(&nodes.topic));
    assert!(matches!(listed, Err(StoreError::Busy { .. })), "{listed:?}");
}

#[test]
fn messages_that_the_leading_node_lacks_are_read_from_another_one() {
    let nodes = Nodes::with(10);
    let behind = nodes.polled(8);
    nodes.all_say(0);
    nodes.answers(0, POLL_MESSAGES_CODE, behind, MANY);
    let found = nodes.read(5).unwrap();
    assert_eq!(found, (5..10).map(|offset| (offset, u128::from(offset) + 1)).collect::<Vec<_>>());
    assert_eq!(nodes.store.metrics().unwrap().gap_reads.get(), 1, "what the leading node has is read there");
    assert_eq!(block_on(nodes.store.bounds(&nodes.topic.partition(0))), Ok(Bounds { start: 0, end: 10 }));
}

#[test]
fn messages_that_no_node_delivers_for_now_are_waited_for() {
    let nodes = Nodes::with(10);
    let behind = nodes.polled(8);
    nodes.all_say(0);
    // The leading node is read first, and then asked once more as all others are.
    nodes.answers(0, POLL_MESSAGES_CODE, behind, 2);
    nodes.answers(1, POLL_MESSAGES_CODE, behind, 1);
    assert!(matches!(nodes.read(5), Err(StoreError::Busy { .. })));
    assert_eq!(nodes.store.metrics().unwrap().lost_messages.get(), 0);
    assert_eq!(nodes.read(5).unwrap().first(), Some(&(5, 6)), "they are back");
}

#[test]
fn a_call_whose_connection_answers_with_something_else_is_not_believed() {
    let nodes = Nodes::new();
    let at = nodes.topic.partition(0);
    nodes.all_say(0);
    let append = |id| block_on(nodes.store.append(&at, batch_of(&[TestMessage::new(id, b"value")])));
    // With this it hears that there are nodes, and takes a connection to one from then on.
    assert_eq!(nodes.read(0).unwrap(), [(0, 1)]);
    assert_eq!(append(2).unwrap().base_offset, Some(1));
    nodes.answers(0, GET_ME_CODE, b"the reply to another request", 1);
    assert!(matches!(append(3), Err(StoreError::InDoubt { .. })));
    assert_eq!(nodes.store.metrics().unwrap().stray_replies.get(), 1);
    assert_eq!(append(4).unwrap().base_offset, Some(3), "over another connection");
    assert_eq!(nodes.read(1).unwrap(), [(1, 2), (2, 3), (3, 4)], "what was in doubt was stored");
}

#[test]
fn a_connection_that_breaks_behind_a_reply_leaves_it_in_doubt_and_is_no_stray_reply() {
    let nodes = Nodes::new();
    let at = nodes.topic.partition(0);
    nodes.all_say(0);
    let append = |id| block_on(nodes.store.append(&at, batch_of(&[TestMessage::new(id, b"value")])));
    assert_eq!(nodes.read(0).unwrap(), [(0, 1)]);
    assert_eq!(append(2).unwrap().base_offset, Some(1));
    nodes.nodes[0].door.lock().as_ref().unwrap().faults().plan(On::Code(GET_ME_CODE), Fault::CutBeforeApply);
    assert!(matches!(append(3), Err(StoreError::InDoubt { .. })));
    assert_eq!(nodes.store.metrics().unwrap().stray_replies.get(), 0);
    assert_eq!(append(4).unwrap().base_offset, Some(3), "over another connection");
}

#[test]
fn messages_that_no_node_has_for_long_are_lost_and_a_reader_goes_on_behind_them() {
    let nodes = Nodes::with(10);
    let (before, behind) = (nodes.polled_some(3, 2), nodes.polled(8));
    let give_up = Instant::now() + Duration::from_secs(60);
    let read = loop {
        nodes.all_say(0);
        // The leading node is read first, and then asked once more as all others are; then for the first that they have.
        nodes.answers(0, POLL_MESSAGES_CODE, behind, 2);
        nodes.answers(1, POLL_MESSAGES_CODE, behind, 1);
        match nodes.read(5) {
            Err(StoreError::Busy { .. }) => assert!(Instant::now() < give_up, "they are waited for without end"),
            read => break read,
        }
    };
    assert_eq!(read.unwrap(), [(8, 9), (9, 10)]);
    assert_eq!(nodes.store.metrics().unwrap().lost_messages.get(), 3);
    nodes.all_say(0);
    nodes.answers(0, POLL_MESSAGES_CODE, before, 1);
    assert_eq!(nodes.read(3).unwrap(), [(3, 4), (4, 5), (8, 9), (9, 10)], "one read goes across");
    assert_eq!(nodes.store.metrics().unwrap().lost_messages.get(), 3, "they are counted once");
}

#[test]
fn a_node_that_answers_nothing_holds_up_the_look_at_a_topic_once_and_not_for_each_partition() {
    let nodes = Nodes::filled(12, 12, 4).with_a_silent_one();
    nodes.all_say(0);
    assert!(block_on(nodes.store.bounds(&nodes.topic.partition(0))).is_ok());
    for (node, partition) in (0..2).flat_map(|node| (0..12).map(move |partition| (node, partition))) {
        nodes.trim(node, partition, 3);
    }
    let began = Instant::now();
    for partition in 0..12 {
        let bounds = block_on(nodes.store.bounds(&nodes.topic.partition(partition)));
        assert_eq!(bounds, Ok(Bounds { start: 3, end: 4 }), "partition {partition}");
    }
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
}

#[test]
fn a_node_that_answers_nothing_holds_up_one_read_of_a_gap_and_not_each() {
    let nodes = Nodes::with(10).with_a_silent_one();
    let behind = nodes.polled(8);
    nodes.all_say(0);
    nodes.answers(0, POLL_MESSAGES_CODE, behind, MANY);
    let began = Instant::now();
    for _ in 0..8 {
        assert_eq!(nodes.read(5).unwrap().first(), Some(&(5, 6)));
    }
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
}

#[test]
fn a_partition_begins_where_the_node_begins_that_has_most_of_it() {
    let nodes = Nodes::with(10);
    nodes.all_say(0);
    assert_eq!(nodes.read(0).unwrap().len(), 10);
    nodes.trim(0, 0, 5);
    nodes.trim(1, 0, 3);
    assert_eq!(block_on(nodes.store.bounds(&nodes.topic.partition(0))), Ok(Bounds { start: 3, end: 10 }));
}

/// The node that leads another partition has all that was known of this one, and not what its leader stored last.
#[test]
fn what_became_of_an_append_in_doubt_is_asked_of_the_leader_of_its_own_partition() {
    let nodes = Nodes::filled(2, 2, 1);
    let at = nodes.led_apart();
    nodes.stores(1, 1, 2);
    nodes.fault(0, On::Operation(Operation::SendMessages), Fault::CutAfterApply);
    assert!(matches!(nodes.append(&at, 3), Err(StoreError::InDoubt { .. })));
    assert_eq!(block_on(nodes.store.bounds(&at)), Ok(Bounds { start: 0, end: 3 }), "it was stored");
    assert_eq!(nodes.append(&at, 4).unwrap().base_offset, Some(3));
}

/// After all nodes were killed each has what was on its own disk: one shows an append that the leader lacks, and that is gone.
#[test]
fn what_only_another_node_than_the_leader_has_of_an_append_in_doubt_is_not_there() {
    let nodes = Nodes::filled(2, 2, 1);
    let at = nodes.led_apart();
    nodes.fault(0, On::Operation(Operation::SendMessages), Fault::CutBeforeApply);
    assert!(matches!(nodes.append(&at, 3), Err(StoreError::InDoubt { .. })));
    nodes.stores(1, 1, 2);
    nodes.stores(1, 1, 3);
    assert_eq!(block_on(nodes.store.bounds(&at)), Ok(Bounds { start: 0, end: 2 }));
    // Nor later, when somebody asks for the other partition first.
    assert_eq!(block_on(nodes.store.bounds(&nodes.topic.partition(0))), Ok(Bounds { start: 0, end: 2 }));
    assert_eq!(block_on(nodes.store.bounds(&at)), Ok(Bounds { start: 0, end: 2 }));
    assert_eq!(nodes.append(&at, 3).unwrap().base_offset, Some(2), "it is sent again");
}

/// The next leader lacks messages that the one before acknowledged: no end is shown that it does not have, and what it has is
/// shown when the loss is in the journal.
#[test]
fn what_the_leader_lacks_behind_a_doubt_is_waited_for_and_then_gone() {
    let nodes = Nodes::filled(2, 2, 1);
    let at = nodes.topic.partition(1);
    nodes.all_say(1);
    assert_eq!(block_on(nodes.store.has_group(&nodes.topic, GROUP)), Ok(false), "it hears that there are nodes");
    assert_eq!(nodes.append(&at, 2).unwrap().base_offset, Some(1));
    nodes.all_say(0);
    nodes.fault(1, On::Operation(Operation::SendMessages), Fault::CutBeforeApply);
    let refusal = Fault::Answer(IggyError::TransientNotAccepted.as_code());
    (0..MANY).for_each(|_| nodes.fault(1, On::Operation(Operation::StoreConsumerOffset), refusal));
    assert!(matches!(nodes.append(&at, 3), Err(StoreError::InDoubt { .. })));
    let give_up = Instant::now() + Duration::from_secs(60);
    let bounds = loop {
        match block_on(nodes.store.bounds(&at)) {
            Err(StoreError::Busy { .. }) => assert!(Instant::now() < give_up, "it is waited for without end"),
            bounds => break bounds,
        }
        // Asked of a partition that is not in doubt, the nodes show what they have of this one as well.
        let _ = block_on(nodes.store.bounds(&nodes.topic.partition(0)));
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(bounds, Ok(Bounds { start: 0, end: 1 }));
    assert_eq!(nodes.store.epochs(&at).current(), 1);
    assert_eq!(nodes.append(&at, 3).unwrap().base_offset, Some(1));
}

/// It may be the reply to something else, which has no body either, and the append may have been dropped.
#[test]
fn a_confirmation_without_an_offset_is_no_proof_in_a_cluster() {
    let nodes = Nodes::new();
    nodes.all_say(0);
    // With this it hears that there are nodes.
    assert_eq!(nodes.read(0).unwrap(), [(0, 1)]);
    let append =
        |id| block_on(nodes.store.append(&nodes.topic.partition(0), batch_of(&[TestMessage::new(id, b"value")])));
    for (id, fault) in [(2, Fault::Body(&[])), (3, Fault::NoOffset)] {
        nodes.nodes[0].door.lock().as_ref().unwrap().faults().plan(On::Operation(Operation::SendMessages), fault);
        let answered = append(id);
        assert!(matches!(answered, Err(StoreError::InDoubt { .. })), "{fault:?}: {answered:?}");
    }
    assert_eq!(nodes.read(0).unwrap(), [(0, 1), (1, 3)], "the log tells them apart");
    assert_eq!(append(4).unwrap().base_offset, Some(2));
}
