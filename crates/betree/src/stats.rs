//! What is counted and measured.

/// What the engine has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Calls of the device's `read_at`.
    pub device_reads: u64,
    /// Bytes read from the device.
    pub device_read_bytes: u64,
    /// Calls of the device's `write_at`.
    pub device_writes: u64,
    /// Bytes written to the device.
    pub device_write_bytes: u64,
    /// Calls of the device's `sync`.
    pub device_syncs: u64,
    /// Segments written to the log.
    pub log_writes: u64,
    /// Bytes written to the log.
    pub log_write_bytes: u64,
    /// Point queries.
    pub point_queries: u64,
    /// Nodes that these went through in memory, the root and the leaf counted; a query that had to read one
    /// goes through those above it again.
    pub point_query_nodes: u64,
    /// Steps of cursors that went to the tree.
    pub range_queries: u64,
    /// Batches committed.
    pub commits: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Bytes of nodes written anew that stayed where they were (whole blocks).
    pub kept_bytes: u64,
    /// Flushes from a node to a child.
    pub flushes: u64,
    /// How often background work met something that cannot be read, and left it.
    pub failed_work: u64,
    /// How many levels the highest tree has now, its leaves counted.
    pub height: u64,
    /// Bytes held by the node cache now.
    pub cache_bytes: u64,
    /// Bytes of those that are not on the device yet.
    pub dirty_bytes: u64,
}

/// The room on a volume in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceStats {
    /// What the volume can hold: all but superblocks and log.
    pub total_bytes: u64,
    /// What nodes and the node table take on the device.
    pub used_bytes: u64,
    /// What is neither used nor promised to what is in memory only; some of it is kept for deletes.
    pub unused_bytes: u64,
    /// What a writer can still be given.
    pub free_bytes: u64,
}
