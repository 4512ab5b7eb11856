//! Produce and Fetch.

use std::fmt;

use milena_server::Broker;

use crate::writer::Families;

pub(super) fn write(broker: &Broker, families: &mut Families<'_>) -> fmt::Result {
    families.gauge(
        "milena_topics_hidden",
        "Topics of the store that Kafka clients cannot see, because neither their names nor the mapping give them a Kafka name.",
        broker.topics.hidden() as u64,
    )?;
    families.gauge(
        "milena_produce_known_producers",
        "Idempotent producers whose batches are told from their copies, each counted in every partition that it wrote to.",
        broker.produce.remembered_in_all() as u64,
    )?;
    write_produce(broker, families)?;
    write_fetch(broker, families)
}

fn write_produce(broker: &Broker, families: &mut Families<'_>) -> fmt::Result {
    let metrics = &broker.metrics.produce;
    families.counter("milena_produce_batches_total", "Batches that were stored.", metrics.batches.get())?;
    families.counter("milena_produce_records_total", "Records that were stored.", metrics.records.get())?;
    families.counter(
        "milena_produce_bytes_total",
        "Bytes of batches that were stored, as clients sent them.",
        metrics.bytes.get(),
    )?;
    families.counter(
        "milena_produce_enveloped_records_total",
        "Of the records that were stored, those that no plain message can hold, so that readers of the store see an envelope.",
        metrics.enveloped.get(),
    )?;
    families.counter(
        "milena_produce_duplicates_total",
        "Batches that were stored before and were answered with the offset they have.",
        metrics.duplicates.get(),
    )?;
    families.counter(
        "milena_produce_refused_total",
        "Batches that were answered with an error.",
        metrics.refused.get(),
    )?;
    families.counter(
        "milena_produce_out_of_sequence_total",
        "Of those, batches that left a gap in their producer's sequence.",
        metrics.out_of_sequence.get(),
    )?;
    families.counter(
        "milena_produce_unknown_producers_total",
        "Batches that were accepted in the middle of a producer that is not known here, so that copies go unnoticed.",
        metrics.unknown_producers.get(),
    )?;
    families.counter(
        "milena_produce_in_doubt_total",
        "Appends whose outcome the store did not know.",
        metrics.in_doubt.get(),
    )?;
    families.counter(
        "milena_produce_doubled_total",
        "Copies that landed although they had been given up.",
        metrics.doubled.get(),
    )?;
    families.counter(
        "milena_produce_tail_reads_total",
        "Times that the end of a log was read to learn what producers stored in it.",
        metrics.tail_reads.get(),
    )?;
    families.counter(
        "milena_produce_rebuilt_producers_total",
        "Idempotent producers that were found in the tails of logs.",
        metrics.rebuilt_producers.get(),
    )
}

fn write_fetch(broker: &Broker, families: &mut Families<'_>) -> fmt::Result {
    let metrics = &broker.metrics.fetch;
    families.counter("milena_fetch_records_total", "Records that were sent.", metrics.records.get())?;
    families.counter("milena_fetch_bytes_total", "Bytes of batches that were sent.", metrics.bytes.get())?;
    families.gauge("milena_fetches_parked", "Fetches that wait for data now.", broker.fetches.purgatory.parked())?;
    families.counter("milena_fetches_parked_total", "Fetches that waited for data.", metrics.parked.get())?;
    families.gauge("milena_fetch_sessions", "Fetch sessions.", broker.fetches.sessions.len() as u64)?;
    families.counter(
        "milena_fetch_sessions_refused_total",
        "New fetch sessions that did not fit; their clients go on without.",
        metrics.sessions_refused.get(),
    )?;
    families.counter(
        "milena_fetch_unmapped_messages_total",
        "Messages that were delivered as they are stored, because a marker or their header block is malformed.",
        metrics.unmapped.get(),
    )?;
    families.counter(
        "milena_fetch_lossy_header_names_total",
        "Header names in which bytes that are not UTF-8 were replaced.",
        metrics.lossy_names.get(),
    )
}
