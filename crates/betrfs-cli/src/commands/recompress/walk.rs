//! A walk through the files of directories, in steps that can be broken off.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use betrfs::{Recompress, Recompressed};
use betrfs_fuse::Errno;
use rustix::fs::{IFlags, Mode, OFlags};

use crate::failure::{Failure, warn};

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

/// Whether what is passed over is told: once is enough.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Telling {
    Each,
    None,
}

/// A walk.
pub struct Walk<'a> {
    /// What becomes of blocks that are not compressed as wanted.
    pub what: Recompress,
    /// Whether to tell what is passed over.
    pub telling: Telling,
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
        telling: Telling,
        is_interrupted: &'a AtomicBool,
        progress: &'a mut dyn FnMut(&Totals),
    ) -> Walk<'a> {
        Walk { what, telling, is_interrupted, progress, totals: Totals::default(), met: HashSet::new() }
    }

    /// Goes through files and directories, and everything below them on their mounts. Snapshots are in no
    /// listing.
    ///
    /// # Errors
    /// What ends the whole walk: a full or read-only volume.
    pub fn through(mut self, paths: &[PathBuf]) -> Result<Totals, Failure> {
        for path in paths {
            let of_path = fs::symlink_metadata(path).map_err(|error| cannot(path, &error))?;
            let mut stack = vec![path.clone()];
            while let Some(path) = stack.pop() {
                if self.is_interrupted.load(Ordering::Relaxed) {
                    return Ok(self.totals);
                }
                let found = match fs::symlink_metadata(&path) {
                    // It was removed meanwhile.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => {
                        self.failed(&path, &error);
                        continue;
                    }
                    Ok(found) if found.dev() != of_path.dev() => continue,
                    Ok(found) => found,
                };
                if found.is_dir() {
                    match list(&path) {
                        Ok(below) => stack.extend(below),
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                        Err(error) => self.failed(&path, &error),
                    }
                } else if found.is_file()
                    && (found.nlink() < 2 || self.met.insert((found.dev(), found.ino())))
                {
                    self.file(&path)?;
                }
            }
        }
        Ok(self.totals)
    }

    fn file(&mut self, path: &Path) -> Result<(), Failure> {
        let open = match open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                self.failed(path, &error);
                return Ok(());
            }
            Ok(open) => open,
        };
        self.totals.files += 1;
        let mut next = Some(0);
        while let Some(from) = next
            && !self.is_interrupted.load(Ordering::Relaxed)
        {
            let part = match betrfs_fuse::recompress(&open, from, self.what) {
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
        if self.telling == Telling::Each {
            warn(&format!("{} is passed over: {why}", path.display()));
        }
    }
}

/// The failure for a path.
pub fn cannot(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("cannot recompress {}: {why}", path.display()))
}

/// What is in a directory, the last first.
fn list(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut below = Vec::new();
    for entry in fs::read_dir(dir)? {
        below.push(entry?.path());
    }
    below.sort_unstable_by(|a, b| b.cmp(a));
    Ok(below)
}

/// Opens a file or directory such that its time of access stays. Something else may have its name by now:
/// that must not block.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOATIME | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

fn is_immutable(open: &File) -> bool {
    rustix::fs::ioctl_getflags(open).is_ok_and(|flags| flags.contains(IFlags::IMMUTABLE))
}
