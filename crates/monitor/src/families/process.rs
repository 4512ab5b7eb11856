//! The process and its build. Names without `milena_` are those that client libraries of Prometheus agreed on.

use std::fmt;
use std::time::UNIX_EPOCH;

use crate::scrape::Now;
use crate::writer::Families;

pub(super) fn write(now: &Now, families: &mut Families<'_>) -> fmt::Result {
    let process = &now.process;
    let some = |value: Option<u64>| value.map(|value| ([], value));
    families.counter_seconds(
        "process_cpu_seconds_total",
        "Time of processors that the process took.",
        process.cpu_seconds,
    )?;
    families.gauges("process_resident_memory_bytes", "Memory that the process holds.", some(process.resident_bytes))?;
    families.gauges("process_virtual_memory_bytes", "Address space of the process.", some(process.virtual_bytes))?;
    families.gauges("process_open_fds", "Files and sockets that the process has open.", some(process.open_files))?;
    families.gauges("process_max_fds", "Files and sockets that it may have open.", some(process.open_files_max))?;
    families.gauges("process_threads", "Threads of the process.", some(process.threads))?;
    let began = now.watched.started_at.duration_since(UNIX_EPOCH).unwrap_or_default();
    families.gauge_f64(
        "process_start_time_seconds",
        "When the process began, in seconds since 1970.",
        began.as_secs_f64(),
    )?;
    families.gauge_f64(
        "milena_uptime_seconds",
        "Time since the process began.",
        now.watched.started.elapsed().as_secs_f64(),
    )?;
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    families.gauges("milena_build_info", "Always 1; the labels say what runs.", [(version, 1)])
}
