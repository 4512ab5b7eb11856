//! `milena groups reset-offsets`.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use milena::client::{At, Client, ClientError, CommittedOffset, Listed, TopicPartition};

use super::ConnectArgs;
use super::consume::time_ms;
use super::groups::table;
use crate::failure::{Failure, note, print};

#[derive(Debug, Args)]
pub(crate) struct ResetArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    /// Name of the group
    group: String,
    /// Reset this topic, or only these partitions of it; may be given several times
    #[arg(long, short, value_name = "TOPIC[:PARTITION,...]", value_parser = scope, required_unless_present = "all_topics")]
    topic: Vec<(String, Vec<i32>)>,
    /// Reset every partition that the group has committed
    #[arg(long, conflicts_with = "topic")]
    all_topics: bool,
    #[command(flatten)]
    target: Target,
    /// Do it; without this it is only shown
    #[arg(long)]
    execute: bool,
}

/// Where the group shall go on.
#[derive(Debug, Clone, Copy, Args)]
#[group(required = true, multiple = false)]
struct Target {
    /// Go on with the first record that is there
    #[arg(long)]
    to_earliest: bool,
    /// Go on with the next record that is written
    #[arg(long)]
    to_latest: bool,
    /// Go on with this offset
    #[arg(long, value_name = "OFFSET", value_parser = clap::value_parser!(i64).range(0..))]
    to_offset: Option<i64>,
    /// Go on with the first record of this time or later: 2026-01-31T12:00:00Z, or a time ago like 10m
    #[arg(long, value_name = "TIME", value_parser = time_ms)]
    to_time: Option<i64>,
    /// Move what is committed by so many records; below zero is backwards
    #[arg(long, value_name = "RECORDS", allow_hyphen_values = true)]
    shift_by: Option<i64>,
}

/// Runs the command.
pub(crate) async fn run(args: ResetArgs) -> Result<(), Failure> {
    let mut client = args.connect.connect().await?;
    refuse_active(&mut client, &args.group).await?;
    let committed = client.committed(&args.group).await?;
    let scope = args.scope(&committed)?;
    let mut offsets = BTreeMap::new();
    for (topic, partitions) in &scope {
        args.plan(&mut client, topic, partitions, &committed, &mut offsets).await?;
    }
    let row = |(key, offset): (&TopicPartition, &i64)| {
        let old = committed.get(key).map_or_else(|| "-".to_owned(), |old| old.offset.to_string());
        vec![key.0.clone(), key.1.to_string(), old, offset.to_string()]
    };
    let shown = table(&["TOPIC", "PARTITION", "COMMITTED", "NEW"], &offsets.iter().map(row).collect::<Vec<_>>());
    if args.execute {
        client.commit_offsets(&args.group, &offsets).await?;
        return print(&shown);
    }
    print(&shown)?;
    note("nothing was changed; give --execute to do it");
    Ok(())
}

