//! Log lines that a hostile or broken client, or a full disk, could repeat for ever: one per cause and minute.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Time between two lines about one address.
const EVERY: Duration = Duration::from_secs(60);

/// Causes remembered. With more of them at once, further ones are not logged until older ones expire.
const CAUSES_MAX: usize = 1024;

/// Remembers what was logged, and how often it was not. A cause is the address of a client, unless said otherwise.
#[derive(Debug)]
pub struct QuietLog<C = IpAddr> {
    seen: Mutex<HashMap<C, Seen>>,
}

impl<C> Default for QuietLog<C> {
    fn default() -> Self {
        Self { seen: Mutex::default() }
    }
}

#[derive(Debug)]
struct Seen {
    at: Instant,
    suppressed: u64,
}

impl<C: Eq + Hash> QuietLog<C> {
    /// `Some(n)` when a line about `cause` may be written at `now`; `n` lines were left out since the last one.
    pub fn admit(&self, cause: C, now: Instant) -> Option<u64> {
        let mut seen = self.seen.lock();
        if let Some(entry) = seen.get_mut(&cause) {
            if now.duration_since(entry.at) < EVERY {
                entry.suppressed += 1;
                return None;
            }
            entry.at = now;
            return Some(std::mem::take(&mut entry.suppressed));
        }
        if seen.len() >= CAUSES_MAX {
            seen.retain(|_, entry| now.duration_since(entry.at) < EVERY);
            if seen.len() >= CAUSES_MAX {
                return None;
            }
        }
        seen.insert(cause, Seen { at: now, suppressed: 0 });
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn address(n: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from(n))
    }

    #[test]
    fn one_line_per_address_and_minute_says_how_many_were_left_out() {
        let log = QuietLog::default();
        let start = Instant::now();
        assert_eq!(log.admit(address(1), start), Some(0));
        assert_eq!(log.admit(address(1), start + EVERY / 2), None);
        assert_eq!(log.admit(address(2), start + EVERY / 2), Some(0));
        assert_eq!(log.admit(address(1), start + EVERY), Some(1));
        assert_eq!(log.admit(address(1), start + EVERY * 2), Some(0));
    }

    #[test]
    fn memory_is_bounded_and_expired_addresses_make_room() {
        let log = QuietLog::default();
        let start = Instant::now();
        let bound = u32::try_from(CAUSES_MAX).expect("small");
        for n in 0..bound {
            assert_eq!(log.admit(address(n), start), Some(0));
        }
        assert_eq!(log.admit(address(bound), start), None);
        assert_eq!(log.admit(address(bound), start + EVERY), Some(0));
        assert_eq!(log.seen.lock().len(), 1);
    }
}
