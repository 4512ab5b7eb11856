//! Personal access tokens: a login by token costs no password, and a token can be taken back.

use bytes::Bytes;
use iggy_binary_protocol::consensus::Operation;
use iggy_binary_protocol::requests::personal_access_tokens::{
    CreatePersonalAccessTokenRequest, DeletePersonalAccessTokenRequest,
};
use iggy_binary_protocol::responses::personal_access_tokens::{
    GetPersonalAccessTokensResponse, PersonalAccessTokenResponse, RawPersonalAccessTokenResponse,
};
use iggy_binary_protocol::{WireDecode, WireName};

use super::Answer;
use crate::auth::{hash_of, new_token, now_micros};
use crate::codes::{Code, Refusal};
use crate::frame::{Reply, malformed};
use crate::service::Service;
use crate::state::Record;

/// Expiry of a token that never expires: both what means the server's default, which is never, and what says so.
const NEVER: [u64; 2] = [0, u64::MAX];

pub(super) fn list(service: &Service) -> Reply {
    let tokens = service.catalog.state.look(|table| {
        let described = table.tokens().iter().filter_map(|(name, token)| {
            let name = WireName::new(name.as_str()).ok()?;
            Some(PersonalAccessTokenResponse { name, expiry_at: token.expires_at_micros.unwrap_or(0) })
        });
        described.collect()
    });
    Reply::of(Operation::NonReplicated, &GetPersonalAccessTokensResponse { tokens })
}

/// The token is in this answer and nowhere else: only its hash is stored.
pub(super) async fn create(service: &Service, body: &Bytes) -> Answer {
    let request = CreatePersonalAccessTokenRequest::decode_from(body).map_err(malformed)?;
    let change = service.catalog.state.change().await;
    let (count, taken) =
        change.look(|table| (table.tokens().len(), table.tokens().contains_key(request.name.as_str())));
    if count >= service.config.limits.tokens_max {
        return Err(Refusal::Denied(Code::TOKENS_LIMIT));
    }
    if taken {
        return Err(Code::TOKEN_EXISTS.into());
    }
    let expires_at_micros = if NEVER.contains(&request.expiry) {
        None
    } else {
        Some(now_micros().checked_add(request.expiry).ok_or(Code::INVALID_TOKEN_EXPIRY)?)
    };
    let token = new_token();
    let (name, hash) = (request.name.as_str().to_owned(), hash_of(token.as_bytes()));
    change.write(Record::Token { name, hash, expires_at_micros }).await?;
    let token = WireName::new(token).map_err(|_| Code::INVALID_COMMAND)?;
    Ok(Reply::of(Operation::CreatePersonalAccessToken, &RawPersonalAccessTokenResponse { token }))
}

pub(super) async fn delete(service: &Service, body: &Bytes) -> Answer {
    let request = DeletePersonalAccessTokenRequest::decode_from(body).map_err(malformed)?;
    let name = request.name.as_str();
    let change = service.catalog.state.change().await;
    if !change.look(|table| table.tokens().contains_key(name)) {
        return Err(Code::RESOURCE_NOT_FOUND.into());
    }
    change.write(Record::DropToken { name: name.to_owned() }).await?;
    Ok(Reply::empty(Operation::DeletePersonalAccessToken))
}
