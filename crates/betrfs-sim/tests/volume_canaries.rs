//! Can the histories find anything? Bugs planted on purpose in the library must be found within a stated
//! number of seeds.
#![allow(clippy::panic)]

use betrfs::planted::{self, Bug};
use betrfs_sim::history::Trials;
use betrfs_sim::runs::Plan;

/// Each bug with the number of seeds within which it is found.
const BUGS: [(Bug, u64); 23] = [
    (Bug::SizeBeforeData, 2000),
    (Bug::NameWithoutObject, 200),
    (Bug::RedirectNotCounted, 200),
    (Bug::SaltAppliedTwice, 200),
    (Bug::SaltOfCloneKept, 200),
    (Bug::SetIdKept, 200),
    (Bug::MarkerNotDeleted, 2000),
    (Bug::MarkerNotMade, 2000),
    (Bug::CopyNotMarked, 2000),
    (Bug::EvictedNamesTakenForAbsent, 200),
    (Bug::FsyncOfDirectoryForgotten, 2000),
    (Bug::CutBytesKept, 200),
    (Bug::LinkedFilesShared, 200),
    (Bug::SnapshotsLeftBehind, 200),
    (Bug::LinkedFilesOfSnapshotsWritable, 2000),
    (Bug::OrphansMovedWithDirectory, 2000),
    (Bug::OccupiedKeyTaken, 2000),
    (Bug::ReplacedBlocksKept, 200),
    (Bug::NumbersNotReserved, 2000),
    (Bug::AttributesLeftBehind, 200),
    (Bug::SnapshotsOfRestoredNotCounted, 200),
    (Bug::PropertiesOfCloneLost, 2000),
    (Bug::RemovalNotTakenBack, 200),
];

/// Likewise those of checks and repairs.
const BUGS_OF_REPAIRS: [(Bug, u64); 3] = [
    (Bug::NamesOfDamagedFileCut, 2000),
    (Bug::LostNamesTakenForNone, 2000),
    (Bug::LostBlocksTakenForNone, 2000),
];

/// One test for all bugs, because the whole process has one switch.
#[test]
fn planted_bugs_of_the_library_are_found() {
    let mut missed = Vec::new();
    let of = |bugs: &[(Bug, u64)], trials| -> Vec<_> { bugs.iter().map(|bug| (*bug, trials)).collect() };
    let all = [of(&BUGS, Trials::Crashes), of(&BUGS_OF_REPAIRS, Trials::Repairs)];
    for ((bug, seeds_max), trials) in all.concat() {
        planted::set(Some(bug));
        let found = Plan { trials, seeds: 0..seeds_max, steps: 80, time: None }.first_failure();
        planted::set(None);
        match found {
            Some((seed, what)) => println!("{bug:?} is found by seed {seed}: {what}"),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
