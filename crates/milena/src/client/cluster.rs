//! The cluster: who is there, who leads what, and one connection to each that is needed.

use std::collections::BTreeMap;
use std::time::Duration;

use milena_tls::Connector;
use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use milena_wire::kafka_protocol::messages::{
    FindCoordinatorRequest, MetadataRequest, MetadataResponse, TopicName, metadata_response,
};
use milena_wire::kafka_protocol::protocol::{Request, StrBytes};

use super::connection::Connection;
use super::login::Login;
use super::topics::{Partition, Topic};
use super::{Address, ClientError, Result};

/// Node number under which the bootstrap connection is kept.
const BOOTSTRAP: i32 = i32::MIN;

/// How to connect, and how long to wait.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Name that servers see in their logs and metrics.
    pub client_id: String,
    /// TLS, where connections begin with it.
    pub tls: Option<Connector>,
    /// Who the client is, where servers ask.
    pub login: Option<Login>,
    /// Time for one connection to be made.
    pub connect_timeout: Duration,
    /// Time for one request to be answered. Longer than any wait that is asked of a server.
    pub request_timeout: Duration,
    /// Time for an operation that is retried: a produce, or the look-up of a leader.
    pub retry_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            client_id: "milena-cli".to_owned(),
            tls: None,
            login: None,
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(40),
            retry_timeout: Duration::from_secs(60),
        }
    }
}

/// A broker of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broker {
    /// Node id.
    pub id: i32,
    /// Where it tells its clients to connect to.
    pub address: Address,
    /// Rack, where one is configured.
    pub rack: Option<String>,
}

/// A client of one cluster.
#[derive(Debug)]
pub struct Client {
    bootstrap: Vec<Address>,
    settings: Settings,
    connections: BTreeMap<i32, Connection>,
    brokers: BTreeMap<i32, Broker>,
    controller: i32,
    cluster_id: Option<String>,
    topics: BTreeMap<String, Topic>,
}

impl Client {
    /// Connects to the first address that answers, and learns who is in the cluster.
    ///
    /// # Errors
    /// That of the last address, when none answers.
    pub async fn connect(bootstrap: &[Address], settings: Settings) -> Result<Self> {
        let mut client = Self {
            bootstrap: bootstrap.to_vec(),
            settings,
            connections: BTreeMap::new(),
            brokers: BTreeMap::new(),
            controller: BOOTSTRAP,
            cluster_id: None,
            topics: BTreeMap::new(),
        };
        client.metadata(Some(&[])).await?;
        Ok(client)
    }

    /// How this client connects and waits.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The brokers, by node id.
    pub fn brokers(&self) -> impl Iterator<Item = &Broker> {
        self.brokers.values()
    }

    /// Id of the cluster, where it has one.
    #[must_use]
    pub fn cluster_id(&self) -> Option<&str> {
        self.cluster_id.as_deref()
    }

    /// Asks any broker.
    ///
    /// # Errors
    /// When none can be connected to, or the one that was asked does not answer.
    pub async fn any<Q: Request>(&mut self, request: &Q) -> Result<Q::Response> {
        let node = self.any_node().await?;
        self.at(node, request).await
    }

    /// Asks the controller, which changes topics.
    ///
    /// # Errors
    /// When it cannot be connected to or does not answer.
    pub async fn controller<Q: Request>(&mut self, request: &Q) -> Result<Q::Response> {
        if self.brokers.contains_key(&self.controller) {
            self.at(self.controller, request).await
        } else {
            self.any(request).await
        }
    }

    /// Asks the coordinator of a consumer group.
    ///
    /// # Errors
    /// When it cannot be found, connected to, or does not answer.
    pub async fn coordinator<Q: Request>(&mut self, group: &str, request: &Q) -> Result<Q::Response> {
        let node = self.coordinator_node(group).await?;
        self.at(node, request).await
    }

