//! A server with a monitor, and a client that reads what it says and is strict about its form.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use milena_iggy_door::{Door, DoorConfig, DoorLimits, OffsetRules, Secret};
use milena_monitor::{Monitor, MonitorSettings};
use milena_testkit::TestServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longest wait for something that must happen.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A monitor that looks at nothing yet.
pub(crate) async fn monitor(settings: MonitorSettings) -> Monitor {
    Monitor::bind(SocketAddr::from(([127, 0, 0, 1], 0)), settings).await.unwrap()
}

/// A monitor that looks at the server.
pub(crate) async fn watch(server: &TestServer) -> Monitor {
    watch_with(server, MonitorSettings::default()).await
}

pub(crate) async fn watch_with(server: &TestServer, settings: MonitorSettings) -> Monitor {
    let monitor = monitor(settings).await;
    monitor.watch(server.server().broker());
    monitor
}

/// A door for Iggy clients on the store of the server.
pub(crate) async fn open_door(server: &TestServer) -> Door {
    open_door_with(server, |_| {}).await
}

pub(crate) async fn open_door_with(server: &TestServer, change: impl FnOnce(&mut DoorConfig)) -> Door {
    let broker = server.server().broker();
    let mut config = DoorConfig {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        advertised: None,
        username: "iggy".to_owned(),
        password: Some(Secret::new("secret")),
        offset_rules: OffsetRules::Server,
        instance_id: 0,
        tls: None,
        limits: DoorLimits::default(),
    };
    change(&mut config);
    let (store, memory) = (Arc::clone(&broker.store), Arc::clone(&broker.memory));
    Box::pin(Door::open(config, store, Arc::new(broker.topics.clone()), memory)).await.unwrap()
}

/// An answer over HTTP.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// Sends bytes and reads until the server closes.
pub(crate) async fn send(address: SocketAddr, bytes: &[u8]) -> Answer {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        String::from_utf8(answer).unwrap()
    };
    let answer = timeout(SOON, exchange).await.expect("an answer in time");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
}

pub(crate) async fn get(monitor: &Monitor, path: &str) -> Answer {
    send(monitor.address(), format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n").as_bytes()).await
}

/// The page of metrics, taken apart.
pub(crate) async fn scrape(monitor: &Monitor) -> Scrape {
    let answer = get(monitor, "/metrics").await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.head.contains("content-type: text/plain; version=0.0.4"), "{}", answer.head);
    Scrape::parse(&answer.body)
}

/// Scrapes until `check` holds; for what happens in another task without an event to wait for.
pub(crate) async fn until(monitor: &Monitor, what: &str, check: impl Fn(&Scrape) -> bool) -> Scrape {
    let waited = async {
        loop {
            let scrape = scrape(monitor).await;
            if check(&scrape) {
                return scrape;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, waited).await.unwrap_or_else(|_| panic!("{what}"))
}

/// A family of metrics.
#[derive(Debug, Default, PartialEq, Eq, Clone)]
pub(crate) struct Family {
    pub(crate) kind: String,
    pub(crate) help: String,
    pub(crate) labels: BTreeSet<String>,
}

type Labels = BTreeMap<String, String>;

/// What a page says.
#[derive(Debug, Default)]
pub(crate) struct Scrape {
    pub(crate) families: BTreeMap<String, Family>,
    samples: BTreeMap<(String, Labels), f64>,
}

impl Scrape {
    /// Reads version 0.0.4 of the text format, and refuses what Prometheus would refuse or guess at: a sample before its
    /// family, a family twice, a series twice, odd names, an unknown escape.
    pub(crate) fn parse(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line has no end");
        let mut scrape = Self::default();
        let mut current = String::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap_or_else(|| panic!("no help: {line}"));
                assert!(is_name(name), "{name}");
                let family = Family { help: help.to_owned(), ..Family::default() };
                assert!(scrape.families.insert(name.to_owned(), family).is_none(), "{name} is there twice");
                name.clone_into(&mut current);
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert_eq!(name, current, "the type of another family");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
                kind.clone_into(&mut scrape.families.get_mut(name).unwrap().kind);
            } else {
                scrape.sample(line, &current);
            }
        }
        scrape.check_histograms();
        scrape
    }

    fn sample(&mut self, line: &str, family: &str) {
        let name_end = line.find(['{', ' ']).unwrap_or_else(|| panic!("no sample: {line}"));
        let (name, rest) = line.split_at(name_end);
        let (labels, value) = match rest.strip_prefix('{') {
            Some(rest) => labels(rest),
            None => (Labels::new(), rest),
        };
        let value: f64 = value.strip_prefix(' ').unwrap().replace("+Inf", "inf").parse().unwrap();
        let known = self.families.get_mut(family).unwrap_or_else(|| panic!("a sample without a family: {line}"));
        let suffixes: &[&str] = if known.kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        assert!(suffixes.iter().any(|suffix| name == format!("{family}{suffix}")), "{name} in {family}");
        known.labels.extend(labels.keys().filter(|label| *label != "le").cloned());
        assert!(self.samples.insert((name.to_owned(), labels), value).is_none(), "the same series twice: {line}");
    }

    /// Buckets rise, and the last one holds everything.
    fn check_histograms(&self) {
        let names = self.families.iter().filter(|(_, family)| family.kind == "histogram").map(|(name, _)| name);
        for name in names {
            let mut by_labels: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
            for ((_, labels), count) in
                self.samples.iter().filter(|((sample, _), _)| *sample == format!("{name}_bucket"))
            {
                let mut labels = labels.clone();
                let le = labels.remove("le").unwrap().replace("+Inf", "inf").parse().unwrap();
                by_labels.entry(labels).or_default().push((le, *count));
            }
            for (labels, mut buckets) in by_labels {
                buckets.sort_by(|a, b| a.partial_cmp(b).unwrap());
                assert!(buckets.is_sorted_by(|(_, a), (_, b)| a <= b), "{name} {labels:?} {buckets:?}");
                let count = self.samples[&(format!("{name}_count"), labels)];
                assert_eq!(*buckets.last().unwrap(), (f64::INFINITY, count));
            }
        }
    }

    /// The value of a series, if it is there.
    pub(crate) fn find(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.samples.get(&(name.to_owned(), labels)).copied()
    }

    /// The value of a series that must be there.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.find(name, labels).unwrap_or_else(|| panic!("there is no {name} {labels:?}"))
    }

    /// How many series a name has.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.samples.keys().filter(|(sample, _)| sample == name).count()
    }

    /// The values of all series of that name.
    pub(crate) fn total(&self, name: &str) -> f64 {
        self.samples.iter().filter(|((sample, _), _)| sample == name).map(|(_, value)| value).sum()
    }
}

fn is_name(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// Labels up to the closing brace, and what follows.
fn labels(mut rest: &str) -> (Labels, &str) {
    let mut found = Labels::new();
    loop {
        if let Some(rest) = rest.strip_prefix('}') {
            return (found, rest);
        }
        let (name, quoted) = rest.split_once("=\"").expect("a label");
        assert!(is_name(name), "{name}");
        let mut value = String::new();
        let mut chars = quoted.char_indices();
        let end = loop {
            match chars.next().expect("the end of a label") {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next().expect("an escape").1 {
                    'n' => '\n',
                    c @ ('\\' | '"') => c,
                    c => panic!("an unknown escape: {c}"),
                }),
                (_, c) => value.push(c),
            }
        };
        assert!(found.insert(name.to_owned(), value).is_none(), "{name} twice");
        rest = &quoted[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}
