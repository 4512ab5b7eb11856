//! Runs the cases of a client of Rust and prints one JSON line for each. A client is a [`Driver`]; what it cannot do, its `excluded` file names.

mod scenarios;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Why a case failed.
pub type Failed = Box<dyn std::error::Error + Send + Sync>;
pub type Outcome<T = ()> = Result<T, Failed>;

/// Longer than any session or time-out that a case sets, on a loaded machine.
const CASE: Duration = Duration::from_secs(90);
/// How long is waited for what others bring about, such as the end of a rebalance.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is sent and read. Times are milliseconds; without one the client sets it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    pub timestamp: Option<i64>,
    pub offset: i64,
}

/// A listener with TLS, and how one logs in there where it wants that.
#[derive(Clone, Debug)]
pub struct Secure {
    pub bootstrap: String,
    /// A file with the certificate of whoever signs those of servers.
    pub authority: String,
    /// A mechanism of SASL.
    pub mechanism: Option<&'static str>,
    pub user: String,
    pub password: String,
}

impl Secure {
    fn new(mechanism: Option<&'static str>) -> Outcome<Self> {
        let variable = |name: &str| std::env::var(name).map_err(|_| format!("{name} is not set"));
        Ok(Self {
            bootstrap: variable(if mechanism.is_some() { "COMPAT_SASL" } else { "COMPAT_TLS" })?,
            authority: variable("COMPAT_CA")?,
            mechanism,
            user: variable("COMPAT_USER")?,
            password: variable("COMPAT_PASSWORD")?,
        })
    }
}

fn cannot<T>() -> Outcome<T> {
    Err("this client cannot do it".into())
}

/// What the cases ask of a client. Records go to partition 0.
pub trait Driver: Send + Sync {
    /// The same client at a listener that is secured.
    fn connected(&self, _secure: &Secure) -> Outcome<Box<dyn Driver>> {
        cannot()
    }
    /// Whether a client with a wrong password is told so.
    fn refused(&self, _secure: &Secure) -> Outcome<bool> {
        cannot()
    }
    fn create(&self, topic: &str, partitions: usize, config: &[(&str, &str)]) -> Outcome;
    /// Whether an error of `create` says that the topic exists.
    fn already_exists(&self, error: &Failed) -> bool;
    fn produce(&self, topic: &str, records: &[Record], codec: &str, idempotent: bool) -> Outcome;
    fn read(&self, topic: &str, count: usize, offset: i64) -> Outcome<Vec<Record>>;
    /// The first offset at or behind a time, if there is one.
    fn offset_at(&self, topic: &str, time: i64) -> Outcome<Option<i64>>;
    fn bounds(&self, topic: &str) -> Outcome<(i64, i64)>;
    /// The leaders of partitions, -1 where there is none.
    fn leaders(&self, topic: &str) -> Outcome<Vec<i32>>;
    fn delete_records(&self, topic: &str, before: i64) -> Outcome;
    fn delete_topic(&self, topic: &str) -> Outcome;
    fn topics(&self) -> Outcome<Vec<String>>;

    /// Whether headers may repeat a name and have null values.
    fn all_headers(&self) -> bool {
        true
    }
    fn has_groups(&self) -> bool {
        true
    }
    fn member(&self, _group: &str, _topic: &str, _instance: Option<&str>) -> Outcome<Box<dyn Member>> {
        cannot()
    }
    fn configs(&self, _topic: &str) -> Outcome<BTreeMap<String, String>> {
        cannot()
    }
    fn set_config(&self, _topic: &str, _key: &str, _value: &str) -> Outcome {
        cannot()
    }
    fn grow(&self, _topic: &str, _count: usize) -> Outcome {
        cannot()
    }
    fn store_offset(&self, _group: &str, _topic: &str, _offset: i64) -> Outcome {
        cannot()
    }
    fn groups(&self) -> Outcome<Vec<String>> {
        cannot()
    }
    /// State, and the client ids of the members.
    fn describe_group(&self, _group: &str) -> Outcome<(String, Vec<String>)> {
        cannot()
    }
    fn delete_group(&self, _group: &str) -> Outcome {
        cannot()
    }
}

/// A member of a group, which reads from the beginning where nothing was committed. It leaves when it is dropped, unless it is static.
pub trait Member: Send {
    /// Waits a little for the next records.
    fn poll(&mut self, most: usize) -> Outcome<Vec<Record>>;
    /// Sorted.
    fn assignment(&self) -> Outcome<Vec<i32>>;
    fn rebalances(&self) -> usize;
    fn commit(&self, topic: &str, offset: i64) -> Outcome;
}

/// An error when what was seen is not what was wanted.
pub fn expect<T: PartialEq + Debug>(what: &str, seen: T, wanted: T) -> Outcome {
    if seen == wanted {
        return Ok(());
    }
    let short = |value: &T| format!("{value:?}").chars().take(300).collect::<String>();
    Err(format!("{what}: {} instead of {}", short(&seen), short(&wanted)).into())
}

fn wait_until<T: PartialEq + Debug>(what: &str, mut seen: impl FnMut() -> Outcome<T>, wanted: T) -> Outcome {
    let end = Instant::now() + PATIENCE;
    loop {
        let now = seen()?;
        if now == wanted {
            return Ok(());
        }
        if Instant::now() > end {
            return expect(&format!("{what}, after {PATIENCE:?}"), now, wanted);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Takes records until there are enough.
pub fn collect(count: usize, mut more: impl FnMut(usize) -> Outcome<Vec<Record>>) -> Outcome<Vec<Record>> {
    let end = Instant::now() + PATIENCE;
    let mut records = Vec::new();
    while records.len() < count && Instant::now() < end {
        records.extend(more(count - records.len())?);
    }
    expect("the number of records", records.len(), count)?;
    Ok(records)
}

/// Asks the driver that `connect` makes for the cases that the command line names. What is not over in time has failed, and the next one begins.
pub fn main(client: &'static str, version: &str, connect: impl FnOnce(&str) -> Outcome<Box<dyn Driver>>) {
    let mut arguments = std::env::args().skip(1);
    let bootstrap = arguments.next().expect("a bootstrap address");
    println!("{}", serde_json::json!({ "client": client, "version": version }));
    let driver: Arc<dyn Driver> = Arc::from(connect(&bootstrap).expect("a connection"));
    for case in arguments {
        let (sender, outcome) = mpsc::channel();
        let (driver, name) = (Arc::clone(&driver), case.clone());
        std::thread::spawn(move || {
            sender.send(scenarios::run(&name, client, driver.as_ref()).err().map(|error| error.to_string()))
        });
        let wrong = outcome.recv_timeout(CASE).unwrap_or_else(|cause| Some(format!("{cause} after {CASE:?}")));
        println!("{}", serde_json::json!({ "case": case, "ok": wrong.is_none(), "detail": wrong.unwrap_or_default() }));
    }
    std::process::exit(0);
}
