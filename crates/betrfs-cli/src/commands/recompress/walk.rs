//! A walk through the files of directories, in steps that can be broken off.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use betree_std::StdPlatform;
use betrfs::{Recompress, Recompressed};
use betrfs_fuse::Errno;
use rustix::fs::{Dir, IFlags, Mode, OFlags, ResolveFlags};

use crate::failure::Failure;

/// What a walk has found and done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Files looked at.
    pub files: u64,
    /// What they take as stored.
    pub stored_bytes: u64,
    /// Bytes of them that are not compressed as wanted, and nothing else shares.
    pub own_bytes: u64,
    /// The same of those that copies or snapshots share.
    pub shared_bytes: u64,
    /// Bytes of them that were written anew.
    pub written_bytes: u64,
    /// Immutable files, which were passed over.
    pub immutable_files: u64,
    /// Files and directories that others own, cannot be read, or failed.
    pub failed: u64,
}

impl Totals {
    /// Bytes that are to be written anew.
    pub fn left_to_write(&self, what: Recompress) -> u64 {
        match what {
            Recompress::Count | Recompress::Own => self.own_bytes,
            Recompress::OwnAndShared => self.own_bytes + self.shared_bytes,
        }
    }

    fn add(&mut self, part: &Recompressed) {
        self.stored_bytes += part.stored_bytes;
        self.own_bytes += part.own_bytes;
        self.shared_bytes += part.shared_bytes;
        self.written_bytes += part.written_bytes;
    }
}

/// A walk.
pub struct Walk<'a> {
    /// What becomes of blocks that are not compressed as wanted.
    pub what: Recompress,
    /// Called with a sentence for what is passed over, if that is to be told: once is enough.
    pub warn: Option<&'a dyn Fn(&str)>,
    /// Set to break it off.
    pub is_interrupted: &'a AtomicBool,
    /// Called behind each step with the sums.
    pub progress: &'a mut dyn FnMut(&Totals),
    totals: Totals,
    /// Files with several names that were met.
    met: HashSet<(u64, u64)>,
}

impl<'a> Walk<'a> {
    /// A walk that has not begun.
    pub fn new(
        what: Recompress,
        warn: Option<&'a dyn Fn(&str)>,
        is_interrupted: &'a AtomicBool,
        progress: &'a mut dyn FnMut(&Totals),
    ) -> Walk<'a> {
        Walk { what, warn, is_interrupted, progress, totals: Totals::default(), met: HashSet::new() }
    }

    /// Goes through files and directories, and everything below them on their mounts. Snapshots are in no
    /// listing.
    ///
    /// # Errors
    /// What ends the whole walk: a full or read-only volume.
    pub fn through(mut self, tops: &[Top]) -> Result<Totals, Failure> {
        for top in tops {
            let mut stack = vec![PathBuf::new()];
            while let Some(below) = stack.pop() {
                if self.is_interrupted.load(Ordering::Relaxed) {
                    return Ok(self.totals);
                }
                let path = top.path.join(&below);
                let found = match top.open_below(&below, OFlags::PATH).and_then(|open| open.metadata()) {
                    // It was removed meanwhile, or another file system is mounted there.
                    Err(error) if is_gone(&error) => continue,
                    Err(error) => {
                        self.failed(&path, &error);
                        continue;
                    }
                    Ok(found) => found,
                };
                if found.is_dir() {
                    match top.list(&below) {
                        Ok(names) => stack.extend(names.into_iter().map(|name| below.join(name))),
                        Err(error) if is_gone(&error) => {}
                        Err(error) => self.failed(&path, &error),
                    }
                } else if found.is_file()
                    && (found.nlink() < 2 || self.met.insert((found.dev(), found.ino())))
                {
                    self.file(&path, top.open_below(&below, FOR_READING))?;
                }
            }
        }
        Ok(self.totals)
    }

    /// What the server needs to write an open file: asked for once a file, and not at all to count.
    fn permit(&self, open: &File, known: &mut Option<u64>) -> io::Result<u64> {
        match *known {
            None if self.what != Recompress::Count => {
                Ok(*known.insert(betrfs_fuse::recompress_permit(open, &StdPlatform::new())?))
            }
            permit => Ok(permit.unwrap_or_default()),
        }
    }

    fn file(&mut self, path: &Path, opened: io::Result<File>) -> Result<(), Failure> {
        let open = match opened {
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => {
                self.failed(path, &error);
                return Ok(());
            }
            Ok(open) => open,
        };
        self.totals.files += 1;
        let (mut next, mut permit) = (Some(0), None);
        while let Some(from) = next
            && !self.is_interrupted.load(Ordering::Relaxed)
        {
            let part = self.permit(&open, &mut permit);
            let part = match part.and_then(|permit| betrfs_fuse::recompress(&open, from, self.what, permit)) {
                Ok(part) => part,
                Err(error) => {
                    return match error.raw_os_error().map(Errno::from_raw_os_error) {
                        Some(Errno::NOSPC) => Err(Failure::new(format!(
                            "cannot recompress {}: the volume is full; what was done stays, and the next call goes on",
                            path.display()
                        ))),
                        Some(Errno::ROFS) => {
                            Err(cannot(path, &"the mount is read-only, or it is in a snapshot"))
                        }
                        Some(Errno::NOTTY) => Err(cannot(path, &"it is on no BetrFS mount")),
                        Some(Errno::PERM) if is_immutable(&open) => {
                            self.totals.immutable_files += 1;
                            self.tell(path, "it is immutable (`lsattr` shows it)");
                            Ok(())
                        }
                        // It was removed meanwhile.
                        Some(Errno::STALE) => Ok(()),
                        _ => {
                            self.failed(path, &error);
                            Ok(())
                        }
                    };
                }
            };
            self.totals.add(&part);
            (self.progress)(&self.totals);
            next = part.next;
        }
        Ok(())
    }

    fn failed(&mut self, path: &Path, error: &io::Error) {
        self.totals.failed += 1;
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::PERM) => self.tell(path, "only its owner and root may"),
            _ => self.tell(path, &error.to_string()),
        }
    }

    fn tell(&self, path: &Path, why: &str) {
        if let Some(warn) = self.warn {
            warn(&format!("{} is passed over: {why}", path.display()));
        }
    }
}

