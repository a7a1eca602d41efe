//! betrfs-cli

fn main() {}
