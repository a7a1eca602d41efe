//! betrfs-fuse
