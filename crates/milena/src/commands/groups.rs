//! `milena groups`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::{Args, Subcommand};
use milena::client::{At, Client, ClientError, Group, TopicPartition};
use serde_json::{Value, json};

use super::ConnectArgs;
use super::reset::{self, ResetArgs};
use crate::failure::{Failure, print};

/// Stands for what is not there.
const NOTHING: &str = "-";

#[derive(Debug, Args)]
pub(crate) struct GroupsArgs {
    #[command(subcommand)]
    command: GroupsCommand,
}

#[derive(Debug, Subcommand)]
enum GroupsCommand {
    /// List the consumer groups, with their states
    List {
        #[command(flatten)]
        connect: ConnectArgs,
        /// Show groups in this state only, like Empty or Stable; may be given several times
        #[arg(long)]
        state: Vec<String>,
        /// One JSON object per group
        #[arg(long)]
        json: bool,
    },
    /// Show state, members, committed offsets and lag of a group
    Describe {
        #[command(flatten)]
        connect: ConnectArgs,
        /// Name of the group
        group: String,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Set the committed offsets of a group without members; shows what it would do unless --execute is given
    ResetOffsets(ResetArgs),
    /// Delete groups without members, with their committed offsets
    Delete {
        #[command(flatten)]
        connect: ConnectArgs,
        /// Names of the groups
        #[arg(required = true)]
        groups: Vec<String>,
        /// Succeed when there is no group of that name
        #[arg(long)]
        if_exists: bool,
    },
}

/// Runs the command.
pub(crate) async fn run(args: GroupsArgs) -> Result<(), Failure> {
    match args.command {
        GroupsCommand::List { connect, state, json } => list(&mut connect.connect().await?, &state, json).await,
        GroupsCommand::Describe { connect, group, json } => describe(&mut connect.connect().await?, &group, json).await,
        GroupsCommand::ResetOffsets(args) => reset::run(args).await,
        GroupsCommand::Delete { connect, groups, if_exists } => {
            delete(&mut connect.connect().await?, &groups, if_exists).await
        }
    }
}

async fn list(client: &mut Client, states: &[String], json: bool) -> Result<(), Failure> {
    let mut groups = client.groups().await?;
    let wanted = |state: &str| states.is_empty() || states.iter().any(|wanted| wanted.eq_ignore_ascii_case(state));
    groups.retain(|group| wanted(group.state.as_deref().unwrap_or_default()));
    if json {
        let lines = groups.iter().map(|group| {
            let line = json!({"group": group.id, "state": group.state, "protocol_type": group.protocol_type});
            format!("{line}\n")
        });
        return print(&lines.collect::<String>());
    }
    let row = |group: &milena::client::ListedGroup| {
        vec![group.id.clone(), group.state.clone().unwrap_or_else(|| NOTHING.to_owned()), shown(&group.protocol_type)]
    };
    print(&table(&["GROUP", "STATE", "TYPE"], &groups.iter().map(row).collect::<Vec<_>>()))
}

async fn delete(client: &mut Client, groups: &[String], if_exists: bool) -> Result<(), Failure> {
    for group in groups {
        match client.delete_group(group).await {
            Ok(()) => {}
            Err(ClientError::NoGroup { .. }) if if_exists => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Where a group stands in one partition.
struct Standing {
    topic: String,
    partition: i32,
    committed: Option<i64>,
    end: Option<i64>,
    member: Option<String>,
    metadata: String,
}

impl Standing {
    /// Records that are left to read. Nobody knows it where nothing is committed: the reader's own reset policy decides.
    fn lag(&self) -> Option<i64> {
        Some(self.end?.saturating_sub(self.committed?).max(0))
    }
}

async fn describe(client: &mut Client, id: &str, json: bool) -> Result<(), Failure> {
    let group = client.describe_group(id).await?;
    let standings = standings(client, &group).await?;
    if json {
        return print(&format!("{}\n", json_of(&group, &standings)));
    }
    let protocol = if group.protocol.is_empty() { String::new() } else { format!(", {}", group.protocol) };
    let members = match group.members.len() {
        0 => "no members".to_owned(),
        1 => "1 member".to_owned(),
        count => format!("{count} members"),
    };
    let mut text = format!("{}  ({}{protocol}, {members})\n", group.id, group.state);
    if !standings.is_empty() {
        let row = |standing: &Standing| {
            vec![
                standing.topic.clone(),
                standing.partition.to_string(),
                number(standing.committed),
                number(standing.end),
                number(standing.lag()),
                standing.member.clone().unwrap_or_else(|| NOTHING.to_owned()),
            ]
        };
        let rows: Vec<_> = standings.iter().map(row).collect();
        let _ = write!(text, "\n{}", table(&["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER"], &rows));
    }
    if !group.members.is_empty() {
        let row = |member: &milena::client::Member| {
            let partitions = member.partitions.as_ref().map(Vec::len);
            vec![
                member.id.clone(),
                member.instance_id.clone().unwrap_or_else(|| NOTHING.to_owned()),
                shown(&member.client_id),
                shown(&member.host),
                partitions.map_or_else(|| NOTHING.to_owned(), |count| count.to_string()),
            ]
        };
        let rows: Vec<_> = group.members.iter().map(row).collect();
        let _ = write!(text, "\n{}", table(&["MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"], &rows));
    }
    print(&text)
}

/// Partitions that the group committed, or that a member has.
async fn standings(client: &mut Client, group: &Group) -> Result<Vec<Standing>, Failure> {
    let committed = client.committed(&group.id).await?;
    let mut members: BTreeMap<TopicPartition, &str> = BTreeMap::new();
    for member in &group.members {
        for partition in member.partitions.iter().flatten() {
            members.insert(partition.clone(), &member.id);
        }
    }
    let mut partitions: Vec<&TopicPartition> = committed.keys().chain(members.keys()).collect();
    partitions.sort();
    partitions.dedup();
    let mut ends: BTreeMap<&str, BTreeMap<i32, i64>> = BTreeMap::new();
    let mut standings = Vec::with_capacity(partitions.len());
    for key in partitions {
        let (topic, partition) = key;
        if !ends.contains_key(topic.as_str()) {
            ends.insert(topic, ends_of(client, topic).await?);
        }
        let found = committed.get(key);
        standings.push(Standing {
            topic: topic.clone(),
            partition: *partition,
            committed: found.map(|found| found.offset),
            end: ends.get(topic.as_str()).and_then(|ends| ends.get(partition)).copied(),
            member: members.get(key).map(|member| (*member).to_owned()),
            metadata: found.map(|found| found.metadata.clone()).unwrap_or_default(),
        });
    }
    Ok(standings)
}

/// Ends of all partitions of a topic; none where there is no such topic, since offsets can outlive it.
async fn ends_of(client: &mut Client, topic: &str) -> Result<BTreeMap<i32, i64>, Failure> {
    match client.list_offsets(topic, &[], At::Latest).await {
        Ok(listed) => {
            Ok(listed.into_iter().filter_map(|(partition, listed)| Some((partition, listed.offset?))).collect())
        }
        Err(ClientError::NoTopic { .. }) => Ok(BTreeMap::new()),
        Err(error) => Err(error.into()),
    }
}

fn json_of(group: &Group, standings: &[Standing]) -> Value {
    let members = group.members.iter().map(|member| {
        let partitions = member.partitions.as_ref().map(|partitions| {
            partitions.iter().map(|(topic, partition)| json!([topic, partition])).collect::<Vec<_>>()
        });
        json!({"member": member.id, "instance": member.instance_id, "client": member.client_id, "host": member.host,
               "partitions": partitions})
    });
    let partitions = standings.iter().map(|standing| {
        json!({"topic": standing.topic, "partition": standing.partition, "committed": standing.committed,
               "end": standing.end, "lag": standing.lag(), "member": standing.member, "metadata": standing.metadata})
    });
    json!({"group": group.id, "state": group.state, "protocol_type": group.protocol_type, "protocol": group.protocol,
           "members": members.collect::<Vec<_>>(), "partitions": partitions.collect::<Vec<_>>()})
}

fn shown(text: &str) -> String {
    if text.is_empty() { NOTHING.to_owned() } else { text.to_owned() }
}

fn number(number: Option<i64>) -> String {
    number.map_or_else(|| NOTHING.to_owned(), |number| number.to_string())
}

/// Columns as wide as their widest cell.
pub(super) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize, name: &&str| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.max().unwrap_or(0).max(name.len())
    };
    let widths: Vec<usize> = head.iter().enumerate().map(|(column, name)| width(column, name)).collect();
    let line = |cells: Vec<&str>| {
        let cells = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    let rows = rows.iter().map(|row| line(row.iter().map(String::as_str).collect()));
    std::iter::once(line(head.to_vec())).chain(rows).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(committed: Option<i64>, end: Option<i64>) -> Standing {
        let (topic, metadata) = (String::new(), String::new());
        Standing { topic, partition: 0, committed, end, member: None, metadata }
    }

    #[test]
    fn lag_is_what_is_left_and_unknown_where_a_side_is() {
        assert_eq!(standing(Some(3), Some(10)).lag(), Some(7));
        assert_eq!(standing(None, Some(10)).lag(), None);
        assert_eq!(standing(Some(3), None).lag(), None);
    }

    #[test]
    fn an_offset_past_the_end_is_no_negative_lag() {
        assert_eq!(standing(Some(12), Some(10)).lag(), Some(0));
    }

    #[test]
    fn columns_line_up_and_no_line_ends_in_blanks() {
        let rows = [vec!["long-name".to_owned(), "x".to_owned()], vec!["b".to_owned(), NOTHING.to_owned()]];
        assert_eq!(table(&["A", "B"], &rows), "A          B\nlong-name  x\nb          -\n");
    }
}
