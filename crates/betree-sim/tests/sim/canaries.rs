//! Can the tests find anything? Each bug planted on purpose must be found: those that show only after a power
//! cut by the simulated crashes, those that break a rule of the tree by the laws.
//!
//! Each bug has a test of its own, which runs the seed that found the bug last; see `betree_sim::canary`.

use betree::Isolation;
use betree::planted::{self, Bug};
use betree_sim::canary::must_be_found;
use betree_sim::harness::guarded;
use betree_sim::interleaving::engine_history;
use betree_sim::isolation::forbidden;
use betree_sim::{
    CrashHistory, Mix, copied_nodes_history, damage_history, history_of_seed, lost_superblocks_history,
    rot_history, rot_history_of_seed, try_laws,
};

/// The most histories that a bug may survive, each as long as those of `sim::laws`.
const HISTORIES_MAX: u64 = 2000;
const STEPS: usize = 200;
/// The length of the histories of `sim::live_rot`.
const LIVE_ROT_STEPS: usize = 120;
/// The length of the histories of `sim::damage`.
const DAMAGE_STEPS: usize = 100;

/// Makes a test for each bug: its name, the bug, the seed that found it last, and what breaks.
macro_rules! canaries {
    ($($name:ident: $bug:ident, $seed:literal, $broken:expr;)*) => {$(
        #[test]
        fn $name() {
            let plant = |is_planted: bool| planted::set(is_planted.then_some(Bug::$bug));
            let broken = $broken;
            let guarded_broken = |seed| guarded(&format!("seed {seed}"), || broken(seed)).err();
            must_be_found(&Bug::$bug, $seed, HISTORIES_MAX, plant, guarded_broken);
        }
    )*};
}

// Bugs that show only after a power cut.
canaries! {
    missing_sync_before_superblock: MissingSyncBeforeSuperblock, 0, crashes;
    extent_reused_one_checkpoint_early: ExtentReusedOneCheckpointEarly, 9, crashes;
    log_not_synced: LogNotSynced, 0, crashes;
    epoch_kept: EpochKept, 0, crashes;
    clones_not_replayed: ClonesNotReplayed, 1, crashes;
}

// Bugs that break a rule of the tree.
canaries! {
    deltas_combined_backwards: DeltasCombinedBackwards, 1, laws(Mix::LAWS);
    table_copy_not_written: TableCopyNotWritten, 0, laws(Mix::LAWS);
    kept_runs_counted_as_one: KeptRunsCountedAsOne, 3, laws(Mix::LAWS);
    blocks_taken_over_twice: BlocksTakenOverTwice, 7, laws(Mix::LAWS);
    blocks_of_the_living_taken: BlocksOfTheLivingTaken, 3, laws(Mix::LAWS);
    newer_runs_taken_for_older: NewerRunsTakenForOlder, 1, laws(Mix::LAWS);
    smaller_key_not_first: SmallerKeyNotFirst, 7, laws(Mix::LAWS);
    pairs_copied_without_messages: PairsCopiedWithoutMessages, 1, laws(Mix::LAWS);
    shared_child_changed: SharedChildChanged, 2, laws(Mix::LAWS);
    sharing_not_inherited: SharingNotInherited, 2, laws(Mix::LAWS);
    halved_edge_taken_as_sole: HalvedEdgeTakenAsSole, 270, laws(Mix::LAWS);
    shared_node_removed: SharedNodeRemoved, 1, laws(Mix::LAWS);
    gotos_of_new_node_not_counted: GotosOfNewNodeNotCounted, 9, laws(Mix::LAWS);
    old_versions_forgotten: OldVersionsForgotten, 1, laws(Mix::LAWS);
    messages_overtake_older_ones: MessagesOvertakeOlderOnes, 0, laws(Mix::LAWS);
    covered_edge_kept: CoveredEdgeKept, 1, laws(Mix::LAWS);
    range_comes_to_first_edge_only: RangeComesToFirstEdgeOnly, 0, laws(Mix::LAWS);
    range_hides_newer_points: RangeHidesNewerPoints, 0, laws(Mix::LAWS);
    older_range_kept_beside_goto: OlderRangeKeptBesideGoto, 2, laws(Mix::LAWS);
    goto_stands_at_any_height: GotoStandsAtAnyHeight, 1, laws(Mix::LAWS);
    goto_on_one_side_of_cut: GotoOnOneSideOfCut, 9, laws(Mix::LAWS);
    pending_lost_when_pulled_up: PendingLostWhenPulledUp, 1, laws(Mix::LAWS);
    hidden_pairs_merged: HiddenPairsMerged, 1, laws(Mix::LAWS);
    strip_derived_from_window: StripDerivedFromWindow, 1, laws(Mix::LAWS);
    carved_node_too_low: CarvedNodeTooLow, 869, laws(Mix::LAWS);
    gotos_carried_into_leaf: GotosCarriedIntoLeaf, 28, laws(Mix::LAWS);
    pieces_without_messages: PiecesWithoutMessages, 1, laws(Mix::LAWS);
    changes_made_one_by_one: ChangesMadeOneByOne, 1, laws(Mix::LAWS);
    copies_made_last: CopiesMadeLast, 4, laws(Mix::LAWS);
    source_back_after_delete: SourceBackAfterDelete, 1, laws(Mix::LAWS);
}

