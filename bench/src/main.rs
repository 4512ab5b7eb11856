//! `milena-bench`: the load harness from the command line.

use std::io::Write as _;
use std::path::PathBuf;

use clap::Parser;
use milena_bench::Result;
use milena_bench::args::{Cli, Scenario, Servers};
use milena_bench::report::{Measures, Report, Rounds, alternate};
use milena_bench::servers::Target;

fn main() -> Result<()> {
    let cli = Cli::parse();
    let threads = cli.threads.max(1);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    let report = runtime.block_on(measure(&cli))?;
    std::io::stdout().lock().write_all(report.table().as_bytes())?;
    cli.json.as_deref().map_or(Ok(()), |path| report.write_json(path))
}

async fn measure(cli: &Cli) -> Result<Report> {
    let rounds = Rounds { warm_ups: cli.warm_ups, counted: cli.rounds };
    let once = Rounds { warm_ups: 0, counted: 1 };
    let servers = &cli.servers;
    match &cli.scenario {
        Scenario::Offsets(options) => {
            in_turn(servers, "offsets", rounds, async |target, round| options.round(target, round).await).await
        }
        Scenario::Joins(options) => {
            in_turn(servers, "joins", rounds, async |target, round| options.round(target, round).await).await
        }
        Scenario::IdleGroups(options) => {
            in_turn(servers, "idle groups", rounds, async |target, round| options.round(target, round).await).await
        }
        Scenario::Load(options) => {
            in_turn(servers, "load", rounds, async |target, round| options.round(target, round).await).await
        }
        #[cfg(feature = "librdkafka")]
        Scenario::Librdkafka(options) => {
            in_turn(servers, "librdkafka", rounds, async |target, round| options.round(target, round).await).await
        }
        #[cfg(feature = "iggy")]
        Scenario::Iggy(options) => {
            let (server, mut ways) = options.start(&servers.binaries()?, &servers.set)?;
            let mut named: Vec<_> = ways.drain(..).map(|(name, way)| (name.clone(), (name, way))).collect();
            let measure = async |(name, way): &mut (String, _), round| options.round(&server, way, name, round).await;
            alternate("iggy", &mut named, rounds, measure).await
        }
        #[cfg(feature = "iggy")]
        Scenario::Door(options) => {
            let mut served = options.start(&servers.binaries()?, &servers.set)?;
            alternate("door", &mut served, rounds, async |served, round| options.round(served, round).await).await
        }
        #[cfg(feature = "iggy")]
        Scenario::Proxy(options) => Err(options.run().await.err().unwrap_or_else(|| "the proxy ended".into())),
        // A second round would count the offsets of the first one.
        Scenario::Start(options) => {
            in_turn(servers, "start", once, async |target, _| options.round(target).await).await
        }
        // A server is started for each round.
        Scenario::ColdStart(options) => {
            let mut launches = servers.launches()?;
            alternate("cold start", &mut launches, rounds, async |launch, _| options.round(launch).await).await
        }
        // It starts its servers itself, and has medians of its own.
        Scenario::Process(options) => {
            let mut binaries = servers.binaries()?;
            let measure = async |binary: &mut PathBuf, _| options.round(binary, &servers.set).await;
            alternate("process", &mut binaries, once, measure).await
        }
    }
}

async fn in_turn(
    servers: &Servers,
    scenario: &str,
    rounds: Rounds,
    measure: impl AsyncFnMut(&mut Target, usize) -> Result<Measures>,
) -> Result<Report> {
    alternate(scenario, &mut servers.start().await?, rounds, measure).await
}
