//! Takes a snapshot of a directory, changes the directory, and reads its earlier state.
//!
//!     cargo run -p betrfs --example snapshots -- /tmp/snapshots.betrfs

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use betree_std::{FileDevice, StdPlatform};
use betrfs::{FileType, FormatOptions, NewNode, OpenOptions, SNAPSHOTS_NAME, Volume};

const VOLUME_BYTES: u64 = 64 << 20;

fn contents(volume: &Volume, path: &[u8]) -> betrfs::Result<String> {
    let mut bytes = Vec::new();
    volume.read(volume.resolve(path)?.node, 0, 100, &mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Runs the example on a new file at `path`, and reports to `out`.
pub fn run(path: &Path, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let device = Arc::new(FileDevice::create(path, VOLUME_BYTES)?);
    let platform = Arc::new(StdPlatform::new());
    Volume::format(device.clone(), &FormatOptions::default(), &*platform)?;
    let volume = Volume::open(device, OpenOptions::new(platform))?;

    let root = volume.resolve(b"/")?.node;
    let new_dir = NewNode { file_type: FileType::Directory, perm: 0o755, uid: 0, gid: 0, rdev: 0, umask: 0 };
    let new_file = NewNode { file_type: FileType::Regular, perm: 0o644, ..new_dir };
    let notes = volume.create(root, b"notes", &new_dir)?.node;
    let file = volume.create_with(notes, b"plan", &new_file, b"Monday")?.node;

    // Making a directory here takes the snapshot.
    let snapshots = volume.lookup(notes, SNAPSHOTS_NAME)?.node;
    volume.create(snapshots, b"first", &new_dir)?;

    volume.write(file, 0, b"Friday")?;
    writeln!(out, "now: {}", contents(&volume, b"/notes/plan")?)?;
    writeln!(out, "then: {}", contents(&volume, b"/notes/.betrfs-snapshots/first/plan")?)?;
    let old = volume.resolve(b"/notes/.betrfs-snapshots/first/plan")?;
    if let Err(refused) = volume.write(old.node, 0, b"Friday") {
        writeln!(out, "a change of it: {refused}")?;
    }
    volume.rmdir(snapshots, b"first")?;
    volume.close()?;
    Ok(())
}

/// Takes the path of a file that does not exist yet.
#[cfg(not(test))]
fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("which file? It is made.")?;
    run(path.as_ref(), &mut std::io::stdout())
}
