//! What lies where on the volume: bytes by kind, in cells of equal size, for accounts and pictures.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use betree_platform::BLOCK_BYTES;

use crate::env::View;
use crate::env::recover::log_area;
use crate::error::{Error, Result};
use crate::format::superblock::slots;
use crate::key::{Cut, Translation};
use crate::node::{Edge, Node};
use crate::node_id::NodeId;
use crate::settings::DictId;
use crate::space::{BlockRange, Extent};
use crate::tree::{Tree, dangling};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// The most leaves whose headers are looked at for the compression ratio.
const LEAVES_READ_MAX: usize = 256;

/// Whether the keys of a node stand in several places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sharing {
    /// Each in one.
    Own,
    /// Some of them in several: clones have them.
    Shared,
}

/// What lies in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Occupant {
    /// The copies of the superblock.
    Superblocks,
    /// The log.
    Log,
    /// A page or the directory of the node table.
    Table,
    /// A second copy of one.
    TableCopy,
    /// A node of a tree.
    Node {
        /// The tree's dictionary.
        dict: DictId,
        /// 0 for a leaf.
        height: u8,
        /// Whether others share it.
        sharing: Sharing,
    },
    /// A node of the node table to which no way led: it is to be freed, nothing in it is shown, it was made
    /// after the view, or what led to it cannot be read.
    Unreached,
    /// Nothing of the present: what the last checkpoint, views and backups still hold, and what checkpoints
    /// and ingests under way have written.
    Held,
    /// Nothing.
    Free,
}

/// Lengths of runs before and after compression, of all leaves or of some that stand for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compressed {
    /// Before compression, in bytes.
    pub raw_bytes: u64,
    /// As stored, in bytes.
    pub stored_bytes: u64,
    /// The number of leaves that were looked at.
    pub leaves_read: u64,
    /// The number of leaves in all.
    pub leaves: u64,
}

/// What lies where on a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// The size of a cell in bytes; the last one may be smaller.
    pub cell_bytes: u64,
    /// The volume from its first byte to its last, cut into cells: of each the bytes by what lies there. So
    /// the bytes of all cells are the volume's.
    pub cells: Vec<BTreeMap<Occupant, u64>>,
    /// What compression does.
    pub compressed: Compressed,
    /// The number of nodes whose headers cannot be read. What is below them is [`Occupant::Unreached`].
    pub unreadable_nodes: u64,
}

impl Occupancy {
    /// The bytes of the whole volume by what lies there.
    pub fn sums(&self) -> BTreeMap<Occupant, u64> {
        let mut sums = BTreeMap::new();
        for (occupant, bytes) in self.cells.iter().flatten() {
            *sums.entry(*occupant).or_default() += bytes;
        }
        sums
    }

    /// Cells for a volume that ends before `end_block`.
    fn empty(end_block: u64, cells_max: u32) -> Occupancy {
        let cell_blocks = end_block.div_ceil(u64::from(cells_max.max(1))).max(1);
        let cells = alloc::vec![BTreeMap::new(); end_block.div_ceil(cell_blocks) as usize];
        let cell_bytes = cell_blocks * BLOCK;
        Occupancy { cell_bytes, cells, compressed: Compressed::default(), unreadable_nodes: 0 }
    }

    /// Adds blocks, which are within the volume.
    fn add(&mut self, blocks: BlockRange, occupant: Occupant) {
        let mut at = blocks.start_block.saturating_mul(BLOCK);
        let end = at.saturating_add(blocks.len_blocks.saturating_mul(BLOCK));
        while at < end {
            let index = at / self.cell_bytes;
            let stop = end.min((index + 1) * self.cell_bytes);
            if let Some(cell) = self.cells.get_mut(index as usize) {
                *cell.entry(occupant).or_default() += stop - at;
            }
            at = stop;
        }
    }

