//! The binary `betrfs` as users meet it: its commands, and what processes see on a mount. Needs
//! /dev/fuse and the right to mount.
#![allow(clippy::unwrap_used)] // Also outside of `#[test]` functions, in what they share.

mod access;
mod attributes;
mod block_device;
mod block_mount;
mod budget;
mod cases;
mod clones;
mod commands;
mod contents;
mod control;
mod direct;
mod directories;
mod full_disk;
mod helpers;
mod kernel_cache;
mod lifecycle;
mod mapping;
mod moments;
mod mounted;
mod names;
mod others;
mod sandbox;
mod snapshots;
mod space;
mod synchronous;
mod xattrs;
