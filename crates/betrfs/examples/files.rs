//! Makes a volume in a file, and in it a directory and a file; writes, lists and reads them, without a mount.
//!
//!     cargo run -p betrfs --example files -- /tmp/files.betrfs

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use betree_std::{FileDevice, StdPlatform, Workers, WorkersOptions};
use betrfs::{FileType, FormatOptions, NewNode, Objects, OpenOptions, Volume};

const VOLUME_BYTES: u64 = 64 << 20;

/// Runs the example on a new file at `path`, and reports to `out`.
pub fn run(path: &Path, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let device = Arc::new(FileDevice::create(path, VOLUME_BYTES)?);
    let platform = Arc::new(StdPlatform::new());
    Volume::format(device.clone(), &FormatOptions::default(), &*platform)?;
    let volume = Volume::open(device, OpenOptions::new(platform))?;
    // Threads that flush, write and read ahead, and sync the volume every five seconds.
    let workers = Workers::start(Arc::clone(volume.env()), WorkersOptions::default())?;

    let root = volume.resolve(b"/")?;
    let new_dir = NewNode { file_type: FileType::Directory, perm: 0o755, uid: 0, gid: 0, rdev: 0, umask: 0 };
    let new_file = NewNode { file_type: FileType::Regular, perm: 0o644, ..new_dir };
    let dir = volume.create(root.node, b"letters", &new_dir)?;
    let file = volume.create(dir.node, b"to-ada", &new_file)?;
    volume.write(file.node, 0, b"Dear Ada,\n")?;
    volume.create_with(dir.node, b"to-bob", &new_file, b"Dear Bob,\n")?;
    // A crash keeps every change before the sync.
    volume.sync()?;

    volume.readdir(dir.node, 0, Objects::None, &mut |entry| {
        writeln!(out, "{:?} {}", entry.file_type, String::from_utf8_lossy(entry.name)).is_ok()
    })?;
    let mut bytes = Vec::new();
    let file = volume.resolve(b"/letters/to-ada")?;
    volume.read(file.node, 0, 100, &mut bytes)?;
    write!(out, "{} bytes: {}", file.attr.size, String::from_utf8_lossy(&bytes))?;

    workers.stop();
    volume.close()?;
    Ok(())
}

/// Takes the path of a file that does not exist yet.
#[cfg(not(test))]
fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("which file? It is made.")?;
    run(path.as_ref(), &mut std::io::stdout())
}
