//! The one thing of a certificate that clients do not tell an operator: until when it is good.

use std::time::{Duration, SystemTime};

use x509_parser::prelude::{FromDer, X509Certificate};

/// The time in which a certificate is good, by its own words (RFC 5280, 4.1.2.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// First second.
    pub not_before: SystemTime,
    /// Last second.
    pub not_after: SystemTime,
}

impl Validity {
    /// Reads it from a certificate in DER; `None` when it is none.
    pub(crate) fn of(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let validity = certificate.validity();
        Some(Self {
            not_before: time(validity.not_before.timestamp())?,
            not_after: time(validity.not_after.timestamp())?,
        })
    }
}

/// Seconds since 1970, or before.
fn time(seconds: i64) -> Option<SystemTime> {
    let distance = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(distance)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(distance)
    }
}