    /// Node id of the coordinator of a consumer group.
    ///
    /// # Errors
    /// When nobody can be asked, or the cluster does not say.
    pub async fn coordinator_node(&mut self, group: &str) -> Result<i32> {
        let key = StrBytes::from_string(group.to_owned());
        let node = self.any_node().await?;
        let batched = self.connection(node).await?.version_of::<FindCoordinatorRequest>()? >= 4;
        let find = FindCoordinatorRequest::default();
        let find = if batched { find.with_coordinator_keys(vec![key]) } else { find.with_key(key) };
        let answer = self.at(node, &find).await?;
        let (code, node, host, port, message) = match answer.coordinators.first() {
            Some(found) => (found.error_code, found.node_id, &found.host, found.port, &found.error_message),
            None => (answer.error_code, answer.node_id, &answer.host, answer.port, &answer.error_message),
        };
        if let Some(code) = ResponseError::try_from_code(code) {
            let what = format!("the coordinator of group `{group}` was not found");
            return Err(ClientError::refused(what, code, message.as_deref()));
        }
        let broker = broker(node.0, host, port, None);
        self.brokers.entry(broker.id).or_insert(broker);
        Ok(node.0)
    }

    /// Asks one broker, by node id.
    ///
    /// # Errors
    /// When it cannot be connected to or does not answer.
    pub async fn at<Q: Request>(&mut self, node: i32, request: &Q) -> Result<Q::Response> {
        let answer = self.connection(node).await?.request(request).await;
        self.forget_broken(node, answer)
    }

    /// Version of `Q` that a broker speaks, for requests whose meaning depends on it.
    ///
    /// # Errors
    /// When it cannot be connected to, or speaks none that is understood here.
    pub async fn version_at<Q: Request>(&mut self, node: i32) -> Result<i16> {
        self.connection(node).await?.version_of::<Q>()
    }

    /// Asks one broker for what gets no answer.
    pub(crate) async fn silently_at<Q: Request>(&mut self, node: i32, request: &Q) -> Result<()> {
        let sent = self.connection(node).await?.send_silent(request).await;
        self.forget_broken(node, sent)
    }

    /// Asks several brokers at once; the answers in the order of the requests.
    pub(crate) async fn at_all<Q: Request>(&mut self, requests: &[(i32, Q)]) -> Result<Vec<Q::Response>> {
        let mut answers = Vec::with_capacity(requests.len());
        let outcome = async {
            for (node, request) in requests {
                self.connection(*node).await?.send(request).await?;
            }
            for (node, _) in requests {
                answers.push(self.connection(*node).await?.receive::<Q>().await?);
            }
            Ok(())
        }
        .await;
        if outcome.is_err() {
            // Answers that were not read would be taken for those of later requests.
            for (node, _) in requests {
                self.connections.remove(node);
            }
        }
        outcome.map(|()| answers)
    }

    /// A connection on which a request failed is closed: what arrives on it belongs to no later request.
    fn forget_broken<T>(&mut self, node: i32, outcome: Result<T>) -> Result<T> {
        let keeps = match &outcome {
            Ok(_) | Err(ClientError::Unsupported { .. } | ClientError::TooOld { .. }) => true,
            Err(_) => false,
        };
        if !keeps {
            self.connections.remove(&node);
        }
        outcome
    }

