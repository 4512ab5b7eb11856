//! Clients that change between gateways, over a network and a store that fail: whatever happens, each record that was
//! acknowledged is stored once, where the answer said, and in the producer's order.

use std::collections::VecDeque;
use std::time::Duration;

use milena_store::Store;
use milena_store::testing::Fault;
use proptest::prelude::*;

use crate::produce::append::AppendError;
use crate::produce::dedup::Batch;
use crate::produce::sequence::Span;
use crate::produce::testing::TestServer;

const GATEWAYS: usize = 3;
const PRODUCERS: usize = 3;
/// Batches that a producer has in flight at most.
const IN_FLIGHT: usize = 5;
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy)]
enum Step {
    /// A new batch of so many records.
    Send { producer: usize, records: u32 },
    /// Attempt number `pick` of those in flight reaches a gateway and meets a fault. The client may not hear the answer.
    Deliver { producer: usize, pick: usize, gateway: usize, fault: usize, heard: bool },
    /// A copy of an acknowledged batch, delayed on its way, arrives.
    Echo { producer: usize, pick: usize, gateway: usize },
    /// A gateway is killed and started again.
    Restart { gateway: usize },
    /// A gateway forgets a partition that it did not need for long.
    Forget { gateway: usize },
    /// All that waits is delivered through one gateway and all that is stored is trimmed; producers go on through another.
    Trim { gateway: usize, next: usize },
}

const FAULTS: [Option<Fault>; 9] = [
    None,
    None,
    None,
    None,
    Some(Fault::Busy),
    Some(Fault::InDoubtApplied),
    Some(Fault::InDoubtLost),
    Some(Fault::NoOffset),
    Some(Fault::Hangs { applied: true }),
];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (producer, gateway) = (0..PRODUCERS, 0..GATEWAYS);
    let deliver = (producer.clone(), 0..IN_FLIGHT, gateway.clone(), 0..FAULTS.len(), any::<bool>());
    let step = prop_oneof![
        4 => (producer.clone(), 1..4u32).prop_map(|(producer, records)| Step::Send { producer, records }),
        8 => deliver.prop_map(|(producer, pick, gateway, fault, heard)| {
            Step::Deliver { producer, pick, gateway, fault, heard }
        }),
        2 => (producer, 0..IN_FLIGHT, gateway.clone())
            .prop_map(|(producer, pick, gateway)| Step::Echo { producer, pick, gateway }),
        1 => gateway.clone().prop_map(|gateway| Step::Restart { gateway }),
        1 => gateway.clone().prop_map(|gateway| Step::Forget { gateway }),
        1 => (gateway.clone(), gateway).prop_map(|(gateway, next)| Step::Trim { gateway, next }),
    ];
    prop::collection::vec(step, 0..80)
}

struct Producer {
    id: u64,
    next: u32,
    /// First sequence that was not trimmed.
    first: u32,
    waiting: VecDeque<Batch>,
    acknowledged: Vec<(Batch, u64)>,
}

impl Producer {
    fn batch(&mut self, records: u32) -> Batch {
        let span = Span { first: self.next, count: records };
        self.next = span.next();
        Batch { producer_id: self.id, epoch: 0, span }
    }
}

async fn deliver(gateway: &TestServer, producer: &mut Producer, pick: usize, heard: bool) {
    let Some(batch) = producer.waiting.get(pick).copied() else { return };
    match gateway.send_within(batch, PATIENCE).await {
        Ok(offset) if heard => {
            producer.waiting.remove(pick);
            producer.acknowledged.push((batch, offset));
        }
        Ok(_) => {}
        Err(AppendError::OutOfSequence) => assert_ne!(pick, 0, "the batch whose turn it is has no gap before it"),
        Err(AppendError::OldEpoch) => panic!("there is one epoch"),
        Err(_) => {}
    }
}

