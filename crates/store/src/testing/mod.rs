//! For tests: an engine in memory, simple enough to be believed, with fault hooks; and blocks of messages.

mod memory;
mod messages;
mod partition;

pub use memory::{Fault, MemoryStore};
pub use messages::{TestMessage, batch_of};
