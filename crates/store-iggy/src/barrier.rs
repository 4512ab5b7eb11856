//! What became of an append in doubt, in a cluster.
//!
//! When a leader dies with an append that it had sent to others and not confirmed, the next leader may take it over, and
//! until it leads nobody shows it. So "it is not there" means nothing until the partition's new leader has answered
//! something that only a leader can, and that comes behind all that it took over. A consumer offset is such a thing: it
//! is stored under a number that nobody else uses and taken away again at once, since it would hold back retention.

use std::sync::Arc;
use std::time::Instant;

use iggy::prelude::TcpClient;
use iggy_binary_protocol::codec::WireEncode;
use iggy_binary_protocol::codes::{DELETE_CONSUMER_OFFSET_CODE, STORE_CONSUMER_OFFSET_CODE};
use iggy_binary_protocol::requests::consumer_offsets::{DeleteConsumerOffsetRequest, StoreConsumerOffsetRequest};
use iggy_binary_protocol::{AckLevel, WireConsumer, WireIdentifier};
use iggy_common::{BinaryTransport, IggyError};
use milena_store::{PartitionRef, StoreError};

use crate::error::Op;
use crate::inner::Inner;
use crate::limits;
use crate::line::{CallError, For};

/// Number of the consumer whose offset is stored and taken away.
const CONSUMER: u32 = u32::MAX - 7;

impl Inner {
    /// Before a partition is read: when an append to it is in doubt, makes sure that its leader shows all that there is.
    ///
    /// # Errors
    /// [`StoreError::Busy`] while no leader answers.
    pub(crate) async fn settle_doubt(&self, at: &PartitionRef) -> Result<(), StoreError> {
        // An answer counts when it came from the node that was asked: where the SDK found another one that leads, nobody
        // knows which it was, and what is read next could come from one that lags.
        for _ in 0..=self.dialer.roster.len() {
            let Some(since) = self.dialer.roster.doubted(at, Instant::now()) else { return Ok(()) };
            match self.barrier(at).await {
                Ok(()) => {}
                // The partition is empty, which every node says alike, whether it leads or not.
                Err(CallError::Said(IggyError::InvalidOffset(_))) if since >= limits::EMPTY_DOUBT => {
                    self.dialer.roster.settled(at);
                }
                Err(CallError::Said(IggyError::InvalidOffset(_))) => break,
                Err(error) => return Err(error.of(Op::Read, "the leader of a partition")),
            }
        }
        match self.dialer.roster.doubted(at, Instant::now()) {
            None => Ok(()),
            Some(_) => Err(StoreError::Busy { reason: format!("it is not known yet who leads {at:?}") }),
        }
    }

    async fn barrier(&self, at: &PartitionRef) -> Result<(), CallError> {
        let unnamed = |error: StoreError| CallError::Unsent(error.to_string());
        let (stream_id, topic_id) = self.names.wire(&at.topic).map_err(unnamed)?;
        let (consumer, partition_id) = (WireConsumer::consumer(WireIdentifier::numeric(CONSUMER)), Some(at.partition));
        let store = StoreConsumerOffsetRequest {
            consumer: consumer.clone(),
            stream_id: stream_id.clone(),
            topic_id: topic_id.clone(),
            partition_id,
            offset: 0,
            ack: AckLevel::Quorum,
        };
        let delete = DeleteConsumerOffsetRequest { consumer, stream_id, topic_id, partition_id, ack: AckLevel::Quorum };
        let ask = |client: Arc<TcpClient>| async move {
            client.send_raw_with_response(STORE_CONSUMER_OFFSET_CODE, store.to_bytes()).await?;
            if let Err(error) = client.send_raw_with_response(DELETE_CONSUMER_OFFSET_CODE, delete.to_bytes()).await {
                tracing::warn!(%error, "a consumer offset that holds back retention is left behind");
            }
            Ok(())
        };
        self.pool.append(at).call(For::Writing(at), ask, |outcome| outcome).await
    }
}
