//! AlterUserScramCredentials (51), version 0: changes SCRAM credentials in the file of users (KIP-554).
//!
//! - Offered where clients say who they are and there is such a file. Whoever has not said who it is gets 31: with a listener
//!   for strangers beside, these could make users for themselves.
//! - The file is written anew and is on the disk before the answer; users of a request are changed together, without those
//!   that are refused.
//! - A mechanism that is not known is 33, a user that is changed twice 92, a credential that is not there 91, and what cannot
//!   be kept 93: too few or too many iterations, a salt or a key of another length, a name that the file cannot hold, a user
//!   that the configuration names.
//! - 56 when the file cannot be written.
//! - librdkafka's request carries one byte too many, see `second_tags`.
//! - A user has the new credentials from the next login on; sessions go on.

use std::collections::BTreeMap;
use std::sync::Arc;

use milena_auth::users::{self, Users};
use milena_auth::{Hash, Verifier};
use milena_wire::kafka_protocol::ResponseError;
use milena_wire::kafka_protocol::messages::alter_user_scram_credentials_response::AlterUserScramCredentialsResult;
use milena_wire::kafka_protocol::messages::{
    AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse, ApiKey,
};
use milena_wire::kafka_protocol::protocol::StrBytes;

use super::describe_user_scram_credentials::number;
use super::second_tags;
use crate::authentication::change_users_file;
use crate::broker::Broker;
use crate::dispatch::{Api, Context, answer};

/// Table entry.
pub const API: Api = Api {
    key: ApiKey::AlterUserScramCredentials,
    name: "AlterUserScramCredentials",
    advertised: (0, 0),
    served: (0, 0),
    handle: |mut request| {
        request.body = second_tags::without::<AlterUserScramCredentialsRequest>(request.body, request.version);
        Box::pin(answer(ApiKey::AlterUserScramCredentials, request, alter_user_scram_credentials))
    },
};

/// What is asked for one user.
#[derive(Debug, Default)]
struct Change {
    removed: Vec<Hash>,
    put: Vec<Verifier>,
    refused: Option<Refused>,
}

type Refused = (ResponseError, String);

impl Change {
    fn hashes(&self) -> impl Iterator<Item = Hash> {
        self.removed.iter().copied().chain(self.put.iter().map(Verifier::hash))
    }

    /// Takes one more part of the change; the first mistake counts.
    fn take(&mut self, mechanism: i8, part: impl FnOnce(&mut Self, Hash) -> Result<(), Refused>) {
        let hash = Hash::ALL.into_iter().find(|hash| number(*hash) == mechanism);
        let taken = match hash {
            None => Err((ResponseError::UnsupportedSaslMechanism, "Unknown SCRAM mechanism".to_owned())),
            Some(hash) if self.hashes().any(|other| other == hash) => Err((
                ResponseError::DuplicateResource,
                "A credential cannot be changed twice in one request".to_owned(),
            )),
            Some(hash) => part(self, hash),
        };
        if let Err(refused) = taken {
            self.refused.get_or_insert(refused);
        }
    }
}

async fn alter_user_scram_credentials(
    context: Context,
    request: AlterUserScramCredentialsRequest,
) -> Option<AlterUserScramCredentialsResponse> {
    let changes = changes(request);
    let broker = context.broker;
    let results = match broker.authentication.users_file() {
        Some(_) if context.connection.principal().is_none() => {
            all(&changes, ResponseError::ClusterAuthorizationFailed, "Only who has said who it is may change users")
        }
        None => all(&changes, ResponseError::UnacceptableCredential, "There is no file of users (sasl.users_file)"),
        Some(_) => {
            let changing = Arc::clone(&broker);
            let changed = tokio::task::spawn_blocking(move || apply(&changing, changes)).await;
            // The runtime ends, and with it the connection.
            let Ok(results) = changed else { return None };
            results
        }
    };
    Some(AlterUserScramCredentialsResponse::default().with_results(results))
}

fn changes(request: AlterUserScramCredentialsRequest) -> BTreeMap<StrBytes, Change> {
    let mut changes: BTreeMap<StrBytes, Change> = BTreeMap::new();
    for deletion in request.deletions {
        changes.entry(deletion.name).or_default().take(deletion.mechanism, |change, hash| {
            change.removed.push(hash);
            Ok(())
        });
    }
    for upsertion in request.upsertions {
        let of = |hash| {
            let iterations = u32::try_from(upsertion.iterations).unwrap_or(0);
            Verifier::of_salted(hash, &upsertion.salted_password, &upsertion.salt, iterations)
        };
        changes.entry(upsertion.name).or_default().take(upsertion.mechanism, |change, hash| {
            change.put.push(of(hash).map_err(|error| (ResponseError::UnacceptableCredential, error.to_string()))?);
            Ok(())
        });
    }
    changes
}

/// Changes the file, and what clients are checked against from now on.
fn apply(broker: &Broker, mut changes: BTreeMap<StrBytes, Change>) -> Vec<AlterUserScramCredentialsResult> {
    let Some(file) = broker.authentication.users_file() else { return Vec::new() };
    let changed = change_users_file(file, |text| {
        let known = Users::parse(text).unwrap_or_default();
        for (name, change) in &mut changes {
            check(name, change, &known, &broker.config.sasl.users);
        }
        let accepted = changes.iter().filter(|(_, change)| change.refused.is_none());
        let edits = accepted
            .map(|(name, change)| (&**name, users::Edit { without: &change.removed, with: &change.put }))
            .collect();
        (users::changed(text, &edits), ())
    });
    broker.authentication.refresh();
    if let Err(error) = changed {
        tracing::error!(%error, "users cannot be changed");
        return all(&changes, ResponseError::KafkaStorageError, "The file of users cannot be written");
    }
    for (name, _) in changes.iter().filter(|(_, change)| change.refused.is_none()) {
        tracing::info!(user = %**name, "credentials changed");
    }
    changes.into_iter().map(|(name, change)| result(name, change.refused)).collect()
}

fn check(name: &str, change: &mut Change, known: &Users, named: &Users) {
    let unacceptable = |why: String| Some((ResponseError::UnacceptableCredential, why));
    let missing = |hash: &Hash| known.get(name).is_none_or(|user| user.verifier(*hash).is_none());
    let refused = if let Err(problem) = users::check_name(name) {
        unacceptable(format!("The name cannot be used: {problem}"))
    } else if named.get(name).is_some() {
        unacceptable("The server's configuration names this user".to_owned())
    } else if change.removed.iter().any(missing) {
        let why = "Attempt to delete a user credential that does not exist";
        Some((ResponseError::ResourceNotFound, why.to_owned()))
    } else {
        None
    };
    if let Some(refused) = refused {
        change.refused.get_or_insert(refused);
    }
}

fn all(changes: &BTreeMap<StrBytes, Change>, error: ResponseError, why: &str) -> Vec<AlterUserScramCredentialsResult> {
    changes.keys().map(|name| result(name.clone(), Some((error, why.to_owned())))).collect()
}

fn result(name: StrBytes, refused: Option<Refused>) -> AlterUserScramCredentialsResult {
    let result = AlterUserScramCredentialsResult::default().with_user(name).with_error_message(None);
    match refused {
        None => result,
        Some((error, why)) => result.with_error_code(error.code()).with_error_message(Some(StrBytes::from_string(why))),
    }
}
