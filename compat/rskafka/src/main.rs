//! rskafka: one client of one partition; it has no groups.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use compat_harness::{Driver, Failed, Outcome, Record, Secure, collect, main as run};
use rskafka::BackoffConfig;
use rskafka::client::error::{Error, ProtocolError};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder, Credentials, SaslConfig};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use rustls::{ClientConfig, RootCertStore};
use tokio::runtime::Runtime;

struct Rskafka {
    runtime: Runtime,
    client: Client,
}

fn main() {
    run("rskafka", "0.6.0", |bootstrap| {
        Ok(Box::new(Rskafka::new(ClientBuilder::new(vec![bootstrap.to_owned()]))?))
    });
}

/// A client of a listener that is secured.
fn secured(secure: &Secure) -> Outcome<ClientBuilder> {
    let mut authorities = RootCertStore::empty();
    authorities.add(CertificateDer::from_pem_file(&secure.authority)?)?;
    let tls = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(authorities)
        .with_no_client_auth();
    let builder = ClientBuilder::new(vec![secure.bootstrap.clone()]).tls_config(Arc::new(tls));
    let credentials = Credentials::new(secure.user.clone(), secure.password.clone());
    Ok(match secure.mechanism {
        None => builder,
        Some("PLAIN") => builder.sasl_config(SaslConfig::Plain(credentials)),
        Some("SCRAM-SHA-256") => builder.sasl_config(SaslConfig::ScramSha256(credentials)),
        Some("SCRAM-SHA-512") => builder.sasl_config(SaslConfig::ScramSha512(credentials)),
        Some(other) => return Err(format!("no mechanism {other}").into()),
    })
}

fn time(milliseconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(milliseconds).unwrap_or_default()
}

impl Rskafka {
    fn new(builder: ClientBuilder) -> Outcome<Self> {
        let runtime = Runtime::new()?;
        let client = runtime.block_on(builder.client_id("rskafka").build())?;
        Ok(Self { runtime, client })
    }

    fn partition(&self, topic: &str) -> Outcome<PartitionClient> {
        Ok(self.runtime.block_on(self.client.partition_client(topic, 0, UnknownTopicHandling::Retry))?)
    }

    fn offset(&self, topic: &str, at: OffsetAt) -> Outcome<i64> {
        Ok(self.runtime.block_on(self.partition(topic)?.get_offset(at))?)
    }
}

impl Driver for Rskafka {
    fn connected(&self, secure: &Secure) -> Outcome<Box<dyn Driver>> {
        Ok(Box::new(Self::new(secured(secure)?)?))
    }

    fn refused(&self, secure: &Secure) -> Outcome<bool> {
        // It tries again for ever when nothing is said.
        let once = BackoffConfig { deadline: Some(Duration::from_secs(5)), ..BackoffConfig::default() };
        match Self::new(secured(secure)?.backoff_config(once)) {
            Ok(_) => Ok(false),
            Err(error) => Ok(error.to_string().contains("SaslAuthenticationFailed")),
        }
    }

    fn has_groups(&self) -> bool {
        false
    }

    /// It creates topics without configs.
    fn create(&self, topic: &str, partitions: usize, _config: &[(&str, &str)]) -> Outcome {
        Ok(self.runtime.block_on(self.client.controller_client()?.create_topic(topic, partitions as i32, 1, 30_000))?)
    }

    fn already_exists(&self, error: &Failed) -> bool {
        matches!(
            error.downcast_ref(),
            Some(Error::ServerError { protocol_error: ProtocolError::TopicAlreadyExists, .. })
        )
    }

    fn produce(&self, topic: &str, records: &[Record], codec: &str, _idempotent: bool) -> Outcome {
        let compression = match codec {
            "gzip" => Compression::Gzip,
            "snappy" => Compression::Snappy,
            "lz4" => Compression::Lz4,
            "zstd" => Compression::Zstd,
            _ => Compression::NoCompression,
        };
        let sent = records.iter().map(|record| rskafka::record::Record {
            key: record.key.clone(),
            value: record.value.clone(),
            headers: record
                .headers
                .iter()
                .cloned()
                .map(|(name, value)| (name, value.unwrap_or_default()))
                .collect::<BTreeMap<_, _>>(),
            timestamp: record.timestamp.map_or_else(Utc::now, time),
        });
        self.runtime.block_on(self.partition(topic)?.produce(sent.collect(), compression))?;
        Ok(())
    }

    fn read(&self, topic: &str, count: usize, mut offset: i64) -> Outcome<Vec<Record>> {
        let partition = self.partition(topic)?;
        collect(count, |most| {
            let (read, _) = self.runtime.block_on(partition.fetch_records(offset, 1..1_000_000, 200))?;
            let records: Vec<_> = read.into_iter().filter(|found| found.offset >= offset).take(most).collect();
            offset = records.last().map_or(offset, |last| last.offset + 1);
            let of = |found: rskafka::record::RecordAndOffset| Record {
                key: found.record.key,
                value: found.record.value,
                headers: found.record.headers.into_iter().map(|(name, value)| (name, Some(value))).collect(),
                timestamp: Some(found.record.timestamp.timestamp_millis()),
                offset: found.offset,
            };
            Ok(records.into_iter().map(of).collect())
        })
    }

    fn offset_at(&self, topic: &str, milliseconds: i64) -> Outcome<Option<i64>> {
        let offset = self.offset(topic, OffsetAt::Timestamp(time(milliseconds)))?;
        Ok((offset != -1).then_some(offset))
    }

    fn bounds(&self, topic: &str) -> Outcome<(i64, i64)> {
        Ok((self.offset(topic, OffsetAt::Earliest)?, self.offset(topic, OffsetAt::Latest)?))
    }

    /// It tells numbers of partitions and no leaders, which it finds for itself.
    fn leaders(&self, topic: &str) -> Outcome<Vec<i32>> {
        let topics = self.runtime.block_on(self.client.list_topics())?;
        Ok(topics
            .into_iter()
            .filter(|found| found.name == topic)
            .flat_map(|found| vec![0; found.partitions.len()])
            .collect())
    }

    fn delete_records(&self, topic: &str, before: i64) -> Outcome {
        Ok(self.runtime.block_on(self.partition(topic)?.delete_records(before, 30_000))?)
    }

    fn delete_topic(&self, topic: &str) -> Outcome {
        Ok(self.runtime.block_on(self.client.controller_client()?.delete_topic(topic, 30_000))?)
    }

    fn topics(&self) -> Outcome<Vec<String>> {
        Ok(self.runtime.block_on(self.client.list_topics())?.into_iter().map(|topic| topic.name).collect())
    }

    fn all_headers(&self) -> bool {
        false
    }
}