    /// A node that is connected to, or else the first bootstrap address that answers.
    async fn any_node(&mut self) -> Result<i32> {
        if let Some((&node, _)) = self.connections.first_key_value() {
            return Ok(node);
        }
        let mut last = ClientError::NoAddress { text: String::new() };
        for address in &self.bootstrap {
            match Connection::open(address, &self.settings).await {
                Ok(connection) => {
                    self.connections.insert(BOOTSTRAP, connection);
                    return Ok(BOOTSTRAP);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn connection(&mut self, node: i32) -> Result<&mut Connection> {
        // Looked up twice, because a borrow that is returned in one arm lasts for the other.
        if !self.connections.contains_key(&node) {
            let address = match self.brokers.get(&node) {
                Some(broker) => broker.address.clone(),
                None => {
                    let node = self.any_node().await?;
                    return self.opened(node);
                }
            };
            let connection = Connection::open(&address, &self.settings).await.map_err(|error| match error {
                ClientError::Connect { address, source } if !self.bootstrap.contains(&address) => {
                    ClientError::Advertised { address, source }
                }
                error => error,
            })?;
            self.connections.insert(node, connection);
        }
        self.opened(node)
    }

    fn opened(&mut self, node: i32) -> Result<&mut Connection> {
        self.connections.get_mut(&node).ok_or_else(|| ClientError::NoAddress { text: format!("broker {node}") })
    }

    /// Asks for topics (`None` for all), and learns the brokers on the way. Topics are not created by it.
    pub(crate) async fn metadata(&mut self, topics: Option<&[&str]>) -> Result<MetadataResponse> {
        let named = topics.map(|names| names.iter().map(|name| named(name)).collect());
        let request = MetadataRequest::default().with_topics(named).with_allow_auto_topic_creation(false);
        let answer = self.any(&request).await?;
        self.brokers = answer
            .brokers
            .iter()
            .map(|found| broker(found.node_id.0, &found.host, found.port, found.rack.as_deref()))
            .map(|broker| (broker.id, broker))
            .collect();
        self.controller = answer.controller_id.0;
        self.cluster_id = answer.cluster_id.as_deref().map(str::to_owned);
        Ok(answer)
    }

    /// A topic and its leaders, from memory or the cluster.
    ///
    /// # Errors
    /// When there is no such topic, or the cluster does not answer.
    pub async fn topic(&mut self, name: &str) -> Result<&Topic> {
        if !self.topics.contains_key(name) {
            self.refresh(name).await?;
        }
        self.topics.get(name).ok_or_else(|| ClientError::NoTopic { topic: name.to_owned() })
    }

    /// Learns a topic and its leaders anew.
    ///
    /// # Errors
    /// When there is no such topic, or the cluster does not answer.
    pub async fn refresh(&mut self, name: &str) -> Result<()> {
        self.topics.remove(name);
        let answer = self.metadata(Some(&[name])).await?;
        let found =
            answer.topics.iter().find(|topic| topic.name.as_ref().is_some_and(|found| found.0.as_str() == name));
        let found = found.ok_or_else(|| ClientError::NoTopic { topic: name.to_owned() })?;
        let topic = topic_of(name, found)?;
        self.topics.insert(name.to_owned(), topic);
        Ok(())
    }

    /// Forgets what is known about a topic's leaders.
    pub(crate) fn forget(&mut self, name: &str) {
        self.topics.remove(name);
    }

    /// Node id of the leader of a partition.
    ///
    /// # Errors
    /// When there is no such topic or partition, or it has no leader now.
    pub async fn leader(&mut self, topic: &str, partition: i32) -> Result<i32> {
        let known = self.topic(topic).await?;
        let Some(found) = known.partitions.iter().find(|found| found.index == partition) else {
            let count = known.partitions.len();
            return Err(ClientError::NoPartition { topic: topic.to_owned(), partition, count });
        };
        let leader = found.leader;
        if leader.is_none() {
            self.forget(topic);
        }
        leader.ok_or_else(|| ClientError::NoLeader { topic: topic.to_owned(), partition })
    }
}

fn named(name: &str) -> MetadataRequestTopic {
    MetadataRequestTopic::default().with_name(Some(topic_name(name)))
}

/// A name as the schemas want it.
pub(crate) fn topic_name(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}

fn broker(id: i32, host: &str, port: i32, rack: Option<&str>) -> Broker {
    // A port that is none cannot be connected to, and the error names it.
    let address = Address { host: host.to_owned(), port: u16::try_from(port).unwrap_or(0) };
    Broker { id, address, rack: rack.map(str::to_owned) }
}

/// A topic of a Metadata answer.
pub(crate) fn topic_of(name: &str, found: &metadata_response::MetadataResponseTopic) -> Result<Topic> {
    match ResponseError::try_from_code(found.error_code) {
        None => {}
        Some(ResponseError::UnknownTopicOrPartition) => {
            return Err(ClientError::NoTopic { topic: name.to_owned() });
        }
        Some(code) => {
            return Err(ClientError::refused(format!("topic `{name}` was not looked up"), code, None));
        }
    }
    let partition = |found: &metadata_response::MetadataResponsePartition| Partition {
        index: found.partition_index,
        leader: Some(found.leader_id.0).filter(|&leader| leader >= 0),
        replicas: found.replica_nodes.iter().map(|node| node.0).collect(),
        in_sync: found.isr_nodes.iter().map(|node| node.0).collect(),
    };
    let mut partitions: Vec<_> = found.partitions.iter().map(partition).collect();
    partitions.sort_by_key(|partition| partition.index);
    Ok(Topic { name: name.to_owned(), id: found.topic_id, internal: found.is_internal, partitions })
}
