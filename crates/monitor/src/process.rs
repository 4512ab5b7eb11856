//! What the system knows of this process. Where it does not say, nothing is said.

use std::fs;

use rustix::param::page_size;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// Time and memory that the process takes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Process {
    pub(crate) cpu_seconds: Option<f64>,
    pub(crate) resident_bytes: Option<u64>,
    pub(crate) virtual_bytes: Option<u64>,
    pub(crate) open_files: Option<u64>,
    pub(crate) open_files_max: Option<u64>,
    pub(crate) threads: Option<u64>,
}

impl Process {
    /// Reads it. Blocking: a table of many open files takes milliseconds.
    pub(crate) fn read() -> Self {
        let pages = fs::read_to_string("/proc/self/statm").ok();
        let mut pages = pages.iter().flat_map(|text| text.split_whitespace()).map_while(|field| field.parse().ok());
        let bytes = |pages: Option<u64>| pages?.checked_mul(page_size() as u64);
        Self {
            virtual_bytes: bytes(pages.next()),
            resident_bytes: bytes(pages.next()),
            cpu_seconds: cpu_seconds(),
            open_files: entries("/proc/self/fd"),
            open_files_max: getrlimit(Resource::Nofile).current,
            threads: entries("/proc/self/task"),
        }
    }
}

fn cpu_seconds() -> Option<f64> {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let whole = u32::try_from(time.tv_sec).ok()?;
    let nanos = u32::try_from(time.tv_nsec).ok()?;
    Some(f64::from(whole) + f64::from(nanos) / 1e9)
}

fn entries(folder: &str) -> Option<u64> {
    Some(fs::read_dir(folder).ok()?.count() as u64)
}
