//! Apache Iggy's own server as child processes: one node, or a cluster of them on loopback.
//!
//! `TEST_IGGY_SERVER` names the binary. Each node has a port that stays its own and a data folder below a temporary one,
//! so that it can be killed and started again on its data. Where `TEST_IGGY_LOGS` names a folder, the output of the servers of a
//! test that fails is kept there.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::child::collect;
use crate::{ReservedPort, SOON};

/// Name of the root user of every server.
pub const USER: &str = "iggy";
/// Its password.
pub const PASSWORD: &str = "iggyiggy";

/// What a node of a cluster writes when it is connected to all the others. Before that, a leader in the roster means
/// little: appends take hundreds of milliseconds and a change of leaders can get stuck.
const MESH: &str = "replica mesh complete";
const LISTENING: &str = "listeners started";

/// Running servers. Dropping them kills them and removes their data.
#[derive(Debug)]
pub struct IggyServers {
    binary: PathBuf,
    envs: Vec<(String, String)>,
    nodes: Vec<Node>,
    folder: TempDir,
}

#[derive(Debug)]
struct Node {
    port: ReservedPort,
    replica_port: ReservedPort,
    process: Option<Child>,
    /// What it wrote in each of its lives, the present one last.
    lives: Vec<Arc<Mutex<String>>>,
}

impl IggyServers {
    /// The binary that `TEST_IGGY_SERVER` names; `None` when it is not set.
    #[must_use]
    pub fn binary() -> Option<PathBuf> {
        std::env::var_os("TEST_IGGY_SERVER").map(PathBuf::from)
    }

    /// Starts that many nodes with these variables in addition to what every test needs, and waits until clients can use
    /// them. More than one node is a cluster.
    #[must_use]
    pub fn start(binary: &Path, nodes: usize, envs: &[(&str, &str)]) -> Self {
        let node = || Node {
            port: ReservedPort::take(),
            replica_port: ReservedPort::take(),
            process: None,
            lives: Vec::new(),
        };
        let folder = TempDir::with_prefix("milena-iggy-").expect("a temporary folder");
        let envs = envs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let nodes: Vec<Node> = (0..nodes).map(|_| node()).collect();
        let mut servers = Self { binary: binary.to_owned(), envs, nodes, folder };
        std::fs::write(servers.config_path(), servers.config()).expect("a file of its own");
        for index in 0..servers.nodes.len() {
            servers.launch(index);
        }
        for index in 0..servers.nodes.len() {
            servers.wait_ready(index);
        }
        servers
    }

    fn config_path(&self) -> PathBuf {
        self.folder.path().join("config.toml")
    }

    /// The server wants a file; everything that is not in it has the server's defaults.
    fn config(&self) -> String {
        if self.nodes.len() < 2 {
            return String::new();
        }
        let node = |(index, node): (usize, &Node)| {
            let (tcp, replica) = (node.port.number(), node.replica_port.number());
            format!(
                "[[cluster.nodes]]\nname = \"node-{index}\"\nip = \"127.0.0.1\"\nreplica_id = {index}\n\
                 ports = {{ tcp = {tcp}, tcp_replica = {replica} }}\n"
            )
        };
        format!("[cluster]\nenabled = true\n{}", self.nodes.iter().enumerate().map(node).collect::<String>())
    }