// Bugs of views.
canaries! {
    deltas_combined_across_views: DeltasCombinedAcrossViews, 77, laws(Mix::VIEWS);
    last_dictionary_not_visible: LastDictionaryNotVisible, 0, laws(Mix::VIEWS);
    entries_of_views_dropped: EntriesOfViewsDropped, 0, laws(Mix::VIEWS);
    ranges_of_views_changed: RangesOfViewsChanged, 0, laws(Mix::VIEWS);
    versions_of_views_dropped: VersionsOfViewsDropped, 0, laws(Mix::VIEWS);
    memtables_of_views_dropped: MemtablesOfViewsDropped, 0, laws(Mix::VIEWS);
    roots_of_views_forgotten: RootsOfViewsForgotten, 1, laws(Mix::VIEWS);
    unread_nodes_freed_for_views: UnreadNodesFreedForViews, 1, laws(Mix::VIEWS);
    epoch_goes_on_past_clones: EpochGoesOnPastClones, 1, laws(Mix::VIEWS);
}

// Bugs of transactions.
canaries! {
    transactions_read_newest: TransactionsReadNewest, 0, laws(Mix::TRANSACTIONS);
    clones_missed_by_transactions: ClonesMissedByTransactions, 15, laws(Mix::TRANSACTIONS);
    arrived_changes_missed: ArrivedChangesMissed, 0, laws(Mix::TRANSACTIONS);
    scans_without_their_end: ScansWithoutTheirEnd, 25, laws(Mix::TRANSACTIONS);
    rolled_back_changes_committed: RolledBackChangesCommitted, 3, laws(Mix::TRANSACTIONS);
    rolled_back_clones_seen: RolledBackClonesSeen, 41, laws(Mix::TRANSACTIONS);
    older_points_seen_through_clones: OlderPointsSeenThroughClones, 4, laws(Mix::TRANSACTIONS);
    sources_of_clones_unchecked: SourcesOfClonesUnchecked, 0, laws(Mix::TRANSACTIONS);
}

// A bug of backups.
canaries! {
    backup_holds_no_nodes: BackupHoldsNoNodes, 0, laws(Mix::BACKUPS);
}

// Bugs of freezes.
canaries! {
    freeze_holds_nobody: FreezeHoldsNobody, 0, laws(Mix::FREEZES);
    thaw_not_stored: ThawNotStored, 1, laws(Mix::FREEZES);
}

// A bug of growth.
canaries! {
    grown_size_not_stored: GrownSizeNotStored, 0, laws(Mix::GROWTH);
}

// Bugs of ingests.
canaries! {
    ingests_missed_by_transactions: IngestsMissedByTransactions, 10, laws(Mix::INGESTS);
    ingest_over_later_changes: IngestOverLaterChanges, 0, laws(Mix::INGESTS);
    ingested_nodes_named_unwritten: IngestedNodesNamedUnwritten, 0, laws(Mix::INGESTS);
    compaction_over_later_changes: CompactionOverLaterChanges, 2, laws(Mix::INGESTS);
}

// Bugs of values that expire.
canaries! {
    expired_shown: ExpiredShown, 1, laws(Mix::EXPIRY);
    expired_dropped_under_views: ExpiredDroppedUnderViews, 1845, laws(Mix::EXPIRY);
    views_expire_by_now: ViewsExpireByNow, 0, laws(Mix::EXPIRY);
    nothing_left_of_expired: NothingLeftOfExpired, 701, laws(Mix::EXPIRY);
}

