//! Counters and measures.

/// Declares [`Stats`] and its list of names, so that a counter that is added here is shown everywhere.
macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The engine's counters since it was opened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Stats {
            /// Each counter with its name, in the order of the fields.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

stats! {
    /// Reads of the device.
    device_reads,
    /// Bytes read from the device.
    device_read_bytes,
    /// Calls of the device that read: reads that are asked for together are one call. So often was the device
    /// waited for.
    device_read_rounds,
    /// Calls of the device's `write_at`.
    device_writes,
    /// Bytes written to the device.
    device_write_bytes,
    /// Calls of the device's `sync`.
    device_syncs,
    /// Segments written to the log.
    log_writes,
    /// Bytes written to the log.
    log_write_bytes,
    /// Point queries.
    point_queries,
    /// Nodes that point queries visited in memory, from the root to the leaf. A query that had to read a node
    /// from the device visits the nodes above it a second time.
    point_query_nodes,
    /// Steps of cursors that went to the tree.
    range_queries,
    /// Queries that only brought into memory what a later one needs: points, and steps of cursors.
    fetches,
    /// Batches committed.
    commits,
    /// Checkpoints completed.
    checkpoints,
    /// Bytes of rewritten nodes that kept their blocks, in whole blocks.
    kept_bytes,
    /// Bytes written as second copies of the node table.
    copy_write_bytes,
    /// Structures that were read from their second copy, because the first is damaged.
    copies_used,
    /// Reads that came to keys that were lost, which a repair has noted as known damage.
    known_damage_reads,
    /// Flushes from a node to a child.
    flushes,
    /// Pieces of background work that met unreadable data and left it.
    failed_work,
    /// Levels of the highest tree now, with its leaves.
    height,
    /// 1 while a checkpoint is being written, else 0.
    checkpoints_under_way,
    /// Bytes of the log that are in use now, or will be when what is in memory is written.
    log_used_bytes,
    /// Bytes in the node cache now.
    cache_bytes,
    /// Bytes in the node cache that are not on the device yet.
    dirty_bytes,
}

/// The room on a volume in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpaceStats {
    /// Everything but superblocks and log.
    pub total_bytes: u64,
    /// Nodes and the node table on the device.
    pub used_bytes: u64,
    /// Neither used nor owed to changes in memory. A part of it is the reserve for deletes.
    pub unused_bytes: u64,
    /// The room that a writer can still get on the volume as large as it is.
    pub free_bytes: u64,
    /// What the volume may still grow by, by itself.
    pub growth_bytes: u64,
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn each_counter_is_listed_once_under_its_name() {
        let stats = Stats { device_reads: 1, height: 3, dirty_bytes: 7, ..Stats::default() };
        let listed: Vec<_> = stats.iter().collect();
        let names: hashbrown::HashSet<_> = listed.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len() * size_of::<u64>(), size_of::<Stats>());
        for expected in [("device_reads", 1), ("height", 3), ("dirty_bytes", 7)] {
            assert!(listed.contains(&expected), "{expected:?} in {listed:?}");
        }
    }
}
