//! The file of a store: how it is found or made, and in which shape.
//!
//! The file is sparse, and has from the beginning the size that a store may ever have: the volume of the
//! engine has a fixed size. What takes room is what is written.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use betree::{Batch, Env, Geometry, Identity, Options};
use betree_platform::{Device, Platform};
use betree_std::{FileDevice, OpenError, StdPlatform};
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;

use crate::catalogue;
use crate::error::{Error, Result};
use crate::freeing::NODE_BYTES_MAX;
use crate::merge::Merges;

/// The size of a new store: what the file systems of Linux can all have in a file. Where one cannot, it is
/// halved until it fits.
const STORE_BYTES: u64 = 1 << 40;
const STORE_BYTES_MIN: u64 = 256 << 20;
/// Nodes in the cache: with fewer, what is being written outgrows it.
const CACHE_NODES: usize = 32;
const NODE_BYTES_MIN: usize = 64 << 10;
/// A basement is this part of a node: 64 KiB of 2 MiB.
const BASEMENTS: u32 = 32;
const BASEMENT_BYTES_MIN: u32 = 4 << 10;
/// The log: as large as the cache within these bounds. It is written round and round, so that all of it takes
/// room soon; and a batch has at most an eighth of it.
const LOG_BYTES_MIN: usize = 8 << 20;
const LOG_BYTES_MAX: usize = 64 << 20;
/// What the superblock says of the program that made the volume begins so.
const MADE_BY: &str = "betree-store";

/// The shape of a new store that is used with so large a cache.
fn geometry(cache_bytes: usize) -> Geometry {
    let nodes = (cache_bytes / CACHE_NODES).clamp(NODE_BYTES_MIN, NODE_BYTES_MAX);
    // Rounded down to a power of two.
    let node_bytes = 1u32 << nodes.ilog2();
    Geometry {
        node_bytes,
        basement_bytes: (node_bytes / BASEMENTS).max(BASEMENT_BYTES_MIN),
        fanout_max: 16,
        log_bytes: cache_bytes.clamp(LOG_BYTES_MIN, LOG_BYTES_MAX).next_multiple_of(4096) as u64,
        dicts: 1,
    }
}

/// Whether a volume was made as a store.
pub(crate) fn is_store(identity: &Identity) -> bool {
    identity.made_by.starts_with(MADE_BY)
}

/// Opens the file for reading.
pub(crate) fn open_for_reading(path: &Path) -> Result<Arc<FileDevice>> {
    match FileDevice::open_for_reading(path) {
        Ok(device) => Ok(Arc::new(device)),
        Err(OpenError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Err(Error::NoSuchStore { path: path.to_owned() })
        }
        Err(error) => Err(refused(path, error)),
    }
}

/// Opens the file, or makes one.
pub(crate) fn open(
    path: &Path,
    create: bool,
    cache_bytes: usize,
    merges: &Arc<Merges>,
) -> Result<Arc<FileDevice>> {
    // A second turn if another process has made it meanwhile, and a third if it was removed again.
    for _ in 0..3 {
        match FileDevice::open(path) {
            Ok(device) => return Ok(Arc::new(device)),
            Err(OpenError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(refused(path, error)),
        }
        if !create {
            break;
        }
        if let Some(device) = make(path, cache_bytes, merges)? {
            return Ok(device);
        }
    }
    Err(Error::NoSuchStore { path: path.to_owned() })
}

/// Makes an empty store. `None` if there is a file of its name by then.
fn make(path: &Path, cache_bytes: usize, merges: &Arc<Merges>) -> Result<Option<Arc<FileDevice>>> {
    make_with(path, |device| make_on(device.clone(), path, &geometry(cache_bytes), cache_bytes, merges))
}

/// Writes an empty store.
pub(crate) fn make_on(
    device: Arc<dyn Device>,
    path: &Path,
    geometry: &Geometry,
    cache_bytes: usize,
    merges: &Arc<Merges>,
) -> Result<()> {
    format(device.clone(), path, geometry)?;
    let env = Env::open(device, Options::new(cache_bytes, merges.clone()));
    let put_new = env.and_then(|env| {
        let mut batch = Batch::new();
        catalogue::put_new(&mut batch);
        env.commit(&batch)?;
        env.close()
    });
    put_new.map_err(|source| unwritten(path, source))
}

/// Makes a store under another name, fills it and then renames it, so that neither a crash nor a failure
/// leaves half of one under its name. `None` if there is a file of its name by then.
pub(crate) fn make_with(
    path: &Path,
    fill: impl FnOnce(&Arc<FileDevice>) -> Result<()>,
) -> Result<Option<Arc<FileDevice>>> {
    let made_as = unfinished(path, StdPlatform::new().random_u64());
    let mut unfinished = Unfinished { device: Arc::new(create_sparse(path, &made_as)?), is_placed: false };
    fill(&unfinished.device)?;
    match rustix::fs::renameat_with(CWD, &made_as, CWD, path, RenameFlags::NOREPLACE) {
        Ok(()) => sync_folder(path)?,
        Err(Errno::EXIST) => return Ok(None),
        Err(errno) => return Err(failed("name", path, errno.into())),
    }
    unfinished.is_placed = true;
    Ok(Some(unfinished.device.clone()))
}

/// A file that is removed if it is not placed, also by a panic.
struct Unfinished {
    device: Arc<FileDevice>,
    is_placed: bool,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_placed {
            self.device.unmake();
        }
    }
}

