// The volume of the examples in the documentation of [`Env`]: new, in a file that is deleted in the end.

use std::sync::Arc;

use betree::{Env, Geometry, Options, Replace};
use betree_std::FileDevice;

pub const VOLUME_BYTES: u64 = 16 << 20;

/// A device in a new file, and the folder that deletes the file when it is dropped.
pub fn device() -> (Arc<FileDevice>, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let device = FileDevice::create(&folder.path().join("pairs"), VOLUME_BYTES).expect("a new file");
    (Arc::new(device), folder)
}

/// An empty volume with one dictionary.
pub fn volume() -> betree::Result<(Env, tempfile::TempDir)> {
    let (device, folder) = device();
    Env::format(device.clone(), &Geometry::for_volume(VOLUME_BYTES, 1), [7; 16])?;
    let env = Env::open(device, Options::new(1 << 20, Arc::new(Replace)))?;
    Ok((env, folder))
}
