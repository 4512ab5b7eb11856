//! A run: a topic that is written all the time, a group whose commits are watched all the time, and its members.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use milena::client::{Address, At, Client, NewTopic, Settings};
use milena_testkit::ChildServer;
use milena_testkit::child::Builder;
use rdkafka::config::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use super::journal::{Event, Journal, now};
use super::member::{Commit, Member, Plan, SESSION};
use super::verifier::{self, Sample};

pub const PARTITIONS: i32 = 12;
pub const ALL: usize = 12;
/// Long, because test machines are busy.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub const MILENA: &str = env!("CARGO_BIN_EXE_milena");

pub fn server() -> ChildServer {
    builder().start()
}

pub fn builder() -> Builder {
    ChildServer::builder(MILENA).args(["--set", "groups.initial_rebalance_delay=100ms"])
}

pub struct Run {
    pub plan: Plan,
    pub journal: Journal,
    members: BTreeMap<String, Member>,
    stop_writing: Arc<AtomicBool>,
    stop_watching: Arc<AtomicBool>,
    writer: Option<JoinHandle<()>>,
    watcher: Option<JoinHandle<(Vec<Sample>, Vec<String>)>>,
}

impl Run {
    pub fn begin(server: &ChildServer, group: &str, strategy: &'static str, commit: Commit) -> Self {
        Self::at(server.bootstrap(), group, strategy, commit, SESSION)
    }

    pub fn at(bootstrap: &str, group: &str, strategy: &'static str, commit: Commit, session: Duration) -> Self {
        let topic = format!("topic-of-{group}");
        let bootstrap = bootstrap.to_owned();
        let new = NewTopic { name: topic.clone(), partitions: Some(PARTITIONS), ..NewTopic::default() };
        // The group begins with committed offsets. A librdkafka that has to ask where a partition begins, and is overtaken by
        // a rebalance, may ask once more when it reads already, and then begins anew.
        let start = (0..PARTITIONS).map(|partition| ((topic.clone(), partition), 0)).collect();
        with_client(&bootstrap, async |client| {
            client.create_topic(&new).await.unwrap();
            client.commit_offsets(group, &start).await.unwrap();
        });
        let plan = Plan { bootstrap, group: group.to_owned(), topic, strategy, commit, session };
        let (stop_writing, stop_watching) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let writer = {
            let (plan, stop) = (plan.clone(), Arc::clone(&stop_writing));
            std::thread::spawn(move || write(&plan, &stop))
        };
        let watcher = {
            let (plan, stop) = (plan.clone(), Arc::clone(&stop_watching));
            std::thread::spawn(move || watch(&plan, &stop))
        };
        Self {
            plan,
            journal: Journal::default(),
            members: BTreeMap::new(),
            stop_writing,
            stop_watching,
            writer: Some(writer),
            watcher: Some(watcher),
        }
    }

    pub fn start(&mut self, names: &[&str]) {
        for name in names {
            self.start_static(name, None);
        }
    }

    pub fn start_static(&mut self, name: &str, instance: Option<&str>) {
        let member = Member::start(&self.plan, name, instance, &self.journal);
        self.members.insert(name.to_owned(), member);
    }

    pub fn member(&self, name: &str) -> &Member {
        &self.members[name]
    }

    pub fn leave(&mut self, name: &str) {
        self.members.remove(name).unwrap().leave();
    }

    pub fn kill(&mut self, name: &str) {
        self.members.remove(name).unwrap().kill();
    }

    /// Waits until that many members share all partitions, evenly.
    pub fn shared_by(&self, members: usize) -> BTreeMap<String, std::collections::BTreeSet<i32>> {
        self.journal.shared_by(members, ALL, PATIENCE)
    }

    /// Waits until some records more were committed, so that what comes next happens in the middle of work.
    pub fn work_on(&self) {
        let acked = || self.journal.entries().iter().filter(|entry| matches!(entry.event, Event::Acked { .. })).count();
        let got = || self.journal.entries().iter().filter(|entry| matches!(entry.event, Event::Got { .. })).count();
        let (acked_before, got_before) = (acked(), got());
        self.journal.wait("nothing is read and committed", PATIENCE, || {
            let committed = self.plan.commit == Commit::OnRevoke || acked() > acked_before + 4;
            (committed && got() > got_before + 100).then_some(())
        });
    }

