//! The settings of a mount that its server heeds, and the kernel shows only in part: which of them a remount
//! changes, and which are fixed.

use betrfs::AccessTimes;
use rustix::mount::MountFlags;
use serde::{Deserialize, Serialize};

/// The settings that are fixed at the mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FixedSettings {
    /// Whether the volume was opened for reading alone: with `ro`.
    pub read_only: bool,
    /// Whether access control lists count.
    pub acl: bool,
    /// Whether free space is discarded after each checkpoint.
    pub discard: bool,
    /// The budget of the node cache in bytes.
    pub cache_bytes: u64,
}

/// The settings that a remount changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeableSettings {
    /// Which reads move times of access.
    pub access_times: ReadsNoted,
    /// Whether listing a directory counts as a read.
    pub listings_count: bool,
    /// Whether users may clone, snapshot and remove what is theirs.
    pub user_clone_allowed: bool,
}

/// Which reads move times of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadsNoted {
    /// None: with `noatime`, or on a read-only mount.
    None,
    /// With `relatime`.
    Relative,
    /// With `strictatime`.
    All,
}

/// All settings of a mount that its server heeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountSettings {
    /// Those that are fixed at the mount.
    #[serde(flatten)]
    pub fixed: FixedSettings,
    /// Those that a remount changes.
    #[serde(flatten)]
    pub changeable: ChangeableSettings,
}

impl ReadsNoted {
    /// The reads that a mount's flags ask for. The kernel leaves it to the server.
    pub fn of(flags: MountFlags) -> ReadsNoted {
        if flags.contains(MountFlags::RDONLY) {
            ReadsNoted::None
        } else if flags.contains(MountFlags::STRICTATIME) {
            // It overrides `noatime`, as in mount(2).
            ReadsNoted::All
        } else if flags.contains(MountFlags::NOATIME) {
            ReadsNoted::None
        } else {
            ReadsNoted::Relative
        }
    }
}

impl From<ReadsNoted> for AccessTimes {
    fn from(reads: ReadsNoted) -> AccessTimes {
        match reads {
            ReadsNoted::None => AccessTimes::Never,
            ReadsNoted::Relative => AccessTimes::Relative,
            ReadsNoted::All => AccessTimes::Always,
        }
    }
}

impl From<AccessTimes> for ReadsNoted {
    fn from(times: AccessTimes) -> ReadsNoted {
        match times {
            AccessTimes::Never => ReadsNoted::None,
            AccessTimes::Relative => ReadsNoted::Relative,
            AccessTimes::Always => ReadsNoted::All,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mounts_flags_decide_which_reads_are_noted() {
        for (flags, reads) in [
            (MountFlags::empty(), ReadsNoted::Relative),
            (MountFlags::RELATIME, ReadsNoted::Relative),
            (MountFlags::NODIRATIME, ReadsNoted::Relative),
            (MountFlags::NOATIME, ReadsNoted::None),
            (MountFlags::STRICTATIME, ReadsNoted::All),
            (MountFlags::STRICTATIME | MountFlags::NOATIME, ReadsNoted::All),
            (MountFlags::STRICTATIME | MountFlags::RDONLY, ReadsNoted::None),
        ] {
            assert_eq!(ReadsNoted::of(flags), reads, "{flags:?}");
            assert_eq!(ReadsNoted::from(AccessTimes::from(reads)), reads);
        }
    }
}
