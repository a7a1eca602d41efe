//! The commands, one a file.

pub mod check;
pub mod mkfs;
pub mod mount;
pub mod stats;
pub mod umount;