/// Members would go on from where they are, and commit over what was set.
async fn refuse_active(client: &mut Client, group: &str) -> Result<(), Failure> {
    match client.describe_group(group).await {
        Ok(found) if found.is_active() => Err(Failure::Failed(format!(
            "group `{group}` is active ({}, members: {}); stop its consumers, then reset its offsets",
            found.state,
            found.members.len()
        ))),
        // Setting the offsets of a group that is not there yet prepares its first start.
        Ok(_) | Err(ClientError::NoGroup { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl ResetArgs {
    /// The topics, with the partitions of each; none for all.
    fn scope(
        &self,
        committed: &BTreeMap<TopicPartition, CommittedOffset>,
    ) -> Result<BTreeMap<String, Vec<i32>>, Failure> {
        let mut scope: BTreeMap<String, Vec<i32>> = BTreeMap::new();
        if !self.all_topics {
            for (topic, partitions) in &self.topic {
                // No partitions mean all of them, which must not become the few that another mention names.
                if scope.insert(topic.clone(), partitions.clone()).is_some() {
                    return Err(Failure::Usage(format!(
                        "topic `{topic}` is named twice; list its partitions in one go"
                    )));
                }
            }
            return Ok(scope);
        }
        for (topic, partition) in committed.keys() {
            scope.entry(topic.clone()).or_default().push(*partition);
        }
        if scope.is_empty() {
            let group = &self.group;
            return Err(Failure::Failed(format!("group `{group}` has committed nothing; name topics with --topic")));
        }
        Ok(scope)
    }

    /// Adds the new offsets of one topic.
    async fn plan(
        &self,
        client: &mut Client,
        topic: &str,
        partitions: &[i32],
        committed: &BTreeMap<TopicPartition, CommittedOffset>,
        offsets: &mut BTreeMap<TopicPartition, i64>,
    ) -> Result<(), Failure> {
        let starts = client.list_offsets(topic, partitions, At::Earliest).await?;
        let ends = client.list_offsets(topic, partitions, At::Latest).await?;
        let times = match self.target.to_time {
            Some(time) => client.list_offsets(topic, partitions, At::Time(time)).await?,
            None => BTreeMap::new(),
        };
        let offset = |listed: &BTreeMap<i32, Listed>, partition| listed.get(&partition).and_then(|found| found.offset);
        let wanted: BTreeSet<i32> = ends.keys().copied().collect();
        for partition in wanted {
            let key = (topic.to_owned(), partition);
            let (Some(start), Some(end)) = (offset(&starts, partition), offset(&ends, partition)) else {
                return Err(Failure::Failed(format!("the ends of `{topic}`-{partition} are not known; try again")));
            };
            let old = committed.get(&key).map(|old| old.offset);
            let Some(new) = self.target.within(start, end, old, offset(&times, partition)) else {
                let group = &self.group;
                return Err(Failure::Failed(format!(
                    "group `{group}` has committed nothing in `{topic}`-{partition} that could be shifted; leave the \
                     partition out, or name another target"
                )));
            };
            offsets.insert(key, new);
        }
        Ok(())
    }
}

impl Target {
    /// The new offset, cut to the ends of the log: a reader that starts outside of it would fall back to its own reset
    /// policy. `None` when there is nothing to shift.
    fn within(self, start: i64, end: i64, old: Option<i64>, at_time: Option<i64>) -> Option<i64> {
        let wanted = if self.to_earliest {
            start
        } else if self.to_latest {
            end
        } else if let Some(offset) = self.to_offset {
            offset
        } else if let Some(by) = self.shift_by {
            old?.saturating_add(by)
        } else {
            // Nothing is that late yet.
            at_time.unwrap_or(end)
        };
        Some(wanted.clamp(start, end.max(start)))
    }
}

/// Reads `TOPIC` or `TOPIC:0,2`. Topic names have no colons.
fn scope(text: &str) -> Result<(String, Vec<i32>), String> {
    let wrong = || "it must be TOPIC, or TOPIC:PARTITION,PARTITION".to_owned();
    let (topic, list) = text.split_once(':').map_or((text, None), |(topic, list)| (topic, Some(list)));
    let number = |text: &str| text.parse().ok().filter(|number| *number >= 0);
    let partitions = list.map_or(Some(Vec::new()), |list| list.split(',').map(number).collect());
    if topic.is_empty() { Err(wrong()) } else { Ok((topic.to_owned(), partitions.ok_or_else(wrong)?)) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: ResetArgs,
    }

    fn parsed(flags: &[&str]) -> Option<ResetArgs> {
        Line::try_parse_from(["reset-offsets", "g"].iter().chain(flags)).ok().map(|line| line.args)
    }

    fn new(flags: &[&str], old: Option<i64>, at_time: Option<i64>) -> Option<i64> {
        parsed(&[&["-t", "x"], flags].concat()).unwrap().target.within(10, 20, old, at_time)
    }

    #[test]
    fn each_target_says_where_to_go_on() {
        assert_eq!(new(&["--to-earliest"], None, None), Some(10));
        assert_eq!(new(&["--to-latest"], None, None), Some(20));
        assert_eq!(new(&["--to-offset", "15"], None, None), Some(15));
        assert_eq!(new(&["--shift-by", "-2"], Some(17), None), Some(15));
        assert_eq!(new(&["--to-time", "1m"], None, Some(12)), Some(12));
    }

    #[test]
    fn a_time_after_the_last_record_is_the_end() {
        assert_eq!(new(&["--to-time", "1m"], None, None), Some(20));
    }

    #[test]
    fn a_target_outside_the_log_is_cut_to_its_ends() {
        assert_eq!(new(&["--to-offset", "0"], None, None), Some(10));
        assert_eq!(new(&["--to-offset", "99"], None, None), Some(20));
        assert_eq!(new(&["--shift-by", "-9223372036854775808"], Some(17), None), Some(10));
    }

    #[test]
    fn nothing_committed_cannot_be_shifted() {
        assert_eq!(new(&["--shift-by", "1"], None, None), None);
    }

    #[test]
    fn one_target_and_one_scope_are_needed() {
        assert!(parsed(&["-t", "x"]).is_none());
        assert!(parsed(&["--to-latest"]).is_none());
        assert!(parsed(&["-t", "x", "--to-latest", "--to-earliest"]).is_none());
        assert!(parsed(&["-t", "x", "--all-topics", "--to-latest"]).is_none());
        assert!(parsed(&["--all-topics", "--to-latest"]).is_some());
    }

    #[test]
    fn a_topic_that_is_named_twice_is_refused() {
        let args = parsed(&["-t", "a", "-t", "a:1", "--to-latest"]).unwrap();
        assert!(matches!(args.scope(&BTreeMap::new()), Err(Failure::Usage(_))));
    }

    #[test]
    fn a_scope_is_a_topic_and_perhaps_partitions() {
        assert_eq!(scope("a"), Ok(("a".to_owned(), vec![])));
        assert_eq!(scope("a:0,2"), Ok(("a".to_owned(), vec![0, 2])));
        for text in ["", ":1", "a:", "a:x", "a:-1"] {
            assert!(scope(text).is_err(), "{text}");
        }
    }
}
