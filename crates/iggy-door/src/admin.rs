//! Who creates, changes and deletes topics for the door.
//!
//! With a Kafka side in front of the same store, that is its directory of topics: it has to know of each change, and keeps
//! configs that a store does not. Without one, it is the store itself.

use std::sync::Arc;

use milena_server::topics::TopicDirectory;
use milena_store::{Store, StoreFuture, TopicInfo, TopicRef, TopicSettings};

/// Changes topics. Each method promises what the store's of the same name does.
pub trait TopicAdmin: Send + Sync + 'static {
    /// Creates a topic, and its stream when that is missing.
    fn create_topic<'a>(
        &'a self,
        stream: &'a str,
        topic: &'a str,
        partitions: u32,
        settings: &'a TopicSettings,
    ) -> StoreFuture<'a, TopicInfo>;

    /// Deletes this incarnation of a topic.
    fn delete_topic<'a>(&'a self, topic: &'a TopicRef) -> StoreFuture<'a, ()>;

    /// Grows a topic to `partitions` in all.
    fn grow_topic<'a>(&'a self, topic: &'a TopicRef, partitions: u32) -> StoreFuture<'a, TopicInfo>;

    /// Shrinks a topic to `partitions` in all.
    fn shrink_topic<'a>(&'a self, topic: &'a TopicRef, partitions: u32) -> StoreFuture<'a, TopicInfo>;

    /// Gives a topic another name within its stream.
    fn rename_topic<'a>(&'a self, topic: &'a TopicRef, name: &'a str) -> StoreFuture<'a, TopicInfo>;

    /// Gives a stream another name.
    fn rename_stream<'a>(&'a self, stream: &'a str, name: &'a str) -> StoreFuture<'a, ()>;

    /// Replaces the settings of a topic.
    fn update_settings<'a>(&'a self, topic: &'a TopicRef, settings: &'a TopicSettings) -> StoreFuture<'a, TopicInfo>;
}

impl TopicAdmin for Arc<dyn Store> {
    fn create_topic<'a>(
        &'a self,
        stream: &'a str,
        topic: &'a str,
        partitions: u32,
        settings: &'a TopicSettings,
    ) -> StoreFuture<'a, TopicInfo> {
        self.as_ref().create_topic(stream, topic, partitions, settings)
    }

    fn delete_topic<'a>(&'a self, topic: &'a TopicRef) -> StoreFuture<'a, ()> {
        self.as_ref().delete_topic(topic)
    }

    fn grow_topic<'a>(&'a self, topic: &'a TopicRef, partitions: u32) -> StoreFuture<'a, TopicInfo> {
        self.as_ref().grow_topic(topic, partitions)
    }

    fn shrink_topic<'a>(&'a self, topic: &'a TopicRef, partitions: u32) -> StoreFuture<'a, TopicInfo> {
        self.as_ref().shrink_topic(topic, partitions)
    }

    fn rename_topic<'a>(&'a self, topic: &'a TopicRef, name: &'a str) -> StoreFuture<'a, TopicInfo> {
        self.as_ref().rename_topic(topic, name)
    }

    fn rename_stream<'a>(&'a self, stream: &'a str, name: &'a str) -> StoreFuture<'a, ()> {
        self.as_ref().rename_stream(stream, name)
    }

    fn update_settings<'a>(&'a self, topic: &'a TopicRef, settings: &'a TopicSettings) -> StoreFuture<'a, TopicInfo> {
        self.as_ref().update_settings(topic, settings)
    }
}

impl TopicAdmin for TopicDirectory {
    fn create_topic<'a>(
        &'a self,
        stream: &'a str,
        topic: &'a str,
        partitions: u32,
        settings: &'a TopicSettings,
    ) -> StoreFuture<'a, TopicInfo> {
        Box::pin(self.create_at(stream, topic, partitions, settings))
    }

    fn delete_topic<'a>(&'a self, topic: &'a TopicRef) -> StoreFuture<'a, ()> {
        Box::pin(self.delete_at(topic))
    }

    fn grow_topic<'a>(&'a self, topic: &'a TopicRef, partitions: u32) -> StoreFuture<'a, TopicInfo> {
        Box::pin(self.grow_at(topic, partitions))
    }

    fn shrink_topic<'a>(&'a self, topic: &'a TopicRef, partitions: u32) -> StoreFuture<'a, TopicInfo> {
        Box::pin(self.shrink_at(topic, partitions))
    }

    fn rename_topic<'a>(&'a self, topic: &'a TopicRef, name: &'a str) -> StoreFuture<'a, TopicInfo> {
        Box::pin(self.rename_at(topic, name))
    }

    fn rename_stream<'a>(&'a self, stream: &'a str, name: &'a str) -> StoreFuture<'a, ()> {
        Box::pin(self.rename_stream_at(stream, name))
    }

    fn update_settings<'a>(&'a self, topic: &'a TopicRef, settings: &'a TopicSettings) -> StoreFuture<'a, TopicInfo> {
        Box::pin(self.update_at(topic, settings))
    }
}
