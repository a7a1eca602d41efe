//! The events for `tracing`. Their targets and fields stand here and in the table of the crate's
//! documentation. They stay as they are, because subscribers choose by them.
//!
//! No event holds a key or a value. An event without a subscriber costs a load and a branch.

use core::fmt::Display;

use tracing::{debug, info, trace};

/// A batch was committed: its first sequence number, the numbers of its changes and of the clones among them,
/// and its size in the log in bytes.
#[inline]
pub(crate) fn committed(first_msn: u64, changes: usize, clones: u32, bytes: usize) {
    trace!(target: "betree::commit", first_msn, changes, clones, bytes, "a batch was committed");
}

/// A memtable of `bytes` bytes came to a root; its messages reached `reached` nodes below at once.
pub(crate) fn memtable_flushed(dictionary: usize, root: impl Display, bytes: usize, reached: usize) {
    debug!(target: "betree::flush", dictionary, node = %root, bytes, reached, "a memtable came to the root");
}

/// Messages of `bytes` bytes, pending at one edge of a node, went down and reached `reached` nodes.
pub(crate) fn flushed(dictionary: usize, node: impl Display, bytes: usize, reached: usize) {
    debug!(target: "betree::flush", dictionary, node = %node, bytes, reached, "messages of a node went down");
}

/// `parts` new nodes took the place of a node with a content of `bytes` bytes, or of the part that an edge
/// shows.
pub(crate) fn split(dictionary: usize, node: impl Display, bytes: usize, parts: usize) {
    debug!(target: "betree::split", dictionary, node = %node, bytes, parts, "a node was split");
}

/// A new node with a content of `bytes` bytes took the place of the children of `edges` edges.
pub(crate) fn merged(dictionary: usize, node: impl Display, bytes: usize, edges: usize) {
    debug!(target: "betree::merge", dictionary, node = %node, bytes, edges, "neighbours were merged");
}

/// Clones and deletes of ranges of one batch came to a tree, with `nodes` new nodes.
pub(crate) fn cloned(dictionary: usize, clones: usize, deletes: usize, nodes: usize) {
    debug!(target: "betree::clone", dictionary, clones, deletes, nodes, "ranges were cloned");
}

/// An ingest of `pairs` pairs came to a tree: `nodes` nodes, and the bytes that were written for it.
pub(crate) fn ingested(dictionary: usize, pairs: u64, nodes: usize, bytes: u64) {
    debug!(target: "betree::ingest", dictionary, pairs, nodes, bytes, "pairs in order came to a tree");
}

/// A checkpoint begins; `clean` if the volume is closed with it.
pub(crate) fn checkpoint_begins(clean: bool) {
    info!(target: "betree::checkpoint", clean, "a checkpoint begins");
}

/// A checkpoint is captured: its next sequence number, and the numbers of nodes and of pages of the node
/// table that it has to write.
pub(crate) fn checkpoint_captured(next_msn: u64, nodes: usize, pages: usize) {
    info!(target: "betree::checkpoint", next_msn, nodes, pages, "a checkpoint is captured");
}

/// The superblock names a new checkpoint: its generation, the written bytes of nodes and of the node table,
/// and the time since the capture if there is a clock.
pub(crate) fn checkpoint_committed(generation: u64, bytes: u64, duration_ns: Option<i64>) {
    info!(target: "betree::checkpoint", generation, bytes, duration_ns, "a checkpoint is committed");
}

/// Nothing has changed since the last checkpoint, so that there is no new one.
pub(crate) fn checkpoint_unneeded() {
    info!(target: "betree::checkpoint", "nothing has changed since the last checkpoint");
}

/// A checkpoint could not be written.
pub(crate) fn checkpoint_failed(error: impl Display) {
    info!(target: "betree::checkpoint", error = %error, "a checkpoint failed");
}

/// `pieces` pieces of nodes left memory, with `bytes` bytes; the cache still holds `left_bytes`.
pub(crate) fn evicted(pieces: usize, bytes: usize, left_bytes: usize) {
    trace!(target: "betree::evict", pieces, bytes, left_bytes, "pieces of nodes left memory");
}

/// The headers of `headers` nodes of a dictionary left memory.
pub(crate) fn headers_evicted(dictionary: usize, headers: usize) {
    trace!(target: "betree::evict", dictionary, headers, "headers of nodes left memory");
}

/// The log of a volume that was not closed was replayed: the numbers of its segments and batches, and the
/// next sequence number.
pub(crate) fn replayed(segments: u64, batches: u64, next_msn: u64) {
    info!(target: "betree::recover", segments, batches, next_msn, "the log was replayed");
}

/// A volume is open: the generation of its superblock, its number of dictionaries, whether it was closed.
pub(crate) fn opened(generation: u64, dictionaries: usize, was_closed: bool) {
    info!(target: "betree::recover", generation, dictionaries, was_closed, "the volume is open");
}
