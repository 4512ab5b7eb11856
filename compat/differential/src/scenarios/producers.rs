//! Idempotent producers, and the answers of a broker that may have none or that serves no transactions.

use milena_wire::kafka_protocol::messages::describe_producers_request::TopicRequest;
use milena_wire::kafka_protocol::messages::{
    DescribeProducersRequest, DescribeTransactionsRequest, InitProducerIdRequest, ListTransactionsRequest,
    ProduceRequest, ProducerId, TransactionalId,
};

use super::words::{create, stamped, text, topic, write};
use crate::duo::{Duo, versions};

/// First version of InitProducerId that carries an id.
const WITH_ID: i16 = 3;

/// Ids are given out, batches are numbered.
pub async fn run(duo: &mut Duo) {
    create(duo, "numbered", 1, &[]).await;
    duo.step("until ids are given out");
    duo.until(0, |_| init(1000), |answer| answer.error_code == 0).await;
    for version in versions::<InitProducerIdRequest>() {
        ids(duo, version).await;
    }
    for version in versions::<ProduceRequest>() {
        numbered(duo, version).await;
    }
    described(duo).await;
    transactions(duo).await;
}

fn init(timeout_ms: i32) -> InitProducerIdRequest {
    InitProducerIdRequest::default().with_transactional_id(None).with_transaction_timeout_ms(timeout_ms)
}

async fn ids(duo: &mut Duo, version: i16) {
    for timeout in [i32::MAX, 0, -1] {
        duo.step(&format!("an id, with a timeout of {timeout}"));
        duo.ask(version, |_| init(timeout)).await;
    }
    duo.step("an id that counts on");
    let given = duo.ask(version, |_| init(60_000)).await;
    duo.keep(&given, "given", |answer| answer.producer_id.0);
    if version >= WITH_ID {
        for (step, epoch) in [("an id that was given, with its epoch", 0), ("an id that was given, with another", 5)] {
            duo.step(step);
            duo.ask(version, |memory| {
                init(60_000).with_producer_id(ProducerId(memory.number("given"))).with_producer_epoch(epoch)
            })
            .await;
        }
        duo.step("an id without an epoch");
        duo.ask(version, |_| init(60_000).with_producer_id(ProducerId(7)).with_producer_epoch(-1)).await;
        duo.step("an epoch without an id");
        duo.ask(version, |_| init(60_000).with_producer_id(ProducerId(-1)).with_producer_epoch(3)).await;
    }
    duo.step("a transactional id that is empty");
    duo.ask(version, |_| init(60_000).with_transactional_id(Some(TransactionalId(text(""))))).await;
}

async fn numbered(duo: &mut Duo, version: i16) {
    duo.step("a producer");
    let given = duo.ask(4, |_| init(60_000)).await;
    duo.keep(&given, "producer", |answer| answer.producer_id.0);
    for (step, epoch, sequence) in [
        ("the first batch", 0, 0),
        ("the second batch", 0, 1),
        ("the second batch again", 0, 1),
        ("the first batch again", 0, 0),
        ("a batch with a gap before it", 0, 7),
        ("a batch with a negative sequence", 0, -1),
        ("a newer epoch that begins at 0", 1, 0),
        ("an older epoch", 0, 2),
        ("a newer epoch that does not begin at 0", 2, 5),
    ] {
        duo.step(step);
        write(duo, version, "numbered", |memory| stamped(memory, memory.number("producer"), epoch, sequence)).await;
    }
}

async fn described(duo: &mut Duo) {
    duo.step("a producer to be described");
    let given = duo.ask(4, |_| init(60_000)).await;
    duo.keep(&given, "producer", |answer| answer.producer_id.0);
    create(duo, "one-producer", 1, &[]).await;
    for sequence in 0..3 {
        duo.step("batches of a producer that is described");
        write(duo, 9, "one-producer", |memory| stamped(memory, memory.number("producer"), 0, sequence)).await;
    }
    for (step, name, partitions) in [
        ("a producer", "one-producer", &[0][..]),
        ("a partition without producers", "empty", &[0]),
        ("an unknown partition", "one-producer", &[7, 0]),
        ("a negative partition", "one-producer", &[-1]),
        ("an unknown topic", "nowhere", &[0]),
        ("a bad name", "a/b", &[0]),
        ("no partitions", "one-producer", &[]),
    ] {
        duo.step(step);
        duo.ask(0, |_| {
            let topic = TopicRequest::default().with_name(topic(name)).with_partition_indexes(partitions.to_vec());
            DescribeProducersRequest::default().with_topics(vec![topic])
        })
        .await;
    }
    duo.step("no topics");
    duo.ask(0, |_| DescribeProducersRequest::default()).await;
}

async fn transactions(duo: &mut Duo) {
    duo.step("all transactions");
    duo.ask(0, |_| ListTransactionsRequest::default()).await;
    for state in ["Ongoing", "Nowhere", ""] {
        duo.step(&format!("transactions in the state {state:?}"));
        duo.ask(0, |_| ListTransactionsRequest::default().with_state_filters(vec![text(state)])).await;
    }
    duo.step("transactions of a producer");
    duo.ask(0, |_| ListTransactionsRequest::default().with_producer_id_filters(vec![ProducerId(7)])).await;
    for (step, ids) in [("an unknown transaction", &["nobody's"][..]), ("none", &[]), ("an empty id", &[""])] {
        duo.step(step);
        let ids: Vec<_> = ids.iter().map(|id| TransactionalId(text(id))).collect();
        duo.ask(0, |_| DescribeTransactionsRequest::default().with_transactional_ids(ids.clone())).await;
    }
}
