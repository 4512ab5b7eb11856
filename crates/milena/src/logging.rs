//! The log, on standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{Format, Settings};

/// Starts logging. A second call does nothing.
pub(crate) fn start(settings: &Settings) {
    // The directives were checked with the configuration.
    let level = &settings.log_level;
    // Iggy's SDK tells of every connection and of every attempt at one; what matters of it is logged here, once.
    let level = if level.contains("iggy") { level.clone() } else { format!("{level},iggy=off,iggy_common=off") };
    let filter = EnvFilter::try_new(level).unwrap_or_else(|_| EnvFilter::new("info"));
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let _ = match settings.log_format {
        Format::Text => subscriber.with_ansi(std::io::stderr().is_terminal()).with_target(false).try_init(),
        Format::Json => subscriber.json().flatten_event(true).with_current_span(false).try_init(),
    };
}
