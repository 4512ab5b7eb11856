//! The process is killed, and its disk is not what it was.

use iggy_binary_protocol::codes as code;
use iggy_binary_protocol::consensus::Operation;
use iggy_binary_protocol::{WireConsumer, WireOptions, WirePollingStrategy as From};

use super::admin::topic;
use super::data::{plain, poll};
use super::groups::{get, store};
use super::{Host, Script, ids, text_options};

/// A payload that no other file has.
const MARKED: &str = "this message is damaged";

pub(super) fn crash(script: &mut Script) {
    let (send, create) = (Operation::SendMessages, Operation::CreateTopic);
    let reader = WireConsumer::consumer(super::named("reader"));
    let saved_at = |messages: &str| text_options(&[("messages_required_to_save", messages)]);
    script.does("create a topic with the default durability", create, topic("s", "d", 1, WireOptions::empty()));
    script.does("create a topic of which the end gets lost", create, topic("s", "lost", 1, saved_at("2")));
    script.does("create a durable topic", create, topic("s", "safe", 1, saved_at("1")));
    for topic in ["d", "lost", "safe"] {
        let marked: &[u8] = if topic == "safe" { MARKED.as_bytes() } else { b"y" };
        for (number, payload) in [b"x", marked, b"z"].into_iter().enumerate() {
            // A server that saves every two messages has two on its disk.
            if topic == "lost" && number == 2 {
                script.happens("the disk without the end", Host::Remember("lost"));
            }
            script.does(&format!("send before the death to {topic} {number}"), send, plain(topic, payload));
        }
        let body = store(&reader, topic, Some(0), 2);
        script.does(&format!("store an offset before the death of {topic}"), Operation::StoreConsumerOffset, body);
    }
    script.happens("the process dies", Host::Kill);
    // A connection whose number is new: a server goes on counting the requests of those that it knew.
    script.on('d');
    for topic in ["d", "lost", "safe"] {
        let body = poll(topic, Some(0), From::offset(0), 9, false);
        script.asks(&format!("poll after the death from {topic}"), code::POLL_MESSAGES_CODE, body);
        let body = get(&reader, topic, Some(0));
        script.asks(&format!("get an offset after the death of {topic}"), code::GET_CONSUMER_OFFSET_CODE, body);
    }
    script.does("send after the death to lost", send, plain("lost", b"y"));
    script.does("send after the death to safe", send, plain("safe", b"y"));
    script.asks(
        "next after the death from lost",
        code::POLL_MESSAGES_CODE,
        poll("lost", Some(0), From::next(), 9, false),
    );
    script.does("delete the topic with the default durability", Operation::DeleteTopic, ids(&["s", "d"]));
    script.does("delete the topic of which the end got lost", Operation::DeleteTopic, ids(&["s", "lost"]));
    script.settle(1_000);
    script.happens("the disk is damaged", Host::Damage(MARKED));
    for (name, strategy, count) in [
        ("from before", From::offset(0), 9),
        ("at", From::offset(1), 1),
        ("from behind", From::offset(2), 1),
        ("the last beyond", From::last(), 1),
    ] {
        let body = poll("safe", Some(0), strategy, count, false);
        script.asks(&format!("poll {name} damaged data"), code::POLL_MESSAGES_CODE, body);
    }
    script.does("delete the durable topic", Operation::DeleteTopic, ids(&["s", "safe"]));
}
