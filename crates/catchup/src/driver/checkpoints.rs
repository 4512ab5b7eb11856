//! Checkpoints on their way to the topic, and back from there.

use std::time::Instant;

use super::{Driver, Later, back_off};
use crate::Input;
use crate::checkpoint::Write;

impl Driver {
    /// Writes a checkpoint, the later the more often it failed.
    pub(super) fn store(&mut self, write: Write, attempt: u32) {
        if attempt == 0 {
            self.send_write(write);
        } else {
            self.later.push((Instant::now() + back_off(attempt), Later::Write(write)));
        }
    }

    pub(super) fn send_write(&mut self, write: Write) {
        let (epoch, id) = (write.epoch, write.id);
        // What was to be tried again may have no owner here any more, and then it is not ours to write.
        let owned = self.shared.epoch(&write.partition) == Some(epoch);
        if !(owned && self.writer.as_ref().is_some_and(|writer| writer.ask(write))) {
            self.shared.step_in(epoch, Input::Saved { id, ok: false });
        }
    }
}
