//! The library's tests, one topic a module.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod above;
mod access;
mod acls;
mod attributes;
mod bounds;
mod check_in_use;
mod check_of_damage;
mod clones;
mod contents;
mod copies_under_change;
mod costs;
mod device_costs;
mod dice;
mod file_cache;
mod find_inode;
mod full;
mod hostile;
mod inode_flags;
mod known_damage;
mod links;
mod listings;
mod lost_blocks;
mod ownership;
mod properties;
mod renames;
mod repair;
mod restore;
mod scrub;
mod snapshots;
mod sparse;
mod support;
mod threads;
mod unlinked;
mod usage;
mod versions;
