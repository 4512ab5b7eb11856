//! What a server calls a connection: no other reply looks like it, so it shows whether replies still belong to requests.

use std::time::Duration;

use iggy::prelude::TcpClient;
use iggy_common::{IggyError, SystemClient};
use tokio::time::timeout;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    number: u32,
    address: String,
}

/// Why there is no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nameless {
    /// Something else came back.
    Another,
    /// The connection broke.
    Lost,
    /// Nothing came back in time.
    Late,
}

impl Name {
    /// As the other end calls this connection.
    pub(crate) async fn of(client: &TcpClient, patience: Duration) -> Result<Self, Nameless> {
        let said = timeout(patience, client.get_me()).await.map_err(|_| Nameless::Late)?;
        let said = said.map_err(|error| if is_loss(&error) { Nameless::Lost } else { Nameless::Another })?;
        if said.address.is_empty() {
            return Err(Nameless::Another);
        }
        Ok(Self { number: said.client_id, address: said.address })
    }
}

/// True when the SDK says so of a connection that is gone. What it cannot read, and an error that is none of its own, was a
/// reply, and not this one.
fn is_loss(error: &IggyError) -> bool {
    matches!(
        error,
        IggyError::Disconnected
            | IggyError::NotConnected
            | IggyError::CannotEstablishConnection
            | IggyError::EmptyResponse
            | IggyError::TcpError
            | IggyError::ClientShutdown
    )
}
