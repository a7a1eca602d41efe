//! An image for each code, made of a sound one.

use std::sync::Arc;
use std::vec::Vec;

use crate::batch::Batch;
use crate::check::{FindingCode as Code, Place};
use crate::env::Env;
use crate::format::node::{Entries, Header, Section, StoredEdge};
use crate::format::superblock::table_copy::TableCopy;
use crate::format::table::StoredSlot;
use crate::hostile::claims::{set_place, set_slot, slot, whole_nodes};
use crate::hostile::image::Image;
use crate::hostile::repair::{
    closed, closed_with_copies, closed_with_node_copies, of_several_pages, open_as,
};
use crate::hostile::{DICTS, fill, open, sound};
use crate::io::mem::MemDevice;
use crate::key::Cut;
use crate::node::Body;
use crate::settings::{DictId, Geometry, OpenMode};
use crate::space::Extent;

const BLOCK: usize = betree_platform::BLOCK_BYTES;

/// Sound volumes.
pub(super) struct Bases {
    /// With records in the log, and without second copies.
    logged: Image,
    /// Closed, and without second copies.
    pub closed: Image,
    /// Closed, with a second copy of the node table.
    copied: Image,
    /// Closed, with second copies of interior nodes, and none of the node table.
    twice: Image,
    /// With a clone that waits in a node above its place, and without second copies.
    cloned: Image,
    /// As mkfs makes them, so that its sizes are known without a superblock.
    usual: Image,
}

impl Bases {
    pub fn new() -> Bases {
        Bases {
            logged: sound().without_table_copy(),
            closed: closed(),
            copied: closed_with_copies(),
            twice: closed_with_node_copies(),
            cloned: cloned(),
            usual: usual(),
        }
    }

    pub fn all(&self) -> [&Image; 6] {
        [&self.logged, &self.closed, &self.copied, &self.twice, &self.cloned, &self.usual]
    }
}

/// A clone waits above a child that is higher than its source.
fn cloned() -> Image {
    let device = of_several_pages().device();
    let env = open(device.clone()).unwrap();
    let mut batch = Batch::new();
    batch.clone_range(DictId(0), b"/d0/k1", b"/d1/e");
    batch.clone_range(DictId(1), b"/d1/k1", b"/d1/e");
    env.commit(&batch).unwrap();
    env.checkpoint().unwrap();
    env.abandon();
    Image { bytes: device.bytes() }.without_table_copy()
}

fn usual() -> Image {
    let blocks = 4096;
    let device = MemDevice::new(blocks);
    let geometry = Geometry::for_volume((blocks * BLOCK) as u64, DICTS);
    Env::format(device.clone(), &geometry, [1; 16]).unwrap();
    let env = open(device.clone()).unwrap();
    fill(&env, 0..100);
    env.close().unwrap();
    Image { bytes: device.bytes() }
}

/// Who tells of an image.
#[derive(Clone, Copy)]
pub(in crate::hostile) enum Teller {
    /// A check, which changes nothing.
    Check,
    /// The opening for a repair.
    Repair,
    /// The opening for a rescue.
    Rescue,
}

/// An image that shows a code.
pub(super) struct Case {
    pub image: Image,
    /// What the finding is about.
    pub at: Place,
    pub by: Teller,
    /// The other codes that are told of it, in order.
    pub beside: &'static [Code],
}

/// What no image can have: a volume that is opened gets it in memory.
pub(super) struct InMemory {
    /// Returns what must be held meanwhile.
    pub make: fn(&Env) -> Option<Arc<Extent>>,
    pub at: Place,
    pub beside: &'static [Code],
}

pub(super) enum Shown {
    ByImage(Case),
    InMemory(InMemory),
}

fn by_check(image: Image, at: Place, beside: &'static [Code]) -> Shown {
    Shown::ByImage(Case { image, at, by: Teller::Check, beside })
}

