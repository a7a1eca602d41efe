//! Quotas of directories, from the side of the process that asks for them.

use std::fs::File;
use std::io;
use std::path::Path;

use betrfs::{Quota, QuotaLimits};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::ioctl::{Getter, NoArg, Updater, ioctl};
use zerocopy::FromZeros;

use super::open_plain;
use crate::wire::quota::{
    CLEAR_QUOTA, GET_QUOTA, NEXT_QUOTA, NextQuota, QuotaBytes, SET_QUOTA, SetQuota, path_bytes, path_of,
};

/// Why a directory got no quota.
#[derive(Debug, thiserror::Error)]
pub enum SetQuotaError {
    /// A file below it has a name outside of it too; the path from the volume's root of the one below.
    #[error("a file below it has a name outside of it too: {}", String::from_utf8_lossy(.0))]
    LinkedOutside(Vec<u8>),
    /// Any other cause: `ENOTTY` if it is on no BetrFS mount, `EPERM` for users other than root and the one
    /// who mounted, `EROFS` in a snapshot, `EAGAIN` if it changes too much to be counted.
    #[error(transparent)]
    Os(#[from] io::Error),
}

impl From<Errno> for SetQuotaError {
    fn from(errno: Errno) -> SetQuotaError {
        SetQuotaError::Os(errno.into())
    }
}

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

/// Gives a directory a quota, or its quota these limits.
///
/// # Errors
/// Nothing has changed then.
pub fn set_quota(dir: &Path, limits: QuotaLimits) -> Result<(), SetQuotaError> {
    let open = open_plain(dir, OFlags::DIRECTORY)?;
    let mut set = SetQuota { quota: QuotaBytes::of_limits(limits), ..SetQuota::new_zeroed() };
    // SAFETY: the ioctl reads and writes a `SetQuota`, and the buffer is one.
    unsafe { ioctl(&open, Updater::<SET_QUOTA, SetQuota>::new(&mut set)) }?;
    match path_of(&set.path) {
        [] => Ok(()),
        path => Err(SetQuotaError::LinkedOutside(path.to_vec())),
    }
}

/// Takes a directory's quota away; returns whether it had one.
///
/// # Errors
/// The operating system's; `ENOTTY` where it is on no BetrFS mount, `EPERM` for users other than root and the
/// one who mounted.
pub fn clear_quota(dir: &Path) -> io::Result<bool> {
    let open = open_plain(dir, OFlags::DIRECTORY)?;
    // SAFETY: the ioctl takes no argument.
    match unsafe { ioctl(&open, NoArg::<CLEAR_QUOTA>::new()) } {
        Err(Errno::NODATA) => Ok(false),
        cleared => Ok(cleared.map(|()| true)?),
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
