//! `milena topics`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::{Args, Subcommand};
use milena::client::{At, Client, ClientError, Listed, NewTopic, Topic};
use milena_wire::kafka_protocol::ResponseError;
use serde_json::{Value, json};

use super::ConnectArgs;
use crate::failure::{Failure, print};

#[derive(Debug, Args)]
pub(crate) struct TopicsArgs {
    #[command(subcommand)]
    command: TopicsCommand,
}

#[derive(Debug, Subcommand)]
enum TopicsCommand {
    /// List the topics, with their numbers of partitions
    List {
        #[command(flatten)]
        connect: ConnectArgs,
        /// Show topics that the server keeps for itself too
        #[arg(long)]
        internal: bool,
        /// One JSON object per topic
        #[arg(long)]
        json: bool,
    },
    /// Create a topic
    Create {
        #[command(flatten)]
        connect: ConnectArgs,
        /// Name of the topic
        topic: String,
        /// Number of partitions; the server's default where not given
        #[arg(long, short, value_parser = clap::value_parser!(i32).range(1..))]
        partitions: Option<i32>,
        /// A config that differs from the server's default; may be given several times
        #[arg(long, short, value_name = "NAME=VALUE", value_parser = name_and_value)]
        config: Vec<(String, String)>,
        /// Succeed when there is a topic of that name already
        #[arg(long)]
        if_not_exists: bool,
    },
    /// Show partitions, offsets and configs of a topic
    Describe {
        #[command(flatten)]
        connect: ConnectArgs,
        /// Name of the topic
        topic: String,
        /// Show configs that have their default too
        #[arg(long)]
        all_configs: bool,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Delete topics with all their records
    Delete {
        #[command(flatten)]
        connect: ConnectArgs,
        /// Names of the topics
        #[arg(required = true)]
        topics: Vec<String>,
        /// Succeed when there is no topic of that name
        #[arg(long)]
        if_exists: bool,
    },
    /// Change configs of a topic; all of them, or none when one is refused
    Alter {
        #[command(flatten)]
        connect: ConnectArgs,
        /// Name of the topic
        topic: String,
        /// Set a config; may be given several times
        #[arg(long, short, value_name = "NAME=VALUE", value_parser = name_and_value)]
        config: Vec<(String, String)>,
        /// Put a config back to the server's default; may be given several times
        #[arg(long, short, value_name = "NAME", required_unless_present = "config")]
        delete_config: Vec<String>,
    },
    /// Delete the records of a topic before an offset, for good
    DeleteRecords {
        #[command(flatten)]
        connect: ConnectArgs,
        /// Name of the topic
        topic: String,
        /// Only of this partition; may be given several times
        #[arg(long, short, value_name = "NUMBER", value_parser = clap::value_parser!(i32).range(0..))]
        partition: Vec<i32>,
        /// Keep records from this offset on
        #[arg(long, value_name = "OFFSET", value_parser = clap::value_parser!(i64).range(0..))]
        before: Option<i64>,
        /// Delete all records that are there now
        #[arg(long, conflicts_with = "before", required_unless_present = "before")]
        all: bool,
    },
    /// Grow a topic to more partitions; keys go to other partitions from then on
    Grow {
        #[command(flatten)]
        connect: ConnectArgs,
        /// Name of the topic
        topic: String,
        /// Number of partitions in all
        #[arg(value_parser = clap::value_parser!(i32).range(1..))]
        partitions: i32,
    },
}

/// Runs the command.
pub(crate) async fn run(args: TopicsArgs) -> Result<(), Failure> {
    match args.command {
        TopicsCommand::List { connect, internal, json } => list(&mut connect.connect().await?, internal, json).await,
        TopicsCommand::Create { connect, topic, partitions, config, if_not_exists } => {
            let new = NewTopic { name: topic, partitions, configs: config.into_iter().collect() };
            create(&mut connect.connect().await?, &new, if_not_exists).await
        }
        TopicsCommand::Describe { connect, topic, all_configs, json } => {
            describe(&mut connect.connect().await?, &topic, all_configs, json).await
        }
        TopicsCommand::Delete { connect, topics, if_exists } => {
            delete(&mut connect.connect().await?, &topics, if_exists).await
        }
        TopicsCommand::Alter { connect, topic, config, delete_config } => {
            let changes = changes(config, delete_config)?;
            Ok(connect.connect().await?.set_topic_configs(&topic, &changes).await?)
        }
        TopicsCommand::DeleteRecords { connect, topic, partition, before, all: _ } => {
            delete_records(&mut connect.connect().await?, &topic, &partition, before).await
        }
        TopicsCommand::Grow { connect, topic, partitions } => {
            Ok(connect.connect().await?.grow_topic(&topic, partitions).await?)
        }
    }
}

async fn list(client: &mut Client, internal: bool, json: bool) -> Result<(), Failure> {
    let mut topics = client.topics().await?;
    topics.retain(|topic| internal || !topic.internal);
    if json {
        let lines = topics.iter().map(|topic| {
            let line = json!({"topic": topic.name, "id": topic.id.to_string(), "partitions": topic.partitions.len(),
                              "internal": topic.internal});
            format!("{line}\n")
        });
        return print(&lines.collect::<String>());
    }
    let width = topics.iter().map(|topic| topic.name.len()).max().unwrap_or(0).max("TOPIC".len());
    let mut text = format!("{:<width$}  PARTITIONS\n", "TOPIC");
    for topic in &topics {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{:<width$}  {}", topic.name, topic.partitions.len());
    }
    print(&text)
}

async fn create(client: &mut Client, new: &NewTopic, if_not_exists: bool) -> Result<(), Failure> {
    match client.create_topic(new).await {
        Ok(_) => Ok(()),
        Err(error) if if_not_exists && error.code() == Some(ResponseError::TopicAlreadyExists) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn delete(client: &mut Client, topics: &[String], if_exists: bool) -> Result<(), Failure> {
    for topic in topics {
        match client.delete_topic(topic).await {
            Ok(()) => {}
            Err(ClientError::NoTopic { .. }) if if_exists => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// What becomes of each config; `None` is the default.
fn changes(set: Vec<(String, String)>, deleted: Vec<String>) -> Result<BTreeMap<String, Option<String>>, Failure> {
    let set = set.into_iter().map(|(name, value)| (name, Some(value)));
    let mut changes = BTreeMap::new();
    for (name, value) in set.chain(deleted.into_iter().map(|name| (name, None))) {
        if changes.insert(name.clone(), value).is_some() {
            return Err(Failure::Usage(format!("config `{name}` is given more than once")));
        }
    }
    Ok(changes)
}

async fn delete_records(
    client: &mut Client,
    topic: &str,
    partitions: &[i32],
    before: Option<i64>,
) -> Result<(), Failure> {
    let starts = client.delete_records(topic, partitions, before).await?;
    let mut text = format!("{:>9}  {:>12}\n", "PARTITION", "START");
    for (partition, start) in starts {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{partition:>9}  {start:>12}");
    }
    print(&text)
}

async fn describe(client: &mut Client, name: &str, all_configs: bool, json: bool) -> Result<(), Failure> {
    client.refresh(name).await?;
    let topic = client.topic(name).await?.clone();
    let starts = client.list_offsets(name, &[], At::Earliest).await?;
    let ends = client.list_offsets(name, &[], At::Latest).await?;
    let mut configs = client.topic_configs(name).await?;
    configs.retain(|config| all_configs || config.is_set);
    let offset = |offsets: &BTreeMap<i32, Listed>, index: i32| offsets.get(&index).and_then(|listed| listed.offset);
    if json {
        let partitions = topic.partitions.iter().map(|partition| {
            json!({"partition": partition.index, "leader": partition.leader, "replicas": partition.replicas,
                   "in_sync": partition.in_sync, "start": offset(&starts, partition.index),
                   "end": offset(&ends, partition.index)})
        });
        let partitions: Vec<Value> = partitions.collect();
        let configs = configs.iter().map(|config| (config.name.clone(), json!(config.value)));
        let configs: serde_json::Map<String, Value> = configs.collect();
        let line = json!({"topic": topic.name, "id": topic.id.to_string(), "internal": topic.internal, "partitions": partitions,
                          "configs": configs});
        return print(&format!("{line}\n"));
    }
    let mut text = heading(&topic);
    for partition in &topic.partitions {
        let shown = |offset: Option<i64>| offset.map_or_else(|| "?".to_owned(), |offset| offset.to_string());
        let leader = partition.leader.map_or_else(|| "none".to_owned(), |leader| leader.to_string());
        let (start, end) = (shown(offset(&starts, partition.index)), shown(offset(&ends, partition.index)));
        let _ = writeln!(text, "{:>9}  {leader:>6}  {start:>12}  {end:>12}", partition.index);
    }
    if !configs.is_empty() {
        text.push_str("\nconfigs\n");
        for config in &configs {
            let _ = writeln!(text, "  {} = {}", config.name, config.value.as_deref().unwrap_or("(not shown)"));
        }
    }
    print(&text)
}

fn heading(topic: &Topic) -> String {
    let internal = if topic.internal { ", internal" } else { "" };
    let mut text = format!("{}  (id {}{internal})\n\n", topic.name, topic.id);
    let _ = writeln!(text, "{:>9}  {:>6}  {:>12}  {:>12}", "PARTITION", "LEADER", "START", "END");
    text
}

/// Reads `NAME=VALUE`; the value may be empty.
pub(super) fn name_and_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("it must be NAME=VALUE".to_owned()),
    }
}
