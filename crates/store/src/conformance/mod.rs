//! The suite that every engine runs: one function per promise of the [`Store`] trait.
//!
//! An engine's test file says how to open it, and gets one named test per promise:
//!
//! ```text
//! milena_store::conformance_tests!(MyFactory::new());
//! ```
//!
//! The expression is evaluated once per test, and each factory must stand for data of its own. The promises are plain
//! functions that block (they drive futures with `pollster`), and fail by panicking.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test suite fails by panicking"
)]

mod changes;
mod lifecycle;
mod log;
mod offsets;
mod time;
mod topics;
mod trim;
mod watch;

use std::sync::Arc;

use pollster::block_on;

use crate::engine::Store;
use crate::frame::Frames;
use crate::testing::{TestMessage, batch_of};
use crate::types::{Bounds, Entry, PartitionRef, ReadLimit, TopicInfo, TopicSettings};

pub use changes::*;
pub use lifecycle::*;
pub use log::*;
pub use offsets::*;
pub use time::*;
pub use topics::*;
pub use trim::*;
pub use watch::*;

/// Opens one set of data, again and again.
pub trait StoreFactory {
    /// Opens the data; it is empty at the first call.
    fn open(&self) -> Arc<dyn Store>;

    /// Closes `store`, which came from this factory, and opens its data again.
    fn reopen(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        block_on(store.close()).unwrap();
        drop(store);
        self.open()
    }

    /// Ends `store` without closing it, as `kill -9` would, and opens its data again; `None` when that cannot be done.
    fn crash(&self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        drop(store);
        None
    }

    /// False for an engine that forgets everything when it is closed.
    fn keeps_data(&self) -> bool {
        true
    }
}

const STREAM: &str = "conformance";

const EVERYTHING: ReadLimit = ReadLimit { bytes: usize::MAX, at_least_one: true };

fn create(store: &dyn Store, topic: &str, partitions: u32) -> TopicInfo {
    block_on(store.create_topic(STREAM, topic, partitions, &TopicSettings::default())).unwrap()
}

/// A topic with one partition, and that partition.
fn single(store: &dyn Store) -> PartitionRef {
    create(store, "single", 1).topic.partition(0)
}

fn bounds(store: &dyn Store, at: &PartitionRef) -> Bounds {
    block_on(store.bounds(at)).unwrap()
}

/// Appends `messages` as one batch; the answer is the offset of the first.
fn append(store: &dyn Store, at: &PartitionRef, messages: &[TestMessage]) -> u64 {
    let before = bounds(store, at).end;
    block_on(store.append(at, batch_of(messages))).unwrap().base_offset.unwrap_or(before)
}

/// Appends one message per payload, each in a batch of its own.
fn append_each(store: &dyn Store, at: &PartitionRef, payloads: impl IntoIterator<Item = Vec<u8>>) {
    for payload in payloads {
        append(store, at, &[TestMessage::new(1, &payload)]);
    }
}

fn read(store: &dyn Store, at: &PartitionRef, from: u64, limit: ReadLimit) -> Vec<Entry> {
    block_on(store.read(at, from, limit)).unwrap()
}

/// The messages of `entries` with their offsets; fails when a block is damaged or its count is wrong.
fn messages_of(entries: &[Entry]) -> Vec<(u64, TestMessage)> {
    let mut messages = Vec::new();
    for entry in entries {
        let mut frames = Frames::new(&entry.frames);
        let before = messages.len();
        for (offset, frame) in (entry.base_offset..).zip(frames.by_ref()) {
            let (payload, headers) = (frame.payload.to_vec(), frame.headers.to_vec());
            messages.push((offset, TestMessage { id: frame.id, origin_micros: frame.origin_micros, payload, headers }));
        }
        assert!(!frames.is_damaged(), "an entry is whole frames");
        assert_eq!(messages.len() - before, entry.count as usize, "an entry says how many frames it has");
    }
    messages
}

/// All that the partition retains; fails when the offsets are not dense from its start to its end.
fn everything(store: &dyn Store, at: &PartitionRef) -> Vec<(u64, TestMessage)> {
    let Bounds { start, end } = bounds(store, at);
    let mut messages: Vec<(u64, TestMessage)> = Vec::new();
    let mut next = start;
    while next < end {
        let entries = read(store, at, next, ReadLimit { bytes: 1 << 20, at_least_one: true });
        assert!(!entries.is_empty(), "nothing is readable at {next} of {start}..{end}");
        messages.extend(messages_of(&entries).into_iter().filter(|(offset, _)| *offset >= next));
        next = messages.last().map_or(next, |(offset, _)| offset + 1);
    }
    let offsets: Vec<u64> = messages.iter().map(|(offset, _)| *offset).collect();
    assert_eq!(offsets, (start..end).collect::<Vec<u64>>(), "offsets are dense");
    messages
}

fn payloads(messages: &[(u64, TestMessage)]) -> Vec<Vec<u8>> {
    messages.iter().map(|(_, message)| message.payload.clone()).collect()
}

