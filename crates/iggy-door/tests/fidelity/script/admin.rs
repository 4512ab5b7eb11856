//! Streams, topics, partitions.

use iggy_binary_protocol::codes as code;
use iggy_binary_protocol::consensus::Operation;
use iggy_binary_protocol::requests::partitions::{CreatePartitionsRequest, DeletePartitionsRequest};
use iggy_binary_protocol::requests::streams::{CreateStreamRequest, UpdateStreamRequest};
use iggy_binary_protocol::requests::topics::{CreateTopicRequest, UpdateTopicRequest};
use iggy_binary_protocol::{WireConsumer, WireIdentifier, WireOptions, WirePollingStrategy};

use super::data::{plain_to, poll};
use super::groups::{get, store};
use super::{Script, bytes, ids, named, raw_options, text_options, wire_name};

const STRING: u8 = 2;
const UINT64: u8 = 12;

fn stream(name: &str) -> Vec<u8> {
    bytes(&CreateStreamRequest { name: wire_name(name), options: WireOptions::empty() })
}

fn renamed(stream: &str, name: &str) -> Vec<u8> {
    let options = WireOptions::empty();
    bytes(&UpdateStreamRequest { stream_id: named(stream), name: wire_name(name), options })
}

pub(super) fn topic(stream: &str, name: &str, partitions_count: u32, options: WireOptions) -> Vec<u8> {
    bytes(&CreateTopicRequest { stream_id: named(stream), partitions_count, name: wire_name(name), options })
}

fn numbered(id: u32) -> Vec<u8> {
    bytes(&WireIdentifier::numeric(id))
}

pub(super) fn streams(script: &mut Script) {
    let long = "x".repeat(255);
    let unknown = CreateStreamRequest { name: wire_name("options"), options: text_options(&[("a", "b")]) };
    script.does("create a stream", Operation::CreateStream, stream("s"));
    script.again("create a stream under the same number");
    script.does("create a stream of that name", Operation::CreateStream, stream("s"));
    script.does("create a stream with a name of digits", Operation::CreateStream, stream("7"));
    script.does("create a stream with a name of 255 bytes", Operation::CreateStream, stream(&long));
    script.does("create a stream with odd characters", Operation::CreateStream, stream("a/b: %é"));
    script.does("create a stream without a name", Operation::CreateStream, vec![0]);
    script.does("create a stream with an unknown option", Operation::CreateStream, bytes(&unknown));
    script.asks("list streams", code::GET_STREAMS_CODE, Vec::new());
    script.asks("a stream by name", code::GET_STREAM_CODE, ids(&["s"]));
    script.asks("a stream by number", code::GET_STREAM_CODE, numbered(1));
    script.asks("a stream whose name is digits", code::GET_STREAM_CODE, ids(&["7"]));
    script.asks("a stream that is none", code::GET_STREAM_CODE, ids(&["none"]));
    script.asks("a stream of no number", code::GET_STREAM_CODE, numbered(77));
    script.does("update a stream to its own name", Operation::UpdateStream, renamed("s", "s"));
    script.does("update a stream that is none", Operation::UpdateStream, renamed("none", "other"));
    script.does("update a stream to a name that is taken", Operation::UpdateStream, renamed("s", "7"));
    script.does("rename a stream", Operation::UpdateStream, renamed("7", "8"));
    script.does("delete a stream by number", Operation::DeleteStream, numbered(1));
    script.does("delete a stream that is gone", Operation::DeleteStream, numbered(1));
    script.does("delete a stream that is none", Operation::DeleteStream, ids(&["none"]));
    script.does("create a stream after a deletion", Operation::CreateStream, stream("next"));
    script.does("purge a stream without topics", Operation::PurgeStream, ids(&["next"]));
    script.does("purge a stream that is none", Operation::PurgeStream, ids(&["none"]));
    script.does("delete the stream with a long name", Operation::DeleteStream, ids(&[&long]));
    script.does("delete the stream with odd characters", Operation::DeleteStream, ids(&["a/b: %é"]));
}

