//! Quotas of directories, as callers see them.

/// The limits of a directory's quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaLimits {
    /// The most bytes of files below the directory; `None` for any number.
    pub bytes: Option<u64>,
    /// The most files, directories and other objects below it; `None` for any number.
    pub objects: Option<u64>,
}

/// What counts for a quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaUse {
    /// The bytes of files, as du(1) shows them: whole units of 512 bytes, without holes.
    pub bytes: u64,
    /// The number of objects: a file with several names counts once, the directory itself does not.
    pub objects: u64,
}

/// The quota that a directory is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Its limits.
    pub limits: QuotaLimits,
    /// What is used of it.
    pub used: QuotaUse,
    /// How far above the directory the one with the quota is: 0 for the directory itself.
    pub levels_up: u64,
}
