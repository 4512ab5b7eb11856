//! What Milena does not serve, asked as clients ask for it: SASL on a listener without it, and transactions.

use bytes::Bytes;
use milena_wire::kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use milena_wire::kafka_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use milena_wire::kafka_protocol::messages::{
    AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, EndTxnRequest, FindCoordinatorRequest, InitProducerIdRequest,
    ProducerId, SaslAuthenticateRequest, SaslHandshakeRequest, TransactionalId, TxnOffsetCommitRequest,
};

use super::groups::coordinator;
use super::words::{create, group, text, topic};
use crate::duo::{Duo, versions};
use crate::normal::Memory;

/// The kind of coordinator that looks after transactions.
const TRANSACTION: i8 = 1;

/// Newest versions of requests about transactions that clients send: the ones above are for brokers among themselves, or for what
/// clients do only when the broker has a feature that says so (KIP-890).
const PARTITIONS_VERSION_MAX: i16 = 3;
const TRANSACTION_VERSION_MAX: i16 = 4;

/// Every code with which the way to a transaction ends: it is free, or there is none.
const FINAL_CODES: [i16; 3] = [0, 35, 53];

/// Both, as the last of all: Kafka makes a topic of its own for transactions.
pub async fn run(duo: &mut Duo) {
    for version in 0..=1 {
        duo.step("a mechanism on a listener without any");
        duo.ask(version, |_| SaslHandshakeRequest::default().with_mechanism(text("PLAIN"))).await;
    }
    for version in 0..=2 {
        duo.step("a password on a listener without any");
        let password = Bytes::from_static(b"\0somebody\0secret");
        duo.ask(version, |_| SaslAuthenticateRequest::default().with_auth_bytes(password.clone())).await;
    }
    create(duo, "paid", 1, &[]).await;
    duo.step("until transactions are looked after");
    let found = |code: i16| FINAL_CODES.contains(&code);
    duo.until(
        4,
        |_| coordinator(4, &["first"], TRANSACTION),
        |answer| answer.coordinators.iter().all(|one| found(one.error_code)),
    )
    .await;
    duo.until(4, |_| begin("first"), |answer| found(answer.error_code)).await;
    for version in versions::<FindCoordinatorRequest>().filter(|version| *version > 0) {
        duo.step("of a transaction");
        duo.ask(version, |_| coordinator(version, &["first"], TRANSACTION)).await;
    }
    for version in versions::<InitProducerIdRequest>() {
        duo.step("a transactional id");
        duo.ask(version, |_| begin(&format!("begun-v{version}"))).await;
    }
    for version in 0..=TRANSACTION_VERSION_MAX {
        transaction(duo, version).await;
    }
}

fn begin(id: &str) -> InitProducerIdRequest {
    InitProducerIdRequest::default().with_transactional_id(Some(transactional(id))).with_transaction_timeout_ms(60_000)
}

fn transactional(id: &str) -> TransactionalId {
    TransactionalId(text(id))
}

/// Partitions and offsets are taken into a transaction, and it ends.
async fn transaction(duo: &mut Duo, version: i16) {
    let id = format!("paid-v{version}");
    duo.step("the producer of a transaction");
    let given = duo.ask(4, |_| begin(&id)).await;
    duo.keep(&given, "transactional", |answer| answer.producer_id.0);
    let producer = |memory: &Memory| ProducerId(memory.number("transactional"));
    if version <= PARTITIONS_VERSION_MAX {
        duo.step("a partition into a transaction");
        duo.ask(version, |memory| {
            let partition = AddPartitionsToTxnTopic::default().with_name(topic("paid")).with_partitions(vec![0]);
            AddPartitionsToTxnRequest::default()
                .with_v3_and_below_transactional_id(transactional(&id))
                .with_v3_and_below_producer_id(producer(memory))
                .with_v3_and_below_topics(vec![partition])
        })
        .await;
    }
    duo.step("offsets into a transaction");
    duo.ask(version, |memory| {
        AddOffsetsToTxnRequest::default()
            .with_transactional_id(transactional(&id))
            .with_producer_id(producer(memory))
            .with_group_id(group("payers"))
    })
    .await;
    duo.step("an offset in a transaction");
    duo.ask(version, |memory| {
        let partition = TxnOffsetCommitRequestPartition::default().with_committed_offset(3);
        let named = TxnOffsetCommitRequestTopic::default().with_name(topic("paid")).with_partitions(vec![partition]);
        TxnOffsetCommitRequest::default()
            .with_transactional_id(transactional(&id))
            .with_group_id(group("payers"))
            .with_producer_id(producer(memory))
            .with_topics(vec![named])
    })
    .await;
    duo.step("the end of a transaction");
    duo.ask(version, |memory| {
        EndTxnRequest::default()
            .with_transactional_id(transactional(&id))
            .with_producer_id(producer(memory))
            .with_committed(true)
    })
    .await;
}
