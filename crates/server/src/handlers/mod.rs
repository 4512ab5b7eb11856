//! One file per API key. The head comment of each is its specification.

pub mod admin;
pub mod alter_configs;
pub mod api_versions;
mod brokers;
mod config_resources;
pub mod create_partitions;
pub mod create_topics;
pub mod delete_groups;
pub mod delete_records;
pub mod delete_topics;
pub mod describe_cluster;
pub mod describe_configs;
pub mod describe_groups;
mod error_codes;
pub mod fetch;
pub mod find_coordinator;
mod groups;
pub mod heartbeat;
pub mod incremental_alter_configs;
pub mod init_producer_id;
pub mod join_group;
pub mod leave_group;
pub mod list_groups;
pub mod list_offsets;
pub mod metadata;
pub mod offset_commit;
pub mod offset_delete;
pub mod offset_fetch;
pub mod offset_for_leader_epoch;
pub mod produce;
pub mod sync_group;

#[cfg(test)]
pub(crate) mod testing;
