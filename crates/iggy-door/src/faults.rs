//! Faults that tests plan. None of this is in a build without the feature `faults`.

use std::time::Duration;

use iggy_binary_protocol::consensus::Operation;
use parking_lot::Mutex;

use crate::frame::Request;

/// What becomes of a request, instead of what should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The connection is closed and nothing is done.
    CutBeforeApply,
    /// It is done, and the connection is closed without an answer.
    CutAfterApply,
    /// It is done, and not answered; the connection stays.
    SwallowReply,
    /// It waits, then it is done.
    DelayBefore(Duration),
    /// It is done, and the answer waits.
    DelayAfter(Duration),
    /// It is not done, and this code is the answer.
    Answer(u32),
    /// It is done, and the answer is an empty success: a confirmation without an offset.
    NoOffset,
    /// It is not done, and the answer is a success with this body.
    Body(&'static [u8]),
}

/// Which requests meet a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// The next one that is no ping.
    Any,
    /// The next one of this operation.
    Operation(Operation),
    /// The next one of this command code.
    Code(u32),
}

/// Planned faults; each is met once, in the order in which they were planned.
#[derive(Debug, Default)]
pub struct Faults {
    planned: Mutex<Vec<(On, Fault)>>,
}

impl Faults {
    /// Plans a fault.
    pub fn plan(&self, on: On, fault: Fault) {
        self.planned.lock().push((on, fault));
    }

    /// How many planned faults were not met yet.
    #[must_use]
    pub fn left(&self) -> usize {
        self.planned.lock().len()
    }

    /// Forgets what was planned.
    pub fn forget(&self) {
        self.planned.lock().clear();
    }

    pub(crate) fn meets(&self, request: &Request) -> Option<Fault> {
        let mut planned = self.planned.lock();
        let operation = request.header.operation;
        let is_read = operation == Operation::NonReplicated;
        let at = planned.iter().position(|(on, _)| match on {
            On::Any => !is_read || request.code() != iggy_binary_protocol::codes::PING_CODE,
            On::Operation(wanted) => *wanted == operation,
            On::Code(code) => is_read && request.code() == *code,
        })?;
        Some(planned.remove(at).1)
    }
}
