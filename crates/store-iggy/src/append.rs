//! Appends.

use iggy_binary_protocol::codes::SEND_MESSAGES_CODE;
use iggy_common::{BinaryTransport, IggyError};
use milena_store::{AppendBatch, Appended, PartitionRef, StoreError};

use crate::error::Op;
use crate::inner::Inner;
use crate::line::{CallError, For};
use crate::send;

impl Inner {
    pub(crate) async fn append(&self, at: &PartitionRef, batch: AppendBatch) -> Result<Appended, StoreError> {
        let (state, partition) = self.partition(at).await?;
        let body = send::encode(&self.names, at, &batch)?;
        let (count, bytes) = (u64::from(batch.count), batch.frames.len());
        drop(batch);
        let floor = partition.lock().begin();
        let is_cluster = self.dialer.roster.is_cluster();
        // Replies to the offset operations of others are empty too, and one of them may have come for this append while the
        // append itself was dropped: a cluster's is none. A connection's name says that it is in step, and not with what it was
        // answered. What is no confirmation of this append proves nothing else either, so it fails within the call.
        let request = |client: std::sync::Arc<iggy::prelude::TcpClient>| async move {
            let reply = client.send_raw_with_response(SEND_MESSAGES_CODE, body).await?;
            match send::base_offset(&reply, at)? {
                None if is_cluster => Err(IggyError::EmptyResponse),
                base => Ok(base),
            }
        };
        // The account is settled before the next append of this connection begins: replies are taken in the order of
        // the offsets that they confirm.
        let settled = self.pool.append(at).call(For::Writing(at), request, |base| {
            let mut partition = partition.lock();
            match base {
                Ok(Some(base)) => {
                    let seen = partition.confirmed(floor, base, count, bytes);
                    self.tell(at, seen);
                }
                Ok(None) => partition.ended(),
                Err(ref error) => {
                    partition.ended();
                    // Before anybody else is told of an end: from now on it takes the leader's word.
                    if matches!(error.of(Op::Change, "an append"), StoreError::InDoubt { .. }) {
                        self.doubt(at);
                    }
                }
            }
            base.map(|base| (base, partition.bounds().start))
        });
        match settled.await {
            Ok((base_offset, log_start)) => {
                if base_offset.is_none() {
                    state.expire();
                }
                Ok(Appended { base_offset, append_time_micros: 0, log_start })
            }
            Err(error) => {
                // Whatever happened, what is known of the end may be wrong now.
                state.expire();
                Err(self.append_error(at, &error).await)
            }
        }
    }

    async fn append_error(&self, at: &PartitionRef, error: &CallError) -> StoreError {
        let error = error.of(Op::Change, "an append");
        if !matches!(error, StoreError::NotFound { .. }) {
            return error;
        }
        // The server does not tell what is missing; a look makes a topic that is gone known as gone.
        match self.bounds(at).await {
            Err(StoreError::NotFound { what }) => StoreError::NotFound { what },
            _ => StoreError::Busy { reason: format!("the Iggy server does not find {at:?}, although it lists it") },
        }
    }
}
