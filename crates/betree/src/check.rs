//! Walks everything: what is promised of a volume, compared with what is there.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use hashbrown::{HashMap, HashSet};

use crate::checkpoint::Committed;
use crate::env::Env;
use crate::error::Result;
use crate::format::run::Run;
use crate::format::superblock::slots;
use crate::key::{Cut, shared_len};
use crate::message::Kind;
use crate::node::{Basement, Body, Edge, Node, NodeId};
use crate::store::Reach;

/// Who hears of problems and of progress.
struct Ears<'f> {
    problem: &'f mut dyn FnMut(String),
    progress: &'f mut dyn FnMut(u64, u64),
}

/// A node to visit, and what its parent says of it.
struct Visit {
    id: NodeId,
    lo: Cut,
    hi: Cut,
    below_height: u16,
    longest_key: Option<u32>,
}

/// How often a node was come to, and what it is.
#[derive(Default)]
struct Found {
    references: u32,
    /// Of one to which more than one edge or GOTO leads: each shows it by another window.
    shape: Option<Shape>,
}

/// What an edge or a GOTO to a node has to agree with.
struct Shape {
    height: u8,
    lo: Cut,
    hi: Cut,
    longest_key: usize,
}

impl Shape {
    /// What of a visit does not agree with the node that was come to.
    fn compare(&self, visit: &Visit, problem: &mut dyn FnMut(String)) {
        if u16::from(self.height) >= visit.below_height {
            problem(format!("its height is {}, no lower than its parent's", self.height));
        }
        if self.lo > visit.lo || self.hi < visit.hi {
            problem(format!(
                "it is bounded by [{:?}, {:?}); its parent shows more: [{:?}, {:?})",
                self.lo, self.hi, visit.lo, visit.hi
            ));
        }
        if visit.longest_key.is_some_and(|bound| self.longest_key > bound as usize) {
            problem(format!(
                "a key of {} bytes is longer than its parent's bound, {:?}; height {} [{:?}, {:?}) seen as [{:?}, {:?})",
                self.longest_key, visit.longest_key, self.height, self.lo, self.hi, visit.lo, visit.hi
            ));
        }
    }
}

impl Env {
    /// Walks everything on the device: structure, checksums, references, space. Each problem is
    /// given to `problem` as a sentence; `progress` hears (nodes done, nodes in all). What is in
    /// memory is written first, so that the device has all of it.
    ///
    /// # Errors
    /// What hinders the walk itself; a problem found is not an error.
    pub fn check(&self, problem: &mut dyn FnMut(String), progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        self.checkpoint()?;
        while self.engine.free_one()? {}
        let mut ears = Ears { problem, progress };
        loop {
            self.checkpoint()?;
            let committed = self.checkpoint.lock();
            let _structures: Vec<_> = self.engine.dicts.iter().map(|d| d.structure.lock()).collect();
            if self.engine.dicts.iter().any(|d| d.state.read().is_dirty()) {
                continue;
            }
            return self.check_device(&committed, &mut ears);
        }
    }