    /// Adds what nobody has named to each cell, as held.
    fn add_rest(&mut self, end_block: u64) {
        let mut left = end_block * BLOCK;
        for cell in &mut self.cells {
            let size = self.cell_bytes.min(left);
            left -= size;
            let held = size.saturating_sub(cell.values().sum());
            if held > 0 {
                cell.insert(Occupant::Held, held);
            }
        }
    }
}

impl View {
    /// What lies where on the volume, in at most `cells_max` cells. Trees are as of the view's moment, blocks
    /// as of a later one: what came between counts as [`Occupant::Unreached`] or [`Occupant::Held`], and the
    /// bytes add up to the volume's size in any case.
    ///
    /// Reads the headers of the interior nodes that are not in memory, and of 256 leaves at most; calls
    /// `step` before each, which ends the work with `Break`. The node table is locked while its places are
    /// copied; a checkpoint under way is waited for.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (env, _folder) = doc::volume()?;
    /// # let env = std::sync::Arc::new(env);
    /// use core::ops::ControlFlow;
    ///
    /// use betree::Occupant;
    ///
    /// let occupancy = env.view().occupancy(64, &mut || ControlFlow::Continue(()))?;
    /// let sums = occupancy.sums();
    /// assert_eq!(sums.values().sum::<u64>(), env.volume_bytes());
    /// assert!(sums[&Occupant::Free] > sums[&Occupant::Log]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Interrupted`] by `step`, [`Error::ViewEnded`], [`Error::NoMemory`]. What cannot be read is
    /// counted instead.
    pub fn occupancy(&self, cells_max: u32, step: &mut dyn FnMut() -> ControlFlow<()>) -> Result<Occupancy> {
        self.fix_versions();
        let mut walk = Walk { view: self, step, owners: Vec::new(), leaves: Vec::new(), unreadable: 0 };
        for index in 0..self.env().engine.dicts.len() {
            walk.dict(DictId(index as u8))?;
        }
        let compressed = walk.compressed()?;
        let mut occupancy = self.blocks(&walk, cells_max);
        occupancy.compressed = compressed;
        occupancy.unreadable_nodes = walk.unreadable;
        Ok(occupancy)
    }

    /// The owners of all blocks at this moment.
    fn blocks(&self, walk: &Walk<'_, '_>, cells_max: u32) -> Occupancy {
        let env = self.env();
        let (log, directory, directory_copy) = {
            let committed = env.checkpoint.lock();
            let directories = (committed.directory.clone(), committed.directory_copy.clone());
            (log_area(&committed.superblock), directories.0, directories.1)
        };
        let space = &env.engine.store.space;
        // Under one lock: what the table names is not free meanwhile, and none of it is named twice.
        let (nodes, pages, free, end_block) = {
            let table = env.engine.table.lock();
            let end_block = space.end_block();
            let placed = |(id, height, _)| Some((id, height, table.place(id)?.extent));
            let nodes: Vec<(NodeId, u8, Arc<Extent>)> = table.nodes().filter_map(placed).collect();
            let pages: Vec<_> = (0..).map_while(|index| table.page(index)).flatten().collect();
            (nodes, pages, space.free_ranges(), end_block)
        };
        let mut occupancy = Occupancy::empty(end_block, cells_max);
        let blocks =
            |offset: u64, len: u64| BlockRange { start_block: offset / BLOCK, len_blocks: len / BLOCK };
        occupancy.add(blocks(0, slots::BYTES), Occupant::Superblocks);
        occupancy.add(blocks(log.offset, log.len), Occupant::Log);
        let mut add_extent = |extent: &Extent, occupant| {
            extent.all_parts().for_each(|part| occupancy.add(*part, occupant));
        };
        let (pages, copies): (Vec<_>, Vec<_>) =
            pages.into_iter().map(|page| (page.extent, page.copy)).unzip();
        directory.iter().chain(&pages).for_each(|extent| add_extent(extent, Occupant::Table));
        let copies = directory_copy.iter().chain(copies.iter().flatten());
        copies.for_each(|extent| add_extent(extent, Occupant::TableCopy));
        for (id, height, extent) in nodes {
            let occupant = match walk.owner(id) {
                Some(Owner { dict, sharing, .. }) => Occupant::Node { dict, height, sharing },
                None => Occupant::Unreached,
            };
            add_extent(&extent, occupant);
        }
        for BlockRange { start_block, len_blocks } in free {
            // It may have grown since.
            let len_blocks = len_blocks.min(end_block.saturating_sub(start_block));
            occupancy.add(BlockRange { start_block, len_blocks }, Occupant::Free);
        }
        occupancy.add_rest(end_block);
        occupancy
    }
}

