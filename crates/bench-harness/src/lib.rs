//! What benchmarks share: disks ([`disk`]), a limit on memory ([`memory_limit`]), cold caches, other programs
//! ([`tool`]), and a machine that is left as it was ([`teardown`]).
//!
//! The program under measurement starts itself again for what must be a process of its own; [`child`] is how,
//! and [`touch::OPTION`] and [`disk::emulated::OPTION`] are options that its `main` must answer.
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