// Bugs of known damage.
canaries! {
    damage_forgotten_by_merge: DamageForgottenByMerge, 1, damage;
    damage_taken_for_delete: DamageTakenForDelete, 1, damage;
    damage_passed_over: DamagePassedOver, 1, damage;
}

// Bugs of rot in use.
canaries! {
    held_messages_dropped: HeldMessagesDropped, 1, live_rot;
    unread_node_forgotten: UnreadNodeForgotten, 1, live_rot;
}

// A bug of lost superblocks.
canaries! {
    deltas_combined_under_old_number: DeltasCombinedUnderOldNumber, 0, lost_superblocks;
}

// Bugs of copies of nodes.
canaries! {
    node_copy_not_written: NodeCopyNotWritten, 1, node_copies;
    node_copy_not_read: NodeCopyNotRead, 2, node_copies;
    node_copy_not_freed: NodeCopyNotFreed, 1, node_copies;
    node_copy_keeps_first_blocks: NodeCopyKeepsFirstBlocks, 27, node_copies;
}

// Bugs that show in what transactions read and write, without a look at contents.
canaries! {
    isolation_last_dictionary_not_visible_snapshot: LastDictionaryNotVisible, 3, anomalies(Isolation::Snapshot);
    isolation_entries_of_views_dropped_snapshot: EntriesOfViewsDropped, 7, anomalies(Isolation::Snapshot);
    isolation_memtables_of_views_dropped_snapshot: MemtablesOfViewsDropped, 0, anomalies(Isolation::Snapshot);
    isolation_transactions_read_newest_snapshot: TransactionsReadNewest, 0, anomalies(Isolation::Snapshot);
    isolation_arrived_changes_missed_snapshot: ArrivedChangesMissed, 0, anomalies(Isolation::Snapshot);
    isolation_arrived_changes_missed_serializable: ArrivedChangesMissed, 0, anomalies(Isolation::Serializable);
    isolation_clones_missed_by_transactions_snapshot: ClonesMissedByTransactions, 2, anomalies(Isolation::Snapshot);
    isolation_clones_missed_by_transactions_serializable: ClonesMissedByTransactions, 3, anomalies(Isolation::Serializable);
    isolation_scans_without_their_end_serializable: ScansWithoutTheirEnd, 11, anomalies(Isolation::Serializable);
}

// A bug that few histories show: the search does not find it.
canaries! {
    carved_node_as_high_as_root: CarvedNodeAsHighAsRoot, 48_595, laws(Mix::LAWS);
}

/// Histories under a mix of steps equal the model's.
fn laws(mix: Mix) -> impl Fn(u64) -> Result<(), String> {
    move |seed| {
        let (setup, steps) = history_of_seed(seed, STEPS, mix);
        try_laws(setup, &steps)
    }
}

/// Power cuts at some calls of a history leave what was synced and a prefix of the rest.
fn crashes(seed: u64) -> Result<(), String> {
    let violation = |history: &CrashHistory, n| guarded("a canary", || history.crash_at(n));
    CrashHistory::violation_of_seed(seed, &violation)
        .map_or(Ok(()), |(n, what)| Err(format!("call {n}: {what}")))
}

fn damage(seed: u64) -> Result<(), String> {
    damage_history(seed, DAMAGE_STEPS).map(drop)
}

fn live_rot(seed: u64) -> Result<(), String> {
    let (setup, kind, acts) = rot_history_of_seed(seed, LIVE_ROT_STEPS);
    rot_history(setup, kind, &acts).map(drop)
}

fn lost_superblocks(seed: u64) -> Result<(), String> {
    lost_superblocks_history(seed).map_err(|failure| failure.to_string())
}

fn node_copies(seed: u64) -> Result<(), String> {
    copied_nodes_history(seed, STEPS).map(drop)
}

/// A forbidden anomaly is what counts: a history that fails in another way shows none.
fn anomalies(isolation: Isolation) -> impl Fn(u64) -> Result<(), String> {
    move |seed| {
        let mut found = None;
        let judged = guarded(&format!("seed {seed}"), || {
            let history = engine_history(isolation, seed).map_err(|failure| failure.to_string())?;
            found = forbidden(&history, isolation).into_iter().next();
            Ok(())
        });
        match found.filter(|_| judged.is_ok()) {
            Some(found) => Err(format!("{:?}, {}", found.anomaly, found.what)),
            None => Ok(()),
        }
    }
}