/// The keys of a node that edges and GOTOs above show, in its own coordinates. Several ranges count as the
/// one from the first to the last.
struct Shown {
    /// The keys to which a way leads.
    once: (Cut, Cut),
    /// Those to which several lead.
    twice: Option<(Cut, Cut)>,
}

impl Shown {
    /// All keys, by one way.
    fn all() -> Shown {
        Shown { once: (Cut::LOW, Cut::HIGH), twice: None }
    }

    fn sharing(&self) -> Sharing {
        if self.twice.is_some() { Sharing::Shared } else { Sharing::Own }
    }

    /// What the keys `[lo, hi)` of this node show of a node below; `None` if nothing.
    fn through(&self, translation: &Translation, lo: &Cut, hi: &Cut) -> Option<Shown> {
        let translated = |(from, to): (Cut, Cut)| (translation.cut(&from), translation.cut(&to));
        let window = (lo.clone(), hi.clone());
        let once = translated(common(&self.once, &window)?);
        let twice = self.twice.as_ref().and_then(|twice| common(twice, &window)).map(translated);
        Some(Shown { once, twice })
    }

    /// Adds what another way shows.
    fn add(&mut self, more: &Shown) {
        for twice in common(&self.once, &more.once).into_iter().chain(more.twice.clone()) {
            self.twice = Some(self.twice.as_ref().map_or(twice.clone(), |known| joined(known, &twice)));
        }
        self.once = joined(&self.once, &more.once);
    }
}

/// The keys in both ranges.
fn common(one: &(Cut, Cut), other: &(Cut, Cut)) -> Option<(Cut, Cut)> {
    let (lo, hi) = ((&one.0).max(&other.0), (&one.1).min(&other.1));
    (lo < hi).then(|| (lo.clone(), hi.clone()))
}

/// The range from the first key of both to the last.
fn joined(one: &(Cut, Cut), other: &(Cut, Cut)) -> (Cut, Cut) {
    ((&one.0).min(&other.0).clone(), (&one.1).max(&other.1).clone())
}

/// The nodes to which an edge and its GOTOs lead, each with its range.
fn ways(edge: &Edge) -> impl Iterator<Item = (NodeId, &Translation, &Cut, &Cut)> {
    let gotos = edge.gotos.iter().map(|goto| (goto.target, &goto.translation, &goto.lo, &goto.hi));
    gotos.chain(edge.child.map(|child| (child, &edge.translation, &edge.lo, &edge.hi)))
}

/// The tree that a node belongs to.
#[derive(Clone, Copy)]
struct Owner {
    generation: u32,
    dict: DictId,
    sharing: Sharing,
}

/// A walk through the interior nodes as of a view, each once.
struct Walk<'v, 's> {
    view: &'v View,
    step: &'s mut dyn FnMut() -> ControlFlow<()>,
    /// By the slot of the node table.
    owners: Vec<Option<Owner>>,
    leaves: Vec<(DictId, NodeId)>,
    unreadable: u64,
}

impl Walk<'_, '_> {
    fn owner(&self, id: NodeId) -> Option<Owner> {
        (*self.owners.get(id.slot as usize)?).filter(|owner| owner.generation == id.generation)
    }

