//! The file system by paths, on volumes in temporary files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../../betree-std/tests/fork/child.rs"]
mod child;
mod costs;
mod forks;
mod handles;
mod histories;
mod hostile;
mod lifecycle;
mod permissions;
mod support;
mod threads;
mod trees;
