//! Mistakes that can be switched on, so that tests can show that they would find them.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The superblock is written before what it points to is durable.
    MissingSyncBeforeSuperblock,
    /// Extents that the last checkpoint names are reused while recovery may still need them.
    ExtentReusedOneCheckpointEarly,
    /// The second copy of the node table is named, but not written.
    TableCopyNotWritten,
    /// The second copy of a node is named, but not written.
    NodeCopyNotWritten,
    /// A node whose first copy is bad counts as lost.
    NodeCopyNotRead,
    /// A node that is freed leaves its second copy behind.
    NodeCopyNotFreed,
    /// The second copy of a node keeps blocks of the first one.
    NodeCopyKeepsFirstBlocks,
    /// A volume grows, and no superblock says so.
    GrownSizeNotStored,
    /// A sync of the log writes its segments but leaves them in the disk's cache.
    LogNotSynced,
    /// A recovery continues the epoch of the log that it found.
    EpochKept,
    /// A recovery replays the messages of a batch with clones, but not the clones.
    ClonesNotReplayed,
    /// Kept blocks are located as if the node had kept one run of blocks only.
    KeptRunsCountedAsOne,
    /// Two nodes that were made of one node keep the same blocks of it.
    BlocksTakenOverTwice,
    /// A node keeps blocks of another node that still uses them.
    BlocksOfTheLivingTaken,
    /// The older runs of a partition are laid over the newer ones.
    NewerRunsTakenForOlder,
    /// A basement that gets a key below its first one keeps that as its first key.
    SmallerKeyNotFirst,
    /// Copied basements leave the messages over their pairs behind.
    PairsCopiedWithoutMessages,
    /// A flush changes a child in place that other edges name too.
    SharedChildChanged,
    /// A flush counts the references of the child alone, not those of the nodes above it.
    SharingNotInherited,
    /// Each half of an edge that a GOTO has just cut in two counts as the only edge to its child.
    HalvedEdgeTakenAsSole,
    /// A split or a merge removes a node that other edges still name.
    SharedNodeRemoved,
    /// A new node takes no references for the GOTOs in it.
    GotosOfNewNodeNotCounted,
    /// Interior nodes are evicted while a thread makes new versions of them.
    OldVersionsForgotten,
    /// Messages that go past a node leave older ones behind.
    MessagesOvertakeOlderOnes,
    /// A range that covers an edge is kept above the child instead of dropping it.
    CoveredEdgeKept,
    /// A range that reaches over several edges comes to the first of them only.
    RangeComesToFirstEdgeOnly,
    /// A range hides points of its own buffer when both come to a leaf.
    RangeHidesNewerPoints,
    /// Ranges that are older than a GOTO stay at its place.
    OlderRangeKeptBesideGoto,
    /// A GOTO waits above a child that is no higher than its target.
    GotoStandsAtAnyHeight,
    /// A GOTO of an edge that is cut in two stays with the left part only.
    GotoOnOneSideOfCut,
    /// Messages pending at an edge are lost when the child's edges take its place.
    PendingLostWhenPulledUp,
    /// A merge includes pairs that the windows of its leaves hide.
    HiddenPairsMerged,
    /// A narrower window strips all that its bounds share.
    StripDerivedFromWindow,
    /// A carved node is only higher than the children, not than the GOTOs collected above them.
    CarvedNodeTooLow,
    /// Nodes are put between a carved node and its parts, however high that becomes.
    CarvedNodeAsHighAsRoot,
    /// GOTOs that were collected above a leaf are carried into a copy of it.
    GotosCarriedIntoLeaf,
    /// Parts of the root are put behind a prefix without their pending messages.
    PiecesWithoutMessages,
    /// The changes of a batch are made one by one, each source as the change before left it.
    ChangesMadeOneByOne,
    /// Sources that are copied take effect after all those that are shared.
    CopiesMadeLast,
    /// The GOTO for a source comes after the deletes of its batch.
    SourceBackAfterDelete,
    /// Of two deltas that become one on their way down, the newer is applied first.
    DeltasCombinedBackwards,
    /// Memtables combine deltas though a view sees only the older one.
    DeltasCombinedAcrossViews,
    /// Two deltas that become one keep the number of the older.
    DeltasCombinedUnderOldNumber,
    /// Memtables keep no entries that views see.
    EntriesOfViewsDropped,
    /// Memtables change their only set of range deletes, which views see.
    RangesOfViewsChanged,
    /// Versions of nodes that views see are dropped.
    VersionsOfViewsDropped,
    /// A memtable that a view sees is dropped when it comes to the root.
    MemtablesOfViewsDropped,
    /// The root that a view sees is forgotten.
    RootsOfViewsForgotten,
    /// A node that is freed without being read is freed for views too.
    UnreadNodesFreedForViews,
    /// A change of ranges ends no epoch.
    EpochGoesOnPastClones,
    /// What is visible ends before the changes of a batch in the last of its dictionaries.
    LastDictionaryNotVisible,
    /// The reads of a transaction are of the newest, not of its beginning.
    TransactionsReadNewest,
    /// Transactions miss the clones of others.
    ClonesMissedByTransactions,
    /// Transactions miss changes that have left the memtables.
    ArrivedChangesMissed,
    /// A scan that came to the end of its range depends only on the pairs that it returned.
    ScansWithoutTheirEnd,
    /// A rollback keeps the changes in the batch.
    RolledBackChangesCommitted,
    /// A rollback keeps where the keys of a dictionary lead.
    RolledBackClonesSeen,
    /// Reads of a clone's target find what the transaction changed there before the clone.
    OlderPointsSeenThroughClones,
    /// A commit does not look whether the sources of its clones have changed.
    SourcesOfClonesUnchecked,
    /// Transactions miss the ingests of others.
    IngestsMissedByTransactions,
    /// An ingest replaces what others have changed in its range since it looked at it.
    IngestOverLaterChanges,
    /// A compaction puts leaves over what others have changed since it read the range.
    CompactionOverLaterChanges,
    /// Nodes of an ingest are named, and not written.
    IngestedNodesNamedUnwritten,
    /// A backup holds the node table's blocks alone.
    BackupHoldsNoNodes,
    /// Changes do not wait for the end of a freeze.
    FreezeHoldsNobody,
    /// After a freeze the volume goes on, and no superblock says so.
    ThawNotStored,
    /// A query returns a value that has expired.
    ExpiredShown,
    /// A leaf drops what has expired by now, though a view began before.
    ExpiredDroppedUnderViews,
    /// Views hide what has expired by now.
    ViewsExpireByNow,
    /// A value that has expired leaves nothing behind for deltas that were made before.
    NothingLeftOfExpired,
    /// A leaf that merges messages into its pairs forgets the known damage between them.
    DamageForgottenByMerge,
    /// Where nothing lies below, known damage goes as range deletes do.
    DamageTakenForDelete,
    /// A scan passes over known damage as over a range delete.
    DamagePassedOver,
    /// Messages that cannot go down to something unreadable are dropped.
    HeldMessagesDropped,
    /// Where messages would go down to something unreadable, that goes with its edge.
    UnreadNodeForgotten,
}

#[cfg(feature = "planted-bugs")]
mod switch {
    use core::sync::atomic::{AtomicU8, Ordering};

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
