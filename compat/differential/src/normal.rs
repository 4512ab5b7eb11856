//! What two servers must say differently is given a common name: ids, ports, times, the wording of errors.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use milena_records::client::read_record_set;
use uuid::Uuid;

use crate::tree::Tree;

/// How far what is produced may lie behind the start of time: everything after it is the server's own time.
const PRODUCED_MS: i64 = 30 * 60 * 1000;

/// The largest set of records that is looked at, decompressed, in bytes.
const RECORDS_BYTES_MAX: usize = 64 << 20;

/// What stands for the wording of an error.
const WORDS: &str = "some words";

/// The id that stands for none.
const NO_ID: &str = "00000000-0000-0000-0000-000000000000";

/// What is known of one server: the names of its ids, and what a scenario has to say again.
#[derive(Debug)]
pub struct Memory {
    start_ms: i64,
    port: u16,
    kept: BTreeMap<String, String>,
    topic_ids: BTreeMap<String, Uuid>,
    symbols: BTreeMap<String, String>,
    counts: BTreeMap<String, usize>,
}

impl Memory {
    /// Of a server on that port. What is produced begins at `start_ms`, an hour ago, so that nothing is expired.
    #[must_use]
    pub fn new(port: u16, start_ms: i64) -> Self {
        Self {
            start_ms,
            port,
            kept: BTreeMap::new(),
            topic_ids: BTreeMap::new(),
            symbols: BTreeMap::new(),
            counts: BTreeMap::new(),
        }
    }

    /// An hour ago, in ms.
    #[must_use]
    pub fn an_hour_ago() -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock behind 1970").as_millis();
        i64::try_from(now).expect("a time in this age") - 3_600_000
    }

    /// A time in ms, that long behind the start of time.
    #[must_use]
    pub fn time(&self, ms: i64) -> i64 {
        self.start_ms + ms
    }

    /// Keeps something that the server said, to say it again.
    pub fn keep(&mut self, name: &str, value: &impl ToString) {
        self.kept.insert(name.to_owned(), value.to_string());
    }

    /// What was kept under that name.
    #[must_use]
    pub fn kept(&self, name: &str) -> &str {
        self.kept.get(name).unwrap_or_else(|| panic!("nothing was kept as {name}"))
    }

    /// What was kept under that name, as a number.
    #[must_use]
    pub fn number<T: std::str::FromStr<Err: std::fmt::Debug>>(&self, name: &str) -> T {
        self.kept(name).parse().unwrap_or_else(|error| panic!("{name}: {error:?}"))
    }

    /// True when an answer had the id of that topic.
    #[must_use]
    pub fn knows_topic(&self, name: &str) -> bool {
        self.topic_ids.contains_key(name)
    }

    /// The newest id of a topic that was in an answer.
    #[must_use]
    pub fn topic_id(&self, name: &str) -> Uuid {
        *self.topic_ids.get(name).unwrap_or_else(|| panic!("no answer had the id of {name}"))
    }

    /// The tree with common names. Records before offset `from` are left out: Kafka sends whole batches, and clients drop them.
    pub fn normal(&mut self, tree: Tree, from: i64) -> Tree {
        self.learn(&tree);
        self.walk("", tree, from)
    }

    fn learn(&mut self, tree: &Tree) {
        match tree {
            Tree::List(values) => values.iter().for_each(|value| self.learn(value)),
            Tree::Struct(fields) => {
                let name = ["name", "topic"].into_iter().find_map(|field| tree.field(field));
                if let (Some(Tree::Text(name)), Some(Tree::Atom(id))) = (name, tree.field("topic_id")) {
                    self.name_topic(name, id);
                }
                fields.iter().for_each(|(_, value)| self.learn(value));
            }
            _ => {}
        }
    }

    fn name_topic(&mut self, name: &str, id: &str) {
        let id = Uuid::parse_str(id).expect("a topic id");
        if name.is_empty() || id.is_nil() || self.symbols.contains_key(&id.to_string()) {
            return;
        }
        self.topic_ids.insert(name.to_owned(), id);
        self.symbols.insert(id.to_string(), format!("id of {name}"));
    }

    fn walk(&mut self, field: &str, tree: Tree, from: i64) -> Tree {
        match tree {
            Tree::List(values) => Tree::List(values.into_iter().map(|value| self.walk(field, value, from)).collect()),
            Tree::Struct(fields) => {
                let failed = matches!(code_of(&fields), Some(code) if code != "0");
                let named = |(name, value): (String, Tree)| {
                    let value = match value {
                        // Whether there are words about an error is as free as what they are.
                        Tree::Null if failed && name == "error_message" => Tree::Text(WORDS.to_owned()),
                        // Where nothing is wrong, there is no wording to be free.
                        Tree::Text(text) if !failed && name == "error_message" => Tree::Text(text),
                        value => self.walk(&name, value, from),
                    };
                    (name, value)
                };
                let there = |(name, value): &(String, Tree)| {
                    !(name == "unknown_tagged_fields" && *value == Tree::Struct(Vec::new()))
                };
                Tree::Struct(fields.into_iter().filter(there).map(named).collect())
            }
            Tree::Bytes(bytes) if field == "records" => self.records(&bytes, from),
            Tree::Text(text) => Tree::Text(self.text(field, text)),
            Tree::Atom(text) => Tree::Atom(self.atom(field, text)),
            other => other,
        }
    }

    fn text(&mut self, field: &str, text: String) -> String {
        match field {
            "error_message" | "message" | "batch_index_error_message" => WORDS.to_owned(),
            "cluster_id" => "the cluster".to_owned(),
            "log_dir" => "a folder".to_owned(),
            _ => match member_of(&text) {
                Some(client) => self.symbol(&text, &format!("member of {client}")),
                None => text,
            },
        }
    }

    fn atom(&mut self, field: &str, text: String) -> String {
        if text.len() == 36 && Uuid::parse_str(&text).is_ok_and(|id| !id.is_nil()) {
            return self.symbol(&text, "id");
        }
        if text == NO_ID {
            return "no id".to_owned();
        }
        let Ok(number) = text.parse::<i64>() else { return text };
        match field {
            "port" if number == i64::from(self.port) => "the port".to_owned(),
            "session_id" if number != 0 => "a session".to_owned(),
            "producer_id" if number >= 0 => "an id".to_owned(),
            "partition_size" | "total_bytes" | "usable_bytes" if number > 0 => "some".to_owned(),
            _ if field.contains("timestamp") || field.ends_with("time_ms") => self.told_time(number),
            _ => text,
        }
    }

    fn told_time(&self, ms: i64) -> String {
        match ms - self.start_ms {
            produced @ 0..=PRODUCED_MS => format!("start + {produced}"),
            now if (PRODUCED_MS..4 * PRODUCED_MS).contains(&now) => "now".to_owned(),
            _ => ms.to_string(),
        }
    }

    /// The name of what a server made up: by kind, and by the order of their first appearance.
    fn symbol(&mut self, value: &str, kind: &str) -> String {
        if let Some(symbol) = self.symbols.get(value) {
            return symbol.clone();
        }
        let count = self.counts.entry(kind.to_owned()).or_default();
        *count += 1;
        let symbol = if *count == 1 { kind.to_owned() } else { format!("{kind} #{count}") };
        self.symbols.insert(value.to_owned(), symbol.clone());
        symbol
    }

    /// What a consumer gets out of the bytes: batches are of the server's own size.
    fn records(&self, bytes: &[u8], from: i64) -> Tree {
        let records = match read_record_set(bytes, RECORDS_BYTES_MAX) {
            Ok(records) => records,
            Err(refusal) => return Tree::Text(format!("unreadable: {refusal}")),
        };
        let text =
            |bytes: Option<Vec<u8>>| bytes.map_or(Tree::Null, |bytes| Tree::Text(bytes.escape_ascii().to_string()));
        let tree = |record: milena_records::client::Record| {
            let headers =
                record.headers.into_iter().map(|(name, value)| Tree::List(vec![Tree::Text(name), text(value)]));
            Tree::Struct(vec![
                ("offset".to_owned(), Tree::Atom(record.offset.to_string())),
                ("timestamp".to_owned(), Tree::Atom(self.told_time(record.timestamp_ms))),
                ("key".to_owned(), text(record.key)),
                ("value".to_owned(), text(record.value)),
                ("headers".to_owned(), Tree::List(headers.collect())),
            ])
        };
        Tree::List(records.into_iter().filter(|record| record.offset >= from).map(tree).collect())
    }
}

