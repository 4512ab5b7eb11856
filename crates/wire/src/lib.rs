//! Kafka frames and headers, both sides, with a guard in front of the schema decoders.
//!
//! - [`error`]: why bytes are not a message
//! - [`frame`]: length prefix and request header; never panics, also answers for keys and versions nobody knows
//! - [`encode`]: whole frames, written into buffers of exactly the right size
//! - [`decode`]: bodies, decoded under the guard
//! - [`fuzzing`]: every message type by number, for fuzz targets and for tests that walk all of them
//! - `guard`: the buffer that the schema decoders read from; no declared count reserves memory
//!
//! Message schemas are those of [`kafka_protocol`]. Record batches are not decoded here: they stay slices of the frame.
//! No sockets, no clock.

pub mod decode;
pub mod encode;
pub mod error;
pub mod frame;
pub mod fuzzing;
mod guard;

pub use decode::{decode_body, decode_request, decode_response};
pub use encode::{encode_request, encode_response};
pub use error::WireError;
pub use frame::{RequestFrame, frame_len, parse_request};
pub use kafka_protocol;
