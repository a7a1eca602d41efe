//! Mistakes that can be switched on, so that tests can show that they would find them.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A write by a user without privileges keeps set-id bits.
    SetIdKept,
    /// Set-id bits are cleared, and the kernel is not told.
    SetIdNotTold,
    /// A look-up of a directory that is there is not counted.
    LookupNotCounted,
    /// A FORGET gives one look-up back too few.
    ForgetOffByOne,
    /// An object of a listing counts although it did not fit into the reply.
    ListedWithoutRoom,
    /// An fsync of a file is answered before anything is durable.
    FsyncNotDone,
    /// Absent names of an unfinished copy may be remembered.
    AbsentInCopyRemembered,
    /// The entry of snapshots may be remembered.
    SnapshotsRemembered,
    /// A copy is filled, and the kernel is not told.
    FillNotTold,
    /// A directory is emptied, and the kernel is not told.
    EmptyNotTold,
    /// A directory is brought back to a snapshot, and the kernel is not told which names are gone.
    RestoredNamesNotTold,
    /// Absent names of a directory that can be brought back to a snapshot may be remembered.
    AbsentBesideSnapshotsRemembered,
    /// A snapshot or a tree is removed, and the kernel is not told of other names of its files.
    RemovalNotTold,
    /// Flags change, and the kernel is not told of the time.
    FlagsNotTold,
    /// Unknown flags of a rename are ignored.
    RenameFlagsIgnored,
    /// A write takes all bytes that came, whatever its size.
    WriteSizeIgnored,
    /// Anybody may make and remove snapshots.
    SnapshotsForAll,
    /// An opening with O_TRUNC keeps the contents.
    TruncationForgotten,
}

#[cfg(feature = "planted-bugs")]
mod switch {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::Bug;

    static PLANTED: AtomicU8 = AtomicU8::new(0);

    /// Switches one mistake on for the whole program, or all off.
    pub fn set(bug: Option<Bug>) {
        PLANTED.store(bug.map_or(0, |b| b as u8 + 1), Ordering::SeqCst);
    }

    pub(crate) fn is(bug: Bug) -> bool {
        PLANTED.load(Ordering::Relaxed) == bug as u8 + 1
    }
}

#[cfg(feature = "planted-bugs")]
pub(crate) use switch::is;
#[cfg(feature = "planted-bugs")]
pub use switch::set;

/// No mistake is planted in an ordinary build.
#[cfg(not(feature = "planted-bugs"))]
pub(crate) const fn is(_: Bug) -> bool {
    false
}
