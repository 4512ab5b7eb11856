//! What differs between two trees.

use std::collections::BTreeMap;

use crate::tree::Tree;

/// Fields that tell the elements of a list apart; the order of such a list means nothing to a client.
const IDENTITY: [&str; 19] = [
    "node_id",
    "broker_id",
    "api_key",
    "name",
    "topic",
    "topic_name",
    "partition_index",
    "index",
    "partition",
    "partition_id",
    "group_id",
    "key",
    "resource_type",
    "resource_name",
    "member_id",
    "group_instance_id",
    "transactional_id",
    "user",
    "log_dir",
];

/// A longer name is shortened in paths.
const NAME_BYTES_MAX: usize = 100;

/// One place where two answers differ.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// Where: `topics[name].partitions[0].error_code`.
    pub path: String,
    /// What Kafka says there.
    pub kafka: String,
    /// What Milena says there.
    pub milena: String,
}

/// All places where two trees differ.
#[must_use]
pub fn compare(kafka: &Tree, milena: &Tree) -> Vec<Difference> {
    let mut differences = Vec::new();
    walk("", kafka, milena, &mut differences);
    differences
}

fn walk(path: &str, kafka: &Tree, milena: &Tree, out: &mut Vec<Difference>) {
    match (kafka, milena) {
        (Tree::Struct(_), Tree::Struct(_)) if kafka.field("error_code") != milena.field("error_code") => {
            // What is beside the code follows from it.
            let [kafka, milena] =
                [kafka, milena].map(|tree| tree.field("error_code").map_or_else(String::new, Tree::line));
            let path = if path.is_empty() { "error_code".to_owned() } else { format!("{path}.error_code") };
            out.push(Difference { path, kafka, milena });
        }
        (Tree::Struct(ours), Tree::Struct(theirs)) => {
            let theirs: Vec<_> = theirs.iter().map(|(name, value)| (name.clone(), value)).collect();
            let ours: Vec<_> = ours.iter().map(|(name, value)| (name.clone(), value)).collect();
            let dot = if path.is_empty() { "" } else { "." };
            pairs(&ours, &theirs, |name| format!("{path}{dot}{name}"), out);
        }
        (Tree::List(ours), Tree::List(theirs)) => {
            pairs(&keyed(ours), &keyed(theirs), |key| format!("{path}[{key}]"), out);
        }
        _ if kafka == milena => {}
        _ => out.push(Difference { path: path.to_owned(), kafka: kafka.line(), milena: milena.line() }),
    }
}

fn pairs(
    kafka: &[(String, &Tree)],
    milena: &[(String, &Tree)],
    path: impl Fn(&str) -> String,
    out: &mut Vec<Difference>,
) {
    let find = |list: &[(String, &Tree)], key: &str| list.iter().any(|(other, _)| other == key);
    for (key, ours) in kafka {
        match milena.iter().find(|(other, _)| other == key) {
            Some((_, theirs)) => walk(&path(key), ours, theirs, out),
            None => out.push(Difference { path: path(key), kafka: ours.line(), milena: "absent".to_owned() }),
        }
    }
    for (key, theirs) in milena.iter().filter(|(key, _)| !find(kafka, key)) {
        out.push(Difference { path: path(key), kafka: "absent".to_owned(), milena: theirs.line() });
    }
}

/// The elements of a list under what tells them apart, or else under their place.
fn keyed(list: &[Tree]) -> Vec<(String, &Tree)> {
    let mut seen = BTreeMap::<String, usize>::new();
    let name = |(at, value): (usize, &Tree)| {
        // A record is told apart by its offset alone: keys may be those of anything.
        if let (Some(Tree::Atom(offset)), Some(_)) = (value.field("offset"), value.field("headers")) {
            return offset.clone();
        }
        let mut parts: Vec<String> = IDENTITY.iter().filter_map(|field| identity(value.field(field)?)).collect();
        // Newer versions have the id of a topic in the place of its name.
        if let (true, Some(id)) = (parts.is_empty(), value.field("topic_id")) {
            parts.extend(identity(id));
        }
        if parts.is_empty() { at.to_string() } else { parts.join(" ") }
    };
    let names = list.iter().enumerate().map(name).collect::<Vec<_>>();
    let unique = |name: String| {
        let times = seen.entry(name.clone()).or_default();
        *times += 1;
        if *times == 1 { name } else { format!("{name} #{times}") }
    };
    names.into_iter().map(unique).zip(list).collect()
}

fn identity(value: &Tree) -> Option<String> {
    match value {
        Tree::Atom(text) | Tree::Text(text) if text.len() > NAME_BYTES_MAX => {
            Some(text.chars().take(20).chain("...".chars()).collect())
        }
        Tree::Atom(text) | Tree::Text(text) if !text.is_empty() => {
            Some(text.strip_prefix("id of ").unwrap_or(text).to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    #[expect(dead_code, reason = "read by way of Debug")]
    struct Topic {
        name: &'static str,
        error_code: i16,
        partitions: Option<Vec<i32>>,
    }

    fn differences(kafka: &[Topic], milena: &[Topic]) -> Vec<(String, String, String)> {
        let found = compare(&Tree::of(&kafka), &Tree::of(&milena));
        found.into_iter().map(|difference| (difference.path, difference.kafka, difference.milena)).collect()
    }

    fn is(path: &str, kafka: &str, milena: &str) -> (String, String, String) {
        (path.to_owned(), kafka.to_owned(), milena.to_owned())
    }

    #[test]
    fn elements_are_paired_by_name_and_fields_that_differ_are_named() {
        let one = Topic { name: "a", error_code: 0, partitions: None };
        let two = Topic { name: "b", error_code: 3, partitions: Some(vec![]) };
        let other_one = Topic { name: "a", error_code: 0, partitions: Some(vec![]) };
        let other_two = Topic { name: "b", error_code: 5, partitions: Some(vec![]) };
        assert_eq!(
            differences(&[one, two], &[other_two, other_one]),
            [is("[a].partitions", "null", "[]"), is("[b].error_code", "3", "5")]
        );
    }

    #[test]
    fn what_only_one_side_has_is_a_difference() {
        let one = || Topic { name: "a", error_code: 0, partitions: Some(vec![7, 8]) };
        let two = Topic { name: "a", error_code: 0, partitions: Some(vec![7]) };
        assert_eq!(differences(&[one()], &[two]), [is("[a].partitions[1]", "8", "absent")]);
        let line = "{name: \"a\", error_code: 0, partitions: [7, 8]}";
        assert_eq!(differences(&[], &[one()]), [is("[a]", "absent", line)]);
        assert_eq!(differences(&[one()], &[one(), one()]), [is("[a #2]", "absent", line)]);
    }
}
