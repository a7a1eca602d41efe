//! Nodes: their slots in the node table, their headers, and the messages in their runs.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Inspector;
use crate::check::{Finding, FindingCode, Place};
use crate::error::Error;
use crate::format::node::{Header, RunRef};
use crate::key::Cut;
use crate::message::{Kind, Msn};
use crate::node::Node as Version;
use crate::node_id::NodeId;
use crate::space::BlockRange;
use crate::store::NodePlace;
use crate::tree::{dangling, fits};

/// A node of the node table.
pub struct Node {
    /// Its name.
    pub id: NodeId,
    /// Its extent.
    pub extent: Vec<BlockRange>,
    /// The blocks of its second copy; none if it has one copy.
    pub copy: Vec<BlockRange>,
    /// Its number of references in the node table: from edges, GOTOs and roots.
    pub references: u32,
    /// Its height in the node table.
    pub height: u8,
    /// Its header; `None` if that cannot be read.
    pub header: Option<Header>,
    pub(super) stored: NodePlace,
    /// The node of the header, and whether it agrees with the node table.
    pub(super) version: Option<(Arc<Version>, bool)>,
}

/// An entry of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'r> {
    /// A pair (a put with number 0) or a message for one key.
    Point {
        /// The key in the node's coordinates.
        key: &'r [u8],
        /// Its number.
        msn: Msn,
        /// Its kind.
        kind: Kind,
        /// The value, or the delta of an upsert.
        value: &'r [u8],
    },
    /// A range delete.
    Range {
        /// The lower bound in the node's coordinates.
        lo: &'r Cut,
        /// The upper bound.
        hi: &'r Cut,
        /// Its number.
        msn: Msn,
    },
}

impl Node {
    /// The place on the device of a byte of the extent.
    pub fn device_offset(&self, offset: u32) -> u64 {
        self.stored.extent.place(u64::from(offset))
    }

    pub(super) fn place(&self) -> Place {
        Place::node(self.id, Some(self.device_offset(0)))
    }
}

impl Inspector {
    /// The id of the node in a slot of the node table.
    pub fn id_in_slot(&self, slot: u32) -> Option<NodeId> {
        self.checkpoint.engine.table.lock().nodes().map(|(id, ..)| id).find(|id| id.slot == slot)
    }

    /// Whether the node is in the node table, or may be in an unreadable page of it.
    pub fn holds(&self, id: NodeId) -> bool {
        let table = self.checkpoint.engine.table.lock();
        table.holds(id) || table.why_lost(id).is_some()
    }

    /// Reads a node's header. Calls `tell` if it cannot be read or does not agree with the node table.
    /// Returns `None` if the node table does not have the node.
    pub fn node(&self, id: NodeId, tell: &mut dyn FnMut(Finding)) -> Option<Node> {
        let engine = &self.checkpoint.engine;
        let (place, height, references, lost) = {
            let table = engine.table.lock();
            (table.place(id), table.height(id), table.references(id), table.why_lost(id))
        };
        let (Some(stored), Some(height)) = (place, height) else {
            let (code, why) = match lost {
                Some(error) => (FindingCode::BadNodeTable, error),
                None => (FindingCode::DanglingEdge, dangling(id)),
            };
            let what = format!("node {id}: the node table does not hold it");
            tell(Finding::unreadable(code, Place::node(id, None), what, why));
            return None;
        };
        let read = engine.store.read_header(id, &stored, None).and_then(|header| {
            let version = engine.store.node_of(header.clone(), &stored)?;
            Ok((header, version))
        });
        let extent = stored.extent.parts().to_vec();
        let copy = stored.extent.copy().map(|copy| copy.parts().to_vec()).unwrap_or_default();
        let mut node = Node { id, extent, copy, references, height, header: None, stored, version: None };
        let mut problem = |code, error: Error| {
            tell(Finding::unreadable(code, node.place(), format!("node {id}: {error}"), error));
        };
        match read {
            Ok((header, version)) => {
                let misfit = fits(&engine.table.lock(), &version, &node.stored).err();
                let is_fit = misfit.is_none();
                misfit.into_iter().for_each(|error| problem(FindingCode::NodeMismatch, error));
                (node.header, node.version) = (Some(header), Some((version, is_fit)));
            }
            Err(error) => problem(FindingCode::BadNode, error),
        }
        Some(node)
    }

    /// Calls `each` with the entries of a node's run: the points in order, then the ranges. Calls `tell` if
    /// the run cannot be read.
    pub fn messages(
        &self,
        node: &Node,
        run: &RunRef,
        each: &mut dyn FnMut(Message<'_>),
        tell: &mut dyn FnMut(Finding),
    ) {
        let found = match self.checkpoint.engine.store.read_run(&node.stored.extent, *run) {
            Ok(found) => found,
            Err(error) => {
                let what = format!("node {}: {}", node.id, error);
                return tell(Finding::unreadable(FindingCode::BadPiece, node.place(), what, error));
            }
        };
        for point in found.points(0, found.len()) {
            each(Message::Point { key: &point.key, msn: point.msn, kind: point.kind, value: point.value });
        }
        for range in found.ranges() {
            each(Message::Range { lo: &range.lo, hi: &range.hi, msn: range.msn });
        }
    }
}
