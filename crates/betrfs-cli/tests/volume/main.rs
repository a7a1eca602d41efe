//! Whole volumes under load: a real source tree, servers that are killed, memory, a full disk, rot.
//! They take minutes and gigabytes, and the tree that `setup/test` gets for them; none of them is
//! skipped for want of a mount or of the tree.
#![forbid(unsafe_code)]
// Also outside of `#[test]` functions, in what they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[expect(dead_code, reason = "the tests of single commands and requests use the rest")]
#[path = "../mount/mounted.rs"]
mod mounted;

mod build_and_git;
mod clones;
mod compare;
mod full;
mod history;
mod kernel_source_tree;
mod kill_nine;
mod memory;
mod one_file;
mod programs;
mod rot;
