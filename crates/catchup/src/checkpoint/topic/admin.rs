//! Making the topic, and looking at how it is configured.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};

use crate::member::Context;

/// Enough for loads of different groups to read less than all.
const PARTITIONS: i32 = 3;

/// The brokers' own default (KIP-464).
const REPLICAS: i32 = -1;

fn client(config: &ClientConfig) -> KafkaResult<AdminClient<Context>> {
    config.create_with_context(Context::new())
}

fn options(within: Duration) -> AdminOptions {
    AdminOptions::new().request_timeout(Some(within)).operation_timeout(Some(within))
}

/// Makes the topic; one that is there by now is as good.
pub(super) fn create(config: &ClientConfig, topic: &str, within: Duration) -> KafkaResult<()> {
    let client = client(config)?;
    let topic = NewTopic::new(topic, PARTITIONS, TopicReplication::Fixed(REPLICAS)).set("cleanup.policy", "compact");
    let answers = wait(client.create_topics([&topic], &options(within)))?;
    match answers.into_iter().next() {
        Some(Err((_, code))) if code != RDKafkaErrorCode::TopicAlreadyExists => Err(KafkaError::AdminOp(code)),
        _ => Ok(()),
    }
}

/// Whether `cleanup.policy` has `compact` in it.
pub(super) fn is_compacted(config: &ClientConfig, topic: &str, within: Duration) -> KafkaResult<bool> {
    let client = client(config)?;
    let answers = wait(client.describe_configs([&ResourceSpecifier::Topic(topic)], &options(within)))?;
    let found = answers.into_iter().next().unwrap_or(Err(RDKafkaErrorCode::Fail)).map_err(KafkaError::AdminOp)?;
    let policy = found.get("cleanup.policy").and_then(|entry| entry.value.as_deref());
    let policy = policy.ok_or(KafkaError::AdminOp(RDKafkaErrorCode::InvalidConfig))?;
    Ok(policy.split(',').any(|part| part.trim() == "compact"))
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future that another thread completes. A runtime would not do: the caller may be in one, where waiting for a second one
/// panics.
fn wait<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match future.as_mut().poll(&mut TaskContext::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