    fn check_device(&self, committed: &Committed, ears: &mut Ears<'_>) -> Result<()> {
        match slots::load(&self.engine.store.disk) {
            Ok(loaded) => {
                for slot in loaded.bad_slots {
                    (ears.problem)(format!(
                        "the superblock's copy at byte {} is bad: {}",
                        slot.offset, slot.why
                    ));
                }
            }
            Err(error) => (ears.problem)(error.to_string()),
        }
        let known: HashMap<NodeId, (u8, u32)> =
            self.engine.table.lock().nodes().map(|(id, height, refs)| (id, (height, refs))).collect();
        let total = known.len() as u64;
        let mut found: HashMap<NodeId, Found> = HashMap::new();
        let mut done = 0;
        for dict in &self.engine.dicts {
            let root = dict.state.read().root;
            let mut stack = alloc::vec![Visit {
                id: root,
                lo: Cut::LOW,
                hi: Cut::HIGH,
                below_height: 256,
                longest_key: None,
            }];
            while let Some(visit) = stack.pop() {
                let node = found.entry(visit.id).or_default();
                node.references += 1;
                if node.references > 1 {
                    if let Some(shape) = &node.shape {
                        shape.compare(&visit, &mut |what| {
                            (ears.problem)(format!("node {}: {what}", visit.id))
                        });
                    }
                    continue;
                }
                done += 1;
                (ears.progress)(done, total);
                let shape = self.check_node(&visit, &known, &mut stack, ears);
                let is_shared = known.get(&visit.id).is_some_and(|(_, refs)| *refs > 1);
                node.shape = shape.filter(|_| is_shared);
            }
        }
        let dead: HashSet<NodeId> = self.engine.dead.lock().iter().copied().collect();
        for (id, (_, refs)) in &known {
            let counted = found.get(id).map_or(0, |node| node.references);
            if counted != *refs {
                (ears.problem)(format!("node {id} has {counted} references; the node table says {refs}"));
            }
            // All that is dead was freed before, but for what could not be read.
            if *refs == 0 && !dead.contains(id) {
                let place = self.engine.table.lock().place(*id);
                let read = place.map(|place| self.engine.store.read_node(*id, &place, Reach::Header));
                let why = match read {
                    Some(Err(error)) => error.to_string(),
                    _ => "it could not be read".into(),
                };
                (ears.problem)(format!("node {id}, to which nothing leads, cannot be freed: {why}"));
            }
        }
        self.check_space(committed, ears);
        Ok(())
    }

    /// Every block is free or part of one thing that the table names.
    fn check_space(&self, committed: &Committed, ears: &mut Ears<'_>) {
        let table = self.engine.table.lock();
        let directory = committed.directory.as_ref().map_or(0, |e| e.len_blocks());
        let named: u64 = table.extents().map(|e| e.len_blocks()).sum::<u64>() + directory;
        let space = &self.engine.store.space;
        let taken = space.total_blocks() - space.free_blocks();
        if named != taken {
            (ears.problem)(format!("{taken} blocks are taken, but what is on the volume needs {named}"));
        }
    }

    fn check_node(
        &self,
        visit: &Visit,
        known: &HashMap<NodeId, (u8, u32)>,
        stack: &mut Vec<Visit>,
        ears: &mut Ears<'_>,
    ) -> Option<Shape> {
        let id = visit.id;
        let mut problem = |what: String| (ears.problem)(format!("node {id}: {what}"));
        let place = self.engine.table.lock().place(id);
        let (Some(place), Some((height, _))) = (place, known.get(&id)) else {
            problem("an edge leads to it, but the node table does not hold it".into());
            return None;
        };
        let node = match self.engine.store.read_node(id, &place, Reach::Header) {
            Ok(node) => node,
            Err(error) => {
                problem(error.to_string());
                return None;
            }
        };
        if node.height != *height {
            problem(format!("its height is {}; the node table says {height}", node.height));
        }
        let longest_key = match &node.body {
            Body::Leaf(_) => self.check_leaf(&node, &mut problem),
            Body::Interior(edges) => edges
                .iter()
                .map(|edge| self.check_edge(&node, edge, known, stack, &mut problem))
                .max()
                .unwrap_or(0),
        };
        let shape = Shape { height: node.height, lo: node.lo.clone(), hi: node.hi.clone(), longest_key };
        shape.compare(visit, &mut problem);
        Some(shape)
    }

