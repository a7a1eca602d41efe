//! Clones a directory: the clone shares all contents until either is changed, and neither sees the other's
//! changes.
//!
//!     cargo run -p betrfs --example clones -- /tmp/clones.betrfs

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use betree_std::{FileDevice, StdPlatform};
use betrfs::{FileType, FormatOptions, NewNode, OpenOptions, SnapshotsBelow, Volume};

const VOLUME_BYTES: u64 = 256 << 20;

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
    let project = volume.create(root, b"project", &new_dir)?.node;
    for i in 0..5000 {
        volume.create_with(project, format!("file{i:04}").as_bytes(), &new_file, &[b'0'; 1000])?;
    }
    volume.create_with(project, b"readme", &new_file, b"first")?;

    volume.clone_inode(project, root, b"copy")?;
    let readme = volume.resolve(b"/copy/readme")?;
    volume.write(readme.node, 0, b"other")?;
    writeln!(
        out,
        "project: {}, copy: {}",
        contents(&volume, b"/project/readme")?,
        contents(&volume, b"/copy/readme")?
    )?;
    let usage = volume.usage(volume.resolve(b"/copy")?.node)?;
    writeln!(out, "the copy shares most of it: {}", usage.exclusive_bytes < usage.stored_bytes / 2)?;

    // Empties the original at once, however much it holds; then removes its name.
    volume.remove_below(project, SnapshotsBelow::Hold)?;
    volume.rmdir(root, b"project")?;
    writeln!(out, "copy: {}", contents(&volume, b"/copy/readme")?)?;
    volume.close()?;
    Ok(())
}

/// Takes the path of a file that does not exist yet.
#[cfg(not(test))]
fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("which file? It is made.")?;
    run(path.as_ref(), &mut std::io::stdout())
}