/// What shows a code. A new code needs an image here.
pub(super) fn of(code: Code, bases: &Bases) -> Shown {
    match code {
        Code::BadSuperblock => bad_superblock(bases),
        Code::LostSuperblocks => lost_superblocks(bases),
        Code::OldCheckpoint => old_checkpoint(bases),
        Code::BadNodeTable => bad_node_table(bases),
        Code::BadCopy => bad_copy(bases),
        Code::DisputedBlocks => disputed_blocks(bases),
        Code::BadNodeCopy => bad_node_copy(bases),
        Code::NodesByHeader => nodes_by_header(bases),
        Code::BadLog => bad_log(bases),
        Code::LogNotChecked => log_not_checked(bases),
        Code::BadNode => bad_node(bases),
        Code::NodeMismatch => node_mismatch(bases),
        Code::BadPiece => {
            let leaf = leaf(&bases.closed);
            by_check(bad_piece(&bases.closed), place_of(&bases.closed, leaf), &[])
        }
        Code::KnownDamage => known_damage(bases),
        Code::BasementContents => basement_contents(bases),
        Code::PartitionContents => partition_contents(bases),
        Code::DanglingEdge => dangling_edge(bases),
        Code::EdgeTooWide => edge_too_wide(bases),
        Code::EdgeNotDown => edge_not_down(bases),
        Code::BadTranslation => bad_translation(bases),
        Code::KeyOverBound => key_over_bound(bases),
        Code::WrongReferences => wrong_references(bases),
        Code::ReferencesNotChecked => references_not_checked(bases),
        Code::NotFreed => not_freed(bases),
        Code::LaterKind => later_kind(bases),
        Code::WrongSpace => wrong_space(),
        Code::SpaceNotChecked => {
            let image = flipped(&bases.closed, page(&bases.closed));
            by_check(image, Place::Volume, &[Code::BadNodeTable])
        }
    }
}

fn bad_superblock(bases: &Bases) -> Shown {
    let at = newest_superblock(&bases.closed);
    by_check(flipped(&bases.closed, at), Place::Superblock { offset: Some(at as u64) }, &[])
}

fn lost_superblocks(bases: &Bases) -> Shown {
    let mut image = bases.usual.clone();
    image.bytes[..4 * BLOCK].fill(0);
    let at = Place::Superblock { offset: None };
    Shown::ByImage(Case { image, at, by: Teller::Repair, beside: &[] })
}

fn old_checkpoint(bases: &Bases) -> Shown {
    let mut image = bases.closed.clone();
    let newest = newest_superblock(&image);
    image.bytes[newest..newest + 2 * BLOCK].fill(0);
    by_check(image, Place::Volume, &[Code::BadSuperblock, Code::SpaceNotChecked])
}

fn bad_node_table(bases: &Bases) -> Shown {
    let at = page(&bases.closed);
    let place = Place::NodeTable { offset: Some(at as u64) };
    by_check(flipped(&bases.closed, at), place, &[Code::SpaceNotChecked])
}

fn bad_copy(bases: &Bases) -> Shown {
    let copy = TableCopy::of(&bases.copied.superblock()).unwrap();
    let at = copy.parts[0].start_block as usize * BLOCK;
    by_check(flipped(&bases.copied, at), Place::NodeTable { offset: Some(at as u64) }, &[])
}

/// The slot of a leaf says that it is in a superblock.
fn disputed_blocks(bases: &Bases) -> Shown {
    let mut image = bases.closed.clone();
    let leaf = leaf(&image);
    set_place(&mut image, leaf, 0, 1);
    let at = place_of(&image, leaf);
    by_check(image, at, &[Code::BadNode, Code::SpaceNotChecked])
}

/// The second copy of a node's header has another bit.
fn bad_node_copy(bases: &Bases) -> Shown {
    let all = bases.twice.nodes().into_iter();
    let mut copied = all.filter(|(number, ..)| slot(&bases.twice, *number).copied == 1);
    let (number, parts, _) = copied.next().unwrap();
    let stored = slot(&bases.twice, number);
    let (_, copy) = stored.halves(parts).unwrap();
    let at = copy.unwrap()[0].start_block as usize * BLOCK;
    let (slot, generation) = (number, stored.generation.get());
    let place = Place::Node { slot, generation, offset: Some(at as u64) };
    by_check(flipped(&bases.twice, at), place, &[])
}

fn nodes_by_header(bases: &Bases) -> Shown {
    let image = flipped(&bases.closed, page(&bases.closed));
    let at = Place::NodeTable { offset: None };
    Shown::ByImage(Case { image, at, by: Teller::Rescue, beside: &[Code::BadNodeTable] })
}

/// A record of the log counts other changes than it has.
fn bad_log(bases: &Bases) -> Shown {
    let mut image = bases.logged.clone();
    let segment = image.segments()[1].clone();
    image.patch_segment(&segment, &|bytes| bytes[88..92].copy_from_slice(&77u32.to_le_bytes()));
    let at = Place::Log { offset: segment.start as u64 };
    by_check(image, at, &[Code::LogNotChecked, Code::SpaceNotChecked])
}

fn log_not_checked(bases: &Bases) -> Shown {
    let at = Place::Log { offset: bases.logged.superblock().log_offset };
    let image = flipped(&bases.logged, page(&bases.logged));
    by_check(image, at, &[Code::BadNodeTable, Code::SpaceNotChecked])
}