async fn step(gateways: &mut [TestServer], producers: &mut [Producer], step: Step) {
    match step {
        Step::Send { producer, records } if producers[producer].waiting.len() < IN_FLIGHT => {
            let batch = producers[producer].batch(records);
            producers[producer].waiting.push_back(batch);
        }
        Step::Send { .. } => {}
        Step::Deliver { producer, pick, gateway, fault, heard } => {
            gateways[gateway].store.plan(FAULTS[fault]);
            deliver(&gateways[gateway], &mut producers[producer], pick, heard).await;
            gateways[gateway].store.forget_faults();
        }
        Step::Echo { producer, pick, gateway } => {
            let acknowledged = &producers[producer].acknowledged;
            if let Some((batch, offset)) = acknowledged.iter().rev().nth(pick).copied() {
                let answer = gateways[gateway].send_within(batch, PATIENCE).await;
                let stuck = matches!(answer, Err(AppendError::TimedOut));
                assert!(answer == Ok(offset) || stuck, "{answer:?} for {batch:?} at {offset}");
            }
        }
        Step::Restart { gateway } => gateways[gateway].restart().await,
        Step::Forget { gateway } => gateways[gateway].forget_partitions(),
        Step::Trim { gateway, next } => trim(gateways, producers, gateway, next).await,
    }
}

/// Of a producer of which nothing is left the order is not kept either, so each stores one batch before it goes on.
async fn trim(gateways: &mut [TestServer], producers: &mut [Producer], gateway: usize, next: usize) {
    gateways[gateway].restart().await;
    for producer in &mut *producers {
        drain(&gateways[gateway], producer).await;
    }
    let at = gateways[gateway].at.clone();
    let end = gateways[gateway].store.bounds(&at).await.unwrap().end;
    gateways[gateway].store.trim(&at, end).await.unwrap();
    for producer in producers {
        producer.acknowledged.clear();
        producer.first = producer.next;
        let batch = producer.batch(1);
        producer.waiting.push_back(batch);
        deliver(&gateways[next], producer, 0, true).await;
        if !producer.waiting.is_empty() {
            // An append of it hangs there.
            drain(&gateways[gateway], producer).await;
        }
    }
}

async fn drain(gateway: &TestServer, producer: &mut Producer) {
    while !producer.waiting.is_empty() {
        deliver(gateway, producer, 0, true).await;
    }
}

async fn run(steps: Vec<Step>) {
    let mut gateways = TestServer::several(u16::try_from(GATEWAYS).unwrap()).await;
    let mut producers = Vec::new();
    for gateway in gateways.iter().take(PRODUCERS) {
        let mut producer = Producer {
            id: gateway.producer().await,
            next: 0,
            first: 0,
            waiting: VecDeque::new(),
            acknowledged: Vec::new(),
        };
        // A producer of which nothing was ever stored is not known elsewhere, and then its order is not kept.
        let first = producer.batch(1);
        producer.waiting.push_back(first);
        deliver(gateway, &mut producer, 0, true).await;
        producers.push(producer);
    }
    for one in steps {
        step(&mut gateways, &mut producers, one).await;
    }
    // An append that hangs holds its producer until the process ends.
    for gateway in &mut gateways {
        gateway.restart().await;
    }
    for (number, producer) in producers.iter_mut().enumerate() {
        drain(&gateways[number], producer).await;
    }
    check(&gateways[0], &producers).await;
}

async fn check(gateway: &TestServer, producers: &[Producer]) {
    let log = gateway.log().await;
    let start = gateway.store.bounds(&gateway.at).await.unwrap().start;
    for producer in producers {
        let expected: Vec<u32> = (producer.first..producer.next).collect();
        assert_eq!(gateway.sequences(producer.id).await, expected, "all of them, once and in order");
        for (batch, offset) in &producer.acknowledged {
            for index in 0..batch.span.count {
                let place = log[usize::try_from(*offset - start).unwrap() + index as usize];
                assert_eq!((place.producer_id, place.sequence), (producer.id, batch.span.first + index));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn wherever_they_go_acknowledged_records_are_stored_once_and_in_order(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(run(steps));
    }
}
