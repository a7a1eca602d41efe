//! A volume by its file: opening, making and closing it.

use std::fmt;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use betree_platform::Platform;
use betree_std::{FileDevice, StdPlatform, TroubleLog, Workers, WorkersOptions, Zstd};
use betrfs::{AccessTimes, FormatOptions, Volume};

use crate::caller::Caller;
use crate::dir::Dir;
use crate::error::{Context, ErrorKind, Kinded, Result};
use crate::opened::Opened;

/// A file system in a file or a block device, which it has to itself. It is its root directory: all that a
/// [`Dir`] does, it does.
///
/// What was changed is durable after [`sync`](Fs::sync), after a file's `sync_all`, after
/// [`close`](Fs::close), and within five seconds by itself. A crash keeps of the rest a beginning, each
/// operation whole.
///
/// A fork of the process inherits all of it and can use none of it: every call fails with `EBADF`, and drops
/// do nothing. The parent goes on undisturbed. Open volumes in the process that uses them.
///
/// Copies of this value lead to the same volume. It is closed with the last of them and of the [`Dir`]s and
/// [`File`](crate::File)s that come from it; a thread that panics leaves it as a crash does.
///
/// ```
/// use betrfs_std::Fs;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let volume = folder.path().join("volume");
/// let fs = Fs::create(&volume, 64 << 20)?;
/// fs.create_dir_all("letters/2026")?;
/// fs.write("letters/2026/to-ada", "Dear Ada,\n")?;
/// fs.clone_tree("letters", "copy")?;
/// fs.close()?;
///
/// let fs = Fs::open(&volume)?;
/// assert_eq!(fs.read_to_string("copy/2026/to-ada")?, "Dear Ada,\n");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Fs {
    root: Dir,
}

/// How a volume is opened.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let volume = folder.path().join("volume");
/// # betrfs_std::Fs::create(&volume, 32 << 20)?.close()?;
/// let fs = betrfs_std::Fs::options().cache_bytes(64 << 20).read_only(true).open(&volume)?;
/// assert_eq!(fs.write("a", "b").unwrap_err().errno(), betrfs_std::Errno::ROFS);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Options {
    cache_bytes: Option<usize>,
    read_only: bool,
    caller: Option<Caller>,
}

impl Options {
    /// The budget of the cache in bytes; 256 MiB unless it is set.
    #[must_use]
    pub fn cache_bytes(mut self, bytes: usize) -> Options {
        self.cache_bytes = Some(bytes);
        self
    }

    /// Whether all changes are refused (`EROFS`), and reading moves no time of access. The log of a volume
    /// that was not closed is replayed all the same: so its file must be writable.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Options {
        self.read_only = read_only;
        self
    }

    /// The user who acts; the process's own unless it is set.
    #[must_use]
    pub fn caller(mut self, caller: Caller) -> Options {
        self.caller = Some(caller);
        self
    }

    /// Opens a volume.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] if it cannot be opened, or somebody else has it open; [`ErrorKind::Volume`] if
    /// it is none, or damaged.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Fs> {
        let path = path.as_ref();
        let open = || self.start(Arc::new(FileDevice::open(path)?), path);
        open().of("open the volume", path)
    }

    /// Makes a new file of `size_bytes` with an empty volume, and opens that. It takes room as it fills. The
    /// root directory is the caller's.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] if the file exists or cannot be made; [`ErrorKind::Volume`] if it is too small,
    /// and the file is removed.
    pub fn create(&self, path: impl AsRef<Path>, size_bytes: u64) -> Result<Fs> {
        let path = path.as_ref();
        let create = || {
            let device = Arc::new(FileDevice::create(path, size_bytes)?);
            let caller = self.acting();
            let format =
                FormatOptions { root_uid: caller.uid, root_gid: caller.gid, ..FormatOptions::default() };
            if let Err(error) = Volume::format(device.clone(), &format, &StdPlatform::new()) {
                device.unmake();
                return Err(ErrorKind::from(error));
            }
            self.start(device, path)
        };
        create().of("make the volume", path)
    }

    fn acting(&self) -> Caller {
        self.caller.clone().unwrap_or_else(Caller::of_process)
    }

    fn start(&self, device: Arc<FileDevice>, path: &Path) -> Kinded<Fs> {
        let platform: Arc<dyn Platform> = Arc::new(StdPlatform::new());
        let mut options = betrfs::OpenOptions {
            watcher: Some(Arc::new(TroubleLog::of(path.to_owned()))),
            zstd: Some(Arc::new(Zstd::default())),
            ..betrfs::OpenOptions::new(platform)
        };
        options.cache_bytes = self.cache_bytes.unwrap_or(options.cache_bytes);
        if self.read_only {
            options.access_times = AccessTimes::Never;
        }
        let volume = Volume::open(device.clone(), options)?;
        let workers = Workers::start(Arc::clone(volume.env()), WorkersOptions::default());
        let workers = workers.map_err(ErrorKind::Threads)?;
        let opener = rustix::process::geteuid().as_raw();
        let opened = Arc::new(Opened::new(volume, device, workers, self.read_only, opener));
        Ok(Fs { root: Dir::root(&opened, self.acting())? })
    }
}

impl Fs {
    /// Opens a volume for the process's own user.
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Fs> {
        Fs::options().open(path)
    }

    /// Makes a new file of `size_bytes` with an empty volume, and opens that.
    ///
    /// # Errors
    /// As [`Options::create`].
    pub fn create(path: impl AsRef<Path>, size_bytes: u64) -> Result<Fs> {
        Fs::options().create(path, size_bytes)
    }

    /// How a volume is opened, to be chosen.
    pub fn options() -> Options {
        Options::default()
    }

    /// The root directory for another user, against whom permissions are checked and who owns what is made.
    pub fn acting_as(&self, caller: Caller) -> Dir {
        self.root.acting_as(caller)
    }

    /// Makes all that was changed durable.
    ///
    /// # Errors
    /// The volume's: of what was not durable before, nothing is known then.
    pub fn sync(&self) -> Result<()> {
        let opened = self.root.opened();
        let volume = opened.volume().of("sync the volume", opened.device.path())?;
        volume.sync().of("sync the volume", opened.device.path())?;
        // Nobody here remembers attributes.
        let _ = volume.finish_removals();
        Ok(())
    }

    /// Makes all durable, ends the threads and releases the volume's file, for all handles: those that are
    /// left fail from then on. A volume that was closed is closed again without effect.
    ///
    /// # Errors
    /// The volume's: what was durable before is kept.
    pub fn close(self) -> Result<()> {
        let opened = self.root.opened();
        opened.close().of("close the volume", opened.device.path())
    }

    /// The volume below, by inodes: for counters, checks, and what has no path.
    pub fn volume(&self) -> &Volume {
        self.root.opened().volume_unchecked()
    }
}

impl Deref for Fs {
    type Target = Dir;

    fn deref(&self) -> &Dir {
        &self.root
    }
}

impl fmt::Debug for Fs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fs").field("volume", &self.root.opened().device.path()).finish_non_exhaustive()
    }
}