    /// Goes through the nodes of a dictionary from the highest to the lowest: all that lead to a node are
    /// higher, so that it is known what of it is shown when its turn comes.
    fn dict(&mut self, dict: DictId) -> Result<()> {
        let tree = self.view.tree(dict)?;
        let root = tree.root()?;
        let mut by_height: BTreeMap<u8, BTreeMap<NodeId, Shown>> = BTreeMap::new();
        if let Some(height) = self.height_of(&tree, root)? {
            by_height.entry(height).or_default().insert(root, Shown::all());
        }
        while let Some((height, nodes)) = by_height.pop_last() {
            for (id, shown) in nodes {
                self.reached(dict, height, id, shown.sharing());
                if height == 0 {
                    continue;
                }
                let Some(node) = self.version(&tree, id)? else { continue };
                for (child, translation, from, to) in node.edges().iter().flat_map(ways) {
                    let Some(below) = shown.through(translation, from, to) else { continue };
                    match self.height_of(&tree, child)? {
                        // Most nodes are leaves to which nothing else leads: their cuts would take much
                        // memory.
                        Some(0) if tree.references_at(child) <= 1 => {
                            self.reached(dict, 0, child, below.sharing());
                        }
                        Some(lower) if lower < height => {
                            let nodes = by_height.entry(lower).or_default();
                            nodes.entry(child).and_modify(|shown| shown.add(&below)).or_insert(below);
                        }
                        // A damaged table could lead up again for ever.
                        Some(_) => self.unreadable += 1,
                        None => {}
                    }
                }
            }
        }
        Ok(())
    }

    /// Notes the owner of a node.
    fn reached(&mut self, dict: DictId, height: u8, id: NodeId, sharing: Sharing) {
        let index = id.slot as usize;
        if self.owners.len() <= index {
            self.owners.resize(index + 1, None);
        }
        if let Some(owner) = self.owners.get_mut(index) {
            *owner = Some(Owner { generation: id.generation, dict, sharing });
        }
        if height == 0 {
            self.leaves.push((dict, id));
        }
    }

    /// The height of a node, mostly without a read of it; `None`, counted, if it cannot be known.
    fn height_of(&mut self, tree: &Tree<'_>, id: NodeId) -> Result<Option<u8>> {
        let height = tree.table.lock().height(id);
        match height {
            Some(height) => Ok(Some(height)),
            // It has left the tree since the view began.
            None => Ok(self.version(tree, id)?.map(|node| node.height)),
        }
    }

    /// The version of a node; `None`, counted, if it cannot be read.
    fn version(&mut self, tree: &Tree<'_>, id: NodeId) -> Result<Option<Arc<Node>>> {
        if (self.step)().is_break() {
            return Err(Error::Interrupted);
        }
        match tree.version_at(id).and_then(|found| found.ok_or_else(|| dangling(id))) {
            Ok((node, _)) => Ok(Some(node)),
            Err(error @ (Error::ViewEnded | Error::NoMemory { .. } | Error::Internal { .. })) => Err(error),
            Err(_) => {
                self.unreadable += 1;
                Ok(None)
            }
        }
    }

    /// What compression does to leaves, by every nth of them.
    fn compressed(&mut self) -> Result<Compressed> {
        let leaves = core::mem::take(&mut self.leaves);
        let mut sum = Compressed { leaves: leaves.len() as u64, ..Compressed::default() };
        for (dict, id) in leaves.iter().step_by(leaves.len().div_ceil(LEAVES_READ_MAX).max(1)) {
            let tree = self.view.tree(*dict)?;
            let Some(node) = self.version(&tree, *id)? else { continue };
            sum.leaves_read += 1;
            for run in node.pieces().iter().filter_map(|piece| piece.stored()).flat_map(|stored| stored.runs)
            {
                sum.raw_bytes += u64::from(run.raw_len);
                sum.stored_bytes += u64::from(run.stored_len);
            }
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests;
