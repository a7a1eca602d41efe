//! Every byte that reaches the disk, and nothing else.

pub(crate) mod segment;
pub(crate) mod superblock;
