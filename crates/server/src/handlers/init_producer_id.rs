//! InitProducerId (22), versions 0-5: gives an idempotent producer its id.
//!
//! - Without a transactional id (null, or empty as some clients write it): always a new id with epoch 0, whatever id
//!   and epoch the request carries (v3). Else any client could raise the epoch of another one's producer.
//! - With a transactional id: error 35, as transactions do not exist. It is fatal to clients, where other codes are
//!   retried for ever.
//! - An id that cannot be made durable is answered with a code that clients retry. When all ids are spent the answer is
//!   `UNKNOWN_SERVER_ERROR`, and the log says so.

use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::{
    ApiKey, InitProducerIdRequest, InitProducerIdResponse, ProducerId, TransactionalId,
};

use crate::codes;
use crate::dispatch::{Api, Context, answer};
use crate::produce::Produce;

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::InitProducerId,
    name: "InitProducerId",
    advertised: (0, 5),
    served: (0, 5),
    handle: |request| Box::pin(answer(ApiKey::InitProducerId, request, init_producer_id)),
};

async fn init_producer_id(context: Context, request: InitProducerIdRequest) -> Option<InitProducerIdResponse> {
    Some(respond(&context.broker.produce, &request).await)
}

async fn respond(produce: &Produce, request: &InitProducerIdRequest) -> InitProducerIdResponse {
    if is_transactional(request.transactional_id.as_ref()) {
        return refused(ResponseError::UnsupportedVersion);
    }
    match produce.allocate_id().await {
        Ok(id) => InitProducerIdResponse::default()
            .with_producer_id(ProducerId(i64::try_from(id).unwrap_or(i64::MAX)))
            .with_producer_epoch(0),
        Err(error) => {
            tracing::error!(%error, "no producer id could be given out");
            refused(codes::of_producer_id(&error))
        }
    }
}

fn refused(error: ResponseError) -> InitProducerIdResponse {
    InitProducerIdResponse::default()
        .with_error_code(error.code())
        .with_producer_id(ProducerId(-1))
        .with_producer_epoch(-1)
}

/// True when the request names a transaction. An empty name is none.
#[must_use]
pub fn is_transactional(id: Option<&TransactionalId>) -> bool {
    id.is_some_and(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use milena_wire::kafka_protocol::protocol::StrBytes;

    use super::*;
    use crate::produce::testing::produce;

    fn request(transactional_id: Option<&'static str>) -> InitProducerIdRequest {
        let id = transactional_id.map(|id| TransactionalId(StrBytes::from_static_str(id)));
        InitProducerIdRequest::default().with_transactional_id(id)
    }

    #[tokio::test]
    async fn each_request_gets_a_new_id_with_epoch_0_whatever_it_carries() {
        let produce = produce().await;
        let first = respond(&produce, &request(None)).await;
        let again = request(None).with_producer_id(first.producer_id).with_producer_epoch(3);
        let second = respond(&produce, &again).await;
        assert_eq!((first.error_code, second.error_code), (0, 0));
        assert_ne!(first.producer_id, second.producer_id);
        assert_eq!(second.producer_epoch, 0);
    }

    #[tokio::test]
    async fn an_empty_transactional_id_is_none() {
        assert_eq!(respond(&produce().await, &request(Some(""))).await.error_code, 0);
    }

    #[tokio::test]
    async fn a_transactional_id_is_refused_with_a_code_that_is_fatal_to_clients() {
        let response = respond(&produce().await, &request(Some("payments"))).await;
        assert_eq!((response.error_code, *response.producer_id, response.producer_epoch), (35, -1, -1));
    }
}
