//! The `milena` binary as a child process, which can be killed and started again on its data.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use milena_wire::encode_request;
use milena_wire::kafka_protocol::messages::{ApiKey, ApiVersionsRequest};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{ChosenStore, DoorChild, RawClient, ReservedPort, SOON};

/// What is replaced by the port in arguments and environment.
const PORT: &str = "{port}";
/// What is replaced by the data folder in arguments and environment.
const FOLDER: &str = "{folder}";

/// How a child is started.
#[derive(Debug)]
pub struct Builder {
    binary: PathBuf,
    args: Vec<String>,
    envs: Vec<(String, String)>,
    port: ReservedPort,
    folder: TempDir,
    store: Kept,
}

/// Where a server keeps its data.
#[derive(Debug, Clone, Copy)]
enum Kept {
    /// In the store that the environment chooses.
    Chosen,
    /// In the embedded one, for that reason.
    Embedded(&'static str),
    /// Where the test says.
    Given,
}

impl Builder {
    /// Adds an argument. `{port}` in it becomes the port, `{folder}` the data folder.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments, as [`Builder::arg`] does.
    #[must_use]
    pub fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Drops the arguments so far.
    #[must_use]
    pub fn no_args(mut self) -> Self {
        self.args.clear();
        self
    }

    /// Sets a variable of the environment, with the replacements of [`Builder::arg`].
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.envs.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Takes a variable of the environment back.
    #[must_use]
    pub fn without_env(mut self, name: &str) -> Self {
        self.envs.retain(|(set, _)| set != name);
        self
    }

    /// Keeps the data with the embedded store, also where the environment chooses another one; `reason` says why.
    #[must_use]
    pub fn only_embedded(mut self, reason: &'static str) -> Self {
        self.store = Kept::Embedded(reason);
        self
    }

    /// Tells it that no other server is on its store, so that after a kill it does not wait until its former self has been
    /// silent for as long as the lease of one is.
    #[must_use]
    pub fn alone(self) -> Self {
        self.env("MILENA_CLUSTER_GATEWAYS", "one")
    }

    /// Starts the child and waits until it answers.
    #[must_use]
    pub fn start(self) -> ChildServer {
        let mut child = self.spawn();
        child.ready();
        child
    }

    /// Starts the child without waiting, for one that is expected to fail.
    #[must_use]
    pub fn spawn(self) -> ChildServer {
        let output = Arc::default();
        let (builder, door) = self.over_the_chosen_store();
        let process = builder.launch(&output);
        let bootstrap = builder.address().to_string();
        ChildServer { builder, process, output, bootstrap, _door: door.map(Box::new) }
    }

    /// Puts a server that is to keep data over the store that the environment chooses.
    fn over_the_chosen_store(self) -> (Self, Option<DoorChild>) {
        if self.args.first().is_none_or(|command| command != "serve") {
            return (self, None);
        }
        let chosen = match self.store {
            Kept::Given => return (self, None),
            Kept::Embedded(reason) => ChosenStore::unless(Some(reason)),
            Kept::Chosen => ChosenStore::get(),
        };
        match chosen {
            ChosenStore::Embedded => (self, None),
            ChosenStore::Door => {
                let door = DoorChild::start(&self.binary);
                (self.over(&door), Some(door))
            }
            ChosenStore::Server(url) => {
                // The number of a port is nobody else's as long as it is reserved.
                let streams = format!("child-{}-{}", std::process::id(), self.port.number());
                let topics = format!("topic_mapping.default_stream={streams}-topics");
                (self.over_server(&url).env("MILENA_IGGY_STATE_STREAM", &streams).args(["--set", &topics]), None)
            }
        }
    }

    /// Keeps the data behind that door.
    #[must_use]
    pub fn over(self, door: &DoorChild) -> Self {
        // The door keeps state of its own under the usual name.
        self.over_server(&door.url()).env("MILENA_IGGY_STATE_STREAM", "gateway")
    }

    /// Keeps the data on the Iggy server at that address, user and password included.
    #[must_use]
    pub fn over_server(mut self, url: &str) -> Self {
        self.store = Kept::Given;
        self.env("MILENA_IGGY_URL", url)
    }

    /// Keeps the data with the embedded store, as what the environment chooses does in the end.
    pub(crate) fn behind_a_door(mut self) -> Self {
        self.store = Kept::Given;
        self
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port.number()))
    }

    fn launch(&self, output: &Arc<Mutex<String>>) -> Child {
        let (port, folder) = (self.port.number().to_string(), self.folder.path().display().to_string());
        let filled = |text: &String| text.replace(PORT, &port).replace(FOLDER, &folder);
        let mut command = without_ours(&self.binary);
        command
            .args(self.args.iter().map(filled))
            .envs(self.envs.iter().map(|(name, value)| (name, filled(value))))
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", self.binary.display()));
        collect(process.stdout.take().expect("a pipe"), output);
        collect(process.stderr.take().expect("a pipe"), output);
        process
    }
}

