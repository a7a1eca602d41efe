//! The children of lost interior nodes, found again by their headers.
//!
//! An interior node that cannot be read hides all below it. Its children are nodes of the node table to which
//! fewer edges lead than the table counts, and their headers have their bounds. These are in the coordinates
//! of each child: where the edge stripped components, the bounds lack them. But the bounds of neighbours are
//! the same cut, so the children fit together in one way: beginning with the lost node's lower bound, the
//! next child is the one whose lower bound is the end of the last one's upper bound, but for whole components
//! before it.
//!
//! Nothing is guessed: the children of all lost nodes of a dictionary are put back only if at each cut one of
//! them fits, and no other but those that have their place already (one from the lowest cut on fits at the
//! beginning of each subtree), and all of them together fill exactly what the lost nodes had. Otherwise none
//! is.
//!
//! What was pending in a lost node is lost, so its keys may be those of an older state. A delta that is
//! pending above it would change a value that its writer never saw: such keys become known damage.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::sync::MutexGuard;
use hashbrown::{HashMap, HashSet};

use super::Place;
use crate::engine::Engine;
use crate::error::Result;
use crate::key::{Cut, KEY_BYTES_MAX, SEPARATOR, Translation};
use crate::message::Msn;
use crate::node::{Edge, Node};
use crate::node_id::NodeId;
use crate::store::ReadScope;
use crate::tree::{Replacement, Replacements, fits, read};

/// A way to a node: an edge, a GOTO, or that it is a root.
#[derive(Clone)]
struct Way {
    /// The number of the dictionary.
    dict: usize,
    /// The node with the edge; `None` for a root.
    parent: Option<NodeId>,
    /// What it shows, in the coordinates of the node that it leads to.
    shown: (Cut, Cut),
    /// The bound of keys there.
    longest_key: u32,
    is_goto: bool,
}

/// A node to which fewer edges lead than the node table counts.
struct Orphan {
    id: NodeId,
    height: u8,
    lo: Cut,
    hi: Cut,
    is_placed: bool,
}

/// All interior nodes with the edges that lead to each.
struct Survey<'e> {
    engine: &'e Engine,
    /// Interior nodes that can be read, with the numbers of their dictionaries.
    nodes: HashMap<NodeId, usize>,
    ways: HashMap<NodeId, Vec<Way>>,
    /// Interior nodes that cannot be read.
    lost: BTreeSet<NodeId>,
}

