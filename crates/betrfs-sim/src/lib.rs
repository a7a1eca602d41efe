//! betrfs-sim
