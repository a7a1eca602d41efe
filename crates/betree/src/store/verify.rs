//! Whether nodes are on the device as they were written.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{NodePlace, Store, corrupt};
use crate::cache::{OnDevice, Piece};
use crate::error::{Error, Result};
use crate::node::Node;
use crate::node_id::NodeId;

impl Store {
    /// The node whose whole extent these bytes are; its pieces stay on the device.
    ///
    /// # Errors
    /// As readers of its header get it.
    pub fn node_in_extent(&self, bytes: &[u8], id: NodeId, place: &NodePlace) -> Result<Arc<Node>> {
        self.refuse_too_long(place)?;
        self.node_of(self.header_in(bytes, id, place, None)?, place)
    }

    /// As [`bad_runs`](Store::bad_runs), of a node whose whole extent was read.
    pub fn bad_runs_in(&self, bytes: &[u8], piece: &Piece) -> Vec<Error> {
        let Some(OnDevice { extent, runs }) = piece.stored() else { return Vec::new() };
        let read = runs.iter().map(|run| {
            let at = run.offset as usize;
            let stored = bytes.get(at..at + run.stored_len as usize);
            let stored = stored.ok_or_else(|| corrupt(&extent, run, "it ends behind its extent"))?;
            self.decode(&extent, run, stored.to_vec())
        });
        read.filter_map(Result::err).collect()
    }
}
