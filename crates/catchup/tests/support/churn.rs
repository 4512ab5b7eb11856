//! Members that come and go while records are produced: child processes, ended politely or with kill -9. In the end every record was
//! acknowledged, what was delivered again after its acknowledgement has a reason that is known, and all partitions are in one lane.
#![allow(clippy::print_stdout, reason = "a long run says what it did")]

mod book;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use milena_catchup::{AckOutcome, Commit, Lag, PartitionStatus, Progress, RangeSet, State, TopicPartition};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::Message;
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{Offset, TopicPartitionList};
use tokio::runtime::Runtime;
use tokio::time::timeout;

pub(crate) use book::Book;

use super::child::{Consumer, Line, Options};
use super::{SOON, Watched, config, patient};

pub(crate) const PARTITIONS: i32 = 12;

/// So many members there are, or one more.
const MEMBERS: usize = 3;

/// What the work of the last members may take: on a busy machine they are as far behind as the producer was fast.
const CATCH_UP: Duration = Duration::from_secs(180);

/// Where it happens, and for how long: `TEST_CHURN_SECONDS`, or `seconds`.
pub(crate) struct Churn<'a> {
    pub(crate) bootstrap: &'a str,
    pub(crate) topic: &'a str,
    pub(crate) group: &'a str,
    pub(crate) session_ms: u32,
    pub(crate) seconds: u64,
}

/// Floor and ranges of each partition, as they are committed.
pub(crate) type Stored = Vec<(i64, RangeSet)>;

/// Partition and offset.
pub(crate) type Place = (i32, i64);