pub(super) fn topics(script: &mut Script) {
    let none = WireOptions::empty;
    let long = "x".repeat(255);
    let create = Operation::CreateTopic;
    let update = |name: &str, to: &str, options: WireOptions| {
        bytes(&UpdateTopicRequest { stream_id: named("s"), topic_id: named(name), name: wire_name(to), options })
    };
    script.does("create a topic", create, topic("s", "t", 2, none()));
    script.does("create a topic of that name", create, topic("s", "t", 2, none()));
    script.does("create a topic in no stream", create, topic("none", "t", 2, none()));
    script.does("create a topic of that name in another stream", create, topic("next", "t", 1, none()));
    script.does("create a topic with a name of digits", create, topic("s", "0", 1, none()));
    script.does("create a topic with 1001 partitions", create, topic("s", "many", 1001, none()));
    script.does("create a topic with a name of 255 bytes", create, topic("next", &long, 1, none()));
    script.does("create a topic with odd characters", create, topic("next", "a/b: %é", 1, none()));
    script.does("create a topic with a name of dots", create, topic("next", "..", 1, none()));
    script.does("create a topic without a name", create, [ids(&["s"]), vec![1, 0, 0, 0, 0]].concat());
    script.asks("list topics", code::GET_TOPICS_CODE, ids(&["s"]));
    script.asks("list topics of no stream", code::GET_TOPICS_CODE, ids(&["none"]));
    script.asks("a topic", code::GET_TOPIC_CODE, ids(&["s", "t"]));
    script.asks("a topic of a stream by number", code::GET_TOPIC_CODE, [numbered(0), ids(&["0"])].concat());
    script.asks("a topic whose name is digits", code::GET_TOPIC_CODE, ids(&["s", "0"]));
    script.asks("a topic that is none", code::GET_TOPIC_CODE, ids(&["s", "none"]));
    script.asks("a topic of no stream", code::GET_TOPIC_CODE, ids(&["none", "t"]));
    script.asks("a stream with topics", code::GET_STREAM_CODE, ids(&["s"]));
    let hour = text_options(&[("message_expiry", "1h")]);
    script.does("update the expiry of a topic", Operation::UpdateTopic, update("t", "t", hour));
    let size = raw_options(&[("max_topic_size", UINT64, &(1u64 << 33).to_le_bytes())]);
    script.does("update the size of a topic", Operation::UpdateTopic, update("t", "t", size));
    script.does("update nothing of a topic", Operation::UpdateTopic, update("t", "t", none()));
    script.asks("an updated topic", code::GET_TOPIC_CODE, ids(&["s", "t"]));
    let segment = text_options(&[("segment_size", "1 MiB")]);
    script.does("update what cannot change", Operation::UpdateTopic, update("t", "t", segment));
    let unknown = text_options(&[("colour", "red")]);
    script.does("update an unknown option", Operation::UpdateTopic, update("t", "t", unknown));
    script.does("update a topic that is none", Operation::UpdateTopic, update("none", "t", none()));
    script.does("update a topic to a name that is taken", Operation::UpdateTopic, update("t", "0", none()));
    script.does("rename a topic", Operation::UpdateTopic, update("0", "00", none()));
    script.does("delete a topic under its old name", Operation::DeleteTopic, ids(&["s", "0"]));
    script.does("delete a topic under its new name", Operation::DeleteTopic, ids(&["s", "00"]));
    script.does("delete a topic that is none", Operation::DeleteTopic, ids(&["s", "none"]));
    script.does("delete a topic of no stream", Operation::DeleteTopic, ids(&["none", "t"]));
    script.does("create a topic after a deletion", create, topic("s", "after", 1, none()));
    script.does("delete the topic created after a deletion", Operation::DeleteTopic, ids(&["s", "after"]));
    script.does("delete a stream with topics", Operation::DeleteStream, ids(&["next"]));
    script.does("create a topic without partitions", create, topic("s", "hollow", 0, none()));
    script.does("delete the topic without partitions", Operation::DeleteTopic, ids(&["s", "hollow"]));
}

pub(super) fn options(script: &mut Script) {
    script.does("create a stream for options", Operation::CreateStream, stream("o"));
    let number = |number: u64| number.to_le_bytes();
    let good = [
        ("text", text_options(&[("message_expiry", "3s"), ("max_topic_size", "2 GiB"), ("segment_size", "1 MiB")])),
        (
            "numbers",
            raw_options(&[("message_expiry", UINT64, &number(5_000_000)), ("segment_size", UINT64, &number(1 << 21))]),
        ),
        ("defaults", raw_options(&[("message_expiry", UINT64, &number(0)), ("max_topic_size", UINT64, &number(0))])),
        (
            "no bounds",
            raw_options(&[
                ("message_expiry", UINT64, &number(u64::MAX)),
                ("max_topic_size", UINT64, &number(u64::MAX)),
            ]),
        ),
        ("no compression", raw_options(&[("compression_algorithm", STRING, b"none")])),
        ("a flush for each message", text_options(&[("enforce_fsync", "true"), ("messages_required_to_save", "1")])),
        ("gzip", text_options(&[("compression_algorithm", "gzip")])),
        ("a word for no expiry", text_options(&[("message_expiry", "never_expire")])),
        ("a word for no bound", text_options(&[("max_topic_size", "unlimited")])),
        ("preallocation", text_options(&[("preallocate_segments", "false")])),
        ("an unknown key", text_options(&[("colour", "red")])),
        ("the keys of newer servers", text_options(&[("durability", "persisted")])),
        ("a time that is none", text_options(&[("message_expiry", "soon")])),
        ("an empty time", text_options(&[("message_expiry", " ")])),
        ("a small segment", text_options(&[("segment_size", "512 KiB")])),
        ("a large segment", text_options(&[("segment_size", "2 GiB")])),
        ("an uneven segment", raw_options(&[("segment_size", UINT64, &number((1 << 20) + 1))])),
        ("a size of the wrong kind", raw_options(&[("segment_size", UINT64, &[1, 2])])),
        ("a size that is small", raw_options(&[("max_topic_size", UINT64, &number(1))])),
        ("no message to save", text_options(&[("messages_required_to_save", "0")])),
        ("a flag that is none", text_options(&[("enforce_fsync", "maybe")])),
        ("a compression that is none", text_options(&[("compression_algorithm", "lzma")])),
        ("a key that comes twice", text_options(&[("message_expiry", "3s"), ("message_expiry", "4s")])),
    ];
    for (number, (name, options)) in good.into_iter().enumerate() {
        let topic = topic("o", &format!("o{number}"), 1, options);
        script.does(&format!("create a topic with {name}"), Operation::CreateTopic, topic);
    }
    script.does("delete the stream for options", Operation::DeleteStream, ids(&["o"]));
}

