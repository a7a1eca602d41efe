//! The way of a search, from a dictionary's root down to a key, with the key's messages on it.

use alloc::vec::Vec;

use super::{Inspector, Message, Node};
use crate::check::{Finding, FindingCode};
use crate::format::node::RunRef;
use crate::key::{Cut, Translation};
use crate::message::{Kind, Msn};
use crate::node::Body;
use crate::node_id::NodeId;
use crate::settings::DictId;
use crate::tree::astray;

/// A node on the way to a key.
#[derive(Clone, Debug)]
pub struct Step {
    /// The node.
    pub id: NodeId,
    /// Its height.
    pub height: u8,
    /// The key in its coordinates.
    pub key: Vec<u8>,
    /// The part of the node that holds the key; `None` if there is none.
    pub passed: Option<Passed>,
    /// The key's messages in that part, the newest first, and in a leaf its pair.
    pub pending: Vec<Pending>,
}

/// A part of a node on the way to a key.
#[derive(Clone, Debug)]
pub enum Passed {
    /// An edge.
    Edge {
        /// Its index in the node.
        index: usize,
        /// The lower bound of its window.
        lo: Cut,
        /// The upper bound.
        hi: Cut,
        /// The child; `None` for a null edge.
        child: Option<NodeId>,
        /// From the node's coordinates to the child's.
        translation: Translation,
    },
    /// A pending GOTO of an edge.
    Goto {
        /// The edge's index in the node.
        index: usize,
        /// The lower bound of its range.
        lo: Cut,
        /// The upper bound.
        hi: Cut,
        /// The node that holds the keys.
        target: NodeId,
        /// From the node's coordinates to the target's.
        translation: Translation,
    },
    /// A basement.
    Basement {
        /// Its index in the leaf.
        index: usize,
        /// Its first key.
        first: Vec<u8>,
    },
}

/// A message for a key, or its pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Its number; 0 for a pair.
    pub msn: Msn,
    /// The first byte of its run on the device.
    pub run_offset: u64,
    /// Its kind.
    pub what: PendingWhat,
}

/// The kind of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PendingWhat {
    /// A message for the key alone.
    Point {
        /// Put, delete or upsert.
        kind: Kind,
        /// The length of the value, or of the delta of an upsert, in bytes.
        value_bytes: u64,
    },
    /// A range delete over the key.
    Range {
        /// The lower bound, in the node's coordinates.
        lo: Cut,
        /// The upper bound.
        hi: Cut,
    },
}

impl Inspector {
    /// The way from a dictionary's root to a key, as far as its nodes can be read. Calls `tell` with
    /// unreadable nodes and runs.
    pub fn way(&self, dict: DictId, key: &[u8], tell: &mut dyn FnMut(Finding)) -> Vec<Step> {
        let mut steps = Vec::new();
        let engine = &self.checkpoint.engine;
        let Ok(tree) = engine.tree(dict) else { return steps };
        let (mut id, mut key) = (tree.dict.state.read().root, key.to_vec());
        loop {
            let Some(node) = self.node(id, tell) else { return steps };
            let Some((version, is_fit)) = &node.version else { return steps };
            let mut step =
                Step { id, height: version.height, key: key.clone(), passed: None, pending: Vec::new() };
            let (piece, next) = match &version.body {
                Body::Leaf(basements) => {
                    let index = version.basement_of(&key);
                    let basement = basements.get(index);
                    step.passed = basement.map(|b| Passed::Basement { index, first: b.first.clone() });
                    (basement.map(|basement| basement.piece.clone()), None)
                }
                Body::Interior(edges) => {
                    let index = version.edge_of(&key);
                    let edge = edges.get(index).filter(|edge| index > 0 || !edge.lo.is_above(&key));
                    let Some(edge) = edge else {
                        let error = astray(id);
                        let what = alloc::format!("node {id}: {error}");
                        tell(Finding::unreadable(FindingCode::EdgeTooWide, node.place(), what, error));
                        steps.push(step);
                        return steps;
                    };
                    let (passed, next) = match edge.goto_over(&key) {
                        Some(goto) => {
                            let (lo, hi) = (goto.lo.clone(), goto.hi.clone());
                            let (target, translation) = (goto.target, goto.translation.clone());
                            let next = (target, translation.key(&key).into_owned());
                            (Passed::Goto { index, lo, hi, target, translation }, Some(next))
                        }
                        None => {
                            let (lo, hi) = (edge.lo.clone(), edge.hi.clone());
                            let (child, translation) = (edge.child, edge.translation.clone());
                            let next = child.map(|child| (child, translation.key(&key).into_owned()));
                            (Passed::Edge { index, lo, hi, child, translation }, next)
                        }
                    };
                    step.passed = Some(passed);
                    (edge.partition.clone(), next)
                }
            };
            let runs = piece.and_then(|piece| piece.stored()).map(|at| at.runs).unwrap_or_default();
            for run in runs.iter().rev() {
                self.pending(&node, run, &key, &mut step.pending, tell);
            }
            steps.push(step);
            match next {
                // A node that does not lead down could lead in a circle. It was reported.
                Some(next) if *is_fit => (id, key) = next,
                _ => return steps,
            }
        }
    }

    /// Appends a run's messages for a key, the newest first.
    fn pending(
        &self,
        node: &Node,
        run: &RunRef,
        key: &[u8],
        out: &mut Vec<Pending>,
        tell: &mut dyn FnMut(Finding),
    ) {
        let run_offset = node.device_offset(run.offset);
        let mut found = Vec::new();
        let mut note = |message: Message<'_>| match message {
            Message::Point { key: of, msn, kind, value } if of == key => {
                let what = PendingWhat::Point { kind, value_bytes: value.len() as u64 };
                found.push(Pending { msn, run_offset, what });
            }
            Message::Range { lo, hi, msn } if !lo.is_above(key) && hi.is_above(key) => {
                let what = PendingWhat::Range { lo: lo.clone(), hi: hi.clone() };
                found.push(Pending { msn, run_offset, what });
            }
            _ => {}
        };
        self.messages(node, run, &mut note, tell);
        found.sort_by_key(|pending| core::cmp::Reverse(pending.msn));
        out.extend(found);
    }
}
