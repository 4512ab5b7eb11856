//! Why bytes are not a message.

/// Why bytes are not a message. Texts never repeat input, so they may be logged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The length prefix is negative or above the bound.
    #[error("a frame of {bytes} bytes, and at most {max} are allowed")]
    FrameLength {
        /// Length that the prefix declares, in bytes.
        bytes: i32,
        /// Bound in bytes.
        max: usize,
    },
    /// The frame is shorter than its header.
    #[error("the frame ends inside its header")]
    ShortHeader,
    /// The api key is none we know.
    #[error("unknown api key {0}")]
    UnknownApi(i16),
    /// The body does not decode.
    #[error("the body does not decode: {0}")]
    Malformed(String),
    /// A count or length that the bytes of the frame cannot hold.
    #[error("the body declares {declared} elements or bytes where {left} bytes are left")]
    Overdeclared {
        /// What the frame declares.
        declared: usize,
        /// Bytes that were left when it was read.
        left: usize,
    },
    /// More primitive fields than one message may have.
    #[error("the body has more than {0} fields")]
    TooManyFields(usize),
    /// Bytes were left behind the body.
    #[error("{0} bytes are left behind the body")]
    BytesLeft(usize),
    /// A message could not be encoded.
    #[error("cannot encode: {0}")]
    Encode(String),
}
