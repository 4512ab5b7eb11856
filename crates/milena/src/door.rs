//! The door for Iggy clients beside the server for Kafka clients.

use std::sync::Arc;

use milena_iggy_door::{ClosedDoor, Door, DoorError};
use milena_server::Server;
use milena_store::{Store, StoreError};

use crate::config::{Format, Settings};
use crate::failure::Failure;
use crate::serve::bind_advice;

/// Prepares the door, if it is configured: before Kafka clients are served, which append to the store.
pub(crate) async fn prepare(settings: &Settings, store: &Arc<dyn Store>) -> Result<Option<ClosedDoor>, Failure> {
    let Some(config) = settings.door() else { return Ok(None) };
    Box::pin(Door::prepare(config, Arc::clone(store))).await.map(Some).map_err(failure)
}

/// Opens the door on the topics and the memory of the server.
pub(crate) async fn open(closed: ClosedDoor, settings: &Settings, server: &Server) -> Result<Door, Failure> {
    let broker = server.broker();
    let admin = Arc::new(broker.topics.clone());
    let door = Box::pin(closed.open(admin, Arc::clone(&broker.memory))).await.map_err(failure)?;
    // The banner is for people. Who reads the log alone needs it there, this one time.
    if let Some(password) = door.made_up_password().filter(|_| settings.log_format != Format::Text) {
        let user = &settings.iggy_door.username;
        tracing::warn!(user, password = password.reveal(), "the password of Iggy clients was made up; note it");
    }
    Ok(door)
}

fn failure(error: DoorError) -> Failure {
    match error {
        DoorError::Bind { address, source } => Failure::Failed(format!(
            "Iggy clients cannot be listened for on {address}: {}; choose another address with --iggy-listen",
            bind_advice(&source)
        )),
        other => Failure::Failed(other.to_string()),
    }
}

/// Closes the door and then the server, which closes the store.
pub(crate) async fn shutdown(door: Option<Door>, server: Server) -> Result<(), StoreError> {
    if let Some(door) = door {
        door.shutdown().await;
    }
    server.shutdown().await
}

/// Lines of the banner: where Iggy clients connect, and the password that was made up for them.
pub(crate) fn banner(settings: &Settings, door: &Door) -> String {
    let mut text = format!("  Iggy clients connect to   {} as {}\n", door.address(), settings.iggy_door.username);
    if let Some(password) = door.made_up_password() {
        text.push_str(&format!("  with the password         {} (printed this once)\n", password.reveal()));
    }
    text
}
