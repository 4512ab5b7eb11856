//! One file per API key. The head comment of each is its specification.

pub mod admin;
pub mod api_versions;
pub mod create_partitions;
pub mod create_topics;
pub mod delete_topics;
pub mod describe_cluster;
pub mod describe_configs;
pub mod fetch;
pub mod find_coordinator;
pub mod init_producer_id;
pub mod list_offsets;
pub mod metadata;
pub mod produce;

#[cfg(test)]
pub(crate) mod testing;
