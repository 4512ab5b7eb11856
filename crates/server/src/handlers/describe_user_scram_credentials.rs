//! DescribeUserScramCredentials (50), version 0: which users have SCRAM credentials. None has.
//!
//! - No names are all users: an empty answer. Each user that is named is 91, one that is named twice 92.
//! - `kafka-configs --describe --entity-type users` asks this after the quotas, and fails when it is not served.
//! - Left out: AlterUserScramCredentials (51). There is nothing to authenticate against.

use std::collections::HashMap;

use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::describe_user_scram_credentials_response::DescribeUserScramCredentialsResult;
use milena_wire::kafka_protocol::messages::{
    ApiKey, DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse,
};
use milena_wire::kafka_protocol::protocol::StrBytes;

use crate::dispatch::{Api, Context, answer};

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::DescribeUserScramCredentials,
    name: "DescribeUserScramCredentials",
    advertised: (0, 0),
    served: (0, 0),
    handle: |request| Box::pin(answer(ApiKey::DescribeUserScramCredentials, request, describe_user_scram_credentials)),
};

async fn describe_user_scram_credentials(
    _context: Context,
    request: DescribeUserScramCredentialsRequest,
) -> Option<DescribeUserScramCredentialsResponse> {
    let mut times: HashMap<StrBytes, u32> = HashMap::new();
    for user in request.users.unwrap_or_default() {
        *times.entry(user.name).or_insert(0) += 1;
    }
    let results = times.into_iter().map(|(user, times)| {
        let error = if times > 1 { ResponseError::DuplicateResource } else { ResponseError::ResourceNotFound };
        DescribeUserScramCredentialsResult::default()
            .with_user(user)
            .with_error_code(error.code())
            .with_error_message(None)
    });
    let results = results.collect();
    // The empty text and not null, as Kafka has it.
    let response = DescribeUserScramCredentialsResponse::default().with_error_message(Some(StrBytes::default()));
    Some(response.with_results(results))
}

#[cfg(test)]
mod tests {
    use milena_wire::kafka_protocol::messages::describe_user_scram_credentials_request::UserName;

    use super::*;
    use crate::handlers::testing::{Bench, text};

    fn request(users: Option<&[&str]>) -> DescribeUserScramCredentialsRequest {
        let users = users.map(|users| users.iter().map(|user| UserName::default().with_name(text(user))).collect());
        DescribeUserScramCredentialsRequest::default().with_users(users)
    }

    #[tokio::test]
    async fn nobody_has_credentials() {
        let bench = Bench::new().await;
        for users in [None, Some(&[][..])] {
            let response = bench.ask(0, &request(users)).await;
            assert_eq!((response.error_code, response.results.len()), (0, 0));
        }
    }

    #[tokio::test]
    async fn a_user_that_is_named_is_not_found_and_one_named_twice_is_refused_once() {
        let bench = Bench::new().await;
        let response = bench.ask(0, &request(Some(&["alice", "bob", "bob"]))).await;
        let mut codes: Vec<_> =
            response.results.iter().map(|result| (result.user.to_string(), result.error_code)).collect();
        codes.sort();
        assert_eq!(codes, [("alice".to_owned(), 91), ("bob".to_owned(), 92)]);
    }
}