fn more(topic: &str, partitions_count: u32) -> (Operation, Vec<u8>) {
    let request = CreatePartitionsRequest { stream_id: named("s"), topic_id: named(topic), partitions_count };
    (Operation::CreatePartitions, bytes(&request))
}

fn fewer(topic: &str, partitions_count: u32) -> (Operation, Vec<u8>) {
    let request = DeletePartitionsRequest { stream_id: named("s"), topic_id: named(topic), partitions_count };
    (Operation::DeletePartitions, bytes(&request))
}

pub(super) fn partitions(script: &mut Script) {
    let (create, delete) = (more, fewer);
    script.does("create a topic for partitions", Operation::CreateTopic, topic("s", "p", 1, WireOptions::empty()));
    let steps = [
        ("create partitions", create("p", 2)),
        ("create no partitions", create("p", 0)),
        ("create 1001 partitions", create("p", 1001)),
        ("create partitions of no topic", create("none", 1)),
        ("delete no partitions", delete("p", 0)),
        ("delete 1001 partitions", delete("p", 1001)),
        ("delete partitions of no topic", delete("none", 1)),
    ];
    for (name, (operation, body)) in steps {
        script.does(name, operation, body);
    }
    script.asks("a topic that has grown", code::GET_TOPIC_CODE, ids(&["s", "p"]));
    let (operation, body) = delete("p", 1);
    script.does("delete a partition", operation, body);
    script.asks("a topic that should have shrunk", code::GET_TOPIC_CODE, ids(&["s", "p"]));
    let (operation, body) = delete("p", 100);
    script.does("delete more partitions than there are", operation, body);
    script.does("delete the topic for partitions", Operation::DeleteTopic, ids(&["s", "p"]));
}

/// A partition with messages and a stored offset that is deleted, and one of its number after it.
pub(super) fn partitions_again(script: &mut Script) {
    let reader = WireConsumer::consumer(named("reader"));
    script.does("create a topic to shrink", Operation::CreateTopic, topic("s", "again", 2, WireOptions::empty()));
    for number in 0..2 {
        script.does(
            &format!("send to the last partition {number}"),
            Operation::SendMessages,
            plain_to("again", 1, b"a"),
        );
    }
    script.does(
        "store an offset of the last partition",
        Operation::StoreConsumerOffset,
        store(&reader, "again", Some(1), 1),
    );
    let (operation, body) = fewer("again", 1);
    script.does("delete the last partition", operation, body);
    script.settle(1_000);
    script.does("send to a deleted partition", Operation::SendMessages, plain_to("again", 1, b"b"));
    let from_first = || poll("again", Some(1), WirePollingStrategy::first(), 5, false);
    script.asks("poll a deleted partition", code::POLL_MESSAGES_CODE, from_first());
    let (operation, body) = more("again", 1);
    script.does("add a partition again", operation, body);
    script.settle(1_000);
    script.asks("poll a partition that was added again", code::POLL_MESSAGES_CODE, from_first());
    script.asks(
        "get the offset of a partition that was added again",
        code::GET_CONSUMER_OFFSET_CODE,
        get(&reader, "again", Some(1)),
    );
    script.does("send to a partition that was added again", Operation::SendMessages, plain_to("again", 1, b"c"));
    script.asks("poll what was sent to it", code::POLL_MESSAGES_CODE, from_first());
    script.does("delete the topic that shrank", Operation::DeleteTopic, ids(&["s", "again"]));
}
