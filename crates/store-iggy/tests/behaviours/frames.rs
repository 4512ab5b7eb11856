//! Counts the requests on their way to a server.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use iggy_binary_protocol::HEADER_SIZE;
use iggy_binary_protocol::consensus::{Operation, RequestHeader};
use milena_testkit::proxy::Observer;
use parking_lot::Mutex;

/// Counts the requests in what goes to the server. Every one is a header and a body, and the header says how long.
#[derive(Default)]
pub(crate) struct Frames {
    requests: AtomicUsize,
    sends: AtomicUsize,
    /// By connection: bytes of a header that is not whole, and bytes to go of a body.
    pending: Mutex<HashMap<u64, (Vec<u8>, usize)>>,
}

impl Frames {
    pub(crate) fn observer(self: &Arc<Self>) -> Observer {
        let frames = Arc::clone(self);
        Arc::new(move |connection, bytes| frames.see(connection, bytes))
    }

    /// All of them so far.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    /// Those that append messages.
    pub(crate) fn sends(&self) -> usize {
        self.sends.load(Ordering::Relaxed)
    }

    fn see(&self, connection: u64, mut bytes: &[u8]) {
        let mut pending = self.pending.lock();
        let (header, body) = pending.entry(connection).or_default();
        while !bytes.is_empty() {
            let skipped = bytes.len().min(*body);
            *body -= skipped;
            bytes = &bytes[skipped..];
            let wanted = bytes.len().min(HEADER_SIZE - header.len());
            header.extend_from_slice(&bytes[..wanted]);
            bytes = &bytes[wanted..];
            if *body == 0 && header.len() == HEADER_SIZE {
                let found: &RequestHeader = bytemuck::checked::from_bytes(header);
                *body = usize::try_from(found.size).unwrap() - HEADER_SIZE;
                self.requests.fetch_add(1, Ordering::Relaxed);
                self.sends.fetch_add(usize::from(found.operation == Operation::SendMessages), Ordering::Relaxed);
                header.clear();
            }
        }
    }
}
