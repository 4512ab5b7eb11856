//! The server process, from its first line to its last.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use milena_auth::Mechanism;
use milena_iggy_door::{ClosedDoor, Door};
use milena_monitor::Monitor;
use milena_server::{Bound, Server, StartError};
use milena_store::{Store, StoreError};
use milena_store_embedded::{EmbeddedStore, OpenError};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config::{Format, Loaded, METRICS_LISTEN, Settings, Sources, load};
use crate::failure::{Failure, print};
use crate::{door, files, logging};

/// Exit code after a second signal, as after a SIGINT that nobody handles.
const INTERRUPTED: i32 = 130;

/// Time that a store has to close when the server did not start.
const CLOSING_WAIT: Duration = Duration::from_secs(5);

/// Why a server ends that nobody told to.
const DISPLACED: &str = "another server on this store has the instance_id of this one, or may have it, as this one was silent for \
                         too long; start it again, and see that each has its own";

/// Serves until a signal says to stop.
pub(crate) fn serve(sources: &Sources) -> Result<(), Failure> {
    let mut loaded = load(sources)?;
    logging::start(&loaded.settings);
    files::raise_limit(&mut loaded.settings);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("the server cannot start its threads: {error}")))?;
    let outcome = runtime.block_on(run(loaded));
    // A blocking call that hangs on a dead device must not keep the process alive.
    runtime.shutdown_background();
    outcome
}

async fn run(loaded: Loaded) -> Result<(), Failure> {
    // Before the store is opened, so that a signal during a long recovery is not lost.
    let mut signals = Signals::listen()?;
    // Before it too: what probes the process should hear that it recovers, and not take it for dead.
    let monitor = monitor(&loaded).await?;
    let settings = loaded.settings;
    let store = tokio::select! {
        store = open_store(&settings) => store?,
        () = signals.next() => return Ok(()),
    };
    let started = tokio::select! {
        started = Box::pin(start(&settings, &store)) => started,
        // A store that hangs holds the start up, and whoever then presses Ctrl-C means it.
        () = signals.next() => {
            close_unused(store.as_ref()).await;
            return Ok(());
        }
    };
    let (door, server) = match started {
        Ok(started) => started,
        Err(failure) => {
            close_unused(store.as_ref()).await;
            return Err(failure);
        }
    };
    if let Some(monitor) = &monitor {
        monitor.watch(server.broker());
    }
    let opened = match door {
        Some(closed) => door::open(closed, &settings, &server).await.map(Some),
        None => Ok(None),
    };
    let door = match opened {
        Ok(door) => door,
        Err(failure) => {
            let _ = server.shutdown().await;
            return Err(failure);
        }
    };
    if let (Some(monitor), Some(door)) = (&monitor, &door) {
        monitor.watch_door(door.watch());
    }
    if settings.log_format == Format::Text {
        let text = banner(&settings, server.addresses(), door.as_ref(), monitor.as_ref(), &program_name());
        print(&text).or_else(ignore_closed_output)?;
    }
    let displaced = tokio::select! {
        () = signals.next() => false,
        () = server.displaced() => true,
    };
    tokio::select! {
        closed = door::shutdown(door, server) => match closed {
            Err(error) => {
                Err(Failure::Failed(format!("the server stopped, but its store did not close cleanly: {error}")))
            }
            Ok(()) if displaced => Err(Failure::Failed(DISPLACED.to_owned())),
            Ok(()) => Ok(()),
        },
        () = signals.next() => {
            tracing::warn!("second signal, quitting at once");
            std::process::exit(INTERRUPTED)
        }
    }
}

/// The door, which is to look at the ends of partitions before Kafka clients append to them, and the server.
async fn start(settings: &Settings, store: &Arc<dyn Store>) -> Result<(Option<ClosedDoor>, Server), Failure> {
    let door = door::prepare(settings, store).await?;
    let server = Server::start(settings.server(is_shared(settings)), Arc::clone(store)).await;
    Ok((door, server.map_err(|error| cannot_start(&error))?))
}

/// Metrics and health. A port that somebody asked for must be free; that the default one is taken, as by a second server
/// on a developer's machine, is no reason not to serve Kafka clients.
async fn monitor(loaded: &Loaded) -> Result<Option<Monitor>, Failure> {
    let settings = &loaded.settings.monitor;
    let Some(address) = settings.listen else { return Ok(None) };
    match Monitor::bind(address, settings.clone()).await {
        Ok(monitor) => Ok(Some(monitor)),
        Err(error) if loaded.is_set(METRICS_LISTEN) => Err(Failure::Failed(format!(
            "metrics cannot be served on {address}: {}; choose another address with --set {METRICS_LISTEN}=ADDRESS:PORT, \
             or `off`",
            bind_advice(&error)
        ))),
        Err(error) => {
            tracing::warn!(
                %address,
                reason = bind_advice(&error),
                "neither metrics nor health are served; set {METRICS_LISTEN} to a free address, or to `off`"
            );
            Ok(None)
        }
    }
}

/// Whether others can reach the store: a folder is locked, and memory is ours alone.
pub(crate) fn is_shared(settings: &Settings) -> bool {
    #[cfg(feature = "iggy")]
    return settings.iggy.is_on();
    #[cfg(not(feature = "iggy"))]
    {
        let _ = settings;
        false
    }
}

