//! Fetch sessions (KIP-227).

use milena_wire::kafka_protocol::messages::FetchRequest;
use milena_wire::kafka_protocol::messages::fetch_request::ForgottenTopic;
use uuid::Uuid;

use super::fetch::{BY_ID, of_topic, partition, request};
use super::words::{create, plain, topic, write};
use crate::duo::{Duo, versions};
use crate::normal::Memory;

/// First version with sessions.
const SESSIONS: i16 = 7;

/// Sessions live and are refused.
pub async fn run(duo: &mut Duo) {
    create(duo, "watched", 2, &[]).await;
    create(duo, "watched-too", 1, &[]).await;
    for version in versions::<FetchRequest>().filter(|version| *version >= SESSIONS) {
        life(duo, version).await;
        refused(duo, version).await;
    }
}

fn in_session(memory: &Memory, epoch: i32) -> FetchRequest {
    request(vec![]).with_session_id(memory.number("session")).with_session_epoch(epoch)
}

fn end(version: i16) -> i64 {
    // Two records in each version before.
    2 * i64::from(version - SESSIONS)
}

async fn life(duo: &mut Duo, version: i16) {
    let both = |memory: &Memory| {
        let partitions = vec![partition(0, end(version)), partition(1, 0)];
        vec![
            of_topic(memory, version, "watched", partitions),
            of_topic(memory, version, "watched-too", vec![partition(0, 0)]),
        ]
    };
    duo.step("a session begins");
    let begun = duo.ask(version, |memory| request(both(memory)).with_session_epoch(0)).await;
    duo.keep(&begun, "session", |answer| answer.session_id);
    duo.step("a session goes on without a change");
    duo.ask(version, |memory| in_session(memory, 1)).await;
    write(duo, 9, "watched", |memory| plain(memory, 1, "one")).await;
    duo.step("a session shows what is new");
    duo.from_offset(end(version));
    duo.ask(version, |memory| in_session(memory, 2)).await;
    duo.step("a session moves on");
    duo.ask(version, |memory| {
        let mut request = in_session(memory, 3);
        request.topics = vec![of_topic(memory, version, "watched", vec![partition(0, end(version) + 1)])];
        request
    })
    .await;
    write(duo, 9, "watched", |memory| plain(memory, 1, "two")).await;
    duo.step("a session forgets a partition");
    duo.ask(version, |memory| {
        let forgotten = ForgottenTopic::default().with_partitions(vec![0]);
        let forgotten = match version {
            BY_ID.. => forgotten.with_topic_id(memory.topic_id("watched")),
            _ => forgotten.with_topic(topic("watched")),
        };
        in_session(memory, 4).with_forgotten_topics_data(vec![forgotten])
    })
    .await;
    duo.step("a session gets an unknown partition");
    duo.ask(version, |memory| {
        let mut request = in_session(memory, 5);
        request.topics = vec![of_topic(memory, version, "watched", vec![partition(7, 0)])];
        request
    })
    .await;
    duo.step("a session tells an error again");
    duo.ask(version, |memory| in_session(memory, 6)).await;
    duo.step("an epoch that was used");
    duo.ask(version, |memory| in_session(memory, 6)).await;
    duo.step("an epoch too far ahead");
    duo.ask(version, |memory| in_session(memory, 9)).await;
    duo.step("a session ends");
    duo.ask(version, |memory| in_session(memory, -1)).await;
    duo.step("a session that has ended");
    duo.ask(version, |memory| in_session(memory, 7)).await;
}

async fn refused(duo: &mut Duo, version: i16) {
    duo.step("an unknown session");
    duo.ask(version, |_| request(vec![]).with_session_id(77).with_session_epoch(1)).await;
    duo.step("a session id with epoch 0");
    duo.ask(version, |memory| {
        request(vec![of_topic(memory, version, "watched-too", vec![partition(0, 0)])])
            .with_session_id(77)
            .with_session_epoch(0)
    })
    .await;
    duo.step("no session with an epoch");
    duo.ask(version, |_| request(vec![]).with_session_epoch(3)).await;
    duo.step("a session of nothing");
    duo.ask(version, |_| request(vec![]).with_session_epoch(0)).await;
    duo.step("a session of what is unknown");
    duo.ask(version, |memory| {
        let mut topic = of_topic(memory, version, "watched-too", vec![partition(0, 0)]);
        if version >= BY_ID {
            topic.topic_id = Uuid::from_u128(7);
        } else {
            topic.topic = super::words::topic("nowhere");
        }
        request(vec![topic]).with_session_epoch(0)
    })
    .await;
}
