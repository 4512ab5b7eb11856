//! Login and logout.

use std::sync::Arc;

use bytes::Bytes;
use iggy_binary_protocol::codec::{read_bytes, read_u8};
use iggy_binary_protocol::consensus::{EvictionReason, Operation};
use iggy_binary_protocol::responses::users::LoginRegisterResponse;
use iggy_binary_protocol::version::{IGGY_PROTOCOL_VERSION, is_protocol_compatible};
use iggy_binary_protocol::{ClientVersionInfo, WireDecode, WireName};

use crate::auth::{self, ROOT_ID};
use crate::clients::Session;
use crate::frame::{Reply, Request};
use crate::service::Service;

/// What a login led to.
pub(crate) enum Login {
    /// The client is who it says.
    Done(Reply, Arc<Session>),
    /// It is not; the frame that says why.
    Refused(EvictionReason),
}

/// True for a login with a version that is not served.
pub(crate) fn is_of_another_generation(request: &Request) -> bool {
    request.header.operation == Operation::Register
        && ClientVersionInfo::decode(&request.body)
            .is_ok_and(|(info, _)| !is_protocol_compatible(info.protocol_version))
}

/// Checks version and credentials. A connection that has logged in already keeps its session.
pub(crate) fn login(service: &Service, connection: u32, current: Option<&Arc<Session>>, request: &Request) -> Login {
    let Ok((info, prefix)) = ClientVersionInfo::decode(&request.body) else {
        return Login::Refused(EvictionReason::MalformedLogin);
    };
    // The gate stands before the credentials: a client of another generation may send them in another form.
    if !is_protocol_compatible(info.protocol_version) {
        return Login::Refused(EvictionReason::IncompatibleProtocol);
    }
    let credentials = request.body.slice(prefix..);
    if let Err(reason) = check(service, &credentials) {
        service.metrics.logins_failed.add(1);
        return Login::Refused(reason);
    }
    let session = match current {
        Some(session) => Arc::clone(session),
        None => {
            let (session, took_over) = service.clients.login(connection, request.header.client);
            if took_over {
                // The new session has joined nothing, so nobody would miss its heartbeats for what it inherited.
                service.members.leave_all(session.client);
            }
            session
        }
    };
    let Ok(server_version) = WireName::new(env!("CARGO_PKG_VERSION")) else {
        return Login::Refused(EvictionReason::SessionError);
    };
    let response = LoginRegisterResponse {
        user_id: ROOT_ID,
        session: session.number,
        server_protocol_version: IGGY_PROTOCOL_VERSION,
        server_version,
    };
    Login::Done(Reply::of(Operation::Register, &response), session)
}

/// Both kinds of credentials begin right after the version, and which it is shows only in whether they can be read: a
/// password follows a name, a token stands alone. Counts what was right.
fn check(service: &Service, credentials: &Bytes) -> Result<(), EvictionReason> {
    let password = split_password(credentials);
    if let Some((name, password)) = password
        && service.root.is(name, password)
    {
        service.metrics.logins_by_password.add(1);
        return Ok(());
    }
    let token = split_text(credentials).filter(|(_, rest)| is_context(rest)).map(|(token, _)| token);
    if let Some(token) = token {
        let known = service.catalog.state.look(|table| auth::is_token(table, token, auth::now_micros()));
        if !known {
            return Err(EvictionReason::InvalidToken);
        }
        service.metrics.logins_by_token.add(1);
        return Ok(());
    }
    Err(if password.is_some() { EvictionReason::InvalidCredentials } else { EvictionReason::MalformedLogin })
}

/// Name and password of a login.
pub(super) fn split_password(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (name, rest) = split_text(bytes)?;
    let (password, rest) = split_text(rest)?;
    (!name.is_empty() && is_context(rest)).then_some((name, password))
}

/// Text with a length of one byte, and what follows it.
fn split_text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = usize::from(read_u8(bytes, 0).ok()?);
    let text = read_bytes(bytes, 1, len).ok()?;
    Some((text, bytes.get(1 + len..)?))
}

/// True for text of the client's own, with a length of four bytes, which nobody here reads.
fn is_context(bytes: &[u8]) -> bool {
    bytes.split_first_chunk::<4>().is_some_and(|(len, text)| text.len() >= u32::from_le_bytes(*len) as usize)
}

/// Ends the session: its memberships go with it.
pub(crate) fn logout(service: &Service, connection: u32, session: &Arc<Session>) {
    if service.clients.logout(connection, session) {
        service.members.leave_all(session.client);
    }
}