/// A name beside the store's.
fn unfinished(path: &Path, random: u64) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{random:016x}.new"));
    path.with_file_name(name)
}

fn create_sparse(path: &Path, made_as: &Path) -> Result<FileDevice> {
    let mut bytes = STORE_BYTES;
    loop {
        match FileDevice::create(made_as, bytes) {
            Err(OpenError::Io { source, .. })
                if source.raw_os_error() == Some(Errno::FBIG.raw_os_error()) && bytes > STORE_BYTES_MIN =>
            {
                bytes /= 2;
            }
            created => return created.map_err(|error| refused(path, error)),
        }
    }
}

/// Writes a volume without a catalogue.
pub(crate) fn format(device: Arc<dyn Device>, path: &Path, geometry: &Geometry) -> Result<()> {
    let random = StdPlatform::new();
    let id = || {
        let [a, b] = [random.random_u64(), random.random_u64()].map(u128::from);
        (a << 64 | b).to_le_bytes()
    };
    let made_by = concat!("betree-store ", env!("CARGO_PKG_VERSION")).into();
    let identity = Identity { made_by, made_ns: random.now_ns(), ..Identity::new(id(), id()) };
    Env::format(device, geometry, identity).map_err(|source| unwritten(path, source))
}

/// The store's error for one of the engine when a store is made.
pub(crate) fn unwritten(path: &Path, source: betree::Error) -> Error {
    let path = path.to_owned();
    match source {
        betree::Error::DeviceFull(_) | betree::Error::NoSpace => {
            Error::NoSpace { path, why: source.to_string() }
        }
        source => Error::Engine { path, source },
    }
}

fn sync_folder(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let synced = std::fs::File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|source| failed("sync", folder, source))
}

fn failed(doing: &'static str, path: &Path, source: io::Error) -> Error {
    Error::Io { doing, path: path.to_owned(), source }
}

/// The store's error for a file that cannot be opened or made.
fn refused(path: &Path, error: OpenError) -> Error {
    let path = path.to_owned();
    match error {
        OpenError::InUse { .. } => Error::InUse { holder: holder(&path), path },
        OpenError::Exists { .. } => Error::InUse { path, holder: None },
        OpenError::WrongKind { what, .. } => Error::NotAStore { path, why: format!("it is {what}") },
        OpenError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
            Error::NoSpace { path, why: source.to_string() }
        }
        OpenError::Io { doing, source, .. } => Error::Io { doing, path, source },
        OpenError::WriteProtected { .. } => failed("write to", &path, Errno::ROFS.into()),
    }
}

/// The process that holds a lock on the file, as /proc/locks tells.
fn holder(path: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::metadata(path).ok()?;
    let (major, minor) = (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
    let place = format!("{major:02x}:{minor:02x}:{}", found.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    // 1: FLOCK  ADVISORY  WRITE 4071 08:01:1577 0 EOF
    locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).find_map(
        |fields| match fields[..] {
            [_, "FLOCK", _, _, pid, at, ..] if at == place => pid.parse().ok(),
            _ => None,
        },
    )
}