/// A running child. Dropping it kills it and removes its data.
#[derive(Debug)]
pub struct ChildServer {
    builder: Builder,
    process: Child,
    output: Arc<Mutex<String>>,
    bootstrap: String,
    _door: Option<Box<DoorChild>>,
}

impl ChildServer {
    /// Starts that binary on a port that is its own and a temporary data folder, and waits until it answers. Tests of the crate that
    /// builds it pass `env!("CARGO_BIN_EXE_milena")`.
    #[must_use]
    pub fn start(binary: impl AsRef<Path>) -> Self {
        Self::builder(binary).start()
    }

    /// That binary with the arguments of [`ChildServer::start`], to add to. It is run in its data folder, so that it finds
    /// no configuration file; variables of the environment that start with `MILENA_` are not handed on. It serves no
    /// metrics unless `MILENA_METRICS_LISTEN` is set with [`Builder::env`]: the default port is one, and children are many.
    #[must_use]
    pub fn builder(binary: impl AsRef<Path>) -> Builder {
        let folder = TempDir::with_prefix("milena-").expect("a temporary folder");
        let binary = binary.as_ref().to_owned();
        let builder = Builder {
            binary,
            args: Vec::new(),
            envs: Vec::new(),
            port: ReservedPort::take(),
            folder,
            store: Kept::Chosen,
        };
        builder.env("MILENA_METRICS_LISTEN", "off").args([
            "serve",
            "--listen",
            "127.0.0.1:{port}",
            "--data-dir",
            "{folder}/data",
        ])
    }

    /// The address it was told to listen on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.builder.address()
    }

    /// The address as clients are configured with it.
    #[must_use]
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Its data folder is `data` in here, and it runs here.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.builder.folder.path()
    }

    /// A new connection.
    pub async fn client(&self) -> RawClient {
        RawClient::connect(self.address()).await
    }

    /// What it has written to standard output and standard error, over all its lives.
    #[must_use]
    pub fn output(&self) -> String {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs a client command of the same binary against this server, with that standard input, and waits for its end.
    #[must_use]
    pub fn run(&self, args: &[&str], input: &str) -> Output {
        let mut command = without_ours(&self.builder.binary)
            .args(args)
            .env("MILENA_BOOTSTRAP", self.bootstrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a command to run");
        // A command that does not read its input may be gone already.
        let _ = command.stdin.take().expect("a pipe").write_all(input.as_bytes());
        command.wait_with_output().expect("the end of the command")
    }

    /// Process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Kills it without a warning, as a crash or `kill -9` would, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        self.all_is_read();
    }

    /// Asks it to stop (SIGTERM) and waits until it has.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.exited()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, signal).expect("a running process");
    }

    /// Waits until it has ended by itself.
    pub fn exited(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().expect("a child to wait for") {
                self.all_is_read();
                return status;
            }
            assert!(start.elapsed() < SOON, "the child does not end: {}", self.output());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until what it wrote before its end is in [`Self::output`]: the readers of its pipes share that until they are done.
    fn all_is_read(&self) {
        let start = Instant::now();
        while Arc::strong_count(&self.output) > 1 && start.elapsed() < SOON {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Starts it again, with the same arguments, port and data, and waits until it answers. Kills it first if it runs.
    pub fn restart(&mut self) {
        self.kill();
        self.process = self.builder.launch(&self.output);
        self.ready();
    }

    fn ready(&mut self) {
        let start = Instant::now();
        while !answers(self.address()) {
            if let Ok(Some(status)) = self.process.try_wait() {
                self.all_is_read();
                panic!("the child ended with {status}: {}", self.output());
            }
            assert!(start.elapsed() < SOON, "the child does not answer: {}", self.output());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for ChildServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// True when an ApiVersions request is answered without an error.
pub(crate) fn answers(address: SocketAddr) -> bool {
    let ask = || -> io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&address, SOON)?;
        stream.set_read_timeout(Some(SOON))?;
        let request = encode_request(ApiKey::ApiVersions, 0, 1, "ready", &ApiVersionsRequest::default());
        stream.write_all(&request.map_err(io::Error::other)?)?;
        // Length, correlation id, error code.
        let mut answer = [0; 10];
        stream.read_exact(&mut answer)?;
        Ok(answer.ends_with(&[0, 0, 0, 1, 0, 0]))
    };
    ask().unwrap_or(false)
}

/// That binary, without the configuration that the environment of the tests may hold.
fn without_ours(binary: &Path) -> Command {
    let mut command = Command::new(binary);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("MILENA_")) {
        command.env_remove(name);
    }
    command
}

/// Reads a pipe to its end in a thread of its own, so that the child never waits for a reader.
pub(crate) fn collect(pipe: impl Read + Send + 'static, output: &Arc<Mutex<String>>) {
    let output = Arc::clone(output);
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
            let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
            output.push_str(&String::from_utf8_lossy(&line));
            output.push('\n');
        }
    });
}
