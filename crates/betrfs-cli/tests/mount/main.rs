//! The binary `betrfs` from outside: its commands, and mounts as processes see them. Needs /dev/fuse and the
//! right to mount.
#![allow(clippy::unwrap_used)] // Also in helpers outside of `#[test]` functions.

mod access;
mod acls;
mod administration;
mod attributes;
mod backup;
mod block_device;
mod block_mount;
mod cases;
mod check;
mod clones;
mod commands;
mod contents;
mod control;
mod copies_under_change;
mod direct;
mod directories;
mod durable_writes;
mod full_disk;
mod handles;
mod helpers;
mod inode_flags;
mod kernel_cache;
mod lifecycle;
mod mapping;
mod metrics;
mod mkfs;
mod mounted;
mod names;
mod racing_users;
mod read_only;
mod request_costs;
mod resize;
mod restore;
mod restricted_server;
mod schemas;
mod scrub;
mod snapshots;
mod space;
mod suspended;
mod tags;
mod top;
mod tree;
mod user_clones;
mod xattrs;
