//! What goes: topics, the last partitions of one, names.
//!
//! The catalog is replaced as a whole, so a crash leaves all as it was or all as it is meant to be. Whoever holds an older
//! reference to the topic still reaches it: names are no part of its identity, nor of its files' places.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use milena_store::{PartitionId, StoreError, TopicInfo, TopicRef};

use crate::env::Env;
use crate::folder::remove_tree;
use crate::partition::partition_dir;
use crate::store::{Inner, Topic, check_name};

impl Inner {
    pub(crate) fn delete(&self, topic: &TopicRef) -> Result<(), StoreError> {
        let mut catalog = self.catalog.lock();
        let found = self.find(topic)?;
        // As it is called now, and not as the caller knows it.
        let known = found.info.read().topic.clone();
        let mut changed = catalog.clone();
        changed.remove(topic);
        let outcome = self.change(&mut catalog, changed, || {
            found.state.deleted.store(true, Ordering::Release);
            let mut topics = self.topics.write();
            topics.by_number.remove(&topic.topic_id());
            topics.forget_name(&known);
        });
        // The number is never given again, so nobody makes files where these are removed.
        drop(catalog);
        if found.state.deleted.load(Ordering::Acquire) {
            let watcher = self.env.watcher.read().clone();
            if let Some(watcher) = watcher {
                watcher.deleted(&known);
            }
        }
        if outcome.is_ok() {
            // In doubt, a crash could bring the topic back, and it must not be without its messages then.
            found.slots.read().iter().filter_map(|slot| slot.get()).for_each(|partition| partition.forget());
            remove_tree(&*self.env.fs, &topic_dir(&self.env, topic));
        }
        outcome
    }

    /// Removes the folders of topics and partitions that are not in the catalog: their removal was not finished.
    pub(crate) fn remove_orphans(&self) {
        let fs = &*self.env.fs;
        let folders = |dir: &Path| fs.list(dir).unwrap_or_default().into_iter().filter(|item| item.is_dir);
        let topics = self.topics.read();
        for stream in folders(&self.env.root).filter(|item| item.name.parse::<u32>().is_ok()) {
            let dir = self.env.root.join(&stream.name);
            for item in folders(&dir) {
                let dir = dir.join(&item.name);
                let topic = item.name.parse().ok().and_then(|id: u32| topics.by_number.get(&id));
                let Some(topic) = topic else {
                    tracing::info!(dir = %dir.display(), "the folder of a deleted topic is removed");
                    remove_tree(fs, &dir);
                    continue;
                };
                let partitions = topic.info.read().partitions;
                for item in folders(&dir).filter(|item| item.name.parse().is_ok_and(|id: u32| id >= partitions)) {
                    tracing::info!(dir = %dir.join(&item.name).display(), "the folder of a deleted partition is removed");
                    remove_tree(fs, &dir.join(&item.name));
                }
            }
        }
    }

    /// See [`milena_store::Store::shrink_topic`].
    ///
    /// The partitions are closed for writing first: where they end is stored with the change, and nothing may be acknowledged
    /// behind that. Their files go last, since what is in doubt may come back with the next start, and before the catalog may
    /// change again: partitions that are added under the same numbers have theirs in the same places.
    pub(crate) fn shrink(&self, topic: &TopicRef, partitions: u32) -> Result<TopicInfo, StoreError> {
        let mut catalog = self.catalog.lock();
        let found = self.find(topic)?;
        let has = found.info.read().partitions;
        if partitions == 0 || partitions > has {
            let (actual, limit) = (u64::from(partitions), u64::from(has));
            return Err(StoreError::Refused { what: "number of partitions that stay", actual, limit });
        }
        // All of them are opened: one that could be opened later would write to files that are about to go.
        let opened: Result<Vec<_>, _> = (partitions..has).map(|last| self.partition(&topic.partition(last))).collect();
        let leaving = opened?;
        let ends: Vec<(PartitionId, u64)> = (partitions..).zip(leaving.iter().map(|one| one.retire())).collect();
        let mut changed = catalog.clone();
        changed.shrink(topic, partitions, &ends);
        let mut is_done = false;
        let outcome = self.change(&mut catalog, changed, || {
            found.slots.write().truncate(partitions as usize);
            found.info.write().partitions = partitions;
            is_done = true;
        });
        if is_done {
            let watcher = self.env.watcher.read().clone();
            watcher.iter().for_each(|watcher| leaving.iter().for_each(|partition| watcher.fell(&partition.id, 0)));
        } else {
            leaving.iter().for_each(|partition| partition.revive());
        }
        outcome?;
        for partition in &leaving {
            partition.forget();
            remove_tree(&*self.env.fs, &partition_dir(&self.env.root, &partition.id));
        }
        drop(catalog);
        Ok(found.info.read().clone())
    }

