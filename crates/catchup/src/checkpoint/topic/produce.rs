//! The producer of checkpoints: idempotent, so that a repeated request neither doubles nor reorders them.

use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer as _, ProducerContext};

use crate::Error;
use crate::member::Context;

/// How long one look for answers takes. rust-rdkafka uses all of it, even when the answers are there.
const LOOK: Duration = Duration::from_millis(5);

/// What librdkafka needs on top to report that a record's time is over.
const GRACE: Duration = Duration::from_secs(2);

pub(super) struct Record {
    pub(super) partition: i32,
    pub(super) key: String,
    /// `None` removes.
    pub(super) value: Option<String>,
}

/// What becomes of a record, and where that is waited for.
type Reply = Box<(usize, Sender<(usize, KafkaResult<()>)>)>;

struct Reports(Context);

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, fac: &str, message: &str) {
        self.0.log(level, fac, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.0.error(error, reason);
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = Reply;

    fn delivery(&self, result: &DeliveryResult<'_>, reply: Reply) {
        let (index, waits) = *reply;
        let result = result.as_ref().map(|_| ()).map_err(|(error, _)| error.clone());
        // Nobody waits any more when it comes too late.
        let _ = waits.send((index, result));
    }
}

pub(super) struct Producer {
    client: BaseProducer<Reports>,
    patience: Duration,
}

impl Producer {
    /// Whoever sends a record hears within `patience` what became of it.
    pub(super) fn create(config: &ClientConfig, patience: Duration) -> KafkaResult<Self> {
        let mut config = config.clone();
        for own in ["acks", "request.required.acks", "delivery.timeout.ms", "linger.ms", "queue.buffering.max.ms"] {
            config.remove(own);
        }
        config
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("linger.ms", "0")
            .set("message.timeout.ms", patience.as_millis().to_string());
        Ok(Self { client: config.create_with_context(Reports(Context::new()))?, patience })
    }

    /// Whether it cannot go on: another one must be made.
    pub(super) fn is_dead(&self) -> bool {
        self.client.client().fatal_error().is_some()
    }

    /// Sends all, and waits for the answers.
    pub(super) fn send(&self, topic: &str, records: &[Record]) -> Vec<Result<(), Error>> {
        let deadline = Instant::now() + self.patience + GRACE;
        let (waits, answers) = channel();
        let mut results: Vec<KafkaResult<()>> =
            records.iter().map(|_| Err(KafkaError::MessageProduction(RDKafkaErrorCode::MessageTimedOut))).collect();
        let mut open = 0;
        for (index, (record, result)) in records.iter().zip(&mut results).enumerate() {
            match self.enqueue(topic, record, (index, waits.clone())) {
                Ok(()) => open += 1,
                Err(error) => *result = Err(error),
            }
        }
        while open > 0 && Instant::now() < deadline {
            self.client.poll(LOOK);
            while let Ok((index, result)) = answers.try_recv() {
                open -= 1;
                if let Some(at) = results.get_mut(index) {
                    *at = result;
                }
            }
        }
        results.into_iter().map(|result| result.map_err(Error::Client)).collect()
    }

    fn enqueue(
        &self,
        topic: &str,
        record: &Record,
        reply: (usize, Sender<(usize, KafkaResult<()>)>),
    ) -> KafkaResult<()> {
        let mut message = BaseRecord::with_opaque_to(topic, Box::new(reply)).partition(record.partition);
        message = message.key(record.key.as_str());
        if let Some(value) = &record.value {
            message = message.payload(value.as_str());
        }
        self.client.send(message).map_err(|(error, _)| error)
    }
}
