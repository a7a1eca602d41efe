//! Can the tests find anything? Bugs that are planted on purpose must be found: those of the kind
//! that works until the power fails within the crashes that the tests make by default, those of the
//! tree by the laws.
#![allow(clippy::panic)]

use betree::planted::{self, Bug};
use betrfs_sim::harness::{guarded, setting};
use betrfs_sim::{Mix, first_violation, history_of_seed, try_laws};

/// Bugs that only a crash brings to light.
const OF_CRASHES: [Bug; 2] = [Bug::MissingSyncBeforeSuperblock, Bug::ExtentReusedOneCheckpointEarly];

/// Bugs that break the rules of the tree.
const OF_THE_TREE: [Bug; 22] = [
    Bug::SharedChildChanged,
    Bug::SharingNotInherited,
    Bug::HalvedEdgeTakenAsSole,
    Bug::SharedNodeRemoved,
    Bug::GotosOfNewNodeNotCounted,
    Bug::MessagesOvertakeOlderOnes,
    Bug::CoveredEdgeKept,
    Bug::RangeComesToFirstEdgeOnly,
    Bug::RangeHidesNewerPoints,
    Bug::OlderRangeKeptBesideGoto,
    Bug::GotoStandsAtAnyHeight,
    Bug::ChildLoweredBelowGoto,
    Bug::GotoOnOneSideOfCut,
    Bug::PendingLostWhenPulledUp,
    Bug::HiddenPairsMerged,
    Bug::StripDerivedFromWindow,
    Bug::CarvedNodeTooLow,
    Bug::GotosCarriedIntoLeaf,
    Bug::PiecesWithoutMessages,
    Bug::ChangesMadeOneByOne,
    Bug::CopiesMadeLast,
    Bug::SourceBackAfterDelete,
];

/// How long each history is, as in `engine_laws`.
const STEPS: usize = 200;

/// One test for all bugs, since the switch is one for the whole process.
#[test]
fn planted_bugs_are_found() {
    let crashes = setting("BETRFS_CRASHES", 400);
    for bug in OF_CRASHES {
        let found =
            with(bug, || first_violation(crashes, &|history, n| guarded("a canary", || history.crash_at(n))));
        let (seed, n, what) = found.unwrap_or_else(|| panic!("{bug:?} is not found in {crashes} crashes"));
        println!("{bug:?} is found by seed {seed} at call {n}: {what}");
    }
    let histories = setting("BETRFS_CANARY_HISTORIES", 2000);
    for bug in OF_THE_TREE {
        let start = std::time::Instant::now();
        let found = with(bug, || (0..histories).find_map(|seed| Some((seed, broken_law(seed)?))));
        let Some((seed, what)) = found else {
            println!("{bug:?} NOT FOUND {:?}", start.elapsed());
            continue;
        };
        println!("{bug:?} is found by seed {seed}: {what} {:?}", start.elapsed());
    }
}

fn with<T>(bug: Bug, body: impl FnOnce() -> T) -> T {
    planted::set(Some(bug));
    let result = body();
    planted::set(None);
    result
}

/// The law that the history of a seed breaks, if it does.
fn broken_law(seed: u64) -> Option<String> {
    let (setup, steps) = history_of_seed(seed, STEPS, Mix::LAWS);
    guarded(&format!("seed {seed}"), || try_laws(setup, &steps)).err()
}
