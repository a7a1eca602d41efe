//! Can the histories find anything? Each bug planted on purpose in the library must be found; see
//! `betree_sim::canary`.

use betree_sim::canary::must_be_found;
use betrfs::planted::{self, Bug};
use betrfs_sim::history::Trials;
use betrfs_sim::runs::Plan;

canaries! {
    Trials::Crashes;
    size_before_data: SizeBeforeData, 3, 2000;
    name_without_object: NameWithoutObject, 16, 200;
    redirect_not_counted: RedirectNotCounted, 20, 200;
    salt_applied_twice: SaltAppliedTwice, 59, 200;
    salt_of_clone_kept: SaltOfCloneKept, 4, 200;
    set_id_kept: SetIdKept, 1, 200;
    marker_not_deleted: MarkerNotDeleted, 10, 2000;
    marker_not_made: MarkerNotMade, 48, 2000;
    copy_not_marked: CopyNotMarked, 566, 2000;
    evicted_names_taken_for_absent: EvictedNamesTakenForAbsent, 2, 200;
    fsync_of_directory_forgotten: FsyncOfDirectoryForgotten, 2, 2000;
    cut_bytes_kept: CutBytesKept, 7, 200;
    linked_files_shared: LinkedFilesShared, 16, 200;
    snapshots_left_behind: SnapshotsLeftBehind, 20, 200;
    linked_files_of_snapshots_writable: LinkedFilesOfSnapshotsWritable, 20, 2000;
    orphans_moved_with_directory: OrphansMovedWithDirectory, 18, 2000;
    occupied_key_taken: OccupiedKeyTaken, 649, 2000;
    replaced_blocks_kept: ReplacedBlocksKept, 4, 200;
    numbers_not_reserved: NumbersNotReserved, 3, 2000;
    attributes_left_behind: AttributesLeftBehind, 62, 200;
    snapshots_of_restored_not_counted: SnapshotsOfRestoredNotCounted, 18, 200;
    properties_of_clone_lost: PropertiesOfCloneLost, 45, 2000;
    removal_not_taken_back: RemovalNotTakenBack, 8, 200;
}

// Those of checks and repairs.
canaries! {
    Trials::Repairs;
    names_of_damaged_file_cut: NamesOfDamagedFileCut, 290, 2000;
    lost_names_taken_for_none: LostNamesTakenForNone, 715, 2000;
    lost_blocks_taken_for_none: LostBlocksTakenForNone, 25, 2000;
}
