//! Names on the wire.
//!
//! A name of digits is a name, never a number, so identifiers are always of the kind "string". The internal stream
//! may have another name on the server, so that several clusters of gateways can share one server.

use iggy_binary_protocol::WireIdentifier;
use iggy_common::Identifier;
use milena_store::{INTERNAL_STREAM, StoreError, TopicRef};

/// Translates the name of the internal stream.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    state_stream: String,
}

impl Names {
    pub(crate) fn new(state_stream: &str) -> Self {
        Self { state_stream: state_stream.to_owned() }
    }

    /// The name of a stream on the server.
    ///
    /// # Errors
    /// For the stream that is the internal one there: its topics are reached under that name only.
    pub(crate) fn on_server<'a>(&'a self, stream: &'a str) -> Result<&'a str, StoreError> {
        if stream == INTERNAL_STREAM {
            Ok(&self.state_stream)
        } else if stream == self.state_stream {
            Err(StoreError::Unsupported { what: "topics in the stream that holds Milena's own state" })
        } else {
            Ok(stream)
        }
    }

    /// The name of a stream of the server as callers know it; `None` for the internal stream of another cluster.
    pub(crate) fn seen<'a>(&self, stream: &'a str) -> Option<&'a str> {
        if stream == self.state_stream {
            Some(INTERNAL_STREAM)
        } else {
            Some(stream).filter(|stream| *stream != INTERNAL_STREAM)
        }
    }

    /// A stream, for commands that the SDK writes.
    pub(crate) fn stream(&self, stream: &str) -> Result<Identifier, StoreError> {
        identifier(self.on_server(stream)?)
    }

    /// Stream and topic, for commands that the SDK writes.
    pub(crate) fn topic(&self, stream: &str, topic: &str) -> Result<(Identifier, Identifier), StoreError> {
        Ok((self.stream(stream)?, identifier(topic)?))
    }

    /// Stream and topic, for commands that are written here.
    pub(crate) fn wire(&self, topic: &TopicRef) -> Result<(WireIdentifier, WireIdentifier), StoreError> {
        Ok((wire(self.on_server(topic.stream())?)?, wire(topic.topic())?))
    }
}

fn bad(length: usize) -> StoreError {
    StoreError::Refused { what: "a stream or topic name in bytes", actual: length as u64, limit: 255 }
}

pub(crate) fn wire(name: &str) -> Result<WireIdentifier, StoreError> {
    WireIdentifier::named(name).map_err(|_| bad(name.len()))
}

pub(crate) fn identifier(name: &str) -> Result<Identifier, StoreError> {
    Identifier::named(name).map_err(|_| bad(name.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_internal_stream_has_its_name_on_the_server_and_no_other_way_leads_there() {
        let names = Names::new("cluster-a");
        assert_eq!(names.on_server(INTERNAL_STREAM), Ok("cluster-a"));
        assert_eq!(names.on_server("kafka"), Ok("kafka"));
        assert!(names.on_server("cluster-a").is_err());
        assert_eq!(names.seen("cluster-a"), Some(INTERNAL_STREAM));
        assert_eq!(names.seen(INTERNAL_STREAM), None, "the state of another cluster");
        assert_eq!(names.seen("kafka"), Some("kafka"));
        let plain = Names::new(INTERNAL_STREAM);
        assert_eq!(
            (plain.on_server(INTERNAL_STREAM), plain.seen(INTERNAL_STREAM)),
            (Ok(INTERNAL_STREAM), Some(INTERNAL_STREAM))
        );
    }

    #[test]
    fn names_of_digits_are_no_numbers() {
        let names = Names::new(INTERNAL_STREAM);
        let (stream, topic) = names.wire(&TopicRef::new("1", "2", 7, 8, 9)).unwrap();
        assert_eq!((stream, topic), (WireIdentifier::named("1").unwrap(), WireIdentifier::named("2").unwrap()));
        assert!(names.stream(&"x".repeat(256)).is_err() && names.stream("").is_err());
    }
}
