//! betrfs
