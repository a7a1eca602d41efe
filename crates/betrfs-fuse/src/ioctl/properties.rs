//! Properties of directories, from the side of the process that asks for them.

use std::io;
use std::path::Path;

use betrfs::{Properties, SetProperties};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::ioctl::{Getter, ioctl};

use super::{change, open_plain};
use crate::wire::properties::{
    GET_PROPERTIES, PropertiesBytes, SET_PROPERTIES, properties_of, set_properties_bytes,
};

/// The properties that count for a directory.
///
/// # Errors
/// The operating system's; `ENOTTY` where it is on no BetrFS mount.
pub fn properties(dir: &Path) -> io::Result<Properties> {
    let open = open_plain(dir, OFlags::DIRECTORY)?;
    // SAFETY: the ioctl writes a `PropertiesBytes`, and the buffer is one.
    let bytes: PropertiesBytes = unsafe { ioctl(&open, Getter::<GET_PROPERTIES, PropertiesBytes>::new()) }?;
    Ok(properties_of(&bytes).ok_or(Errno::IO)?)
}

/// Changes properties of a directory: all of the change is made, or nothing.
///
/// # Errors
/// The operating system's; `ENOTTY` where it is on no BetrFS mount, `EPERM` for others than the directory's
/// owner and root, and for a directory that is immutable or append-only, `EROFS` in a snapshot.
pub fn set_properties(dir: &Path, set: &SetProperties) -> io::Result<()> {
    let open = open_plain(dir, OFlags::DIRECTORY)?;
    let bytes = set_properties_bytes(set);
    change(&open, SET_PROPERTIES, &bytes)
}
