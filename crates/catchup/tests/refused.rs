//! What a user hears of a broker that does not let the consumer work.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "test code"
)]

mod support;

use milena_catchup::{Error, Happened};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use support::milena::{GROUP, TOPIC, behind, create, server};
use support::{SOON, Watched, config, mock, produce};
use tokio::time::timeout;

/// The code with which `recv` says that the broker refuses.
async fn refused(consumer: &Watched) -> i16 {
    match timeout(SOON, consumer.consumer.recv()).await.expect("an answer in time") {
        Err(Error::Refused { code, reason }) => {
            assert!(!reason.is_empty());
            code
        }
        other => panic!("{other:?}"),
    }
}

/// The next event that belongs to no partition.
async fn trouble(consumer: &mut Watched) -> (i16, String) {
    let find = async {
        loop {
            if let Some(Happened::Trouble { code, reason }) = consumer.events.next().await {
                return (code, reason);
            }
        }
    };
    timeout(SOON, find).await.expect("an event in time")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_never_takes_the_member_is_an_error_and_an_event() {
    let (_server, bootstrap) = behind(1).await;
    let mut config = config(&bootstrap, GROUP);
    // A group takes no sessions below six seconds.
    config.set("session.timeout.ms", "5999");
    let mut consumer = Watched::start(Watched::with(config), &[TOPIC]);
    assert_eq!(refused(&consumer).await, 26);
    let (code, reason) = trouble(&mut consumer).await;
    assert_eq!(code, 26);
    assert!(reason.contains("JoinGroup"), "{reason}");
    assert_eq!(refused(&consumer).await, 26, "as long as it is refused");
    consumer.consumer.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_that_is_over_leaves_the_consumer_as_it_should_be() {
    let (mock, bootstrap) = mock::behind(1);
    mock.request_errors(RDKafkaApiKey::JoinGroup, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED]);
    let mut consumer = Watched::start(Watched::builder(&bootstrap, mock::GROUP), &[mock::TOPIC]);
    assert_eq!(refused(&consumer).await, 30);
    let (_, backfill) = consumer.take(50, |_, _| true).await;
    assert_eq!(backfill, (70..120).collect::<Vec<_>>());
    consumer.consumer.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_not_there_yet_is_an_event_and_no_error() {
    let (_server, bootstrap) = server().await;
    let mut config = config(&bootstrap, GROUP);
    config.set("topic.metadata.propagation.max.ms", "1").set("topic.metadata.refresh.interval.ms", "500");
    let mut consumer = Watched::start(Watched::with(config), &[TOPIC]);
    let (code, reason) = trouble(&mut consumer).await;
    assert_eq!(code, 3);
    assert!(reason.contains(TOPIC), "{reason}");
    assert!(consumer.is_quiet().await, "an error for a topic that may come");
    create(&bootstrap, TOPIC, 1).await;
    produce(&bootstrap, TOPIC, 0, 0..1);
    let (live, _) = consumer.take(1, |_, _| true).await;
    assert_eq!(live, [0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_out_of_reach_is_an_event_and_no_error() {
    let port = milena_testkit::ReservedPort::take();
    let bootstrap = format!("127.0.0.1:{}", port.number());
    let mut consumer = Watched::start(Watched::builder(&bootstrap, GROUP), &[TOPIC]);
    let (code, reason) = trouble(&mut consumer).await;
    assert!(code < 0 && reason.contains(&bootstrap), "{code} {reason}");
    assert!(consumer.is_quiet().await);
}
