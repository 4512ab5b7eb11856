//! The engine and its topics.

use std::fmt;

use milena_server::Broker;

use crate::writer::{Families, NANOS};

pub(super) fn write(broker: &Broker, families: &mut Families<'_>) -> fmt::Result {
    let topics = broker.topics.list();
    families.gauge("milena_topics", "Topics that clients see.", topics.len() as u64)?;
    families.gauge(
        "milena_partitions",
        "Partitions of the topics that clients see.",
        topics.iter().map(|topic| u64::from(topic.partitions)).sum(),
    )?;
    let engine = broker.store.metrics();
    let of = |value: fn(&milena_store::metrics::EngineMetrics) -> u64| engine.map(|engine| ([], value(engine)));
    families.gauges(
        "milena_store_info",
        "Always 1; the label says which engine keeps the data.",
        engine.map(|engine| ([("engine", engine.engine)], 1)),
    )?;
    families.counters(
        "milena_store_appends_total",
        "Appends that the engine wrote, internal topics included.",
        of(|engine| engine.appends.get()),
    )?;
    families.counters("milena_store_messages_total", "Messages in them.", of(|engine| engine.messages.get()))?;
    families.counters(
        "milena_store_bytes_total",
        "Bytes that were written for them.",
        of(|engine| engine.bytes.get()),
    )?;
    families.histograms(
        "milena_store_flush_duration_seconds",
        "Time of each flush to the device that succeeded; one may serve many appends and partitions.",
        NANOS,
        engine.map(|engine| ([], engine.flush_time.snapshot())),
    )?;
    families.counters(
        "milena_store_flush_failures_total",
        "Flushes that failed. A partition whose flush failed takes no appends until the server is started again.",
        of(|engine| engine.flush_failures.get()),
    )?;
    families.counters(
        "milena_store_damaged_entries_total",
        "Damaged entries that reads and recovery came across.",
        of(|engine| engine.damaged_entries.get()),
    )?;
    families.counters(
        "milena_store_end_falls_total",
        "Ends of partitions that moved back: acknowledged messages were lost, or a topic was purged. Its leader epoch rose.",
        of(|engine| engine.end_falls.get()),
    )?;
    families.counters(
        "milena_store_gap_reads_total",
        "Reads from another node of a cluster, since the one that leads the partition lacks the messages.",
        of(|engine| engine.gap_reads.get()),
    )?;
    families.counters(
        "milena_store_lost_messages_total",
        "Acknowledged messages that no node of a cluster has; consumers went on behind them.",
        of(|engine| engine.lost_messages.get()),
    )?;
    families.counters(
        "milena_store_stray_replies_total",
        "Calls to a node of a cluster that were answered with the reply to something else, which was not believed.",
        of(|engine| engine.stray_replies.get()),
    )?;
    families.counters(
        "milena_store_undurable_topics_total",
        "Topics that were met whose acknowledged messages the engine may hold in memory only.",
        of(|engine| engine.undurable_topics.get()),
    )
}
