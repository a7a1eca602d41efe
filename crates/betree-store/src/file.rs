//! The file of a store: how it is found or made, and in which shape.
//!
//! The volume of the engine has from the beginning the size that a store may ever have. The file is
//! open-ended ([`Device::open_end`]): it ends behind the last block that was ever written, and blocks are
//! handed out from its start. It is sparse: what was freed takes no room.

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

/// The size of a new store's volume: what the file systems of Linux can all have in a file. Where one cannot,
/// it is halved until it fits.
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
        Ok(device) if device.len_in_bytes() == 0 => Err(empty(path)),
        Ok(device) => Ok(Arc::new(device)),
        Err(OpenError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Err(Error::NoSuchStore { path: path.to_owned() })
        }
        Err(error) => Err(refused(path, error)),
    }
}

/// The error of an empty file in which no store is to be made.
fn empty(path: &Path) -> Error {
    let why = "it is empty: open it with permission to create a store, and not for reading only".into();
    Error::NotAStore { path: path.to_owned(), why }
}

/// Opens the file, or makes one. An empty file, as a program for temporary files makes it, becomes a store.
pub(crate) fn open(
    path: &Path,
    create: bool,
    cache_bytes: usize,
    merges: &Arc<Merges>,
) -> Result<Arc<FileDevice>> {
    // A second turn if another process has made it meanwhile, and a third if it was removed again.
    for _ in 0..3 {
        match FileDevice::open(path) {
            Ok(device) if device.len_in_bytes() == 0 => {
                return if create { make_in(device, path, cache_bytes, merges) } else { Err(empty(path)) };
            }
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

/// Makes an empty store in an empty file, which keeps its owner and permissions. A failure leaves it empty; a
/// crash may leave a file that is not a store.
fn make_in(
    mut device: FileDevice,
    path: &Path,
    cache_bytes: usize,
    merges: &Arc<Merges>,
) -> Result<Arc<FileDevice>> {
    open_end(&mut device).map_err(|error| refused(path, error))?;
    let device = Arc::new(device);
    match make_on(device.clone(), path, &geometry(cache_bytes), cache_bytes, merges) {
        Ok(()) => Ok(device),
        Err(error) => {
            if let Some(mut device) = Arc::into_inner(device)
                && let Err(error) = device.clear(0)
            {
                tracing::warn!("cannot empty {} again: {error}", path.display());
            }
            Err(error)
        }
    }
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
    let mut device = FileDevice::create(&made_as, 0).map_err(|error| refused(path, error))?;
    if let Err(error) = open_end(&mut device) {
        device.unmake();
        return Err(refused(path, error));
    }
    let mut unfinished = Unfinished { device: Arc::new(device), is_placed: false };
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

/// Makes an empty file open-ended, with the size of a new store.
fn open_end(device: &mut FileDevice) -> std::result::Result<(), OpenError> {
    let mut bytes = STORE_BYTES;
    // Whether the file system can have such a file at all.
    while let Err(error) = device.clear(bytes) {
        let is_too_large = matches!(&error, OpenError::Io { source, .. }
            if source.raw_os_error() == Some(Errno::FBIG.raw_os_error()));
        if !is_too_large || bytes <= STORE_BYTES_MIN {
            return Err(error);
        }
        bytes /= 2;
    }
    device.clear(0)?;
    device.open_end(bytes);
    Ok(())
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
        OpenError::InUse { holder, .. } => Error::InUse { holder: holder.map(|holder| holder.pid), path },
        OpenError::Exists { .. } => Error::InUse { path, holder: None },
        OpenError::WrongKind { what, .. } => Error::NotAStore { path, why: format!("it is {what}") },
        OpenError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
            Error::NoSpace { path, why: source.to_string() }
        }
        OpenError::Io { doing, source, .. } => Error::Io { doing, path, source },
        OpenError::WriteProtected { .. } => failed("write to", &path, Errno::ROFS.into()),
    }
}
