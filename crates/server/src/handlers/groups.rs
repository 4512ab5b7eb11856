//! What the handlers of consumer groups share.

use std::sync::Arc;

use bytes::Bytes;
use milena_groups::Blob;
use milena_wire::kafka_protocol::protocol::StrBytes;

/// A text of the coordinator.
pub(super) fn shared(text: &Arc<str>) -> StrBytes {
    StrBytes::from_string(text.to_string())
}

/// A text of the coordinator, empty for none.
pub(super) fn shared_option(text: Option<&Arc<str>>) -> StrBytes {
    text.map(shared).unwrap_or_default()
}

/// Bytes that are relayed as they are, without copying them.
pub(super) fn blob(blob: &Blob) -> Bytes {
    Bytes::from_owner(Arc::clone(blob))
}

/// Bytes that one answer may have, by about: a request that names one large group again and again must not grow into an
/// answer that no memory holds.
#[derive(Debug)]
pub(super) struct Room(usize);

impl Room {
    /// As much as a request may have.
    pub(super) fn new(limits: &crate::limits::Limits) -> Self {
        Self(limits.max_frame_bytes)
    }

    /// Takes `bytes` of it; false when they are not there.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let left = self.0.checked_sub(bytes);
        self.0 = left.unwrap_or(0);
        left.is_some()
    }
}