/// The node table has another checksum of a leaf.
fn bad_node(bases: &Bases) -> Shown {
    let mut image = bases.closed.clone();
    let leaf = leaf(&image);
    set_slot(&mut image, leaf, |stored| stored.header_checksum = 0.into());
    let at = place_of(&image, leaf);
    by_check(image, at, &[])
}

/// The node table has a leaf as an interior node.
fn node_mismatch(bases: &Bases) -> Shown {
    let mut image = bases.closed.clone();
    let leaf = leaf(&image);
    set_slot(&mut image, leaf, |stored| stored.height = 1);
    let at = place_of(&image, leaf);
    by_check(image, at, &[])
}

/// The last byte of a leaf's first basement is another.
fn bad_piece(image: &Image) -> Image {
    let mut image = image.clone();
    let leaf = leaf(&image);
    let header = image.header(leaf);
    let Entries::Leaf(basements) = &header.entries else { panic!("it is a leaf") };
    let run = basements[0].1[0];
    let at = (run.offset + run.stored_len) as usize - 1;
    let last = image.contents(leaf, at..at + 1)[0];
    image.set_contents(leaf, at, &[last ^ 1]);
    image
}

fn known_damage(bases: &Bases) -> Shown {
    let image = super::repaired(&bad_piece(&bases.closed), true);
    let at = place_of(&image, leaf(&bases.closed));
    by_check(image, at, &[])
}

/// The first key of a basement is greater than its pairs.
fn basement_contents(bases: &Bases) -> Shown {
    let (image, header) = changed(&bases.closed, |header| {
        let Entries::Leaf(basements) = &mut header.entries else { return false };
        basements.get_mut(1).map(|(first, _)| first.push(0)).is_some()
    });
    let at = place_of(&image, header.id.slot);
    by_check(image, at, &[])
}

/// Two edges have each other's messages.
fn partition_contents(bases: &Bases) -> Shown {
    let (image, header) = changed(&bases.closed, |header| {
        let partitions = edges(header).filter(|edge| !edge.partition.is_empty());
        let mut partitions: Vec<_> = partitions.map(|edge| &mut edge.partition).collect();
        let [first, second, ..] = partitions.as_mut_slice() else { return false };
        core::mem::swap(*first, *second);
        true
    });
    let at = place_of(&image, header.id.slot);
    by_check(image, at, &[])
}

/// The node table holds a leaf no more.
fn dangling_edge(bases: &Bases) -> Shown {
    let mut image = bases.closed.clone();
    let leaf = leaf(&image);
    set_slot(&mut image, leaf, |stored| *stored = StoredSlot { used: 0, ..*stored });
    let at = place_of(&image, leaf);
    by_check(image, at, &[])
}

/// A leaf ends before its last basement.
fn edge_too_wide(bases: &Bases) -> Shown {
    let (image, header) = changed(&bases.closed, |header| {
        let Entries::Leaf(basements) = &header.entries else { return false };
        let Some((first, _)) = basements.last() else { return false };
        let before = core::mem::replace(&mut header.hi, Cut::just_after(first));
        header.hi < before
    });
    let at = place_of(&image, header.id.slot);
    by_check(image, at, &[Code::BasementContents])
}

/// A GOTO leads to the child above which it waits.
fn edge_not_down(bases: &Bases) -> Shown {
    let (image, header) = changed(&bases.cloned, |header| {
        let Some(edge) = edges(header).find(|edge| !edge.gotos.is_empty()) else { return false };
        let (child, to) = (edge.child.unwrap(), edge.translation.clone());
        edge.gotos.iter_mut().for_each(|goto| (goto.target, goto.translation) = (child, to.clone()));
        true
    });
    let at = place_of(&image, header.id.slot);
    by_check(image, at, &[Code::WrongReferences])
}

/// An edge strips more than its window shares. A header with that is refused when it is decoded.
fn bad_translation(bases: &Bases) -> Shown {
    let root = bases.closed.superblock().dicts[0];
    let make = |env: &Env| {
        let dict = &env.engine.dicts[0];
        let tree = env.engine.tree_of(dict);
        let root = dict.state.read().root;
        let root = tree.node(root).unwrap();
        let mut edges = root.edges().to_vec();
        edges[0].translation.strip_len = 99;
        tree.rewrite(&tree.with_body(&root, Body::Interior(edges)));
        None
    };

    Shown::InMemory(InMemory { make, at: place_of(&bases.closed, root.slot), beside: &[] })
}

