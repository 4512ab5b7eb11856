//! Iggy's protocol over the embedded store in a folder, served in the test process.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use milena_iggy_door::{Door, DoorConfig, DoorLimits, OffsetRules, Secret, TopicAdmin};
use milena_server::memory::Memory;
use milena_store::Store;
use milena_store_embedded::EmbeddedConfig;
use milena_testkit::SOON;
use milena_testkit::iggy_server::USER;

/// `password` is that of the user whom the test kit has for servers.
pub(crate) async fn open_door(
    password: &str,
    folder: &Path,
    listen: SocketAddr,
    offset_rules: OffsetRules,
    limits: DoorLimits,
) -> Door {
    let embedded = EmbeddedConfig {
        dir: Some(folder.to_owned()),
        segment_bytes: 16 << 20,
        maintenance_every: Some(Duration::from_millis(200)),
        ..EmbeddedConfig::default()
    };
    // The one before it lets go of the folder when its last task has ended.
    let started = Instant::now();
    let store: Arc<dyn Store> = loop {
        let embedded = embedded.clone();
        match tokio::task::spawn_blocking(move || milena_store_embedded::open(&embedded)).await.unwrap() {
            Ok(store) => break store,
            Err(error) => assert!(started.elapsed() < SOON, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let config = DoorConfig {
        listen,
        advertised: None,
        username: USER.to_owned(),
        password: Some(Secret::new(password)),
        offset_rules,
        instance_id: 0,
        tls: None,
        limits,
    };
    let admin: Arc<dyn TopicAdmin> = Arc::new(Arc::clone(&store));
    Box::pin(Door::open(config, store, admin, Arc::new(Memory::new(256 << 20)))).await.unwrap()
}
