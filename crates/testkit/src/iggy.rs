//! Test servers over Iggy: a real server, or Iggy's protocol served in this process.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use milena_iggy_door::{Door, DoorConfig, DoorLimits, OffsetRules, Secret, TopicAdmin};
use milena_server::memory::Memory;
use milena_store::Store;
use milena_store_iggy::url::IggyUrl;
use milena_store_iggy::{IggyConfig, IggyStore, SecretString};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Doors have a runtime of their own: their clocks run on where a test stops its own, and they serve while a test computes.
static DOORS: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
});

/// Bytes that may be in flight through one door.
const DOOR_MEMORY_BYTES: usize = 256 << 20;

/// The Iggy side of one test server.
pub(crate) struct IggySide {
    config: IggyConfig,
    door: Option<OwnDoor>,
}

/// Iggy's protocol over an embedded store that only this door uses.
struct OwnDoor {
    _door: Door,
    folder: Option<TempDir>,
}

impl IggySide {
    /// The server at that address, with a name of our own for the streams of one test.
    pub(crate) fn server(url: &str) -> Self {
        let url = IggyUrl::parse(url).expect("TEST_IGGY is an address");
        let (user, password) = (url.user.expect("a user"), url.password.expect("a password"));
        let config = IggyConfig { servers: url.servers, ..IggyConfig::new("", &user, password) };
        let name = uuid::Uuid::new_v4().simple().to_string();
        // Tests run side by side, and the name of an access token must be one gateway's alone.
        let instance = name.as_bytes().iter().fold(0u16, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()));
        let config = IggyConfig { state_stream: format!("test-{name}"), instance, ..config };
        Self { config: few_connections(config), door: None }
    }

    /// A door of its own over the embedded store, in memory or in that folder.
    pub(crate) async fn door(folder: Option<TempDir>) -> Self {
        let dir = folder.as_ref().map(|folder| folder.path().to_owned());
        let store = crate::server::open_embedded(dir, milena_store::Durability::Os).await;
        let config = DoorConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            advertised: None,
            username: "iggy".to_owned(),
            password: Some(Secret::new("secret")),
            offset_rules: OffsetRules::Server,
            instance_id: 0,
            tls: None,
            limits: DoorLimits::default(),
        };
        let opened = DOORS.spawn(async {
            let admin: Arc<dyn TopicAdmin> = Arc::new(Arc::clone(&store));
            Box::pin(Door::open(config, store, admin, Arc::new(Memory::new(DOOR_MEMORY_BYTES)))).await
        });
        let door = opened.await.expect("no panic").expect("a door");
        let password = SecretString::from("secret".to_owned());
        let config = IggyConfig::new(&door.address().to_string(), "iggy", password);
        // The door keeps state of its own under the usual name.
        let config = IggyConfig { state_stream: "gateway".to_owned(), ..config };
        Self { config: few_connections(config), door: Some(OwnDoor { _door: door, folder }) }
    }

    /// Stream of the topics of this server, where it shares an Iggy server with others.
    pub(crate) fn topics_stream(&self) -> Option<String> {
        self.door.is_none().then(|| format!("{}-topics", self.config.state_stream))
    }

    pub(crate) fn folder(&self) -> Option<&Path> {
        self.door.as_ref()?.folder.as_ref().map(TempDir::path)
    }

    pub(crate) async fn open(&self) -> Arc<dyn Store> {
        Arc::new(Box::pin(IggyStore::open(self.config.clone())).await.expect("a store on the Iggy side"))
    }
}

fn few_connections(config: IggyConfig) -> IggyConfig {
    IggyConfig { append_connections: 2, read_connections: 2, ..config }
}
