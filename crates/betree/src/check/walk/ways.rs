//! Ways from the roots to some nodes, by headers of interior nodes alone.

use alloc::vec::Vec;

use hashbrown::{HashMap, HashSet};

use super::{Visit, Walk};
use crate::error::Result;
use crate::node_id::NodeId;
use crate::store::ReadScope;

impl Walk<'_, '_> {
    /// The first way to each of these nodes. It passes by what cannot be read.
    ///
    /// # Errors
    /// [`Error::ViewEnded`](crate::Error::ViewEnded).
    pub fn ways_to(&self, mut wanted: HashSet<NodeId>) -> Result<HashMap<NodeId, Visit>> {
        let mut ways = HashMap::new();
        let mut seen = HashSet::new();
        for dict in &self.engine.dicts {
            let index = dict.index as u8;
            let mut stack = Vec::from([self.root(dict)?]);
            while let Some(visit) = stack.pop() {
                if wanted.is_empty() {
                    return Ok(ways);
                }
                if !seen.insert(visit.id) {
                    continue;
                }
                let node = match self.version(dict, visit.id)? {
                    _ if self.height(visit.id) == Some(0) => None,
                    (Some(node), _) => Some(node),
                    (None, Some(place)) => {
                        self.engine.store.read_node(visit.id, &place, ReadScope::Header, Some(index)).ok()
                    }
                    (None, None) => None,
                };
                for edge in node.iter().flat_map(|node| node.edges()) {
                    for goto in &edge.gotos {
                        stack.push(visit.below(goto.target, 256, (&goto.lo, &goto.hi), &goto.translation));
                    }
                    if let Some(child) = edge.child {
                        stack.push(visit.below(child, 256, (&edge.lo, &edge.hi), &edge.translation));
                    }
                }
                if wanted.remove(&visit.id) {
                    ways.insert(visit.id, visit);
                }
            }
        }
        Ok(ways)
    }
}