/// Puts new nodes in the place of lost interior ones whose children are found, in memory alone, and returns
/// the places of the lost ones. The caller has locked all structures.
///
/// # Errors
/// Those of the device that are no damage.
pub(crate) fn put_back(engine: &Engine, _structures: &[MutexGuard<'_, ()>]) -> Result<Vec<Place>> {
    let mut replacements = of_lost_nodes(engine)?;
    let place =
        |id: NodeId| (id, Place::node(id, engine.table.lock().place(id).map(|at| at.extent.place(0))));
    let mut places: BTreeMap<NodeId, Place> = replacements.keys().map(|id| place(*id)).collect();
    for dict in &engine.dicts {
        engine.tree_of(dict).put_back(&mut replacements)?;
    }
    // Those in trees that nothing shows any more are left.
    places.retain(|id, _| !replacements.contains_key(id));
    Ok(places.into_values().collect())
}

/// Whether lost interior nodes would be put back. The caller has locked all structures.
///
/// # Errors
/// Those of the device that are no damage.
pub(crate) fn are_found(engine: &Engine, _structures: &[MutexGuard<'_, ()>]) -> Result<bool> {
    Ok(!of_lost_nodes(engine)?.is_empty())
}

/// What takes the place of lost interior nodes whose children were found, by the lost nodes.
///
/// # Errors
/// Those of the device that are no damage.
fn of_lost_nodes(engine: &Engine) -> Result<Replacements> {
    let mut survey = Survey { engine, nodes: HashMap::new(), ways: HashMap::new(), lost: BTreeSet::new() };
    survey.reached()?;
    if survey.lost.is_empty() {
        return Ok(Replacements::new());
    }
    survey.unreached()?;
    let Some(mut orphans) = survey.orphans()? else { return Ok(Replacements::new()) };
    let mut all = Replacements::new();
    for (number, orphans) in &mut orphans {
        let lost = survey.lost_of(*number);
        let Some(mut placed) =
            lost.iter().map(|lost| survey.placed(*lost, orphans)).collect::<Option<Vec<_>>>()
        else {
            continue;
        };
        if !orphans.iter().all(|orphan| orphan.is_placed) {
            continue;
        }
        for (id, replacement) in lost.iter().zip(&mut placed) {
            replacement.unknown = survey.deltas_above(*id)?.into_iter().collect();
            if survey.is_root(*id) {
                survey.bound_keys(&mut replacement.edges)?;
            }
        }
        all.extend(lost.into_iter().zip(placed));
    }
    Ok(all)
}

impl Survey<'_> {
    fn height(&self, id: NodeId) -> Option<u8> {
        self.engine.table.lock().height(id)
    }

    /// Notes the ways from a node, and returns the nodes below it.
    fn ways_from(&mut self, dict: usize, node: &Node) -> Vec<NodeId> {
        let mut below = Vec::new();
        let mut lead = |to: NodeId, shown: (Cut, Cut), longest_key: u32, is_goto: bool| {
            let way = Way { dict, parent: Some(node.id), shown, longest_key, is_goto };
            self.ways.entry(to).or_default().push(way);
            below.push(to);
        };
        for edge in node.edges() {
            if let Some(child) = edge.child {
                lead(child, edge.shown(), edge.longest_key, false);
            }
            for goto in &edge.gotos {
                let shown = (goto.translation.cut(&goto.lo), goto.translation.cut(&goto.hi));
                lead(goto.target, shown, goto.longest_key, true);
            }
        }
        below
    }

    /// Reads the interior nodes that can be reached from the roots, and from nodes that wait to be freed.
    fn reached(&mut self) -> Result<()> {
        for (number, dict) in self.engine.dicts.iter().enumerate() {
            let root = dict.state.read().root;
            let shown = (Cut::LOW, Cut::HIGH);
            let way =
                Way { dict: number, parent: None, shown, longest_key: KEY_BYTES_MAX as u32, is_goto: false };
            self.ways.entry(root).or_default().push(way);
            let tree = self.engine.tree_of(dict);
            let mut stack = Vec::from([root]);
            stack.extend(dict.dead.lock().iter());
            while let Some(id) = stack.pop() {
                if self.height(id) == Some(0) || self.nodes.contains_key(&id) || self.lost.contains(&id) {
                    continue;
                }
                match read(tree.find(id))?.flatten() {
                    Some(node) => {
                        stack.extend(self.ways_from(number, &node));
                        self.nodes.insert(id, number);
                    }
                    None => drop(self.lost.insert(id)),
                }
            }
        }
        Ok(())
    }

    /// Reads the interior nodes below those that are lost.
    fn unreached(&mut self) -> Result<()> {
        let all: Vec<NodeId> = {
            let table = self.engine.table.lock();
            table.nodes().filter(|(_, height, _)| *height > 0).map(|(id, ..)| id).collect()
        };
        for id in all {
            if self.nodes.contains_key(&id) || self.lost.contains(&id) {
                continue;
            }
            match self.stored(id)? {
                Some((dict, node)) => {
                    self.ways_from(dict, &node);
                    self.nodes.insert(id, dict);
                }
                None => drop(self.lost.insert(id)),
            }
        }
        Ok(())
    }

    /// A node that no readable one leads to, with the number of its dictionary.
    fn stored(&self, id: NodeId) -> Result<Option<(usize, Arc<Node>)>> {
        let store = &self.engine.store;
        let Some(place) = self.engine.table.lock().place(id) else { return Ok(None) };
        let Some(node) = read(store.read_node(id, &place, ReadScope::Header, None))? else { return Ok(None) };
        if fits(&self.engine.table.lock(), &node, &place).is_err() {
            return Ok(None);
        }
        for number in 0..self.engine.dicts.len() {
            if read(store.read_node(id, &place, ReadScope::Header, Some(number as u8)))?.is_some() {
                return Ok(Some((number, node)));
            }
        }
        Ok(None)
    }

    /// The nodes to which fewer edges lead than the node table counts, by dictionary. `None` if one of them
    /// cannot be read, or lacks several edges: nothing tells where it belongs.
    fn orphans(&self) -> Result<Option<BTreeMap<usize, Vec<Orphan>>>> {
        let lacking: Vec<(NodeId, u32)> = {
            let table = self.engine.table.lock();
            let ways = |id: &NodeId| self.ways.get(id).map_or(0, Vec::len) as u32;
            table
                .nodes()
                .map(|(id, _, references)| (id, references.saturating_sub(ways(&id))))
                .filter(|(_, lacking)| *lacking > 0)
                .collect()
        };
        let mut orphans: BTreeMap<usize, Vec<Orphan>> = BTreeMap::new();
        for (id, lacking) in lacking {
            let Some((dict, node)) = self.stored(id)?.filter(|_| lacking == 1) else { return Ok(None) };
            let (lo, hi) = (node.lo.clone(), node.hi.clone());
            let orphan = Orphan { id, height: node.height, lo, hi, is_placed: false };
            orphans.entry(dict).or_default().push(orphan);
        }
        Ok(Some(orphans))
    }

    /// The lost nodes to which edges of a dictionary lead.
    fn lost_of(&self, number: usize) -> Vec<NodeId> {
        let is_of =
            |id: &&NodeId| self.ways.get(*id).is_some_and(|ways| ways.iter().any(|way| way.dict == number));
        self.lost.iter().filter(is_of).copied().collect()
    }

    /// A node in the place of a lost one, of orphans; `None` if they do not fill it in exactly one way.
    fn placed(&self, lost: NodeId, orphans: &mut [Orphan]) -> Option<Replacement> {
        let [way] = self.ways.get(&lost)?.as_slice() else { return None };
        let height = self.height(lost)?;
        if way.is_goto || self.engine.table.lock().references(lost) != 1 {
            return None;
        }
        let (lo, hi) = way.shown.clone();
        let mut edges = Vec::new();
        let mut at = lo.clone();
        while at < hi {
            let mut fitting =
                orphans.iter_mut().filter(|orphan| !orphan.is_placed && orphan.height < height).filter_map(
                    |orphan| components_before(&orphan.lo, &at).map(|before| (orphan, before.to_vec())),
                );
            let (orphan, before) = fitting.next()?;
            if fitting.next().is_some() {
                return None;
            }
            let end = orphan.hi.with_prefix(&before);
            if end <= at || end > hi {
                return None;
            }
            orphan.is_placed = true;
            edges.push(Edge {
                lo: at,
                hi: end.clone(),
                translation: Translation::strip(before.len()),
                child: Some(orphan.id),
                longest_key: way.longest_key.saturating_sub(before.len() as u32),
                partition: None,
                gotos: Vec::new(),
            });
            at = end;
        }
        (!edges.is_empty()).then(|| Replacement { height, lo, hi, edges, unknown: Vec::new() })
    }

    fn is_root(&self, id: NodeId) -> bool {
        self.ways.get(&id).is_some_and(|ways| ways.iter().any(|way| way.parent.is_none()))
    }

    /// Lowers the bounds of the keys below the edges of a root to what the children have. No edge tells one
    /// for these, and copies under longer prefixes are refused by the longest key that there may be.
    fn bound_keys(&self, edges: &mut [Edge]) -> Result<()> {
        for edge in edges {
            let Some(child) = edge.child else { continue };
            let Some((_, node)) = self.stored(child)? else { continue };
            let mut longest = node.longest_key();
            for basement in node.basements() {
                let run = read(self.engine.store.run(&basement.piece))?;
                longest = longest.max(run.map_or(u32::MAX, |run| run.longest_key()));
            }
            edge.longest_key = edge.longest_key.min(longest);
        }
        Ok(())
    }

    /// The keys for which deltas are in the memtables of a dictionary.
    fn deltas_in_memtables(&self, dict: usize) -> BTreeSet<Vec<u8>> {
        let Some(dict) = self.engine.dicts.get(dict) else { return BTreeSet::new() };
        let state = dict.state.read();
        let memtables = core::iter::once(&state.active).chain(state.frozen.iter().map(|full| &**full));
        let (lo, hi) = (Cut::LOW, Cut::HIGH);
        let mut keys = BTreeSet::new();
        for memtable in memtables {
            let points = memtable.points_within(&lo, &hi, Msn::MAX);
            keys.extend(points.filter(|point| point.kind.is_upsert()).map(|point| point.key.to_vec()));
        }
        keys
    }

    /// The keys for which deltas are pending above a node, in its coordinates. Each node is above those below
    /// it by its height, so this ends.
    fn deltas_above(&self, id: NodeId) -> Result<BTreeSet<Vec<u8>>> {
        let mut keys = BTreeSet::new();
        let ways = self.ways.get(&id).into_iter().flatten();
        let mut parents: HashSet<(NodeId, usize)> = HashSet::new();
        for way in ways {
            match way.parent {
                Some(parent) => drop(parents.insert((parent, way.dict))),
                None => keys.extend(self.deltas_in_memtables(way.dict)),
            }
        }
        for (parent, dict) in parents {
            let Some(dict) = self.engine.dicts.get(dict) else { continue };
            let node = self.engine.tree_of(dict).node(parent)?;
            let above = self.deltas_above(parent)?;
            for edge in node.edges() {
                let by_child = edge.child.map(|child| (child, &edge.lo, &edge.hi, &edge.translation));
                let by_goto =
                    edge.gotos.iter().map(|goto| (goto.target, &goto.lo, &goto.hi, &goto.translation));
                let ways: Vec<_> = by_child.into_iter().chain(by_goto).filter(|(to, ..)| *to == id).collect();
                if ways.is_empty() {
                    continue;
                }
                let pending = edge.partition.as_ref().map(|piece| read(self.engine.store.run(piece)));
                // A partition that cannot be read hides all below it.
                let pending = pending.transpose()?.flatten();
                for (_, lo, hi, to) in ways {
                    let is_in = |key: &[u8]| !lo.is_above(key) && hi.is_above(key);
                    keys.extend(above.iter().filter(|key| is_in(key)).map(|key| to.key(key).into_owned()));
                    let Some(run) = &pending else { continue };
                    let deltas = run
                        .points(run.first_behind(lo), run.first_behind(hi))
                        .filter(|point| point.kind.is_upsert());
                    keys.extend(deltas.map(|point| to.key(&point.key).into_owned()));
                }
            }
        }
        Ok(keys)
    }
}

/// The whole components before the bytes of a bound of a child, if with them it is the cut.
fn components_before<'c>(bound: &Cut, cut: &'c Cut) -> Option<&'c [u8]> {
    let before = cut.bytes().strip_suffix(bound.bytes())?;
    let is_whole = before.last().is_none_or(|last| *last == SEPARATOR);
    (is_whole && bound.is_after() == cut.is_after()).then_some(before)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::batch::Batch;
    use crate::env::Env;
    use crate::io::mem::MemDevice;
    use crate::settings::{DictId, Geometry, Options};
    use crate::upsert::Append;

    const GEOMETRY: Geometry =
        Geometry { node_bytes: 4096, basement_bytes: 1024, fanout_max: 6, log_bytes: 1 << 20, dicts: 1 };

    /// A volume whose root is an interior node.
    fn volume() -> (Env, NodeId) {
        let device = MemDevice::new(4096);
        Env::format(device.clone(), &GEOMETRY, [1; 16]).unwrap();
        let env = Env::open(device, Options::new(1 << 20, Arc::new(Append))).unwrap();
        for number in 0..200u32 {
            let mut batch = Batch::new();
            batch.put(DictId(0), &number.to_be_bytes(), &[7; 300]);
            env.commit(&batch).unwrap();
        }
        env.checkpoint().unwrap();
        while env.run_due_work().unwrap() {}
        let root = env.engine.dicts[0].state.read().root;
        assert!(env.engine.table.lock().height(root).unwrap() > 0);
        (env, root)
    }

    /// What is placed between the keys "d\0b" and "d\0x" of a lost node: of orphans with these heights and
    /// bounds.
    fn placed(
        (env, lost): &(Env, NodeId),
        is_goto: bool,
        orphans: &[(u8, &str, &str)],
    ) -> Option<Vec<(Cut, Cut, u32)>> {
        let cut = |key: &str| Cut::before(key.as_bytes());
        let shown = (cut("d\0b"), cut("d\0x"));
        let way = Way { dict: 0, parent: None, shown, longest_key: 100, is_goto };
        let survey = Survey {
            engine: &env.engine,
            nodes: HashMap::new(),
            ways: HashMap::from([(*lost, Vec::from([way]))]),
            lost: BTreeSet::from([*lost]),
        };
        let mut orphans: Vec<Orphan> = (0..)
            .zip(orphans)
            .map(|(slot, (height, lo, hi))| Orphan {
                id: NodeId { slot, generation: 1 },
                height: *height,
                lo: cut(lo),
                hi: cut(hi),
                is_placed: false,
            })
            .collect();
        let edges = survey.placed(*lost, &mut orphans)?.edges.into_iter();
        // Each has its place then.
        assert!(survey.placed(*lost, &mut orphans).is_none());
        Some(edges.map(|edge| (edge.lo, edge.hi, edge.longest_key)).collect())
    }

    #[test]
    fn children_are_placed_where_they_fill_a_lost_node_in_exactly_one_way() {
        let volume = volume();
        let cut = |key: &str| Cut::before(key.as_bytes());
        // One of them in the coordinates of the node, one without the component before its bounds.
        let both = [(0, "k", "x"), (0, "d\0b", "d\0k")];
        let edges = Vec::from([(cut("d\0b"), cut("d\0k"), 100), (cut("d\0k"), cut("d\0x"), 98)]);
        assert_eq!(placed(&volume, false, &both), Some(edges));
        assert_eq!(placed(&volume, true, &both), None, "what a GOTO shows is a part of it");
        for (orphans, why) in [
            ([(0, "b", "k"), (0, "l", "x")], "a gap"),
            ([(0, "b", "k"), (0, "k", "w")], "nothing at the end"),
            ([(0, "b", "k"), (0, "k", "y")], "beyond the end"),
            ([(0, "b", "x"), (0, "b", "x")], "two ways"),
            ([(0, "b", "k"), (200, "k", "x")], "higher than the lost node"),
        ] {
            assert_eq!(placed(&volume, false, &orphans), None, "{why}");
        }
        volume.0.engine.table.lock().count(volume.1, 1);
        assert_eq!(placed(&volume, false, &both), None, "another edge leads to it, which is lost too");
    }

    #[test]
    fn a_bound_is_a_cut_only_behind_whole_components() {
        let cut = Cut::before(&b"dir\0\0name"[..]);
        let before = |bound: Cut| components_before(&bound, &cut).map(<[u8]>::to_vec);
        assert_eq!(before(Cut::before(&b"name"[..])).as_deref(), Some(&b"dir\0\0"[..]));
        assert_eq!(before(Cut::before(&b"\0name"[..])).as_deref(), Some(&b"dir\0"[..]));
        assert_eq!(before(cut.clone()).as_deref(), Some(&b""[..]));
        assert_eq!(before(Cut::before(&b"ame"[..])), None, "within a component");
        assert_eq!(before(Cut::after(&b"name"[..])), None, "the other side");
        assert_eq!(before(Cut::before(&b"other"[..])), None);
        assert_eq!(before(Cut::LOW), None);
    }
}