    /// See [`milena_store::Store::rename_topic`].
    pub(crate) fn rename_topic(&self, topic: &TopicRef, name: &str) -> Result<TopicInfo, StoreError> {
        check_name(name)?;
        let mut catalog = self.catalog.lock();
        let found = self.find(topic)?;
        let old = found.info.read().topic.clone();
        if self.named(old.stream(), name).is_some() {
            return Err(StoreError::Exists { what: format!("topic {}/{name}", old.stream()) });
        }
        let mut changed = catalog.clone();
        changed.rename_topic(topic, name);
        let outcome = self.change(&mut catalog, changed, || self.call(&found, &renamed(&old, old.stream(), name)));
        drop(catalog);
        self.tell_of_old_names(&[&old], &outcome);
        outcome?;
        Ok(found.info.read().clone())
    }

    /// See [`milena_store::Store::rename_stream`].
    pub(crate) fn rename_stream(&self, stream: &str, name: &str) -> Result<(), StoreError> {
        self.env.refuse_when_closed()?;
        check_name(name)?;
        let mut catalog = self.catalog.lock();
        let topics = self.of_stream(stream);
        let Some(id) = topics.first().map(|(_, old)| old.stream_id()) else { return Ok(()) };
        if !self.of_stream(name).is_empty() {
            return Err(StoreError::Exists { what: format!("stream {name}") });
        }
        let mut changed = catalog.clone();
        changed.rename_stream(id, name);
        let outcome = self.change(&mut catalog, changed, || {
            for (topic, old) in &topics {
                self.call(topic, &renamed(old, name, old.topic()));
            }
        });
        drop(catalog);
        let old: Vec<&TopicRef> = topics.iter().map(|(_, old)| old).collect();
        self.tell_of_old_names(&old, &outcome);
        outcome
    }

    fn of_stream(&self, stream: &str) -> Vec<(Arc<Topic>, TopicRef)> {
        let topics = self.topics.read();
        let named = topics.by_number.values().map(|topic| (topic.clone(), topic.info.read().topic.clone()));
        named.filter(|(_, topic)| topic.stream() == stream).collect()
    }

    /// Gives a topic its new name. Log lines of its partitions have the old one until the next start.
    fn call(&self, topic: &Topic, renamed: &TopicRef) {
        let mut topics = self.topics.write();
        let old = std::mem::replace(&mut topic.info.write().topic, renamed.clone());
        topics.forget_name(&old);
        topics.give_name(renamed);
    }

    fn tell_of_old_names<T>(&self, old: &[&TopicRef], outcome: &Result<T, StoreError>) {
        // In doubt the new names are in force.
        let is_done = matches!(outcome, Ok(_) | Err(StoreError::InDoubt { .. }));
        let watcher = self.env.watcher.read().clone();
        if let Some(watcher) = watcher.filter(|_| is_done) {
            old.iter().for_each(|topic| watcher.deleted(topic));
        }
    }
}

fn topic_dir(env: &Env, topic: &TopicRef) -> PathBuf {
    env.root.join(topic.stream_id().to_string()).join(topic.topic_id().to_string())
}

fn renamed(old: &TopicRef, stream: &str, topic: &str) -> TopicRef {
    TopicRef::new(stream, topic, old.stream_id(), old.topic_id(), old.created_at_micros())
}
