//! How many files and sockets the process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Settings;

/// Files that a server needs beside connections and segments: its own, and those of scrapers and probes.
const OTHERS: u64 = 64 + milena_monitor::limits::CONNECTIONS_MAX as u64;

/// Fewest segments that the store works with.
const SEGMENTS_MIN: u64 = 16;

/// Below this many open files an ordinary installation can run out of them.
const FEW: u64 = 4096;

const TOO_FEW: &str = "fewer files may be open than limits.max_connections, iggy_door.connections_max and open_files_max need: they \
                       are lowered to what there is; raise `ulimit -n`";

/// Raises the soft limit of open files to the hard one: the usual soft limit of 1,024 is far below what the
/// connection limit promises. When even that is not enough, connections and segments get a part each: else connections
/// could take all of it, and no record could be stored any more; or segments, and nobody could connect.
pub(crate) fn raise_limit(settings: &mut Settings) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        tracing::warn!(%error, "the limit of open files cannot be raised");
    }
    // No limit at all is told as none.
    let Some(allowed) = getrlimit(Resource::Nofile).current else { return };
    if !fit(settings, allowed) {
        return;
    }
    let (connections, segments) = (settings.server.limits.max_connections, settings.open_files_max);
    let iggy_connections = settings.door().map_or(0, |door| door.limits.connections_max);
    // The default of 20,000 connections is more than most installations ever see: a machine that allows a good part of
    // it should not greet every newcomer with a warning.
    if allowed < FEW {
        tracing::warn!(allowed, connections, iggy_connections, segments, "{TOO_FEW}");
    } else {
        tracing::debug!(allowed, connections, iggy_connections, segments, "{TOO_FEW}");
    }
}

/// Lowers connections of both protocols and open segments to what `allowed` files are enough for. False when they fit as they
/// are.
fn fit(settings: &mut Settings, allowed: u64) -> bool {
    let kafka = settings.server.limits.max_connections as u64;
    let iggy = if settings.door().is_some() { settings.iggy_door.limits.connections_max as u64 } else { 0 };
    let connections = kafka.saturating_add(iggy);
    let segments = settings.open_files_max as u64;
    let left = allowed.saturating_sub(OTHERS);
    if left >= connections.saturating_add(segments) {
        return false;
    }
    let segments = part(left, segments, connections).max(SEGMENTS_MIN);
    let left = left.saturating_sub(segments);
    let count = |files: u64| usize::try_from(files).unwrap_or(usize::MAX);
    settings.open_files_max = count(segments);
    settings.server.limits.max_connections = count(part(left, kafka, iggy).max(1));
    if iggy > 0 {
        settings.iggy_door.limits.connections_max = count(part(left, iggy, kafka).max(1));
    }
    true
}

/// How many of `left` files go to who wants `wanted`, beside others who want `others`: half at most, and what these do not
/// need.
fn part(left: u64, wanted: u64, others: u64) -> u64 {
    wanted.min((left / 2).max(left.saturating_sub(others)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitted(connections: usize, segments: usize, allowed: u64) -> (usize, usize) {
        let mut settings = Settings::default();
        settings.server.limits.max_connections = connections;
        settings.open_files_max = segments;
        fit(&mut settings, allowed);
        (settings.server.limits.max_connections, settings.open_files_max)
    }

    #[test]
    fn what_fits_stays_as_it_is_configured() {
        assert_eq!(fitted(20_000, 1_024, 20_000 + 1_024 + OTHERS), (20_000, 1_024));
    }

    #[test]
    fn too_few_files_are_shared_so_that_neither_takes_all() {
        assert_eq!(fitted(20_000, 1_024, 20_000 + 1_024 + OTHERS - 1), (19_999, 1_024));
        assert_eq!(fitted(20_000, 1_024, 1_024), (448, 448));
        assert_eq!(fitted(100, 1_024, 1_024), (100, 796));
        assert_eq!(fitted(20_000, 50, 1_024), (846, 50));
    }

    #[test]
    fn connections_of_both_protocols_share_what_there_is() {
        let fitted = |listen: &str, allowed| {
            let mut settings = Settings::default();
            listen.clone_into(&mut settings.iggy_door.listen);
            let fits = !fit(&mut settings, allowed);
            let limits = (&settings.server.limits, &settings.iggy_door.limits);
            (fits, limits.0.max_connections, limits.1.connections_max, settings.open_files_max)
        };
        let enough = 30_000 + 1_024 + OTHERS;
        assert_eq!(fitted("127.0.0.1:0", enough), (true, 20_000, 10_000, 1_024));
        assert_eq!(fitted("", enough - 10_000), (true, 20_000, 10_000, 1_024), "the door is shut");
        assert_eq!(fitted("127.0.0.1:0", enough - 1), (false, 19_999, 10_000, 1_024));
        assert_eq!(fitted("127.0.0.1:0", enough - 20_000), (false, 5_000, 5_000, 1_024));
        assert_eq!(fitted("127.0.0.1:0", 1_024), (false, 224, 224, 448));
        assert_eq!(fitted("127.0.0.1:0", 0), (false, 1, 1, 16));
    }

    #[test]
    fn however_few_files_there_are_both_get_some() {
        for allowed in [0, 10, OTHERS, OTHERS + 9] {
            assert_eq!(fitted(20_000, 1_024, allowed), (1, 16), "{allowed}");
        }
    }
}
