//! A store in front of another one, for tests that count calls, hold them up or make them fail.

use std::ops::Deref;
use std::sync::Arc;

use crate::engine::{GrowthWatcher, Store, StoreFuture};
use crate::epochs::Epochs;
use crate::metrics::EngineMetrics;
use crate::offsets::OffsetStore;
use crate::types::{
    AppendBatch, Appended, Bounds, Capabilities, Entry, Found, PartitionRef, PartitionSize, ReadLimit, TimeKind,
    TopicInfo, TopicRef, TopicSettings, Volume,
};

/// What stands in front of a store. Each method is that of [`Store`] and hands the call down; a layer overrides those
/// that it changes. [`Layered`] makes a store of it.
pub trait Layer: Send + Sync + 'static {
    /// The store behind.
    fn below(&self) -> &dyn Store;

    /// As [`Store::capabilities`].
    fn capabilities(&self) -> Capabilities {
        self.below().capabilities()
    }
    /// As [`Store::topics`].
    fn topics(&self) -> StoreFuture<'_, Vec<TopicInfo>> {
        self.below().topics()
    }
    /// As [`Store::topic`].
    fn topic<'a>(&'a self, stream: &'a str, topic: &'a str) -> StoreFuture<'a, Option<TopicInfo>> {
        self.below().topic(stream, topic)
    }
    /// As [`Store::create_topic`].
    fn create_topic<'a>(
        &'a self,
        stream: &'a str,
        topic: &'a str,
        partitions: u32,
        settings: &'a TopicSettings,
    ) -> StoreFuture<'a, TopicInfo> {
        self.below().create_topic(stream, topic, partitions, settings)
    }
    /// As [`Store::delete_topic`].
    fn delete_topic<'a>(&'a self, topic: &'a TopicRef) -> StoreFuture<'a, ()> {
        self.below().delete_topic(topic)
    }
    /// As [`Store::grow_topic`].
    fn grow_topic<'a>(&'a self, topic: &'a TopicRef, partitions: u32) -> StoreFuture<'a, TopicInfo> {
        self.below().grow_topic(topic, partitions)
    }
    /// As [`Store::shrink_topic`].
    fn shrink_topic<'a>(&'a self, topic: &'a TopicRef, partitions: u32) -> StoreFuture<'a, TopicInfo> {
        self.below().shrink_topic(topic, partitions)
    }
    /// As [`Store::rename_topic`].
    fn rename_topic<'a>(&'a self, topic: &'a TopicRef, name: &'a str) -> StoreFuture<'a, TopicInfo> {
        self.below().rename_topic(topic, name)
    }
    /// As [`Store::rename_stream`].
    fn rename_stream<'a>(&'a self, stream: &'a str, name: &'a str) -> StoreFuture<'a, ()> {
        self.below().rename_stream(stream, name)
    }
    /// As [`Store::update_settings`].
    fn update_settings<'a>(&'a self, topic: &'a TopicRef, settings: &'a TopicSettings) -> StoreFuture<'a, TopicInfo> {
        self.below().update_settings(topic, settings)
    }
    /// As [`Store::append`].
    fn append<'a>(&'a self, at: &'a PartitionRef, batch: AppendBatch) -> StoreFuture<'a, Appended> {
        self.below().append(at, batch)
    }
    /// As [`Store::read`].
    fn read<'a>(&'a self, at: &'a PartitionRef, from: u64, limit: ReadLimit) -> StoreFuture<'a, Vec<Entry>> {
        self.below().read(at, from, limit)
    }
    /// As [`Store::find`].
    fn find<'a>(
        &'a self,
        at: &'a PartitionRef,
        from: u64,
        time_micros: u64,
        kind: TimeKind,
    ) -> StoreFuture<'a, Option<Found>> {
        self.below().find(at, from, time_micros, kind)
    }
    /// As [`Store::newest`].
    fn newest<'a>(&'a self, at: &'a PartitionRef, kind: TimeKind) -> StoreFuture<'a, Option<Found>> {
        self.below().newest(at, kind)
    }
    /// As [`Store::bounds`].
    fn bounds<'a>(&'a self, at: &'a PartitionRef) -> StoreFuture<'a, Bounds> {
        self.below().bounds(at)
    }
    /// As [`Store::epochs`].
    fn epochs(&self, at: &PartitionRef) -> Epochs {
        self.below().epochs(at)
    }
    /// As [`Store::trim`].
    fn trim<'a>(&'a self, at: &'a PartitionRef, before: u64) -> StoreFuture<'a, Bounds> {
        self.below().trim(at, before)
    }
    /// As [`Store::sizes`].
    fn sizes<'a>(&'a self, topic: &'a TopicRef) -> StoreFuture<'a, Vec<PartitionSize>> {
        self.below().sizes(topic)
    }
    /// As [`Store::volume`].
    fn volume(&self) -> StoreFuture<'_, Option<Volume>> {
        self.below().volume()
    }
    /// As [`Store::sealed_segments`].
    fn sealed_segments<'a>(&'a self, at: &'a PartitionRef, most: usize) -> StoreFuture<'a, Vec<u64>> {
        self.below().sealed_segments(at, most)
    }
    /// As [`Store::watch`].
    fn watch(&self, watcher: Arc<dyn GrowthWatcher>) {
        self.below().watch(watcher);
    }
    /// As [`Store::offset_store`].
    fn offset_store(&self) -> Option<&dyn OffsetStore> {
        self.below().offset_store()
    }
    /// As [`Store::metrics`].
    fn metrics(&self) -> Option<&EngineMetrics> {
        self.below().metrics()
    }
    /// As [`Store::close`].
    fn close(&self) -> StoreFuture<'_, ()> {
        self.below().close()
    }
}

