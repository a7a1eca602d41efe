// The volume of the examples in the documentation of [`Volume`]: new, in memory.

use std::sync::Arc;

use betree_std::StdPlatform;
use betrfs::{FileType, FormatOptions, NewNode, OpenOptions, Volume};
use betree_sim::MemDevice;

/// An empty device, and the clock and randomness of the host.
pub fn device() -> (Arc<MemDevice>, Arc<StdPlatform>) {
    (Arc::new(MemDevice::new(64 << 20)), Arc::new(StdPlatform::new()))
}

/// An empty volume, and the properties of new files and directories.
pub fn volume() -> betrfs::Result<(Volume, NewNode, NewNode)> {
    let (device, platform) = device();
    Volume::format(device.clone(), &FormatOptions::default(), &*platform)?;
    let volume = Volume::open(device, OpenOptions::new(platform))?;
    let new_dir = NewNode { file_type: FileType::Directory, perm: 0o755, uid: 1000, gid: 1000, rdev: 0, umask: 0 };
    let new_file = NewNode { file_type: FileType::Regular, perm: 0o644, ..new_dir };
    Ok((volume, new_file, new_dir))
}
