//! Whole volumes under load: a real source tree, killed servers, memory, full volumes, rot. The tests take
//! minutes and gigabytes, and the source tree that `setup/test` fetches; none is skipped if the mount or the
//! tree is missing.
#![forbid(unsafe_code)]
// Also in helpers outside of `#[test]` functions.
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
