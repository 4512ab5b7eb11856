//! `milena offsets`: works on the store itself, not through a server.

use clap::{Args, Subcommand, ValueEnum};
use milena_server::groups::Kept;
use milena_server::groups::migrate::{Migrated, migrate};

use crate::cli::ServeArgs;
use crate::config::load;
use crate::failure::{Failure, print};
use crate::{logging, serve};

#[derive(Debug, Args)]
pub(crate) struct OffsetsArgs {
    #[command(subcommand)]
    command: OffsetsCommand,
}

#[derive(Debug, Subcommand)]
enum OffsetsCommand {
    /// Move all committed offsets to where `offset_storage` shall be, while no server runs on the store
    Migrate(Box<MigrateArgs>),
}

#[derive(Debug, Args)]
struct MigrateArgs {
    /// Where they go
    #[arg(long, value_name = "WHERE")]
    to: Place,
    /// Give up offsets that have no place there: of topics and partitions that are not in the cluster, and of groups
    /// whose ids are too long
    #[arg(long)]
    drop_unfit: bool,
    #[command(flatten)]
    serve: ServeArgs,
}

/// As `offset_storage` says it.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Place {
    Topic,
    ConsumerOffsets,
}

/// Runs the command.
pub(crate) fn run(args: &OffsetsArgs) -> Result<(), Failure> {
    let OffsetsCommand::Migrate(args) = &args.command;
    let to = match args.to {
        Place::Topic => Kept::Topic,
        Place::ConsumerOffsets => Kept::ConsumerOffsets,
    };
    let loaded = load(&args.serve.sources())?;
    logging::start(&loaded.settings);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("the threads cannot be started: {error}")))?;
    let moved = runtime.block_on(async {
        let settings = &loaded.settings;
        let store = serve::open_store(settings).await?;
        let config = settings.server(serve::is_shared(settings));
        let moved = Box::pin(migrate(&config, std::sync::Arc::clone(&store), to, args.drop_unfit)).await;
        serve::close_unused(store.as_ref()).await;
        moved.map_err(|error| Failure::Failed(error.to_string()))
    });
    runtime.shutdown_background();
    print(&told(&moved?, to))
}

fn told(moved: &Migrated, to: Kept) -> String {
    let place = to.name();
    if moved.was_there {
        return format!("committed offsets are kept as \"{place}\"; nothing was moved\n");
    }
    let mut text =
        format!("{} committed offsets of {} groups are kept as \"{place}\" now", moved.offsets, moved.groups);
    if moved.bare > 0 {
        text.push_str(&format!("; {} of them lost their text or leader epoch", moved.bare));
    }
    if moved.given_up > 0 {
        text.push_str(&format!("; {} were given up", moved.given_up));
    }
    text.push_str(&format!("\nset offset_storage = \"{place}\" before the next start, or \"auto\"\n"));
    text
}
