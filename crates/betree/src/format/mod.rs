//! Every byte that reaches the disk, and nothing else.

pub(crate) mod superblock;
