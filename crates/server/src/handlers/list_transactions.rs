//! ListTransactions (66), version 0: transactions under way. There are none, as there are no transactions.
//!
//! - Names of states that Kafka does not have come back as unknown, so that a misspelled filter is noticed.

use milena_wire::kafka_protocol::messages::{ApiKey, ListTransactionsRequest, ListTransactionsResponse};

use crate::dispatch::{Api, Context, answer};

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::ListTransactions,
    name: "ListTransactions",
    advertised: (0, 0),
    served: (0, 0),
    handle: |request| Box::pin(answer(ApiKey::ListTransactions, request, list_transactions)),
};

/// States of a transaction in Kafka.
const STATES: [&str; 8] = [
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
];

async fn list_transactions(_context: Context, request: ListTransactionsRequest) -> Option<ListTransactionsResponse> {
    let unknown = request.state_filters.into_iter().filter(|state| !STATES.contains(&state.as_str()));
    Some(ListTransactionsResponse::default().with_unknown_state_filters(unknown.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::testing::{Bench, text};

    #[tokio::test]
    async fn there_are_no_transactions_and_states_that_do_not_exist_are_told() {
        let bench = Bench::new().await;
        let asked = ListTransactionsRequest::default().with_state_filters(vec![text("Ongoing"), text("ongoing")]);
        let response = bench.ask(0, &asked).await;
        assert_eq!((response.error_code, response.transaction_states.len()), (0, 0));
        assert_eq!(response.unknown_state_filters, [text("ongoing")]);
    }
}
