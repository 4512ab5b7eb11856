//! For tests: an engine in memory, simple enough to be believed, with fault hooks; layers in front of a store; and blocks of
//! messages.

mod layer;
mod memory;
mod messages;
mod offsets;
mod partition;
mod watchers;

pub use layer::{Layer, Layered};
pub use memory::{Fault, MemoryStore};
pub use messages::{TestMessage, batch_of};
pub use offsets::{OffsetFault, OffsetRules};

#[cfg(test)]
mod tests;
