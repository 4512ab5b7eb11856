//! ListPartitionReassignments (46), version 0: partitions on their way to other brokers. There are none, ever.
//!
//! `kafka-topics --describe` asks this for every topic; unknown ones are no error, as in Kafka.

use milena_wire::kafka_protocol::messages::{
    ApiKey, ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
};

use crate::dispatch::{Api, Context, answer};

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::ListPartitionReassignments,
    name: "ListPartitionReassignments",
    advertised: (0, 0),
    served: (0, 0),
    handle: |request| Box::pin(answer(ApiKey::ListPartitionReassignments, request, list_partition_reassignments)),
};

async fn list_partition_reassignments(
    _context: Context,
    _request: ListPartitionReassignmentsRequest,
) -> Option<ListPartitionReassignmentsResponse> {
    Some(ListPartitionReassignmentsResponse::default().with_error_message(None))
}

#[cfg(test)]
mod tests {
    use milena_wire::kafka_protocol::messages::list_partition_reassignments_request::ListPartitionReassignmentsTopics;

    use super::*;
    use crate::handlers::testing::{Bench, name};

    #[tokio::test]
    async fn nothing_is_ever_on_its_way() {
        let bench = Bench::new().await;
        bench.topic("t", 1).await;
        let named = |topic| {
            let topic = ListPartitionReassignmentsTopics::default().with_name(name(topic));
            Some(vec![topic.with_partition_indexes(vec![0])])
        };
        for topics in [None, named("t"), named("nowhere")] {
            let asked = ListPartitionReassignmentsRequest::default().with_timeout_ms(1_000).with_topics(topics);
            let response = bench.ask(0, &asked).await;
            assert_eq!((response.error_code, response.error_message, response.topics.len()), (0, None, 0));
        }
    }
}
