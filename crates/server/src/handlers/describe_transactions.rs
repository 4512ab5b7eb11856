//! DescribeTransactions (65), version 0: the state of transactions. There are none: 105 for each id.

use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::describe_transactions_response::TransactionState;
use milena_wire::kafka_protocol::messages::{ApiKey, DescribeTransactionsRequest, DescribeTransactionsResponse};

use crate::dispatch::{Api, Context, answer};

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::DescribeTransactions,
    name: "DescribeTransactions",
    advertised: (0, 0),
    served: (0, 0),
    handle: |request| Box::pin(answer(ApiKey::DescribeTransactions, request, describe_transactions)),
};

async fn describe_transactions(
    _context: Context,
    request: DescribeTransactionsRequest,
) -> Option<DescribeTransactionsResponse> {
    let states = request.transactional_ids.into_iter().map(|id| {
        TransactionState::default()
            .with_error_code(ResponseError::TransactionalIdNotFound.code())
            .with_transactional_id(id)
    });
    Some(DescribeTransactionsResponse::default().with_transaction_states(states.collect()))
}

#[cfg(test)]
mod tests {
    use milena_wire::kafka_protocol::messages::TransactionalId;

    use super::*;
    use crate::handlers::testing::{Bench, text};

    #[tokio::test]
    async fn no_transactional_id_is_known() {
        let bench = Bench::new().await;
        let ids = ["a", "b"].map(|id| TransactionalId(text(id)));
        let response = bench.ask(0, &DescribeTransactionsRequest::default().with_transactional_ids(ids.to_vec())).await;
        let states = response.transaction_states.iter();
        let shown: Vec<_> = states.map(|state| (state.error_code, state.transactional_id.clone())).collect();
        assert_eq!(shown, ids.map(|id| (105, id)));
    }
}
