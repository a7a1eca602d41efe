//! Common parts of benchmarks: disks ([`disk`]), a limit on memory ([`memory_limit`]), cold caches, other
//! programs ([`tool`]), and cleaning up ([`teardown`]).
//!
//! Work that needs a process of its own runs in another process of the same program ([`child`]).
//! [`touch::OPTION`] and [`disk::emulated::OPTION`] are options that its `main` must handle.
#![forbid(unsafe_code)]

pub mod cgroup;
pub mod child;
pub mod disk;
pub mod machine;
pub mod median;
pub mod memory_limit;
pub mod output;
pub mod scale;
pub mod teardown;
pub mod tool;
pub mod touch;
