//! Completions and manual pages, made from the command line's own description.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::config;
use crate::failure::{Failure, print};

/// Prints completions for `shell`.
pub(crate) fn completions(shell: Shell) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "milena", &mut text);
    print(&String::from_utf8_lossy(&text))
}

/// Prints the page of `milena`, or writes the pages of all commands to `folder`.
pub(crate) fn pages(folder: Option<&Path>) -> Result<(), Failure> {
    let Some(folder) = folder else { return print(&main_page()) };
    let failed = |error: std::io::Error| {
        Failure::Failed(format!("the manual pages cannot be written to {}: {error}", folder.display()))
    };
    clap_mangen::generate_to(Cli::command(), folder).map_err(failed)?;
    // The generated main page lacks the configuration.
    std::fs::write(folder.join("milena.1"), main_page()).map_err(failed)
}

fn main_page() -> String {
    let mut keys = String::from("\n\nCONFIGURATION KEYS\n");
    for (path, text) in config::reference() {
        keys.push_str(&format!("\n{path}: {text}\n"));
    }
    keys.push_str(
        "\nBesides these: [[listeners]] tables with name, bind and advertised (variable: MILENA_LISTENERS); ",
    );
    keys.push_str("[topic_mapping.topics.NAME] tables with stream and topic; [topic_defaults] with topic configs.\n");
    let command = Cli::command().after_long_help(keys);
    let mut page = Vec::new();
    // Writing to memory does not fail.
    let _ = clap_mangen::Man::new(command).render(&mut page);
    String::from_utf8_lossy(&page).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_flags_commands_and_configuration_keys() {
        let page = main_page();
        for expected in ["data\\-dir", "check\\-config", "limits.max_connections", "MILENA_INSTANCE_ID"] {
            assert!(page.contains(expected), "{expected} is missing in\n{page}");
        }
    }
}
