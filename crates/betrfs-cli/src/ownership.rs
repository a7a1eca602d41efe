//! Why a user may not treat a tree as one.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A sentence that names what keeps the caller from it, on a mount that lets users clone, snapshot and remove
/// what is theirs; `None` if it is for another reason.
pub fn why_refused(tree: &Path) -> Option<String> {
    let below = betrfs_fuse::foreign(tree).ok()?;
    let foreign = if below.is_empty() { tree.to_owned() } else { tree.join(OsStr::from_bytes(&below)) };
    Some(format!(
        "users may do this with what belongs to them as a whole, and {} is not theirs, or is a device, a \
         set-group-id program of another group, immutable or append-only, or has an attribute trusted. or \
         security.",
        foreign.display()
    ))
}
