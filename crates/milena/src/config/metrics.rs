//! The keys of section `metrics`: metrics and health over HTTP.

use std::net::SocketAddr;

use milena_monitor::LagDetail;

use super::keys::{Key, WIRE_MAX, chosen, count, number};
use super::kinds::{Kind, Setting};

/// The address that is none.
const OFF: &str = "off";

/// Path of the address; whether somebody set it decides what a port that is taken means.
pub(crate) const METRICS_LISTEN: &str = "metrics.listen";

const LAGS: [LagDetail; 3] = [LagDetail::Off, LagDetail::Group, LagDetail::Partition];

pub(super) const METRICS: &[Key] = &[
    Key {
        path: METRICS_LISTEN,
        kind: Kind::Text { allowed: "an address and a port like `127.0.0.1:9644`, or `off`", check: is_listen },
        help: "Where `/metrics`, `/livez` and `/readyz` are served over HTTP, without authentication; `off` is nowhere. \
               When the default port is taken the server starts without; an address that was set must be free.",
        get: |settings| {
            Setting::Text(settings.monitor.listen.map_or_else(|| OFF.to_owned(), |address| address.to_string()))
        },
        set: |settings, value| chosen(value, listen, &mut settings.monitor.listen),
    },
    Key {
        path: "metrics.lag",
        kind: Kind::Choice(&["off", "group", "partition"]),
        help: "How closely the lag of consumer groups is told: not at all, one series for each group, or one for each of \
               its partitions too.",
        get: |settings| Setting::Text(lag_name(settings.monitor.lag).to_owned()),
        set: |settings, value| chosen(value, lag, &mut settings.monitor.lag),
    },
    Key {
        path: "metrics.lag_series_max",
        kind: Kind::Number { min: 0, max: WIRE_MAX },
        help: "Series about lag, at most. Beyond it partitions are told in the sum of their group only, and groups not at \
               all; how many are left out is a metric.",
        get: |settings| count(settings.monitor.lag_series_max),
        set: |settings, value| number(&value, &mut settings.monitor.lag_series_max),
    },
];

fn is_listen(text: &str) -> bool {
    listen(text).is_some()
}

#[expect(clippy::option_option, reason = "no address is a setting, and what is no setting is a mistake")]
fn listen(text: &str) -> Option<Option<SocketAddr>> {
    if text == OFF { Some(None) } else { text.parse().ok().map(Some) }
}

fn lag_name(detail: LagDetail) -> &'static str {
    match detail {
        LagDetail::Off => OFF,
        LagDetail::Group => "group",
        LagDetail::Partition => "partition",
    }
}

fn lag(name: &str) -> Option<LagDetail> {
    LAGS.into_iter().find(|detail| lag_name(*detail) == name)
}
