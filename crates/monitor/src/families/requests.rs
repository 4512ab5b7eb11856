//! Requests by API: how many, how long, and which errors were answered.

use std::fmt;

use milena_server::Broker;
use milena_server::dispatch::Api;
use milena_server::metrics::ApiMetrics;
use milena_wire::kafka_protocol::ResponseError;

use crate::writer::{Families, NANOS};

pub(super) fn write(broker: &Broker, families: &mut Families<'_>) -> fmt::Result {
    let apis: Vec<(&Api, &ApiMetrics)> =
        broker.apis.iter().filter_map(|api| Some((api, broker.metrics.requests.of(api.key as i16)?))).collect();
    families.counters(
        "milena_requests_total",
        "Requests, by API.",
        apis.iter().map(|(api, metrics)| ([("api", api.name)], metrics.requests.get())),
    )?;
    families.histograms(
        "milena_request_duration_seconds",
        "Time from a whole request to its answer; time that a Fetch, JoinGroup or SyncGroup was parked does not count.",
        NANOS,
        apis.iter().map(|(api, metrics)| ([("api", api.name)], metrics.latency.snapshot())),
    )?;
    let errors: Vec<(&str, String, Class, u64)> = apis
        .iter()
        .flat_map(|(api, metrics)| metrics.errors.counted().map(|(code, count)| (api.name, code, count)))
        .map(|(api, code, count)| (api, name(code), Class::of(code), count))
        .collect();
    families.counters(
        "milena_request_errors_total",
        "Error codes in answers, one for each partition, topic, group or member that has one. Class server is trouble \
         here, retry is what passes by itself, client is what the client has to change.",
        errors.iter().map(|(api, error, class, count)| {
            ([("api", *api), ("error", error.as_str()), ("class", class.name())], *count)
        }),
    )
}

/// Whom an error concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Server,
    Retry,
    Client,
}

impl Class {
    fn of(code: i16) -> Self {
        match ResponseError::try_from_code(code) {
            Some(ResponseError::UnknownServerError | ResponseError::KafkaStorageError) => Self::Server,
            Some(error) if error.is_retriable() => Self::Retry,
            _ => Self::Client,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Retry => "retry",
            Self::Client => "client",
        }
    }
}

/// The name of a code, as Kafka's documentation writes it.
fn name(code: i16) -> String {
    let known = ResponseError::try_from_code(code).filter(|error| !matches!(error, ResponseError::Unknown(_)));
    let Some(error) = known else { return format!("CODE_{code}") };
    let mut name = String::new();
    for letter in format!("{error:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_kafkas_names() {
        assert_eq!(name(-1), "UNKNOWN_SERVER_ERROR");
        assert_eq!(name(27), "REBALANCE_IN_PROGRESS");
        assert_eq!(name(9_999), "CODE_9999");
    }

    #[test]
    fn trouble_here_is_told_from_what_passes_and_from_what_clients_do_wrong() {
        for (code, class) in
            [(-1, "server"), (56, "server"), (14, "retry"), (27, "client"), (3, "retry"), (10, "client")]
        {
            assert_eq!(Class::of(code).name(), class, "{code}");
        }
    }
}
