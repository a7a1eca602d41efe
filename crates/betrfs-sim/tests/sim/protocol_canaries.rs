//! Can the histories by the protocol find anything? Each bug planted on purpose in the server must be found;
//! see `betree_sim::canary`.

use betree_sim::canary::must_be_found;
use betrfs_fuse::planted::{self, Bug};
use betrfs_sim::history::Trials;
use betrfs_sim::runs::Plan;

canaries! {
    Trials::Protocol;
    set_id_kept: SetIdKept, 1, 200;
    set_id_not_told: SetIdNotTold, 1, 200;
    lookup_not_counted: LookupNotCounted, 11, 200;
    forget_off_by_one: ForgetOffByOne, 2, 200;
    listed_without_room: ListedWithoutRoom, 4, 200;
    fsync_not_done: FsyncNotDone, 0, 2000;
    absent_in_copy_remembered: AbsentInCopyRemembered, 0, 200;
    snapshots_remembered: SnapshotsRemembered, 254, 2000;
    fill_not_told: FillNotTold, 0, 200;
    empty_not_told: EmptyNotTold, 30, 200;
    restored_names_not_told: RestoredNamesNotTold, 27, 200;
    absent_beside_snapshots_remembered: AbsentBesideSnapshotsRemembered, 101, 200;
    removal_not_told: RemovalNotTold, 10, 200;
    flags_not_told: FlagsNotTold, 0, 200;
    rename_flags_ignored: RenameFlagsIgnored, 5, 200;
    write_size_ignored: WriteSizeIgnored, 1, 200;
    snapshots_for_all: SnapshotsForAll, 32, 200;
    truncation_forgotten: TruncationForgotten, 7, 200;
}
