//! The commands, one in each file.

pub mod backup;
pub mod check;
pub mod clone;
pub mod completions;
pub mod debug;
pub mod install_helpers;
pub mod kv;
pub mod manual;
pub mod mkfs;
pub mod mount;
pub mod probe;
pub mod rescue;
pub mod rm_tree;
pub mod scrub;
pub mod snapshot;
pub mod stats;
pub mod sync;
pub mod umount;
pub mod usage;
