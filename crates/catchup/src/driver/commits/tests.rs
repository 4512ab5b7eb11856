//! What whoever calls `commit` hears.

use std::sync::Arc;

use rdkafka::Timestamp;

use super::*;
use crate::records::Batch;
use crate::shared::Task;
use crate::{AckOutcome, Lane, LogId, Output, Reset, Resolved, Settings};

type Reply = oneshot::Receiver<Result<(), Error>>;

/// A partition with five records, of which the application has all in hand, and what the driving thread does for it.
struct Bench {
    shared: Shared,
    epoch: Epoch,
    commits: Commits,
    /// Checkpoints that are not answered.
    saves: Vec<CommitId>,
}

impl Bench {
    fn new(checkpoint: Checkpoint) -> Self {
        let shared = Shared::new(Settings { checkpoint, ..Settings::default() }, Arc::default());
        let partition = TopicPartition::new("t", 0);
        let epoch = shared.assigned(&partition);
        let committed = Some((0, String::new()));
        let resolved = Resolved { committed, checkpoint: None, log: LogId(1), low: 0, high: 0, reset: Reset::Error };
        shared.step_in(epoch, Input::Resolved(resolved));
        let mut batch = Batch::default();
        for offset in 0..5 {
            batch.push_parts(offset, Timestamp::NotAvailable, None, Some(b"v"), None);
        }
        shared.fetched(&partition, Lane::Live, &mut batch);
        for _ in 0..5 {
            let mut recv = std::pin::pin!(shared.recv());
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(recv.as_mut().poll(&mut context).is_ready());
        }
        Self { shared, epoch, commits: Commits::default(), saves: Vec::new() }
    }

    fn ack(&self, offset: i64) {
        assert_eq!(self.shared.ack(self.epoch, offset), AckOutcome::Counted);
    }

    fn commit(&mut self) -> Reply {
        let (reply, answer) = oneshot::channel();
        self.commits.flush(&self.shared, reply);
        answer
    }

    fn step(&mut self, input: Input) {
        self.shared.step_in(self.epoch, input);
    }

    fn do_tasks(&mut self) {
        while let Some(Task { partition, epoch, what }) = self.shared.task() {
            match what {
                Output::Commit { id, floor, metadata, attempt, .. } => {
                    self.commits.push(View { partition, epoch, id, floor, metadata }, attempt);
                }
                Output::Save { id, .. } | Output::Clear { id, .. } => self.saves.push(id),
                Output::Released => self.commits.forget(&partition, epoch),
                _ => {}
            }
        }
    }

    /// What is sent next.
    fn send(&mut self) -> Vec<View> {
        self.do_tasks();
        // However long a try is put off.
        self.commits.due(Instant::now() + std::time::Duration::from_secs(60))
    }

    fn answer(&mut self, views: Vec<View>, result: Result<(), CommitFailure>) {
        assert!(!views.is_empty());
        self.commits.committed(&self.shared, views.into_iter().map(|view| (view, result)).collect());
    }

    fn saved(&mut self, ok: bool) {
        let id = self.saves.remove(0);
        self.step(Input::Saved { id, ok });
    }

    /// What is heard after a round; `None` when nothing is.
    fn heard(&mut self, reply: &mut Reply) -> Option<Result<(), Error>> {
        self.do_tasks();
        self.commits.answer_flushes(&self.shared);
        reply.try_recv().ok()
    }
}

fn is_over(heard: Option<Result<(), Error>>) -> bool {
    matches!(heard, Some(Err(Error::AssignmentOver(of))) if of == TopicPartition::new("t", 0))
}

#[test]
fn a_view_that_was_never_sent_when_its_partition_was_lost_is_no_success() {
    let mut bench = Bench::new(Checkpoint::Metadata);
    bench.ack(0);
    let mut reply = bench.commit();
    bench.do_tasks();
    bench.step(Input::Lost);
    assert!(is_over(bench.heard(&mut reply)));
}

#[test]
fn the_answer_to_an_older_view_is_none_to_what_was_finished_since() {
    let mut bench = Bench::new(Checkpoint::Metadata);
    bench.ack(0);
    let mut first = bench.commit();
    let older = bench.send();
    bench.ack(1);
    let mut second = bench.commit();
    assert!(bench.heard(&mut first).is_none() && bench.heard(&mut second).is_none());
    bench.step(Input::Lost);
    assert!(is_over(bench.heard(&mut second)));
    // The first one's own commit is under way still.
    assert!(bench.heard(&mut first).is_none());
    bench.answer(older, Ok(()));
    assert!(matches!(bench.heard(&mut first), Some(Ok(()))));
}