    /// Gives the longest key that may lie behind the edge, in the node's coordinates.
    fn check_edge(
        &self,
        node: &Node,
        edge: &Edge,
        known: &HashMap<NodeId, (u8, u32)>,
        stack: &mut Vec<Visit>,
        problem: &mut dyn FnMut(String),
    ) -> usize {
        let to = &edge.translation;
        if to.strip_len > shared_len(&edge.lo, &edge.hi) {
            problem(format!("the edge from {:?} strips more than its window shares", edge.lo));
        }
        if let Some(child) = edge.child {
            stack.push(Visit {
                id: child,
                lo: to.cut(&edge.lo),
                hi: to.cut(&edge.hi),
                below_height: u16::from(node.height),
                longest_key: Some(edge.longest_key),
            });
        }
        for goto in &edge.gotos {
            let height = known.get(&goto.target).map(|(height, _)| *height);
            let above = edge.child.and_then(|child| known.get(&child)).map(|(height, _)| *height);
            if height >= above {
                problem(format!("the GOTO from {:?} leads to a node no lower than the child", goto.lo));
            }
            if goto.longest_key_here() > edge.longest_key_here() {
                problem(format!("the GOTO from {:?} has longer keys than its edge", goto.lo));
            }
            stack.push(Visit {
                id: goto.target,
                lo: goto.translation.cut(&goto.lo),
                hi: goto.translation.cut(&goto.hi),
                below_height: u16::from(node.height),
                longest_key: Some(goto.longest_key),
            });
        }
        let mut longest = (edge.longest_key as usize + to.strip_len).saturating_sub(to.prepend.len());
        if let Some(piece) = &edge.partition {
            match self.engine.store.run(piece) {
                Ok(run) => {
                    check_partition(edge, &run, problem);
                    let keys = (0..run.len()).map(|i| run.key(i).len()).max().unwrap_or(0);
                    if edge.child.is_some() && keys > longest {
                        problem(format!(
                            "a message's key is longer than the bound of the edge from {:?}",
                            edge.lo
                        ));
                    }
                    longest = longest.max(keys);
                }
                Err(error) => problem(error.to_string()),
            }
        }
        longest
    }

    /// Gives the longest key.
    fn check_leaf(&self, node: &Node, problem: &mut dyn FnMut(String)) -> usize {
        let basements = node.basements();
        let mut longest = 0;
        for (index, basement) in basements.iter().enumerate() {
            let layers = match self.engine.store.layers(&basement.piece) {
                Ok(layers) => layers,
                Err(error) => {
                    problem(error.to_string());
                    continue;
                }
            };
            let end =
                basements.get(index + 1).map_or_else(|| node.hi.clone(), |b| Cut::before(b.first.clone()));
            for run in layers.newest_first() {
                check_basement_run(basement, run, &end, index, problem);
                longest = longest.max((0..run.len()).map(|at| run.key(at).len()).max().unwrap_or(0));
            }
        }
        longest
    }
}

fn check_basement_run(
    basement: &Basement,
    run: &Run,
    end: &Cut,
    index: usize,
    problem: &mut dyn FnMut(String),
) {
    if run.is_empty() {
        problem(format!("basement {index} has a run of nothing"));
    }
    if run.is_pairs() && run.points(0, run.len()).any(|pair| pair.kind != Kind::Put) {
        problem(format!("basement {index} has a message among its pairs"));
    }
    if !basement.piece.has_messages() && run.key(0) != basement.first.as_slice() {
        problem(format!("basement {index} does not begin with its first key"));
    }
    if run.points(0, run.len()).any(|point| *point.key < *basement.first || !end.is_above(&point.key)) {
        problem(format!("basement {index} holds a key outside of its bounds"));
    }
}

fn check_partition(edge: &Edge, run: &Run, problem: &mut dyn FnMut(String)) {
    if run.is_empty() {
        problem(format!("the partition from {:?} is stored though it is empty", edge.lo));
    }
    let outside = |key: &[u8]| edge.lo.is_above(key) || !edge.hi.is_above(key);
    if (0..run.len()).any(|i| outside(run.key(i))) {
        problem(format!("the partition from {:?} holds a message outside of its window", edge.lo));
    }
    if run.ranges().iter().any(|r| r.lo < edge.lo || r.hi > edge.hi) {
        problem(format!("the partition from {:?} holds a range outside of its window", edge.lo));
    }
    if run.ranges().iter().any(|r| edge.gotos.iter().any(|g| g.clip(&r.lo, &r.hi).is_some())) {
        problem(format!("the partition from {:?} holds a range that a GOTO overlaps", edge.lo));
    }
    if edge.child.is_none() && !run.ranges().is_empty() {
        problem(format!("the null edge from {:?} holds a range", edge.lo));
    }
    for point in run.points(0, run.len()) {
        if run.range_over(&point.key).is_some_and(|range| range.msn > point.msn) {
            problem(format!("the partition from {:?} holds a message older than a range over it", edge.lo));
        }
    }
}