/// The failure for a path.
pub fn cannot(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("cannot recompress {}: {why}", path.display()))
}

/// A file or directory that the caller has named. What is below is found from its descriptor, without
/// symbolic links: others may change the names there meanwhile.
pub struct Top {
    path: PathBuf,
    at: File,
}

impl Top {
    /// A path without symbolic links.
    ///
    /// # Errors
    /// The operating system's.
    pub fn new(path: PathBuf) -> io::Result<Top> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let at = File::from(rustix::fs::open(&path, flags, Mode::empty())?);
        Ok(Top { path, at })
    }

    /// A descriptor of it, for its metadata.
    pub fn at(&self) -> &File {
        &self.at
    }

    /// Opens it for reading such that its time of access stays.
    ///
    /// # Errors
    /// The operating system's.
    pub fn open(&self) -> io::Result<File> {
        self.open_below(Path::new(""), FOR_READING)
    }

    /// Opens what is at a path below it; an empty one is its own.
    fn open_below(&self, below: &Path, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if below.as_os_str().is_empty() {
            return Ok(File::from(rustix::fs::open(&self.path, flags, Mode::empty())?));
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        Ok(File::from(rustix::fs::openat2(&self.at, below, flags, Mode::empty(), resolve)?))
    }

    /// The names in a directory, the last first.
    fn list(&self, below: &Path) -> io::Result<Vec<OsString>> {
        let open = self.open_below(below, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in Dir::new(open)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        names.sort_unstable_by(|one, other| other.cmp(one));
        Ok(names)
    }
}

/// To read a file such that its time of access stays. Something else may have its name by now: that must not
/// block.
const FOR_READING: OFlags = OFlags::RDONLY.union(OFlags::NOATIME).union(OFlags::NONBLOCK);

/// Whether a path leads nowhere any more, or out of the file system: below what was named, names change.
fn is_gone(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV))
}

fn is_immutable(open: &File) -> bool {
    rustix::fs::ioctl_getflags(open).is_ok_and(|flags| flags.contains(IFlags::IMMUTABLE))
}
