//! The walk of a cursor from the root to a place, through the nodes in memory.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::super::Tree;
use crate::cache::Piece;
use crate::dict::DictState;
use crate::key::{Cut, Translation};
use crate::message::Goto;
use crate::node::{Body, Edge, Node};
use crate::node_id::NodeId;
use crate::transaction::{Leads, Stretch};
use crate::views::Moment;

/// A range of keys that a walk narrows step by step.
pub(super) struct Window {
    pub lo: Cut,
    pub hi: Cut,
}

impl Window {
    /// Narrows the window to its part inside `[lo, hi)`.
    pub fn meet(&mut self, lo: &Cut, hi: &Cut) {
        if *lo > self.lo {
            self.lo = lo.clone();
        }
        if *hi < self.hi {
            self.hi = hi.clone();
        }
    }
}

/// Which way a cursor looks from its place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    Backward,
}

/// The result of a walk, as of one moment.
pub(super) struct Walk {
    /// The keys around the place that have the same way down, in the coordinates of the reader: the
    /// dictionary's, unless a transaction's own clones translate them.
    pub window: Window,
    /// The partitions on the way, from the root down.
    pub levels: Vec<Level>,
    pub stop: Stop,
}

impl Walk {
    /// A walk that found that a window has nothing.
    pub fn of_nothing(lo: Cut, hi: Cut) -> Walk {
        Walk { window: Window { lo, hi }, levels: Vec::new(), stop: Stop::Nothing }
    }
}

/// Where a walk ended.
pub(super) enum Stop {
    /// At a null edge, or where a range delete hides all below.
    Nothing,
    /// At a node that is not in memory.
    Missing(NodeId),
    /// At a node that has less than the edge to it shows: the tree is corrupt.
    Astray(NodeId),
    Leaf(LeafPlace),
}

/// A partition or basement on the way, with the coordinates of its node.
pub(super) struct Level {
    pub piece: Arc<Piece>,
    /// From the node's coordinates to the reader's.
    pub up: Translation,
    /// From the reader's coordinates to the node's; for what lies in the walk's window.
    pub down: Translation,
}

/// The basement that a walk came to.
pub(super) struct LeafPlace {
    pub leaf: Arc<Node>,
    /// The basement's index in the leaf.
    pub index: usize,
    /// The leaf's end, in the reader's coordinates.
    pub end: Cut,
    pub basement: Level,
}

impl Tree<'_> {
    /// Walks from the root towards a place, through the nodes in memory.
    pub(super) fn walk(&self, state: &DictState, at: &Cut, direction: Direction) -> Walk {
        self.walk_in(state, at, direction, Stretch::all())
    }

    /// As [`walk`](Tree::walk), for a place in a stretch of keys: all but the nodes' own coordinates are the
    /// reader's.
    pub(super) fn walk_in(
        &self,
        state: &DictState,
        at: &Cut,
        direction: Direction,
        stretch: Stretch,
    ) -> Walk {
        let down = match stretch.leads {
            Leads::Here => Translation::default(),
            Leads::To(down) => down,
            Leads::Nowhere => return Walk::of_nothing(stretch.lo, stretch.hi),
        };
        let mut window = Window { lo: stretch.lo, hi: stretch.hi };
        let mut levels = Vec::new();
        let stop = descend(state, &self.at, at, direction, &down, &mut window, &mut levels);
        Walk { window, levels, stop }
    }
}

/// Narrows the window and adds the levels down to where the walk ends. `down` leads from the reader's
/// coordinates to the root's.
fn descend(
    state: &DictState,
    moment: &Moment<'_>,
    at: &Cut,
    direction: Direction,
    down: &Translation,
    window: &mut Window,
    levels: &mut Vec<Level>,
) -> Stop {
    let mut id = state.root_at(moment);
    let mut up = down.inverse(window.lo.bytes());
    let mut down = down.clone();
    let mut place = down.cut(at);
    // The window in the coordinates of the node at hand.
    let mut here = Window { lo: down.cut(&window.lo), hi: down.cut(&window.hi) };
    let stop = loop {
        let Some(node) = state.node_at(id, moment) else { break Stop::Missing(id) };
        if here.lo < node.lo || here.hi > node.hi {
            break Stop::Astray(id);
        }
        match &node.body {
            Body::Interior(edges) => {
                let index = match direction {
                    Direction::Forward => edges.partition_point(|e| e.hi <= place),
                    Direction::Backward => edges.partition_point(|e| e.hi < place),
                };
                let Some(edge) = edges.get(index) else { break Stop::Nothing };
                here.meet(&edge.lo, &edge.hi);
                let goto = goto_at(edge, &place, direction, &mut here);
                if let Some(piece) = &edge.partition {
                    levels.push(Level { piece: piece.clone(), up: up.clone(), down: down.clone() });
                }
                let (child, step, bound) = match goto {
                    Some(goto) => (Some(goto.target), &goto.translation, &goto.lo),
                    None => (edge.child, &edge.translation, &edge.lo),
                };
                let Some(child) = child else { break Stop::Nothing };
                if !step.is_identity() {
                    up = step.inverse(bound.bytes()).then(&up);
                    down = down.then(step);
                    place = step.cut(&place);
                    here = Window { lo: step.cut(&here.lo), hi: step.cut(&here.hi) };
                }
                id = child;
            }
            Body::Leaf(basements) => {
                let before = basements.partition_point(|b| match direction {
                    Direction::Forward => !place.is_before(&b.first),
                    Direction::Backward => place.is_above(&b.first),
                });
                let index = before.saturating_sub(1);
                let Some(basement) = basements.get(index) else { break Stop::Nothing };
                let end = up.cut(&here.hi);
                if index > 0 {
                    here.meet(&Cut::before(basement.first.as_slice()), &Cut::HIGH);
                }
                if let Some(next) = basements.get(index + 1) {
                    here.meet(&Cut::LOW, &Cut::before(next.first.as_slice()));
                }
                let basement = Level { piece: basement.piece.clone(), up: up.clone(), down };
                break Stop::Leaf(LeafPlace { leaf: node.clone(), index, end, basement });
            }
        }
    };
    window.meet(&up.cut(&here.lo), &up.cut(&here.hi));
    stop
}

/// The GOTO of an edge that the place leads into, if there is one. `here` is narrowed to the GOTO's range,
/// or to the gap between GOTOs around the place.
fn goto_at<'e>(edge: &'e Edge, place: &Cut, direction: Direction, here: &mut Window) -> Option<&'e Goto> {
    let at = match direction {
        Direction::Forward => edge.gotos.partition_point(|goto| goto.hi <= *place),
        Direction::Backward => edge.gotos.partition_point(|goto| goto.hi < *place),
    };
    let is_in = |goto: &&Goto| match direction {
        Direction::Forward => goto.lo <= *place,
        Direction::Backward => goto.lo < *place,
    };
    if let Some(goto) = edge.gotos.get(at).filter(is_in) {
        here.meet(&goto.lo, &goto.hi);
        return Some(goto);
    }
    if let Some(before) = at.checked_sub(1).and_then(|at| edge.gotos.get(at)) {
        here.meet(&before.hi, &Cut::HIGH);
    }
    if let Some(next) = edge.gotos.get(at) {
        here.meet(&Cut::LOW, &next.lo);
    }
    None
}
