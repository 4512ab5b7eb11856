//! CPU time and memory of a process, from `/proc`.

use std::time::Duration;

use crate::Result;

/// What a process has used.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// CPU time in the process and in the kernel for it.
    pub cpu: Duration,
    /// Resident memory in bytes.
    pub resident: u64,
}

impl Usage {
    /// That process now.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn of(pid: u32) -> Result<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let unreadable = || format!("/proc/{pid} cannot be understood");
        let ticks = cpu_ticks(&stat).ok_or_else(unreadable)?;
        let resident = resident_bytes(&status).ok_or_else(unreadable)?;
        let per_second = rustix::param::clock_ticks_per_second().max(1);
        Ok(Self { cpu: Duration::from_millis(ticks * 1000 / per_second), resident })
    }

    /// This process now.
    ///
    /// # Errors
    /// As [`Usage::of`].
    pub fn own() -> Result<Self> {
        Self::of(std::process::id())
    }
}

/// Clock ticks in user and kernel mode. The name of the process, which may hold spaces, is in brackets before them.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let kernel: u64 = fields.next()?.parse().ok()?;
    Some(user + kernel)
}

fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_a_process_with_an_odd_name_are_found() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 9 1 1";
        assert_eq!(cpu_ticks(stat), Some(300));
        assert_eq!(resident_bytes("Name:\ta\nVmRSS:\t    2048 kB\n"), Some(2 << 20));
    }

    #[test]
    fn this_process_has_memory() {
        assert!(Usage::own().unwrap().resident > 0);
    }
}