#[test]
fn a_commit_that_is_answered_after_the_end_of_its_assignment_says_what_became_of_it() {
    for result in [Ok(()), Err(CommitFailure::Refused(25)), Err(CommitFailure::Retriable(16))] {
        let mut bench = Bench::new(Checkpoint::Metadata);
        bench.ack(0);
        let mut reply = bench.commit();
        let views = bench.send();
        bench.step(Input::Lost);
        assert!(bench.heard(&mut reply).is_none());
        bench.answer(views, result);
        match (bench.heard(&mut reply), result) {
            (Some(Ok(())), Ok(())) => {}
            (Some(Err(Error::Commit(heard))), Err(sent)) => assert_eq!(heard, sent),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_checkpoint_that_is_under_way_when_its_partition_is_lost_is_no_success() {
    let topic = || Checkpoint::Topic("progress".to_owned());
    let mut bench = Bench::new(topic());
    bench.ack(1);
    let mut reply = bench.commit();
    assert!(bench.heard(&mut reply).is_none());
    assert_eq!(bench.saves.len(), 1);
    bench.step(Input::Lost);
    assert!(is_over(bench.heard(&mut reply)));
    // A commit under way is not all there: its checkpoint would follow.
    let mut bench = Bench::new(topic());
    bench.ack(0);
    bench.ack(2);
    let mut reply = bench.commit();
    let views = bench.send();
    bench.step(Input::Lost);
    assert!(is_over(bench.heard(&mut reply)));
    bench.answer(views, Ok(()));
}

#[test]
fn in_a_drain_what_was_acknowledged_is_committed_at_the_call_and_not_with_the_last_record() {
    let mut bench = Bench::new(Checkpoint::Metadata);
    bench.step(Input::Revoke);
    bench.ack(0);
    let mut reply = bench.commit();
    assert!(bench.heard(&mut reply).is_none(), "nothing is stored");
    let views = bench.send();
    assert_eq!(views.iter().map(|view| view.floor).collect::<Vec<_>>(), [1]);
    bench.answer(views, Ok(()));
    assert!(matches!(bench.heard(&mut reply), Some(Ok(()))));
    // The last commit has the rest, and a call that comes before it waits for it.
    (1..4).for_each(|offset| bench.ack(offset));
    let mut reply = bench.commit();
    let before = bench.send();
    bench.ack(4);
    bench.answer(before, Ok(()));
    assert!(bench.heard(&mut reply).is_none(), "the last commit took the place of the one under way");
    let last = bench.send();
    assert_eq!(last.iter().map(|view| view.floor).collect::<Vec<_>>(), [5]);
    bench.answer(last, Ok(()));
    assert!(matches!(bench.heard(&mut reply), Some(Ok(()))));
    assert!(bench.shared.partitions().is_empty(), "it has left");
}

#[test]
fn what_is_acknowledged_after_the_last_commit_of_a_drain_is_stored_or_no_success() {
    for answered in [true, false] {
        let mut bench = Bench::new(Checkpoint::Metadata);
        bench.step(Input::Revoke);
        bench.ack(0);
        bench.step(Input::DrainDeadline);
        let last = bench.send();
        bench.ack(1);
        let mut reply = bench.commit();
        bench.answer(last, Ok(()));
        assert!(bench.heard(&mut reply).is_none());
        let late = bench.send();
        assert_eq!(late.iter().map(|view| view.floor).collect::<Vec<_>>(), [2]);
        if answered {
            bench.answer(late, Ok(()));
            assert!(matches!(bench.heard(&mut reply), Some(Ok(()))));
        } else {
            bench.step(Input::DrainDeadline);
            assert!(bench.heard(&mut reply).is_none());
            bench.answer(late, Err(CommitFailure::Refused(27)));
            assert!(matches!(bench.heard(&mut reply), Some(Err(Error::Commit(CommitFailure::Refused(27))))));
        }
        assert!(bench.shared.partitions().is_empty());
    }
}

#[test]
fn a_checkpoint_that_failed_and_is_not_needed_any_more_is_no_failure() {
    let mut bench = Bench::new(Checkpoint::Topic("progress".to_owned()));
    bench.ack(1);
    let mut reply = bench.commit();
    assert!(bench.heard(&mut reply).is_none());
    bench.ack(0);
    bench.step(Input::CommitDue);
    let views = bench.send();
    bench.answer(views, Ok(()));
    bench.saved(false);
    assert!(matches!(bench.heard(&mut reply), Some(Ok(()))));
    assert!(bench.saves.is_empty());
    // And one that is needed is a failure after its last try only.
    bench.ack(3);
    let mut reply = bench.commit();
    for _ in 0..crate::partition::TRIES_MAX {
        assert!(bench.heard(&mut reply).is_none());
        bench.saved(false);
    }
    assert!(matches!(bench.heard(&mut reply), Some(Err(Error::Checkpoint(_)))));
}