impl Churn<'_> {
    fn length(&self) -> Duration {
        let asked = std::env::var("TEST_CHURN_SECONDS").map_or(self.seconds, |seconds| seconds.parse().unwrap());
        Duration::from_secs(asked)
    }

    /// What is committed now.
    fn stored(&self) -> Stored {
        let asking: BaseConsumer = config(self.bootstrap, self.group).create().unwrap();
        let mut list = TopicPartitionList::new();
        list.add_partition_range(self.topic, 0, PARTITIONS - 1);
        let deadline = Instant::now() + SOON;
        loop {
            let found = asking.committed_offsets(list.clone(), SOON);
            // A coordinator that just started has to load first.
            let found = found.ok().filter(|found| found.elements().iter().all(|element| element.error().is_ok()));
            if let Some(found) = found {
                let view = |element: &rdkafka::topic_partition_list::TopicPartitionListElem<'_>| match element.offset()
                {
                    Offset::Offset(floor) => {
                        (floor, Progress::decode(element.metadata()).map(|found| found.ahead).unwrap_or_default())
                    }
                    _ => (0, RangeSet::new()),
                };
                return found.elements().iter().map(view).collect();
            }
            assert!(Instant::now() < deadline, "no committed offsets");
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Goes on for as long as was asked for, with `in_the_middle` in the middle, then until all is caught up. Says what happened.
    pub(crate) fn run(&self, runtime: &Runtime, in_the_middle: impl FnOnce()) {
        let (book, over) = (Arc::<Book>::default(), Arc::new(AtomicBool::new(false)));
        let producing = runtime.spawn(produce_all(self.bootstrap.to_owned(), self.topic.to_owned(), Arc::clone(&over)));
        let (members, counts) = self.come_and_go(&book, in_the_middle);
        over.store(true, Ordering::Relaxed);
        let ends = runtime.block_on(producing).unwrap();
        members.into_iter().for_each(|member| member.end(End::Polite));
        runtime.block_on(self.finish(&ends, &book));
        let (delivered, again) = book.judge(&ends);
        let produced: i64 = ends.iter().sum();
        let Counts { started, killed, left } = counts;
        println!(
            "churn: {:?}, {produced} records, {delivered} deliveries, {again} again after their acknowledgement; of {started} \
             members {killed} were killed and {left} left",
            self.length()
        );
        assert!(produced > 100 && killed > 0, "nothing happened");
    }

    fn come_and_go(&self, book: &Arc<Book>, in_the_middle: impl FnOnce()) -> (Vec<Member>, Counts) {
        let seed = u64::from(std::process::id());
        println!("churn: {:?}, seed {seed}", self.length());
        let mut rng = Rng(seed);
        let (mut members, mut counts) = (Vec::new(), Counts::default());
        let start = |members: &mut Vec<Member>, counts: &mut Counts| {
            members.push(Member::start(self, counts.started, book));
            counts.started += 1;
        };
        (0..MEMBERS).for_each(|_| start(&mut members, &mut counts));
        let (begin, mut in_the_middle) = (Instant::now(), Some(in_the_middle));
        // A group that waits for the session of a dead member has time to come together, most of the time.
        let session = u64::from(self.session_ms);
        while begin.elapsed() < self.length() {
            thread::sleep(Duration::from_millis(session / 2 + rng.below(session)));
            if begin.elapsed() * 2 > self.length()
                && let Some(happen) = in_the_middle.take()
            {
                let before = self.stored();
                happen();
                book.restarted(before);
            }
            let member = usize::try_from(rng.below(members.len() as u64)).unwrap();
            match rng.below(4) {
                0 if counts.killed > 0 && members.len() == MEMBERS => start(&mut members, &mut counts),
                1 if counts.killed > 0 => {
                    counts.left += 1;
                    members.remove(member).end(End::Polite);
                }
                _ => {
                    counts.killed += 1;
                    let stored = self.stored();
                    members.remove(member).end(End::Killed(stored));
                }
            }
            while members.len() < MEMBERS {
                start(&mut members, &mut counts);
            }
        }
        (members, counts)
    }

    /// A last member works through what is left, and ends in one lane everywhere.
    async fn finish(&self, ends: &[i64], book: &Book) {
        let builder = Watched::with(patient(self.bootstrap, self.group)).fork_when(Lag::records(10));
        let mut last = Watched::start(builder.commit(Commit::Every(Duration::from_millis(200))), &[self.topic]);
        let through = |(of, status): &(TopicPartition, PartitionStatus)| {
            status.state == State::Live && status.floor == ends[usize::try_from(of.partition).unwrap()]
        };
        let deadline = Instant::now() + CATCH_UP;
        loop {
            let status = last.consumer.status();
            if status.len() == ends.len() && status.iter().all(through) {
                break;
            }
            assert!(Instant::now() < deadline, "{status:?}");
            let Ok(delivery) = timeout(Duration::from_millis(500), last.consumer.recv()).await else { continue };
            let delivery = delivery.unwrap().unwrap();
            last.check(&delivery);
            let place = (delivery.record().partition(), delivery.record().offset());
            book.delivered(LAST, place);
            if delivery.ack() == AckOutcome::Counted {
                book.acked(LAST, place);
            }
        }
        last.consumer.close().await.unwrap();
        let floors: Vec<i64> = self.stored().into_iter().map(|(floor, _)| floor).collect();
        assert_eq!(floors, ends, "all is committed");
    }
}

#[derive(Default)]
struct Counts {
    started: usize,
    killed: usize,
    left: usize,
}

/// The number of the member in the test's own process.
const LAST: usize = usize::MAX;

/// How a member ends.
enum End {
    /// Its input ends: it commits and leaves.
    Polite,
    /// kill -9; this is what was committed before.
    Killed(Stored),
}

/// A child process, and a thread that is its application.
struct Member {
    end: Sender<End>,
    works: JoinHandle<()>,
}

impl Member {
    fn start(churn: &Churn<'_>, number: usize, book: &Arc<Book>) -> Self {
        let options = Options {
            commit_every: "500ms",
            drain_deadline: "5s",
            session_ms: churn.session_ms,
            more: &["-X", "topic.metadata.refresh.interval.ms=1000"],
        };
        let consumer = Consumer::with(churn.bootstrap, churn.group, churn.topic, &options);
        let (end, ends) = channel();
        let (book, topic) = (Arc::clone(book), churn.topic.to_owned());
        Self { end, works: thread::spawn(move || work(consumer, number, &topic, &ends, &book)) }
    }

    fn end(self, end: End) {
        self.end.send(end).unwrap();
        self.works.join().unwrap();
    }
}

/// So many acknowledgements are put off.
const LATE_MAX: usize = 5;

/// Acknowledges all that comes, one record of ten some records later.
fn work(mut consumer: Consumer, number: usize, topic: &str, ends: &Receiver<End>, book: &Book) {
    let mut later: Vec<Line> = Vec::new();
    let acknowledge = |consumer: &mut Consumer, line: &Line| {
        consumer.ack_line(line);
        book.acked(number, (line.partition, line.offset));
    };
    let events = loop {
        match ends.try_recv() {
            Ok(End::Polite) => {
                later.iter().for_each(|line| acknowledge(&mut consumer, line));
                break consumer.finish();
            }
            Ok(End::Killed(stored)) => {
                let events = consumer.kill();
                book.killed(number, stored);
                break events;
            }
            Err(_) => {}
        }
        let line = consumer.line_within(Duration::from_millis(20)).expect("a consumer that goes on");
        let pause = line.is_none();
        if let Some(line) = line {
            book.delivered(number, (line.partition, line.offset));
            if line.offset % 10 == 0 {
                later.push(line);
            } else {
                acknowledge(&mut consumer, &line);
            }
        }
        // A drain waits for them: not for ever.
        if pause || later.len() > LATE_MAX {
            later.drain(..).for_each(|line| acknowledge(&mut consumer, &line));
        }
        consumer.new_events().iter().for_each(|event| book.heard(number, topic, event));
    };
    events.iter().for_each(|event| book.heard(number, topic, event));
}

/// Produces into all partitions, about forty records a second into each; the value of each is its offset. Answers the ends.
async fn produce_all(bootstrap: String, topic: String, over: Arc<AtomicBool>) -> Vec<i64> {
    let mut settings = config(&bootstrap, "none");
    settings.set("enable.idempotence", "true").set("message.timeout.ms", "120000");
    for of_consumers in ["group.id", "session.timeout.ms", "heartbeat.interval.ms", "auto.offset.reset"] {
        settings.remove(of_consumers);
    }
    let producer: FutureProducer = settings.create().unwrap();
    let mut ends = vec![0; usize::try_from(PARTITIONS).unwrap()];
    while !over.load(Ordering::Relaxed) {
        let values: Vec<String> = ends.iter().map(i64::to_string).collect();
        let sends = (0..PARTITIONS).zip(&values).map(|(partition, value)| {
            producer.send(FutureRecord::<(), str>::to(&topic).partition(partition).payload(value), SOON)
        });
        for (end, sent) in ends.iter_mut().zip(futures_util::future::join_all(sends).await) {
            assert_eq!(sent.unwrap().offset, *end, "each record is stored once, in its turn");
            *end += 1;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    ends
}

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}
