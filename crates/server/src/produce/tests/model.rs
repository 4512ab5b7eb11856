//! Clients that behave as producers do, over a network and a store that do not: whatever happens, each record that was
//! acknowledged is stored once, where the answer said, and in the producer's order.

use std::collections::VecDeque;
use std::time::Duration;

use milena_store::testing::Fault;
use proptest::prelude::*;

use crate::produce::append::AppendError;
use crate::produce::dedup::Batch;
use crate::produce::sequence::{Span, advance};
use crate::produce::testing::TestServer;

/// Batches that a producer has in flight at most.
const IN_FLIGHT: usize = 5;

#[derive(Debug, Clone, Copy)]
enum Step {
    /// A new batch of so many records.
    Send { producer: usize, records: u32 },
    /// Attempt number `pick` of those in flight reaches the server and meets a fault.
    Deliver { producer: usize, pick: usize, fault: usize },
    /// A copy of an acknowledged batch, delayed on its way, arrives.
    Echo { producer: usize, pick: usize },
    /// The server is killed and started again.
    Restart,
}

const FAULTS: [Option<Fault>; 8] = [
    None,
    None,
    None,
    Some(Fault::Busy),
    Some(Fault::InDoubtApplied),
    Some(Fault::InDoubtLost),
    Some(Fault::Hangs { applied: true }),
    Some(Fault::Hangs { applied: false }),
];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let producer = 0..3usize;
    let step = prop_oneof![
        4 => (producer.clone(), 1..4u32).prop_map(|(producer, records)| Step::Send { producer, records }),
        8 => (producer.clone(), 0..IN_FLIGHT, 0..FAULTS.len())
            .prop_map(|(producer, pick, fault)| Step::Deliver { producer, pick, fault }),
        2 => (producer, 0..IN_FLIGHT).prop_map(|(producer, pick)| Step::Echo { producer, pick }),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 0..80)
}

struct Producer {
    id: u64,
    next: u32,
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

async fn deliver(server: &TestServer, producer: &mut Producer, pick: usize) {
    let Some(batch) = producer.waiting.get(pick).copied() else { return };
    match server.send_within(batch, Duration::from_secs(10)).await {
        Ok(offset) => {
            producer.waiting.remove(pick);
            producer.acknowledged.push((batch, offset));
        }
        Err(AppendError::OutOfSequence) => assert_ne!(pick, 0, "the batch whose turn it is has no gap before it"),
        Err(AppendError::OldEpoch) => panic!("there is one epoch"),
        Err(_) => {}
    }
}

async fn run(start: u32, steps: Vec<Step>) {
    let mut server = TestServer::start().await;
    let mut producers = Vec::new();
    for _ in 0..3 {
        let mut producer =
            Producer { id: server.producer().await, next: start, waiting: VecDeque::new(), acknowledged: Vec::new() };
        // A producer of which nothing was ever stored is not known after a restart, and then its order is not kept.
        let first = producer.batch(1);
        producer.waiting.push_back(first);
        deliver(&server, &mut producer, 0).await;
        producers.push(producer);
    }
    for step in steps {
        match step {
            Step::Send { producer, records } if producers[producer].waiting.len() < IN_FLIGHT => {
                let batch = producers[producer].batch(records);
                producers[producer].waiting.push_back(batch);
            }
            Step::Send { .. } => {}
            Step::Deliver { producer, pick, fault } => {
                server.store.plan(FAULTS[fault]);
                deliver(&server, &mut producers[producer], pick).await;
                server.store.forget_faults();
            }
            Step::Echo { producer, pick } => {
                let acknowledged = &producers[producer].acknowledged;
                if let Some((batch, offset)) = acknowledged.iter().rev().nth(pick).copied() {
                    let answer = server.send_within(batch, Duration::from_secs(10)).await;
                    let stuck = matches!(answer, Err(AppendError::TimedOut));
                    assert!(answer == Ok(offset) || stuck, "{answer:?} for {batch:?} at {offset}");
                }
            }
            Step::Restart => server.restart().await,
        }
    }
    // An append that hangs holds its producer until the process ends.
    server.restart().await;
    for producer in &mut producers {
        while !producer.waiting.is_empty() {
            deliver(&server, producer, 0).await;
        }
    }
    check(&server, &producers, start).await;
}

async fn check(server: &TestServer, producers: &[Producer], start: u32) {
    let log = server.log().await;
    for producer in producers {
        let mut expected = start;
        for sequence in server.sequences(producer.id).await {
            assert_eq!(sequence, expected, "once and in order");
            expected = advance(expected, 1);
        }
        assert_eq!(expected, producer.next, "nothing is missing");
        for (batch, offset) in &producer.acknowledged {
            for index in 0..batch.span.count {
                let place = log[usize::try_from(*offset).unwrap() + index as usize];
                assert_eq!((place.producer_id, place.sequence), (producer.id, advance(batch.span.first, index)));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn acknowledged_records_are_stored_once_and_in_order(
        start in prop_oneof![Just(0u32), Just((1 << 31) - 3)],
        steps in steps(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(run(start, steps));
    }
}