/// One named test per promise, each with a factory of its own from the expression given.
///
/// With `where_there_is` before it, the expression is an `Option`: where it gives `None` there is nothing to test, and it has
/// to say so.
#[macro_export]
macro_rules! conformance_tests {
    (where_there_is $factory:expr) => {
        $crate::conformance_tests! { @all @where_there_is $factory; }
    };
    ($factory:expr) => {
        $crate::conformance_tests! { @all @each $factory; }
    };
    (@all $($kind:tt)*) => {
        $crate::conformance_tests! { $($kind)*
            a_created_topic_is_described_and_listed
            a_topic_that_exists_is_not_created_again
            of_concurrent_creates_exactly_one_succeeds
            a_missing_topic_is_none
            one_name_in_two_streams_is_two_topics
            a_name_of_digits_is_a_name
            too_many_partitions_are_refused
            a_deleted_topic_is_gone
            a_topic_created_again_is_another_and_empty
            growing_adds_empty_partitions
            shrinking_is_refused
            settings_are_replaced
            a_missing_partition_is_not_found
            offsets_are_dense_and_start_at_zero
            the_answer_to_an_append_is_true
            messages_are_read_back_byte_for_byte
            partitions_are_independent
            a_read_at_the_end_is_empty
            a_read_outside_is_out_of_range
            a_read_within_an_entry_returns_all_of_it
            a_read_stops_at_its_limit_between_entries
            at_least_one_entry_is_returned_when_asked
            without_at_least_one_a_too_small_limit_returns_nothing
            a_large_entry_is_stored_and_read
            appends_of_several_threads_keep_each_ones_order
            a_reader_beside_a_writer_sees_a_dense_prefix
            malformed_batches_do_no_harm
            find_is_exact_when_times_are_out_of_order
            find_starts_where_it_is_told
            find_takes_the_append_time_of_untimed_messages
            find_by_append_time_ignores_origin_times
            find_agrees_with_a_scan_over_many_entries
            newest_is_the_first_of_the_latest
            newest_of_an_empty_partition_is_none
            newest_takes_the_append_time_of_untimed_messages
            trim_moves_the_start_at_once_and_exactly
            trim_never_moves_back_and_stops_at_the_end
            a_trimmed_partition_goes_on_where_it_was
            what_was_trimmed_is_not_found_by_time
            a_trim_survives_a_reopen
            sizes_name_every_partition
            no_epoch_ends_while_nothing_is_lost
            sealed_segments_are_told_oldest_first_until_they_are_trimmed
            the_watcher_hears_of_growth_when_it_is_readable
            a_shrunk_topic_lost_its_last_partitions_and_nothing_else
            a_topic_keeps_a_partition_and_never_grows_by_shrinking
            a_partition_that_comes_back_gives_no_offset_twice
            a_renamed_topic_is_the_same_under_another_name
            a_renamed_stream_takes_its_topics_along
            a_name_that_is_taken_is_given_to_nobody_else
            the_watcher_hears_of_a_deletion
            the_watcher_hears_of_partitions_and_names_that_went
            a_later_watcher_replaces_the_first
            a_reopened_store_has_everything
            a_reopened_store_goes_on_at_the_same_offsets
            a_deletion_survives_a_reopen
            a_topic_created_again_after_a_reopen_is_another
            growth_and_settings_survive_a_reopen
            a_closed_store_refuses
            what_was_acknowledged_survives_a_crash
        }
    };
    (@each $factory:expr; $($promise:ident)*) => {
        $(
            #[test]
            fn $promise() {
                $crate::conformance::$promise(&$factory);
            }
        )*
    };
    (@where_there_is $factory:expr; $($promise:ident)*) => {
        $(
            #[test]
            fn $promise() {
                if let Some(factory) = $factory {
                    $crate::conformance::$promise(&factory);
                }
            }
        )*
    };
}

/// As [`conformance_tests`](crate::conformance_tests), for the consumer offsets of an engine that lets who is no member
/// of a group store any offset.
#[macro_export]
macro_rules! offset_conformance_tests {
    ($factory:expr) => {
        $crate::conformance_tests! { @each $factory;
            any_offset_is_kept_as_it_is
            offsets_of_groups_and_partitions_are_apart
            an_offset_is_taken_away_alone
            groups_come_and_go
            a_group_created_again_has_no_offsets
            a_topic_created_again_inherits_no_offsets
            an_offset_of_a_missing_partition_is_not_found
            names_of_groups_have_a_longest
            offsets_survive_a_reopen
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{MemoryStore, OffsetRules};

    /// Every opening is a handle of its own on the same data.
    struct Memory(MemoryStore);

    impl StoreFactory for Memory {
        fn open(&self) -> Arc<dyn Store> {
            Arc::new(self.0.again())
        }

        fn crash(&self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
            drop(store);
            Some(self.open())
        }
    }

    crate::conformance_tests!(Memory(MemoryStore::new()));
    crate::offset_conformance_tests!(Memory(MemoryStore::with_offsets(OffsetRules::Free)));
}
