//! Can the crash tests find anything? Two bugs that are planted on purpose, of the kind that works
//! until the power fails, must be found within the crashes that the tests make by default.
#![allow(clippy::panic)]

use betree::planted::{self, Bug};
use betrfs_sim::first_violation;
use betrfs_sim::harness::{guarded, setting};

/// One test for all bugs, since the switch is one for the whole process.
#[test]
fn planted_bugs_are_found() {
    let crashes = setting("BETRFS_CRASHES", 400);
    for bug in [Bug::MissingSyncBeforeSuperblock, Bug::ExtentReusedOneCheckpointEarly] {
        planted::set(Some(bug));
        let found = first_violation(crashes, &|history, n| guarded("a canary", || history.crash_at(n)));
        planted::set(None);
        let (seed, n, what) = found.unwrap_or_else(|| panic!("{bug:?} is not found in {crashes} crashes"));
        println!("{bug:?} is found by seed {seed} at call {n}: {what}");
    }
}
