//! betrfs-bench

fn main() {}
