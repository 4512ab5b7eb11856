//! The one user, as clients may ask for it.

use bytes::Bytes;
use iggy_binary_protocol::consensus::Operation;
use iggy_binary_protocol::requests::users::GetUserRequest;
use iggy_binary_protocol::responses::users::{GetUsersResponse, UserDetailsResponse, UserResponse};
use iggy_binary_protocol::{WireDecode, WireGlobalPermissions, WireIdentifier, WireOptions, WirePermissions};

use super::{Answer, view};
use crate::auth::ROOT_ID;
use crate::codes::Refusal;
use crate::frame::{Reply, malformed};
use crate::service::Service;

const ACTIVE: u8 = 1;

pub(super) fn one(service: &Service, body: &Bytes) -> Answer {
    let request = GetUserRequest::decode_from(body).map_err(malformed)?;
    let is_root = match &request.user_id {
        WireIdentifier::Numeric(id) => *id == ROOT_ID,
        WireIdentifier::String(name) => name.as_str() == service.config.username,
    };
    if !is_root {
        return Ok(Reply::empty(Operation::NonReplicated));
    }
    let response = UserDetailsResponse { user: root(service)?, permissions: Some(everything()) };
    Ok(Reply::of(Operation::NonReplicated, &response))
}

fn everything() -> WirePermissions {
    let global = WireGlobalPermissions {
        manage_servers: true,
        read_servers: true,
        manage_users: true,
        read_users: true,
        manage_streams: true,
        read_streams: true,
        manage_topics: true,
        read_topics: true,
        poll_messages: true,
        send_messages: true,
    };
    WirePermissions { global, streams: Vec::new() }
}

pub(super) fn all(service: &Service) -> Answer {
    Ok(Reply::of(Operation::NonReplicated, &GetUsersResponse { users: vec![root(service)?] }))
}

fn root(service: &Service) -> Result<UserResponse, Refusal> {
    Ok(UserResponse {
        id: ROOT_ID,
        created_at: service.started_at_micros,
        status: ACTIVE,
        username: view::name(&service.config.username)?,
        options: WireOptions::empty(),
    })
}
