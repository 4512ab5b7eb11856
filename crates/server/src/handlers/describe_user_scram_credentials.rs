//! DescribeUserScramCredentials (50), version 0: which users have SCRAM credentials, and with how many iterations.
//!
//! - No names are all users that the configuration and the file of users have. A user that is named and not there is 91, one
//!   that is named twice 92.
//! - Whoever has not said who it is hears of no users, as from a broker that has none: a listener for strangers beside those
//!   with SASL would tell all names. Not 31, since `kafka-configs` and consoles fail with that as a whole.
//! - `kafka-configs --describe --entity-type users` asks this after the quotas, and fails when it is not served.
//! - Left out: salts and keys, which the protocol has no place for either.

use std::collections::BTreeMap;

use milena_auth::Hash;
use milena_auth::users::User;
use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::describe_user_scram_credentials_response::{
    CredentialInfo, DescribeUserScramCredentialsResult,
};
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

/// Number of a mechanism in these requests.
pub(super) fn number(hash: Hash) -> i8 {
    match hash {
        Hash::Sha256 => 1,
        Hash::Sha512 => 2,
    }
}

async fn describe_user_scram_credentials(
    context: Context,
    request: DescribeUserScramCredentialsRequest,
) -> Option<DescribeUserScramCredentialsResponse> {
    let users = context.broker.authentication.users();
    let is_let_in = context.connection.principal().is_some();
    let mut times: BTreeMap<StrBytes, u32> = BTreeMap::new();
    for user in request.users.unwrap_or_default() {
        *times.entry(user.name).or_insert(0) += 1;
    }
    let results: Vec<DescribeUserScramCredentialsResult> = if times.is_empty() {
        let mut all: Vec<_> = users.iter().filter(|_| is_let_in).collect();
        all.sort_unstable_by_key(|(name, _)| *name);
        all.into_iter().map(|(name, user)| described(StrBytes::from_string(name.to_owned()), user)).collect()
    } else {
        let result = |(name, times): (StrBytes, u32)| match users.get(&name).filter(|_| is_let_in) {
            _ if times > 1 => refused(name, ResponseError::DuplicateResource),
            Some(user) => described(name, user),
            None => refused(name, ResponseError::ResourceNotFound),
        };
        times.into_iter().map(result).collect()
    };
    // The empty text and not null, as Kafka has it.
    let response = DescribeUserScramCredentialsResponse::default().with_error_message(Some(StrBytes::default()));
    Some(response.with_results(results))
}

fn described(name: StrBytes, user: &User) -> DescribeUserScramCredentialsResult {
    let info = |hash: Hash| {
        let iterations = i32::try_from(user.verifier(hash)?.iterations()).unwrap_or(i32::MAX);
        Some(CredentialInfo::default().with_mechanism(number(hash)).with_iterations(iterations))
    };
    DescribeUserScramCredentialsResult::default()
        .with_user(name)
        .with_error_message(None)
        .with_credential_infos(Hash::ALL.into_iter().filter_map(info).collect())
}

fn refused(name: StrBytes, error: ResponseError) -> DescribeUserScramCredentialsResult {
    DescribeUserScramCredentialsResult::default().with_user(name).with_error_code(error.code()).with_error_message(None)
}

#[cfg(test)]
mod tests {
    use milena_auth::{Users, Verifier};
    use milena_wire::kafka_protocol::messages::describe_user_scram_credentials_request::UserName;

    use super::*;
    use crate::config::ServerConfig;
    use crate::handlers::testing::{Bench, text};

    fn request(users: Option<&[&str]>) -> DescribeUserScramCredentialsRequest {
        let users = users.map(|users| users.iter().map(|user| UserName::default().with_name(text(user))).collect());
        DescribeUserScramCredentialsRequest::default().with_users(users)
    }

    #[tokio::test]
    async fn where_nobody_is_asked_nobody_has_credentials() {
        let bench = Bench::new().await;
        for users in [None, Some(&[][..])] {
            let response = bench.ask(0, &request(users)).await;
            assert_eq!((response.error_code, response.results.len()), (0, 0));
        }
    }

    #[tokio::test]
    async fn users_are_told_with_their_iterations_and_others_are_not_found() {
        let mut config = ServerConfig::default();
        let of = |hash, iterations| Verifier::derive(hash, "p", b"0123456789abcdef", iterations).unwrap();
        config.sasl.users = Users::single("alice", [of(Hash::Sha256, 4_096), of(Hash::Sha512, 8_192)]);
        let bench = Bench::with(config).await;
        let all = bench.ask(0, &request(None)).await;
        assert_eq!((all.error_code, all.results.len()), (0, 0), "nobody has said who it is");
        let named = bench.ask(0, &request(Some(&["alice", "bob"]))).await;
        assert_eq!(named.results.iter().map(|result| result.error_code).collect::<Vec<_>>(), [91, 91]);
        let bench = bench.known_as("alice");
        let told = |result: &DescribeUserScramCredentialsResult| {
            let infos =
                result.credential_infos.iter().map(|info| (info.mechanism, info.iterations)).collect::<Vec<_>>();
            (result.user.to_string(), result.error_code, infos)
        };
        let alice = ("alice".to_owned(), 0, vec![(1, 4_096), (2, 8_192)]);
        let all = bench.ask(0, &request(None)).await;
        assert_eq!(all.results.iter().map(told).collect::<Vec<_>>(), std::slice::from_ref(&alice));
        let named = bench.ask(0, &request(Some(&["alice", "bob", "carol", "carol"]))).await;
        let expected = [alice, ("bob".to_owned(), 91, Vec::new()), ("carol".to_owned(), 92, Vec::new())];
        assert_eq!(named.results.iter().map(told).collect::<Vec<_>>(), expected);
    }
}