fn code_of(fields: &[(String, Tree)]) -> Option<&str> {
    fields.iter().find_map(|(name, value)| match value {
        Tree::Atom(code) if name == "error_code" => Some(code.as_str()),
        _ => None,
    })
}

/// The client in a member id that a server made up: what stands before a random UUID.
fn member_of(text: &str) -> Option<&str> {
    let at = text.len().checked_sub(37)?;
    let (client, id) = text.split_at_checked(at)?;
    Uuid::parse_str(id.strip_prefix('-')?).ok().map(|_| client)
}

#[cfg(test)]
mod tests {
    use milena_wire::kafka_protocol::messages::JoinGroupResponse;

    use super::*;

    #[test]
    fn ids_of_members_have_the_same_name_wherever_they_are_met_again() {
        let mut memory = Memory::new(9092, 0);
        let answer = |member: &str| JoinGroupResponse::default().with_member_id(member.to_owned().into());
        let mut name = |member: &str| {
            memory.normal(Tree::of(&answer(member)), 0).field("member_id").map(Tree::line).unwrap_or_default()
        };
        let (one, two) = ("c-0d52cbe9-9351-4f5d-b27a-30c3f0ea4b0c", "c-1d52cbe9-9351-4f5d-b27a-30c3f0ea4b0c");
        assert_eq!([name(one), name(two), name(one)], ["\"member of c\"", "\"member of c #2\"", "\"member of c\""]);
        assert_eq!(name("made up by the client"), "\"made up by the client\"");
    }

    #[test]
    fn times_are_told_from_the_start_and_the_servers_own_is_now() {
        let memory = Memory::new(9092, 1_000_000);
        assert_eq!(memory.told_time(1_000_005), "start + 5");
        assert_eq!(memory.told_time(1_000_000 + 3_600_000), "now");
        assert_eq!(memory.told_time(-1), "-1");
    }
}
