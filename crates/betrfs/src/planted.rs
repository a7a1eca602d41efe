//! Mistakes that can be switched on, so that tests can show that they would find them; and the moments
//! between two batches of an operation, in which another program may do something.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A write commits the file's new size before its bytes.
    SizeBeforeData,
    /// The first link of a file does not store the object that its names lead to.
    NameWithoutObject,
    /// A name that goes is not counted in the stored object that others still lead to.
    RedirectNotCounted,
    /// A directory that moves adds the salts above it to its own twice.
    SaltAppliedTwice,
    /// A clone keeps the salt of its source.
    SaltOfCloneKept,
    /// A change of the owner keeps set-id bits.
    SetIdKept,
    /// A file without a name keeps its marker when it gets one.
    MarkerNotDeleted,
    /// A file that is unlinked while open gets no marker.
    MarkerNotMade,
    /// A copy of a directory that is under way gets no marker.
    CopyNotMarked,
    /// A directory whose names have left memory counts as complete.
    EvictedNamesTakenForAbsent,
    /// An fsync of a directory syncs nothing.
    FsyncOfDirectoryForgotten,
    /// A file that is cut keeps the bytes of its last block.
    CutBytesKept,
    /// A clone leads its linked files to the objects of its source.
    LinkedFilesShared,
    /// A directory that moves leaves its snapshots behind.
    SnapshotsLeftBehind,
    /// Linked files in a snapshot can be changed.
    LinkedFilesOfSnapshotsWritable,
    /// The blocks of unlinked, open files move with the directory above.
    OrphansMovedWithDirectory,
    /// A new file takes the key under which an unlinked file has its blocks.
    OccupiedKeyTaken,
    /// A file that replaces another leaves the blocks behind its own end.
    ReplacedBlocksKept,
    /// Numbers of inodes are used before their reservation is logged.
    NumbersNotReserved,
    /// A removed file leaves its large attributes.
    AttributesLeftBehind,
    /// A directory that is brought back to a snapshot counts no snapshots.
    SnapshotsOfRestoredNotCounted,
    /// A clone has none of the properties that its source inherits.
    PropertiesOfCloneLost,
    /// A file that is removed counts for the quotas above it as before.
    RemovalNotTakenBack,
    /// A check names one name of a damaged file that has several.
    NamesOfDamagedFileCut,
    /// A repair takes names that were lost for none.
    LostNamesTakenForNone,
    /// A repair takes lost blocks of files for none.
    LostBlocksTakenForNone,
}

#[cfg(feature = "planted-bugs")]
mod switch {
    use core::sync::atomic::{AtomicU8, Ordering};

    use betree::Env;
    use betree_platform::sync::Mutex;

    use super::Bug;

    static PLANTED: AtomicU8 = AtomicU8::new(0);
    static AFTER_BATCH: Mutex<Option<fn(&Env)>> = Mutex::new(None);

    /// From now on every volume of the program does this after each batch of an operation.
    pub fn set_after_batch(act: fn(&Env)) {
        *AFTER_BATCH.lock() = Some(act);
    }

    pub(crate) fn batch_is_done(env: &Env) {
        let act = *AFTER_BATCH.lock();
        if let Some(act) = act {
            act(env);
        }
    }

    /// Switches one mistake on for the whole program, or all off.
    pub fn set(bug: Option<Bug>) {
        PLANTED.store(bug.map_or(0, |b| b as u8 + 1), Ordering::SeqCst);
    }

    pub(crate) fn is(bug: Bug) -> bool {
        PLANTED.load(Ordering::Relaxed) == bug as u8 + 1
    }
}

#[cfg(feature = "planted-bugs")]
pub(crate) use switch::{batch_is_done, is};
#[cfg(feature = "planted-bugs")]
pub use switch::{set, set_after_batch};

/// No mistake is planted in an ordinary build.
#[cfg(not(feature = "planted-bugs"))]
pub(crate) const fn is(_: Bug) -> bool {
    false
}

/// Nor does anything happen between batches.
#[cfg(not(feature = "planted-bugs"))]
pub(crate) const fn batch_is_done(_: &betree::Env) {}
