//! Can the histories by the protocol find anything? Bugs planted on purpose in the server must be found
//! within a stated number of seeds.
#![allow(clippy::panic)]

use betrfs_fuse::planted::{self, Bug};
use betrfs_sim::history::Trials;
use betrfs_sim::runs::Plan;

/// Each bug with the number of seeds within which it is found.
const BUGS: [(Bug, u64); 18] = [
    (Bug::SetIdKept, 200),
    (Bug::SetIdNotTold, 200),
    (Bug::LookupNotCounted, 200),
    (Bug::ForgetOffByOne, 200),
    (Bug::ListedWithoutRoom, 200),
    (Bug::FsyncNotDone, 2000),
    (Bug::AbsentInCopyRemembered, 200),
    (Bug::SnapshotsRemembered, 2000),
    (Bug::FillNotTold, 200),
    (Bug::EmptyNotTold, 200),
    (Bug::RestoredNamesNotTold, 200),
    (Bug::AbsentBesideSnapshotsRemembered, 200),
    (Bug::RemovalNotTold, 200),
    (Bug::FlagsNotTold, 200),
    (Bug::RenameFlagsIgnored, 200),
    (Bug::WriteSizeIgnored, 200),
    (Bug::SnapshotsForAll, 200),
    (Bug::TruncationForgotten, 200),
];

/// One test for all bugs, because the whole process has one switch.
#[test]
fn planted_bugs_of_the_server_are_found() {
    let mut missed = Vec::new();
    for (bug, seeds_max) in BUGS {
        planted::set(Some(bug));
        let found =
            Plan { trials: Trials::Protocol, seeds: 0..seeds_max, steps: 80, time: None }.first_failure();
        planted::set(None);
        match found {
            Some((seed, what)) => println!("{bug:?} is found by seed {seed}: {what}"),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