/// Closes a store that nothing was written to that matters more than why the server does not start.
pub(crate) async fn close_unused(store: &dyn Store) {
    let _ = tokio::time::timeout(CLOSING_WAIT, store.close()).await;
}

pub(crate) async fn open_store(settings: &Settings) -> Result<Arc<dyn Store>, Failure> {
    #[cfg(feature = "iggy")]
    if settings.iggy.is_on() {
        return open_iggy(settings).await;
    }
    let config = settings.store();
    let opened = tokio::task::spawn_blocking(move || EmbeddedStore::open(&config)).await;
    match opened {
        Ok(Ok(store)) => Ok(store),
        Ok(Err(error)) => Err(Failure::Failed(store_advice(&error))),
        Err(error) => Err(Failure::Failed(format!("opening the store failed in a way that it should not: {error}"))),
    }
}

#[cfg(feature = "iggy")]
async fn open_iggy(settings: &Settings) -> Result<Arc<dyn Store>, Failure> {
    // The SDK brings two providers of cryptography along, and TLS cannot choose between them by itself.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let config = settings.iggy.config(settings.server.instance_id).map_err(Failure::Failed)?;
    let store = Box::pin(milena_store_iggy::IggyStore::open(config)).await;
    store
        .map(|store| Arc::new(store) as Arc<dyn Store>)
        .map_err(|error| Failure::Failed(format!("{error} ({})", settings.iggy.place())))
}

/// Where the data is, for people.
fn data_place(settings: &Settings) -> String {
    #[cfg(feature = "iggy")]
    if settings.iggy.is_on() {
        return settings.iggy.place();
    }
    settings.data_dir.clone()
}

fn store_advice(error: &OpenError) -> String {
    match error {
        OpenError::Store { dir, error: StoreError::Broken { context } } => format!(
            "the data folder {} cannot be used ({context}); see that this user may write there, or choose another \
             with --data-dir",
            dir.display()
        ),
        other => other.to_string(),
    }
}

/// A server does its work whether or not somebody reads its banner.
fn ignore_closed_output(failure: Failure) -> Result<(), Failure> {
    match failure {
        Failure::OutputClosed => Ok(()),
        other => Err(other),
    }
}

fn cannot_start(error: &StartError) -> Failure {
    let StartError::Bind { name, address, source } = error else {
        return Failure::Failed(error.to_string());
    };
    Failure::Failed(format!(
        "listener `{name}` cannot listen on {address}: {}; choose another address with --listen",
        bind_advice(source)
    ))
}

/// Why an address cannot be listened on.
pub(crate) fn bind_advice(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "another program listens there".to_owned(),
        io::ErrorKind::PermissionDenied => "the system does not allow it (ports below 1024 need privileges)".to_owned(),
        io::ErrorKind::AddrNotAvailable => "no network interface of this machine has that address".to_owned(),
        _ => error.to_string(),
    }
}

/// Where to connect, where the data is, and one line to try.
fn banner(
    settings: &Settings,
    listeners: &[Bound],
    door: Option<&Door>,
    monitor: Option<&Monitor>,
    program: &str,
) -> String {
    let mut text = format!("Milena {}\n\n", env!("CARGO_PKG_VERSION"));
    let address = |bound: &Bound| {
        let host = &bound.advertised_host;
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        format!("{host}:{}", bound.advertised_port)
    };
    let is_open = |bound: &&Bound| !bound.tls && bound.sasl.is_empty();
    let told = |bound: &Bound| match is_open(&bound) {
        true => address(bound),
        false => format!("{} ({})", address(bound), bound.security_protocol()),
    };
    let addresses: Vec<String> = listeners.iter().map(told).collect();
    // Writing to a string does not fail.
    let _ = writeln!(text, "  Kafka clients connect to  {}", addresses.join(", "));
    if let Some(door) = door {
        text.push_str(&door::banner(settings, door));
    }
    let _ = writeln!(text, "  the data is in            {}", data_place(settings));
    if let Some(monitor) = monitor {
        let _ = writeln!(text, "  metrics are at            http://{}/metrics", monitor.address());
    }
    if let Some(tried) = listeners.iter().find(is_open).or(listeners.first()) {
        let options = options(&address(tried), tried);
        let _ = writeln!(
            text,
            "  try                       echo hello | {program} produce{options} greetings; {program} \
             consume{options} greetings --from-beginning --count 1"
        );
    }
    text.push('\n');
    text
}

/// What the client commands need to be told to get there.
fn options(address: &str, bound: &Bound) -> String {
    let mut options = if address == "127.0.0.1:9092" { String::new() } else { format!(" --bootstrap {address}") };
    if bound.tls {
        options.push_str(" --tls");
    }
    // Their password comes from a file or the environment.
    if let Some(mechanism) = bound.sasl.iter().find(|mechanism| **mechanism != Mechanism::OauthBearer) {
        let _ = write!(options, " --sasl-mechanism {mechanism} --sasl-username NAME");
    }
    options
}

/// The command as the user would type it again.
fn program_name() -> String {
    std::env::args().next().filter(|name| !name.is_empty()).unwrap_or_else(|| "milena".to_owned())
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn listen() -> Result<Self, Failure> {
        let of = |kind| signal(kind).map_err(|error| Failure::Failed(format!("signals cannot be handled: {error}")));
        Ok(Self { interrupt: of(SignalKind::interrupt())?, terminate: of(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
