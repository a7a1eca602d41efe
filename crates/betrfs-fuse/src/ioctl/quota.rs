//! Quotas of directories, from the side of the process that asks for them.

use std::fs::File;
use std::io;
use std::path::Path;

use betrfs::Quota;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::ioctl::{Getter, Updater, ioctl};
use zerocopy::FromZeros;

use super::{change, errno_of, open_plain, permit, wait_written_back};
use crate::wire::quota::{CLEAR_QUOTA, GET_QUOTA, NEXT_QUOTA, NextQuota, QuotaBytes, path_bytes, path_of};

/// The quota that a directory is in; `None` if it is in none.
///
/// # Errors
/// The operating system's; `ENOTTY` where it is on no BetrFS mount.
pub fn quota(dir: &Path) -> io::Result<Option<Quota>> {
    let open = open_plain(dir, OFlags::DIRECTORY)?;
    // SAFETY: the ioctl writes a `QuotaBytes`, and the buffer is one.
    match unsafe { ioctl(&open, Getter::<GET_QUOTA, QuotaBytes>::new()) } {
        Err(Errno::NODATA) => Ok(None),
        told => Ok(Some(told?.into())),
    }
}

/// Opens a directory and registers it, once data written to mappings of files in it has arrived; returns it
/// with the token by which its server gives it a quota, as long as it is open
/// ([`Line::set_quota`](crate::Line::set_quota)).
///
/// # Errors
/// The operating system's; `ENOTTY` where it is on no BetrFS mount, `ENOTDIR` where it is none, `EPERM` for
/// users who may not, `EROFS` on a read-only mount.
pub fn quota_token(dir: &Path) -> io::Result<(File, u64)> {
    let open = open_plain(dir, OFlags::DIRECTORY)?;
    let token = wait_written_back(&open)?;
    permit(&open, token)?;
    Ok((open, token))
}

/// Takes a directory's quota away; returns whether it had one.
///
/// # Errors
/// The operating system's; `ENOTTY` where it is on no BetrFS mount, `EPERM` for users other than root and the
/// one who mounted.
pub fn clear_quota(dir: &Path) -> io::Result<bool> {
    let open = open_plain(dir, OFlags::DIRECTORY)?;
    match change(&open, CLEAR_QUOTA, &[]) {
        Err(error) if errno_of(&error) == Some(Errno::NODATA) => Ok(false),
        cleared => cleared.map(|()| true),
    }
}

/// The directories with quotas below a directory, and itself, each with its path relative to it.
pub struct Quotas {
    open: File,
    last: Option<Vec<u8>>,
}

impl Quotas {
    /// Those of this directory.
    ///
    /// # Errors
    /// The operating system's; `ENOTTY` where it is on no BetrFS mount.
    pub fn below(dir: &Path) -> io::Result<Quotas> {
        Ok(Quotas { open: open_plain(dir, OFlags::DIRECTORY)?, last: None })
    }
}

impl Iterator for Quotas {
    type Item = io::Result<(Vec<u8>, Quota)>;

    fn next(&mut self) -> Option<io::Result<(Vec<u8>, Quota)>> {
        let mut next = NextQuota::new_zeroed();
        if let Some(last) = &self.last {
            next.has_last = 1;
            // It came in such a place.
            next.path = path_bytes(last)?;
        }
        // SAFETY: the ioctl reads and writes a `NextQuota`, and the buffer is one.
        match unsafe { ioctl(&self.open, Updater::<NEXT_QUOTA, NextQuota>::new(&mut next)) } {
            Ok(()) => {
                let path = path_of(&next.path).to_vec();
                self.last = Some(path.clone());
                Some(Ok((path, next.quota.into())))
            }
            Err(Errno::NODATA) => None,
            Err(errno) => Some(Err(errno.into())),
        }
    }
}
