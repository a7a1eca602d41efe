//! `betrfs clone`: copies a file or directory by sharing its contents.

use std::path::PathBuf;

use betree_std::StdPlatform;

use crate::commands::stats;
use crate::failure::{Failure, Outcome};
use crate::{ownership, path};

/// Copy a file or a directory on a mount at once, whatever its size
#[derive(clap::Args)]
#[command(after_help = "\
The copy holds every write that has returned, and appears whole or not at all. Both can be changed \
afterwards, and neither sees the other's changes; unchanged data takes space once. A file with several names \
inside the source is one file with as many names inside the copy. The copy itself is neither immutable nor \
append-only (chattr); everything inside keeps its flags.

Only root and the user who mounted the volume may clone. On a mount with the option user_clone_allowed other \
users may too, if the source is theirs as a whole: everything in it belongs to them, and it has no device, no \
set-group-id program of a group that is not theirs, no attribute trusted. or security., and nothing immutable or \
append-only. They could have copied all of that by `cp -a`. To see this the volume reads the attributes of \
everything in the source, so for them a clone takes time in proportion to that.

Example:
  betrfs clone /mnt/tree /mnt/copy")]
pub struct Arguments {
    /// The file or directory
    source: PathBuf,
    /// Its copy, which must not exist, on the same mount
    target: PathBuf,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Outcome {
    let Arguments { source, target } = arguments;
    stats::approach(source)?;
    let (from, to) = (source.display(), target.display());
    betrfs_fuse::clone(source, target, &StdPlatform::new()).map_err(|error| {
        let why = match error.raw_os_error().map(betrfs_fuse::Errno::from_raw_os_error) {
            Some(betrfs_fuse::Errno::NOTTY) => format!("{from} is on no BetrFS mount"),
            Some(betrfs_fuse::Errno::NODEV) => format!("{from} is neither a file nor a directory"),
            Some(betrfs_fuse::Errno::LOOP) => {
                format!("{from} is a symbolic link, which is not followed here: name its target")
            }
            Some(betrfs_fuse::Errno::XDEV) => format!("{to} is not on the mount of {from}"),
            Some(betrfs_fuse::Errno::EXIST) => format!("{to} exists"),
            Some(betrfs_fuse::Errno::AGAIN) => path::CHANGED.to_owned(),
            Some(betrfs_fuse::Errno::DQUOT) => {
                format!("a quota that {to} would be in has no room for it (`betrfs quota get` shows it)")
            }
            Some(betrfs_fuse::Errno::PERM) => ownership::why_refused(source).unwrap_or_else(|| {
                "only root and the user who mounted the volume may clone, and not into an immutable or \
                 append-only directory (`lsattr -d` shows flags)"
                    .to_owned()
            }),
            _ => error.to_string(),
        };
        Failure::new(format!("cannot clone {from} to {to}: {why}"))
    })
}
