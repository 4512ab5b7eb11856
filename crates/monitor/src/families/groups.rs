//! Consumer groups, committed offsets, lag.

use std::fmt;

use milena_groups::GroupState;
use milena_server::Broker;

use crate::lag::Lag;
use crate::writer::{Families, NANOS, ONES};

/// States in which a group can be seen.
const STATES: [GroupState; 4] =
    [GroupState::Empty, GroupState::PreparingRebalance, GroupState::CompletingRebalance, GroupState::Stable];

pub(super) fn write(broker: &Broker, lag: &Lag, families: &mut Families<'_>) -> fmt::Result {
    write_members(broker, families)?;
    write_commits(broker, lag, families)?;
    write_log(broker, families)
}

fn write_members(broker: &Broker, families: &mut Families<'_>) -> fmt::Result {
    let metrics = &broker.metrics.groups;
    let usage = broker.groups.usage();
    let census = usage.census;
    families.gauges(
        "milena_groups",
        "Groups that have or had members, by state.",
        STATES.map(|state| ([("state", state.name())], census.groups(state) as u64)),
    )?;
    families.gauge(
        "milena_group_coordinator",
        "1 while groups are served here, 0 while offsets are loaded or another gateway coordinates.",
        u64::from(usage.serving.is_ok()),
    )?;
    families.gauge(
        "milena_gateways",
        "Gateways in front of the store that are alive, this one among them.",
        broker.config.coordinators.others().len() as u64 + 1,
    )?;
    families.gauge("milena_group_members", "Members of all groups.", census.members as u64)?;
    families.gauge(
        "milena_group_static_members",
        "Members with a group.instance.id, of all groups.",
        census.static_members as u64,
    )?;
    families.gauge(
        "milena_group_pending_members",
        "Member ids that were given out and are not used yet.",
        census.pending as u64,
    )?;
    families.counter(
        "milena_group_members_joined_total",
        "Clients that became members.",
        metrics.members_joined.get(),
    )?;
    families.counter(
        "milena_group_members_returned_total",
        "Static members that took the place of their old selves.",
        metrics.members_returned.get(),
    )?;
    families.counters(
        "milena_group_members_gone_total",
        "Members that went, by how: session_ended are those that fell silent.",
        metrics.members_gone().map(|(why, count)| ([("reason", why.name())], count)),
    )?;
    families.counters(
        "milena_group_rebalances_total",
        "Rebalances that began, by cause.",
        metrics.rebalances().map(|(cause, count)| ([("reason", cause.name())], count)),
    )?;
    families.histograms(
        "milena_group_rebalance_duration_seconds",
        "Time from the first request to join again until the assignments were there.",
        NANOS,
        [([], metrics.rebalance_time.snapshot())],
    )
}

fn write_commits(broker: &Broker, lag: &Lag, families: &mut Families<'_>) -> fmt::Result {
    let metrics = &broker.metrics.groups;
    let usage = broker.groups.usage();
    families.counter("milena_offset_commits_total", "OffsetCommit requests.", metrics.commits.get())?;
    families.counter(
        "milena_offset_commits_late_total",
        "OffsetCommit requests that were told to try again, because the store was too slow or too much waited for it.",
        metrics.commits_late.get(),
    )?;
    families.counters(
        "milena_offset_commit_partitions_total",
        "Partitions of OffsetCommit requests that were answered in time, by result.",
        [
            ([("result", "stored")], metrics.partitions_stored.get()),
            ([("result", "refused")], metrics.partitions_refused.get()),
        ],
    )?;
    // What the store keeps is told as far as it was read for this page.
    let (offsets, groups) = if broker.groups.is_external() {
        (lag.stored_offsets, lag.stored_groups)
    } else {
        (Some(usage.offsets as u64), Some(usage.groups_with_offsets as u64))
    };
    if let Some(offsets) = offsets {
        families.gauge("milena_offsets", "Committed offsets.", offsets)?;
    }
    if let Some(groups) = groups {
        families.gauge(
            "milena_groups_with_offsets",
            "Groups that have committed offsets, with members or without.",
            groups,
        )?;
    }
    families.counter(
        "milena_offsets_expired_total",
        "Committed offsets that were let go because they were too old.",
        metrics.offsets_expired.get(),
    )
}

fn write_log(broker: &Broker, families: &mut Families<'_>) -> fmt::Result {
    let metrics = &broker.metrics.groups;
    families.gauge(
        "milena_offsets_log_waiting_bytes",
        "Bytes of records that wait for the log of offsets.",
        broker.groups.usage().unsettled_bytes as u64,
    )?;
    families.histograms(
        "milena_offsets_log_append_duration_seconds",
        "Time of an append to the log of offsets that succeeded.",
        NANOS,
        [([], metrics.append_time.snapshot())],
    )?;
    families.histograms(
        "milena_offsets_log_append_records",
        "Records in one append to the log of offsets.",
        ONES,
        [([], metrics.append_records.snapshot())],
    )?;
    families.counter(
        "milena_offsets_log_append_bytes_total",
        "Bytes of records that were appended to the log of offsets.",
        metrics.append_bytes.get(),
    )?;
    families.counter(
        "milena_offsets_log_append_failures_total",
        "Appends to the log of offsets that failed; their commits were told to try again.",
        metrics.append_failures.get(),
    )?;
    families.counter(
        "milena_offsets_log_loads_total",
        "Times that the committed offsets were loaded: at the start, and when another gateway had written them.",
        metrics.loads.get(),
    )?;
    families.counter(
        "milena_offsets_log_snapshots_total",
        "Snapshots of all committed offsets.",
        metrics.snapshots.get(),
    )?;
    families.counter(
        "milena_offsets_log_snapshot_failures_total",
        "Snapshots that failed.",
        metrics.snapshot_failures.get(),
    )
}

pub(super) fn write_lag(lag: &Lag, families: &mut Families<'_>) -> fmt::Result {
    families.gauges(
        "milena_group_lag",
        "Records between the committed offset of a group and the end of the partition.",
        lag.groups.iter().flat_map(|group| {
            group.partitions.iter().map(|row| {
                let labels = [("group", &*group.group), ("topic", &*row.topic), ("partition", row.partition.as_str())];
                (labels, row.lag)
            })
        }),
    )?;
    families.gauges(
        "milena_group_lag_sum",
        "The same, added up over the partitions of a group; without a series when one of them is not known.",
        lag.groups.iter().filter_map(|group| Some(([("group", &*group.group)], group.sum?))),
    )?;
    families.gauge(
        "milena_group_lag_series_dropped",
        "Series about lag that are left out because metrics.lag_series_max is passed; a group without any counts once.",
        lag.beyond_limit,
    )?;
    families.gauge(
        "milena_group_lag_unknown",
        "Committed partitions whose end, and groups whose offsets, the store did not tell in time; 1 when it did not tell the groups.",
        lag.unknown,
    )
}
