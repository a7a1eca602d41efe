//! Copies a directory of the host into a new volume: directories, files and symbolic links.
//!
//!     cargo run -p betrfs --example import -- crates /tmp/crates.betrfs

use std::error::Error;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use betree_std::{FileDevice, StdPlatform, Workers, WorkersOptions};
use betrfs::{FileType, FormatOptions, InodeId, NewNode, OpenOptions, Volume};

const VOLUME_BYTES: u64 = 1 << 30;
/// Number of bytes of a file in memory at once.
const PIECE_BYTES: usize = 1 << 20;

/// Copies the entries of `from` into the directory `into`, and returns their number.
fn import(volume: &Volume, from: &Path, into: InodeId) -> Result<u64, Box<dyn Error>> {
    let mut entries = 0;
    for found in fs::read_dir(from)? {
        let found = found?;
        let (name, kind) = (found.file_name(), found.file_type()?);
        let perm = found.metadata()?.permissions().mode() as u16 & 0o7777;
        let new = |file_type| NewNode { file_type, perm, uid: 0, gid: 0, rdev: 0, umask: 0 };
        let entry = if kind.is_dir() {
            let dir = volume.create(into, name.as_bytes(), &new(FileType::Directory))?;
            entries += import(volume, &found.path(), dir.node)?;
            dir
        } else if kind.is_symlink() {
            let target = fs::read_link(found.path())?.into_os_string().into_vec();
            volume.symlink(into, name.as_bytes(), &target, 0, 0)?
        } else if kind.is_file() {
            let file = volume.create(into, name.as_bytes(), &new(FileType::Regular))?;
            copy(volume, &mut fs::File::open(found.path())?, file.node)?;
            file
        } else {
            continue;
        };
        // Each operation that returns an inode counts as a look-up of it, which ends here.
        volume.forget(entry.node, 1);
        entries += 1;
    }
    Ok(entries)
}

fn copy(volume: &Volume, from: &mut fs::File, into: InodeId) -> Result<(), Box<dyn Error>> {
    let mut piece = vec![0; PIECE_BYTES];
    let mut offset = 0;
    loop {
        let len = from.read(&mut piece)?;
        let mut rest = piece.get(..len).unwrap_or_default();
        if rest.is_empty() {
            return Ok(());
        }
        while !rest.is_empty() {
            let written = volume.write(into, offset, rest)?;
            rest = rest.get(written..).unwrap_or_default();
            offset += written as u64;
        }
    }
}

/// Copies the directory `from` into a new volume at `path`, and reports to `out`.
pub fn run(from: &Path, path: &Path, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let device = Arc::new(FileDevice::create(path, VOLUME_BYTES)?);
    let platform = Arc::new(StdPlatform::new());
    Volume::format(device.clone(), &FormatOptions::default(), &*platform)?;
    let volume = Volume::open(device, OpenOptions::new(platform))?;
    let workers = Workers::start(Arc::clone(volume.env()), WorkersOptions::default())?;
    let entries = import(&volume, from, volume.resolve(b"/")?.node)?;
    workers.stop();
    volume.close()?;
    writeln!(out, "{entries} entries")?;
    Ok(())
}

/// Takes a directory, and the path of a file that does not exist yet.
#[cfg(not(test))]
fn main() -> Result<(), Box<dyn Error>> {
    let mut paths = std::env::args_os().skip(1);
    let (from, path) = paths.next().zip(paths.next()).ok_or("which directory, and into which file?")?;
    run(from.as_ref(), path.as_ref(), &mut std::io::stdout())
}
