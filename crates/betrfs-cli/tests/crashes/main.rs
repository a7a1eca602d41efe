//! The whole system under power cuts: the real server serves a volume on a disk that records every write and
//! sync; what a cut leaves is opened by the library, checked, and compared with what programs had been told.
//! Needs /dev/fuse and the right to mount.
// Also in helpers outside of `#[test]` functions.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../mount/mapping.rs"]
mod mapping;
#[expect(dead_code, reason = "the tests of single commands and requests use the rest")]
#[path = "../mount/mounted.rs"]
mod mounted;

mod bed;
mod bounded;
mod clients;
mod disk_log;
mod durable;
mod failing_disk;
mod histories;
mod judge;
mod progress;
mod recorded_disk;
mod stuck_disk;
mod tree;