/// A layer with what is behind it, as one store.
#[derive(Debug, Clone, Default)]
pub struct Layered<L>(pub L);

impl<L> Deref for Layered<L> {
    type Target = L;

    fn deref(&self) -> &L {
        &self.0
    }
}

impl<L: Layer> Store for Layered<L> {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }
    fn topics(&self) -> StoreFuture<'_, Vec<TopicInfo>> {
        self.0.topics()
    }
    fn topic<'a>(&'a self, stream: &'a str, topic: &'a str) -> StoreFuture<'a, Option<TopicInfo>> {
        self.0.topic(stream, topic)
    }
    fn create_topic<'a>(
        &'a self,
        stream: &'a str,
        topic: &'a str,
        partitions: u32,
        settings: &'a TopicSettings,
    ) -> StoreFuture<'a, TopicInfo> {
        self.0.create_topic(stream, topic, partitions, settings)
    }
    fn delete_topic<'a>(&'a self, topic: &'a TopicRef) -> StoreFuture<'a, ()> {
        self.0.delete_topic(topic)
    }
    fn grow_topic<'a>(&'a self, topic: &'a TopicRef, partitions: u32) -> StoreFuture<'a, TopicInfo> {
        self.0.grow_topic(topic, partitions)
    }
    fn shrink_topic<'a>(&'a self, topic: &'a TopicRef, partitions: u32) -> StoreFuture<'a, TopicInfo> {
        self.0.shrink_topic(topic, partitions)
    }
    fn rename_topic<'a>(&'a self, topic: &'a TopicRef, name: &'a str) -> StoreFuture<'a, TopicInfo> {
        self.0.rename_topic(topic, name)
    }
    fn rename_stream<'a>(&'a self, stream: &'a str, name: &'a str) -> StoreFuture<'a, ()> {
        self.0.rename_stream(stream, name)
    }
    fn update_settings<'a>(&'a self, topic: &'a TopicRef, settings: &'a TopicSettings) -> StoreFuture<'a, TopicInfo> {
        self.0.update_settings(topic, settings)
    }
    fn append<'a>(&'a self, at: &'a PartitionRef, batch: AppendBatch) -> StoreFuture<'a, Appended> {
        self.0.append(at, batch)
    }
    fn read<'a>(&'a self, at: &'a PartitionRef, from: u64, limit: ReadLimit) -> StoreFuture<'a, Vec<Entry>> {
        self.0.read(at, from, limit)
    }
    fn find<'a>(
        &'a self,
        at: &'a PartitionRef,
        from: u64,
        time_micros: u64,
        kind: TimeKind,
    ) -> StoreFuture<'a, Option<Found>> {
        self.0.find(at, from, time_micros, kind)
    }
    fn newest<'a>(&'a self, at: &'a PartitionRef, kind: TimeKind) -> StoreFuture<'a, Option<Found>> {
        self.0.newest(at, kind)
    }
    fn bounds<'a>(&'a self, at: &'a PartitionRef) -> StoreFuture<'a, Bounds> {
        self.0.bounds(at)
    }
    fn epochs(&self, at: &PartitionRef) -> Epochs {
        self.0.epochs(at)
    }
    fn trim<'a>(&'a self, at: &'a PartitionRef, before: u64) -> StoreFuture<'a, Bounds> {
        self.0.trim(at, before)
    }
    fn sizes<'a>(&'a self, topic: &'a TopicRef) -> StoreFuture<'a, Vec<PartitionSize>> {
        self.0.sizes(topic)
    }
    fn volume(&self) -> StoreFuture<'_, Option<Volume>> {
        self.0.volume()
    }
    fn sealed_segments<'a>(&'a self, at: &'a PartitionRef, most: usize) -> StoreFuture<'a, Vec<u64>> {
        self.0.sealed_segments(at, most)
    }
    fn watch(&self, watcher: Arc<dyn GrowthWatcher>) {
        self.0.watch(watcher);
    }
    fn offset_store(&self) -> Option<&dyn OffsetStore> {
        self.0.offset_store()
    }
    fn metrics(&self) -> Option<&EngineMetrics> {
        self.0.metrics()
    }
    fn close(&self) -> StoreFuture<'_, ()> {
        self.0.close()
    }
}