    /// Where clients connect, of all nodes.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| SocketAddr::from(([127, 0, 0, 1], node.port.number()))).collect()
    }

    /// Number of the node at that address.
    #[must_use]
    pub fn node_at(&self, address: &str) -> Option<usize> {
        self.addresses().iter().position(|known| known.to_string() == address)
    }

    /// Starts a node on its data, without waiting for it.
    pub fn launch(&mut self, index: usize) {
        let config = self.config_path();
        let data = self.folder.path().join(format!("node-{index}"));
        let is_cluster = self.nodes.len() > 1;
        let node = self.nodes.get_mut(index).expect("a node of that number");
        let output = Arc::default();
        let mut command = Command::new(&self.binary);
        command
            .current_dir(self.folder.path())
            .env("IGGY_CONFIG_PATH", config)
            .env("IGGY_SYSTEM_PATH", data)
            .envs([("IGGY_HTTP_ENABLED", "false"), ("IGGY_QUIC_ENABLED", "false")])
            .envs([("IGGY_WEBSOCKET_ENABLED", "false"), ("IGGY_MESSAGE_BUS_RECONNECT_PERIOD", "500 ms")])
            .envs([("IGGY_ROOT_USERNAME", USER), ("IGGY_ROOT_PASSWORD", PASSWORD)])
            .envs([("IGGY_SYSTEM_SHARDING_CPU_ALLOCATION", "1"), ("IGGY_SYSTEM_SHARDING_PIN_CORES", "false")])
            .envs(self.envs.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if is_cluster {
            command.args(["--replica-id", &index.to_string()]);
        } else {
            command.env("IGGY_TCP_ADDRESS", format!("127.0.0.1:{}", node.port.number()));
        }
        let mut process = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", self.binary.display()));
        collect(process.stdout.take().expect("a pipe"), &output);
        collect(process.stderr.take().expect("a pipe"), &output);
        node.lives.push(output);
        node.process = Some(process);
    }

    /// Waits until a node that was launched serves clients, in a cluster together with all the others.
    pub fn wait_ready(&mut self, index: usize) {
        let is_cluster = self.nodes.len() > 1;
        let address = self.addresses().get(index).copied().expect("a node of that number");
        let node = self.nodes.get_mut(index).expect("a node of that number");
        let start = Instant::now();
        loop {
            let output = node.output();
            let listens = output.contains(LISTENING) && (!is_cluster || output.contains(MESH));
            if listens && TcpStream::connect_timeout(&address, SOON).is_ok() {
                return;
            }
            let process = node.process.as_mut().expect("a node that was launched");
            if let Ok(Some(status)) = process.try_wait() {
                panic!("the server ended with {status}: {output}");
            }
            assert!(start.elapsed() < SOON, "the server is not ready: {output}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts a node on its data and waits until it serves clients.
    pub fn restart(&mut self, index: usize) {
        self.launch(index);
        self.wait_ready(index);
    }

    /// Kills a node as a crash would, and waits until it is gone.
    pub fn kill(&mut self, index: usize) {
        let node = self.nodes.get_mut(index).expect("a node of that number");
        if let Some(mut process) = node.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Makes a node do nothing any more: connections to it stay, and new ones are taken, without an answer. As a host that
    /// is cut off, until [`Self::thaw`].
    pub fn freeze(&self, index: usize) {
        let node = self.nodes.get(index).expect("a node of that number");
        signal(node.process.as_ref().expect("a running node"), Signal::STOP);
    }

    /// Lets a frozen node go on where it was.
    pub fn thaw(&self, index: usize) {
        let node = self.nodes.get(index).expect("a node of that number");
        signal(node.process.as_ref().expect("a running node"), Signal::CONT);
    }

    /// Asks a node to stop (SIGTERM) and waits until it has.
    pub fn stop(&mut self, index: usize) {
        let node = self.nodes.get_mut(index).expect("a node of that number");
        let Some(mut process) = node.process.take() else { return };
        signal(&process, Signal::TERM);
        let start = Instant::now();
        while !matches!(process.try_wait(), Ok(Some(_))) {
            if start.elapsed() > SOON {
                let _ = process.kill();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What a node has written in its present life.
    #[must_use]
    pub fn output(&self, index: usize) -> String {
        self.nodes.get(index).expect("a node of that number").output()
    }

    /// Writes what all nodes have written in all their lives into a new folder below that one.
    fn keep_output(&self, folder: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        let folder = tempfile::Builder::new().prefix("iggy-").disable_cleanup(true).tempdir_in(folder)?;
        for (index, node) in self.nodes.iter().enumerate() {
            for (life, output) in node.lives.iter().enumerate() {
                let output = output.lock().unwrap_or_else(PoisonError::into_inner);
                std::fs::write(folder.path().join(format!("node-{index}-life-{life}.log")), &*output)?;
            }
        }
        Ok(())
    }

    /// Folder in which files of the test can lie as long as the servers run.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

fn signal(process: &Child, signal: Signal) {
    let pid = i32::try_from(process.id()).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, signal).expect("a running process");
}

impl Node {
    /// Of its present life.
    fn output(&self) -> String {
        let output = self.lives.last().map(|output| output.lock().unwrap_or_else(PoisonError::into_inner).clone());
        output.unwrap_or_default()
    }
}

impl Drop for IggyServers {
    fn drop(&mut self) {
        for index in 0..self.nodes.len() {
            self.kill(index);
        }
        if std::thread::panicking()
            && let Some(folder) = std::env::var_os("TEST_IGGY_LOGS")
        {
            // The test has failed already.
            let _ = self.keep_output(Path::new(&folder));
        }
    }
}
