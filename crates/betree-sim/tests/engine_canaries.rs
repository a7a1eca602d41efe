//! Can the tests find anything? Bugs planted on purpose must be found: those that show only after a power
//! cut, within the crashes that the tests make by default; those that break a rule of the tree, by the laws.
#![allow(clippy::panic)]

use betree::Isolation;
use betree::planted::{self, Bug};
use betree_sim::harness::{guarded, setting};
use betree_sim::interleaving::engine_history;
use betree_sim::isolation::{Finding, forbidden};
use betree_sim::{
    Mix, copied_nodes_history, damage_history, first_violation, history_of_seed, lost_superblocks_history,
    rot_history, rot_history_of_seed, try_laws,
};

const OF_CRASHES: [Bug; 5] = [
    Bug::MissingSyncBeforeSuperblock,
    Bug::ExtentReusedOneCheckpointEarly,
    Bug::LogNotSynced,
    Bug::EpochKept,
    Bug::ClonesNotReplayed,
];

const OF_THE_TREE: [Bug; 30] = [
    Bug::DeltasCombinedBackwards,
    Bug::TableCopyNotWritten,
    Bug::KeptRunsCountedAsOne,
    Bug::BlocksTakenOverTwice,
    Bug::BlocksOfTheLivingTaken,
    Bug::NewerRunsTakenForOlder,
    Bug::SmallerKeyNotFirst,
    Bug::PairsCopiedWithoutMessages,
    Bug::SharedChildChanged,
    Bug::SharingNotInherited,
    Bug::HalvedEdgeTakenAsSole,
    Bug::SharedNodeRemoved,
    Bug::GotosOfNewNodeNotCounted,
    Bug::OldVersionsForgotten,
    Bug::MessagesOvertakeOlderOnes,
    Bug::CoveredEdgeKept,
    Bug::RangeComesToFirstEdgeOnly,
    Bug::RangeHidesNewerPoints,
    Bug::OlderRangeKeptBesideGoto,
    Bug::GotoStandsAtAnyHeight,
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

const OF_VIEWS: [Bug; 9] = [
    Bug::DeltasCombinedAcrossViews,
    Bug::LastDictionaryNotVisible,
    Bug::EntriesOfViewsDropped,
    Bug::RangesOfViewsChanged,
    Bug::VersionsOfViewsDropped,
    Bug::MemtablesOfViewsDropped,
    Bug::RootsOfViewsForgotten,
    Bug::UnreadNodesFreedForViews,
    Bug::EpochGoesOnPastClones,
];

const OF_TRANSACTIONS: [Bug; 8] = [
    Bug::TransactionsReadNewest,
    Bug::ClonesMissedByTransactions,
    Bug::ArrivedChangesMissed,
    Bug::ScansWithoutTheirEnd,
    Bug::RolledBackChangesCommitted,
    Bug::RolledBackClonesSeen,
    Bug::OlderPointsSeenThroughClones,
    Bug::SourcesOfClonesUnchecked,
];

const OF_INGESTS: [Bug; 4] = [
    Bug::IngestsMissedByTransactions,
    Bug::IngestOverLaterChanges,
    Bug::IngestedNodesNamedUnwritten,
    Bug::CompactionOverLaterChanges,
];
const OF_EXPIRY: [Bug; 4] =
    [Bug::ExpiredShown, Bug::ExpiredDroppedUnderViews, Bug::ViewsExpireByNow, Bug::NothingLeftOfExpired];

const OF_DAMAGE: [Bug; 3] = [Bug::DamageForgottenByMerge, Bug::DamageTakenForDelete, Bug::DamagePassedOver];
const OF_LIVE_ROT: [Bug; 2] = [Bug::HeldMessagesDropped, Bug::UnreadNodeForgotten];
/// The length of the histories of `engine_live_rot`.
const LIVE_ROT_STEPS: usize = 120;
const OF_LOST_SUPERBLOCKS: [Bug; 1] = [Bug::DeltasCombinedUnderOldNumber];
/// The length of the histories of `engine_damage`.
const DAMAGE_STEPS: usize = 100;

const OF_NODE_COPIES: [Bug; 4] =
    [Bug::NodeCopyNotWritten, Bug::NodeCopyNotRead, Bug::NodeCopyNotFreed, Bug::NodeCopyKeepsFirstBlocks];

const OF_GROWTH: [Bug; 1] = [Bug::GrownSizeNotStored];
const OF_BACKUPS: [Bug; 1] = [Bug::BackupHoldsNoNodes];
const OF_FREEZES: [Bug; 2] = [Bug::FreezeHoldsNobody, Bug::ThawNotStored];

/// Bugs that show in what transactions read and write, without a look at contents.
const OF_ISOLATION: [(Bug, Isolation); 9] = [
    (Bug::LastDictionaryNotVisible, Isolation::Snapshot),
    (Bug::EntriesOfViewsDropped, Isolation::Snapshot),
    (Bug::MemtablesOfViewsDropped, Isolation::Snapshot),
    (Bug::TransactionsReadNewest, Isolation::Snapshot),
    (Bug::ArrivedChangesMissed, Isolation::Snapshot),
    (Bug::ArrivedChangesMissed, Isolation::Serializable),
    (Bug::ClonesMissedByTransactions, Isolation::Snapshot),
    (Bug::ClonesMissedByTransactions, Isolation::Serializable),
    (Bug::ScansWithoutTheirEnd, Isolation::Serializable),
];

/// Bugs that few histories meet, each with the seed of one that does.
const RARE: [(Bug, u64); 1] = [(Bug::CarvedNodeAsHighAsRoot, 48_595)];

/// The most histories that a bug of the tree may survive, each as long as those of `engine_laws`.
const HISTORIES_MAX: u64 = 2000;
const STEPS: usize = 200;

/// One test for all bugs, because the whole process has one switch.
#[test]
fn planted_bugs_are_found() {
    for (bug, isolation) in OF_ISOLATION {
        let violation = || (0..HISTORIES_MAX).find_map(|seed| Some((seed, anomaly(bug, isolation, seed)?)));
        let (seed, found) = with(bug, violation).unwrap_or_else(|| panic!("{bug:?} breaks no isolation"));
        println!("{bug:?} breaks {isolation:?} in seed {seed}: {:?}, {}", found.anomaly, found.what);
    }
    let crashes = setting("BETRFS_CRASHES", 400);
    for bug in OF_CRASHES {
        let violation =
            || first_violation(crashes, &|history, n| guarded("a canary", || history.crash_at(n)));
        let (seed, n, what) =
            with(bug, violation).unwrap_or_else(|| panic!("{bug:?} is not found in {crashes} crashes"));
        println!("{bug:?} is found by seed {seed} at call {n}: {what}");
    }
    for bug in OF_THE_TREE {
        find_by_histories(bug, Mix::LAWS);
    }
    for bug in OF_VIEWS {
        find_by_histories(bug, Mix::VIEWS);
    }
    for bug in OF_TRANSACTIONS {
        find_by_histories(bug, Mix::TRANSACTIONS);
    }
    for bug in OF_BACKUPS {
        find_by_histories(bug, Mix::BACKUPS);
    }
    for bug in OF_FREEZES {
        find_by_histories(bug, Mix::FREEZES);
    }
    for bug in OF_GROWTH {
        find_by_histories(bug, Mix::GROWTH);
    }
    for bug in OF_INGESTS {
        find_by_histories(bug, Mix::INGESTS);
    }
    for bug in OF_EXPIRY {
        find_by_histories(bug, Mix::EXPIRY);
    }
    for bug in OF_DAMAGE {
        let broken =
            |seed| guarded(&format!("{bug:?}, seed {seed}"), || damage_history(seed, DAMAGE_STEPS).map(drop));
        let violation = || (0..HISTORIES_MAX).find_map(|seed| Some((seed, broken(seed).err()?)));
        let (seed, what) = with(bug, violation).unwrap_or_else(|| panic!("{bug:?} is not found"));
        println!("{bug:?} is found by seed {seed}: {what}");
    }
    for bug in OF_LIVE_ROT {
        let broken = |seed| {
            let (setup, kind, acts) = rot_history_of_seed(seed, LIVE_ROT_STEPS);
            guarded(&format!("{bug:?}, seed {seed}"), || rot_history(setup, kind, &acts).map(drop))
        };
        let violation = || (0..HISTORIES_MAX).find_map(|seed| Some((seed, broken(seed).err()?)));
        let (seed, what) = with(bug, violation).unwrap_or_else(|| panic!("{bug:?} is not found"));
        println!("{bug:?} is found by seed {seed}: {what}");
    }
    for bug in OF_LOST_SUPERBLOCKS {
        let broken = |seed| {
            guarded(&format!("{bug:?}, seed {seed}"), || {
                lost_superblocks_history(seed).map_err(|failure| failure.to_string())
            })
        };
        let violation = || (0..HISTORIES_MAX).find_map(|seed| Some((seed, broken(seed).err()?)));
        let (seed, what) = with(bug, violation).unwrap_or_else(|| panic!("{bug:?} is not found"));
        println!("{bug:?} is found by seed {seed}: {what}");
    }
    for bug in OF_NODE_COPIES {
        let broken =
            |seed| guarded(&format!("{bug:?}, seed {seed}"), || copied_nodes_history(seed, STEPS).map(drop));
        let violation = || (0..HISTORIES_MAX).find_map(|seed| Some((seed, broken(seed).err()?)));
        let (seed, what) = with(bug, violation).unwrap_or_else(|| panic!("{bug:?} is not found"));
        println!("{bug:?} is found by seed {seed}: {what}");
    }
    for (bug, seed) in RARE {
        let what = with(bug, || broken_law(bug, seed, Mix::LAWS));
        println!(
            "{bug:?} is found by seed {seed}: {}",
            what.unwrap_or_else(|| panic!("{bug:?} is not found"))
        );
    }
}

fn find_by_histories(bug: Bug, mix: Mix) {
    let violation = || (0..HISTORIES_MAX).find_map(|seed| Some((seed, broken_law(bug, seed, mix)?)));
    let (seed, what) =
        with(bug, violation).unwrap_or_else(|| panic!("{bug:?} is not found by {HISTORIES_MAX} histories"));
    println!("{bug:?} is found by seed {seed}: {what}");
}

fn with<T>(bug: Bug, body: impl FnOnce() -> T) -> T {
    planted::set(Some(bug));
    let result = body();
    planted::set(None);
    result
}

/// The broken law of the history of a seed, if any.
fn broken_law(bug: Bug, seed: u64, mix: Mix) -> Option<String> {
    let (setup, steps) = history_of_seed(seed, STEPS, mix);
    guarded(&format!("{bug:?}, seed {seed}"), || try_laws(setup, &steps)).err()
}

/// The forbidden anomaly of the history of a seed, if any. A panic is none.
fn anomaly(bug: Bug, isolation: Isolation, seed: u64) -> Option<Finding> {
    let mut found = None;
    let judged = guarded(&format!("{bug:?}, seed {seed}"), || {
        let history = engine_history(isolation, seed).map_err(|failure| failure.to_string())?;
        found = forbidden(&history, isolation).into_iter().next();
        Ok(())
    });
    found.filter(|_| judged.is_ok())
}