/// An edge leads to keys that are longer than it says.
fn key_over_bound(bases: &Bases) -> Shown {
    let (image, mut header) = changed(&bases.closed, |header| {
        let Some(edge) = edges(header).find(|edge| edge.child.is_some()) else { return false };
        edge.longest_key = 1;
        true
    });
    let child = edges(&mut header).find_map(|edge| edge.child).unwrap();
    let at = place_of(&image, child.slot);
    by_check(image, at, &[])
}

fn wrong_references(bases: &Bases) -> Shown {
    let mut image = bases.closed.clone();
    let leaf = leaf(&image);
    set_slot(&mut image, leaf, |stored| stored.references = 77.into());
    let at = place_of(&image, leaf);
    by_check(image, at, &[])
}

/// Nobody knows to which nodes an interior one leads.
fn references_not_checked(bases: &Bases) -> Shown {
    let mut image = bases.closed.clone();
    let interior = whole_nodes(&image).into_iter().find(|node| node.height > 0).unwrap();
    set_slot(&mut image, interior.slot, |stored| stored.header_checksum = 0.into());
    let at = place_of(&image, interior.slot);
    by_check(image, at, &[Code::BadNode])
}

/// A node that waits to be freed, and may lead to others, is in a block with nothing in it.
fn not_freed(bases: &Bases) -> Shown {
    let mut image = bases.closed.clone();
    let env = open_as(&image.device(), OpenMode::ReadOnly);
    let free = env.engine.store.space.free_ranges().pop().unwrap().start_block;
    let unused = (0..).find(|number| slot(&image, *number).used == 0).unwrap();
    set_slot(&mut image, unused, |stored| {
        (stored.used, stored.height, stored.header_len) = (1, 1, 100.into());
        stored.references = 0.into();
    });
    set_place(&mut image, unused, free, 1);
    let at = place_of(&image, unused);
    by_check(image, at, &[])
}

/// A leaf has a section that must be known to read it.
fn later_kind(bases: &Bases) -> Shown {
    let (image, header) = changed(&bases.closed, |header| {
        let is_leaf = matches!(header.entries, Entries::Leaf(_));
        if is_leaf {
            let kind = Section::MUST_BE_KNOWN | 77;
            header.sections.push(Section { kind, offset: 0, len: 16, checksum: 1 });
        }
        is_leaf
    });
    let at = place_of(&image, header.id.slot);
    by_check(image, at, &[])
}

/// A block is taken, and nothing names it. An opening takes what the node table names.
fn wrong_space() -> Shown {
    let make = |env: &Env| env.engine.store.space.allocate(1, 1);
    Shown::InMemory(InMemory { make, at: Place::Volume, beside: &[] })
}

/// The place of the first copy of the newest superblock.
fn newest_superblock(image: &Image) -> usize {
    (image.superblock().generation & 1) as usize * 2 * BLOCK
}

/// The place of the only page of the node table.
fn page(image: &Image) -> usize {
    image.page_start(0) as usize * BLOCK
}

/// The node of a slot, where the node table has it.
fn place_of(image: &Image, number: u32) -> Place {
    let stored = slot(image, number);
    let offset = (stored.used == 1).then(|| stored.start_block.get() * BLOCK as u64);
    Place::Node { slot: number, generation: stored.generation.get(), offset }
}

/// With a bit of a block flipped.
fn flipped(image: &Image, at: usize) -> Image {
    let mut image = image.clone();
    image.bytes[at + 20] ^= 1;
    image
}

/// The slot of a leaf in one part, to which one edge leads.
fn leaf(image: &Image) -> u32 {
    whole_nodes(image).into_iter().find(|node| node.height == 0).unwrap().slot
}

fn edges(header: &mut Header) -> impl Iterator<Item = &mut StoredEdge> {
    let edges = match &mut header.entries {
        Entries::Interior(edges) => edges.as_mut_slice(),
        Entries::Leaf(_) => &mut [],
    };
    edges.iter_mut()
}

/// With the header of the first node that `change` changes, and checksums that fit. Returns that header too.
#[track_caller]
fn changed(image: &Image, change: fn(&mut Header) -> bool) -> (Image, Header) {
    let mut image = image.clone();
    for (number, parts, len) in image.nodes() {
        let mut header = image.header(number);
        let bytes = parts.iter().map(|part| part.len_blocks as usize * BLOCK).sum();
        let room = image.contents(number, len..bytes).iter().rev().take_while(|byte| **byte == 0).count();
        let is_live = slot(&image, number).references.get() > 0;
        if is_live && change(&mut header) && header.encode().len() <= len + room {
            image.set_header(number, &header);
            return (image, header);
        }
    }
    panic!("no node can be changed so")
}
