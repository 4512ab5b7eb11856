//! Where the script is played: a real server, or the door over the embedded store in a folder.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use milena_iggy_door::{Door, DoorConfig, DoorLimits, OffsetRules, Secret};
use milena_store::Store;
use milena_store_embedded::EmbeddedConfig;
use milena_store_embedded::faults::Saved;
use milena_testkit::{IggyServers, SOON, TestServer};
use tempfile::TempDir;

use crate::script::{Host, REBALANCING_TIMEOUT_MS, login};

/// Bytes of one answer to a poll at the door: less than its default, so that the script can pass it.
pub(crate) const POLL_BYTES_MAX: usize = 2 << 20;

/// What is played at, with the machine below it.
pub(crate) enum Place {
    Server(IggyServers),
    Door(Box<DoorPlace>),
}

impl Place {
    /// A server of this binary on an empty folder.
    pub(crate) fn server(binary: &Path) -> Self {
        let timeout = format!("{REBALANCING_TIMEOUT_MS} ms");
        let envs = [
            ("IGGY_DATA_MAINTENANCE_MESSAGES_INTERVAL", "1 s"),
            ("IGGY_CONSUMER_GROUP_REBALANCING_TIMEOUT", timeout.as_str()),
        ];
        Self::Server(IggyServers::start(binary, 1, &envs))
    }

    pub(crate) async fn door() -> Self {
        let folder = TempDir::with_prefix("milena-door-").unwrap();
        let running = Some(Running::start(folder.path()).await);
        Self::Door(Box::new(DoorPlace { folder, running, saved: None }))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        match self {
            Self::Server(server) => server.addresses()[0],
            Self::Door(door) => door.running.as_ref().unwrap().door.address(),
        }
    }

    /// Time in which a server does what it does behind its answers; the door needs none.
    pub(crate) fn settles(&self) -> bool {
        matches!(self, Self::Server(_))
    }

    /// Does something to the process or its disk.
    pub(crate) async fn act(&mut self, what: Host) {
        match (self, what) {
            (Self::Server(_), Host::Remember(_)) => {}
            (Self::Server(server), Host::Kill) => tokio::task::block_in_place(|| {
                server.kill(0);
                server.restart(0);
            }),
            (Self::Server(server), Host::Damage(text)) => assert_eq!(damage(server.folder(), text), 1),
            (Self::Door(door), Host::Remember(topic)) => {
                door.saved = Some(Saved::of(door.folder.path(), "s", topic, 0).unwrap());
            }
            (Self::Door(door), Host::Kill) => door.kill().await,
            (Self::Door(door), Host::Damage(text)) => assert_eq!(damage(door.folder.path(), text), 1),
        }
    }

    pub(crate) async fn end(self) {
        if let Self::Door(door) = self {
            door.running.unwrap().stop().await;
        }
    }
}

pub(crate) struct DoorPlace {
    folder: TempDir,
    running: Option<Running>,
    saved: Option<Saved>,
}

impl DoorPlace {
    /// What the files hold at this moment is what a killed process leaves behind.
    async fn kill(&mut self) {
        let left = TempDir::with_prefix("milena-door-").unwrap();
        copy(self.folder.path(), left.path()).unwrap();
        self.running.take().unwrap().stop().await;
        replace(self.folder.path(), left.path()).unwrap();
        if let Some(saved) = self.saved.take() {
            saved.put_back(self.folder.path()).unwrap();
        }
        self.running = Some(Running::start(self.folder.path()).await);
    }
}

struct Running {
    server: TestServer,
    door: Door,
}

impl Running {
    async fn start(folder: &Path) -> Self {
        let config = EmbeddedConfig {
            dir: Some(folder.to_owned()),
            segment_bytes: 16 << 20,
            maintenance_every: Some(Duration::from_millis(200)),
            ..EmbeddedConfig::default()
        };
        let open = tokio::task::spawn_blocking(move || milena_store_embedded::open(&config));
        let store: Arc<dyn Store> = open.await.unwrap().unwrap();
        let server = TestServer::builder().store(Arc::clone(&store)).start().await;
        let broker = server.server().broker();
        let (topics, memory) = (Arc::new(broker.topics.clone()), Arc::clone(&broker.memory));
        let config = DoorConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            advertised: None,
            username: login::USER.to_owned(),
            password: Some(Secret::new(login::PASSWORD)),
            offset_rules: OffsetRules::Server,
            instance_id: 0,
            tls: None,
            limits: DoorLimits {
                poll_bytes_max: POLL_BYTES_MAX,
                rebalancing_timeout: Duration::from_millis(REBALANCING_TIMEOUT_MS),
                ..DoorLimits::default()
            },
        };
        let door = Box::pin(Door::open(config, store, topics, memory)).await.unwrap();
        Self { server, door }
    }

    async fn stop(self) {
        self.door.shutdown().await;
        self.server.shutdown().await;
    }
}

fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for item in std::fs::read_dir(folder)? {
        let path = item?.path();
        if path.is_dir() { found.extend(files(&path)?) } else { found.push(path) }
    }
    Ok(found)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for item in std::fs::read_dir(from)? {
        let item = item?;
        let to = to.join(item.file_name());
        if item.path().is_dir() {
            std::fs::create_dir(&to)?;
            copy(&item.path(), &to)?;
        } else {
            std::fs::copy(item.path(), &to)?;
        }
    }
    Ok(())
}

/// Puts a copy in the place of what is in a folder, once nobody has that open any more.
fn replace(folder: &Path, copied: &Path) -> io::Result<()> {
    let started = Instant::now();
    while let Err(error) = std::fs::remove_dir_all(folder) {
        assert!(started.elapsed() < SOON, "{error}");
    }
    std::fs::create_dir(folder)?;
    copy(copied, folder)
}

/// Changes the last byte of this text in every file that has it, and says how often.
fn damage(folder: &Path, text: &str) -> usize {
    let text = text.as_bytes();
    let mut count = 0;
    for path in files(folder).unwrap() {
        let bytes = std::fs::read(&path).unwrap();
        for (at, _) in bytes.windows(text.len()).enumerate().filter(|(_, window)| *window == text) {
            let end = at + text.len() - 1;
            let file = File::options().write(true).open(&path).unwrap();
            file.write_all_at(&[bytes[end] ^ 1], end as u64).unwrap();
            count += 1;
        }
    }
    count
}
