//! betrfs-host