    /// Stops writing, waits until all is read, lets everybody leave, and asserts that nothing went wrong.
    pub fn end(mut self) {
        self.stop_writing.store(true, Ordering::SeqCst);
        self.writer.take().unwrap().join().unwrap();
        let topic = self.plan.topic.clone();
        let listed = with_client(&self.plan.bootstrap, async |client| {
            client.list_offsets(&topic, &[], At::Latest).await.unwrap()
        });
        let ends: BTreeMap<i32, i64> =
            listed.into_iter().map(|(partition, listed)| (partition, listed.offset.unwrap())).collect();
        assert!(ends.len() == ALL && ends.values().all(|end| *end > 5), "too little was written: {ends:?}");
        let missing = || verifier::not_delivered(&self.journal.entries(), &ends);
        let patience = Instant::now() + PATIENCE;
        while !missing().is_empty() {
            assert!(Instant::now() < patience, "{:#?}\n{}", missing(), self.journal.summary());
            std::thread::sleep(Duration::from_millis(50));
        }
        let names: Vec<String> = self.members.keys().cloned().collect();
        for name in names {
            // One that leaves before it has heard of the last rebalance commits in a generation that is over, which is refused.
            self.journal.shared_by(self.members.len(), ALL, PATIENCE);
            self.leave(&name);
        }
        let committed = committed(&self.plan);
        self.stop_watching.store(true, Ordering::SeqCst);
        let (samples, errors) = self.watcher.take().unwrap().join().unwrap();
        let faults = verifier::faults(&self.journal.entries(), &samples, &ends);
        let summary = self.journal.summary();
        assert!(faults.is_empty(), "{faults:#?}\n{summary}");
        assert!(errors.is_empty(), "{errors:#?}\n{summary}");
        assert!(samples.len() > 10, "commits were watched {} times only", samples.len());
        assert_eq!(committed, ends, "what is committed at the end is not all\n{summary}");
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.stop_writing.store(true, Ordering::SeqCst);
        self.stop_watching.store(true, Ordering::SeqCst);
    }
}

/// A few records to each partition, again and again.
fn write(plan: &Plan, stop: &AtomicBool) {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", &plan.bootstrap)
        .set("broker.address.family", "v4")
        .set("enable.idempotence", "true")
        .set("reconnect.backoff.max.ms", "300")
        .set("message.timeout.ms", "60000")
        .create()
        .unwrap();
    let mut count = 0_u64;
    while !stop.load(Ordering::SeqCst) {
        for partition in 0..PARTITIONS {
            count += 1;
            let payload = format!("record {count}");
            producer.send(BaseRecord::<(), str>::to(&plan.topic).partition(partition).payload(&payload)).unwrap();
        }
        producer.poll(Duration::from_millis(40));
        std::thread::sleep(Duration::from_millis(40));
    }
    producer.flush(PATIENCE).unwrap();
}

/// Asks again and again what is committed. A server that is away is no error, a wrong answer is.
fn watch(plan: &Plan, stop: &AtomicBool) -> (Vec<Sample>, Vec<String>) {
    let (mut samples, mut errors) = (Vec::new(), Vec::new());
    runtime().block_on(async {
        let mut client = None;
        while !stop.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let asked = now();
            let answer = async {
                if client.is_none() {
                    client = Some(connect(&plan.bootstrap).await?);
                }
                client.as_mut().unwrap().committed(&plan.group).await
            };
            match answer.await {
                Ok(committed) => {
                    let of = |((_, partition), found): ((String, i32), milena::client::CommittedOffset)| {
                        (partition, found.offset)
                    };
                    samples.push(Sample { asked, committed: committed.into_iter().map(of).collect() });
                }
                Err(error) if error.is_retriable() => client = None,
                Err(error) => errors.push(error.to_string()),
            }
        }
    });
    (samples, errors)
}

fn committed(plan: &Plan) -> BTreeMap<i32, i64> {
    let group = plan.group.clone();
    let committed = with_client(&plan.bootstrap, async |client| client.committed(&group).await.unwrap());
    committed.into_iter().map(|((_, partition), found)| (partition, found.offset)).collect()
}

pub fn with_client<T>(bootstrap: &str, ask: impl AsyncFnOnce(&mut Client) -> T) -> T {
    runtime().block_on(async { ask(&mut connect(bootstrap).await.unwrap()).await })
}

async fn connect(bootstrap: &str) -> milena::client::Result<Client> {
    Client::connect(&Address::parse_list(bootstrap)?, Settings::default()).await
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}
