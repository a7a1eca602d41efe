//! Ways from the roots to some nodes, by headers of interior nodes alone.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hashbrown::{HashMap, HashSet};

use super::{Visit, Walk};
use crate::error::Result;
use crate::node::Node;
use crate::node_id::NodeId;
use crate::store::ReadScope;

/// The most ways to one node, and the most steps to find more than the first one to each: clones of clones
/// double them without end.
const WAYS_MAX: usize = 1000;
const STEPS_MAX: usize = 100_000;

/// The nodes on ways, and what leads to them.
#[derive(Default)]
struct Survey {
    /// The first way to each wanted node.
    ways: HashMap<NodeId, Visit>,
    /// The nodes that lead to each interior or wanted one.
    above: HashMap<NodeId, Vec<NodeId>>,
}

impl Walk<'_, '_> {
    /// The ways to each of these nodes, the first ones if there are many. They pass by what cannot be read.
    ///
    /// # Errors
    /// [`Error::ViewEnded`](crate::Error::ViewEnded).
    pub fn ways_to(&self, wanted: &HashSet<NodeId>) -> Result<HashMap<NodeId, Vec<Visit>>> {
        let Survey { ways: first_ways, above } = self.survey(wanted)?;
        let mut leading: HashSet<NodeId> = HashSet::new();
        let mut stack: Vec<NodeId> = wanted.iter().copied().collect();
        while let Some(id) = stack.pop() {
            let parents = above.get(&id).into_iter().flatten();
            stack.extend(parents.copied().filter(|parent| leading.insert(*parent)));
        }
        let mut headers: HashMap<NodeId, Option<Arc<Node>>> = HashMap::new();
        let mut ways: HashMap<NodeId, Vec<Visit>> = HashMap::new();
        let mut steps = 0;
        for dict in 0..self.engine.dicts.len() {
            let mut stack = self.root_of(dict)?;
            while let Some(visit) = stack.pop().filter(|_| steps < STEPS_MAX) {
                steps += 1;
                if leading.contains(&visit.id) {
                    let header = match headers.get(&visit.id) {
                        Some(header) => header.clone(),
                        None => {
                            let header = self.header(&visit)?;
                            headers.insert(visit.id, header.clone());
                            header
                        }
                    };
                    let below = header.iter().flat_map(|node| below(&visit, node));
                    let leads = |to: &Visit| leading.contains(&to.id) || wanted.contains(&to.id);
                    stack.extend(below.filter(|to| leads(to) && to.all_keys().is_some()));
                }
                if wanted.contains(&visit.id) {
                    let ways = ways.entry(visit.id).or_default();
                    if ways.len() < WAYS_MAX {
                        ways.push(visit);
                    }
                }
            }
        }
        for (id, first) in first_ways {
            ways.entry(id).or_insert_with(|| Vec::from([first]));
        }
        Ok(ways)
    }

    /// Goes to each node once.
    fn survey(&self, wanted: &HashSet<NodeId>) -> Result<Survey> {
        let mut survey = Survey::default();
        let mut seen = HashSet::new();
        for dict in 0..self.engine.dicts.len() {
            let mut stack = self.root_of(dict)?;
            while let Some(visit) = stack.pop() {
                if !seen.insert(visit.id) {
                    continue;
                }
                for to in self.header(&visit)?.iter().flat_map(|node| below(&visit, node)) {
                    if wanted.contains(&to.id) || self.height(to.id) != Some(0) {
                        survey.above.entry(to.id).or_default().push(visit.id);
                    }
                    stack.push(to);
                }
                if wanted.contains(&visit.id) {
                    survey.ways.insert(visit.id, visit);
                }
            }
        }
        Ok(survey)
    }

    fn root_of(&self, dict: usize) -> Result<Vec<Visit>> {
        self.engine.dicts.get(dict).map(|dict| self.root(dict)).into_iter().collect()
    }

    /// An interior node with its header; `None` if that cannot be read, and for a leaf.
    fn header(&self, visit: &Visit) -> Result<Option<Arc<Node>>> {
        let Some(dict) = self.engine.dicts.get(usize::from(visit.dict)) else { return Ok(None) };
        Ok(match self.version(dict, visit.id)? {
            _ if self.height(visit.id) == Some(0) => None,
            (Some(node), _) => Some(node),
            (None, Some(place)) => {
                self.engine.store.read_node(visit.id, &place, ReadScope::Header, Some(visit.dict)).ok()
            }
            (None, None) => None,
        })
    }
}

/// The visits of the nodes below one, in the order of the walk.
fn below(visit: &Visit, node: &Node) -> Vec<Visit> {
    let mut all = Vec::new();
    for edge in node.edges() {
        for goto in &edge.gotos {
            all.push(visit.below(goto.target, 256, (&goto.lo, &goto.hi), &goto.translation));
        }
        let Some(child) = edge.child else { continue };
        // GOTOs hide what the child has in their ranges.
        let begins = core::iter::once(&edge.lo).chain(edge.gotos.iter().map(|goto| &goto.hi));
        let ends = edge.gotos.iter().map(|goto| &goto.lo).chain([&edge.hi]);
        for (lo, hi) in begins.zip(ends).filter(|(lo, hi)| lo < hi) {
            let to = &edge.translation;
            all.push(visit.below(child, 256, (&edge.lo, &edge.hi), to).showing(visit, (lo, hi), to));
        }
    }
    all
}
