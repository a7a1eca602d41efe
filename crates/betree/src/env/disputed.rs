//! Nodes whose blocks others claim too.
//!
//! No block belongs to two owners. If the node table says so all the same, an opening for changes is refused:
//! the first to claim the blocks may be the wrong one. Where nothing is written in place, each node can be
//! looked for where the table has it: its header and its pieces have checksums, so what does not match is
//! read as damaged, and of those that claim a block nobody is preferred. What nobody else claims of a
//! disputed extent is held meanwhile, so that a repair does not write there.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::BLOCK_BYTES;

use crate::error::{Error, counted};
use crate::format::superblock::Superblock;
use crate::format::superblock::slots;
use crate::io::Disk;
use crate::node_id::NodeId;
use crate::space::{BlockRange, Extent, Space};
use crate::store::NodePlace;
use crate::table::{Disputed, DisputedNode, Table, Unclaimed};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// How many of those that claim the same blocks are named.
const RIVALS_MAX: usize = 4;

/// What becomes of a node whose blocks others claim too, or that are no blocks for nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnDispute {
    /// The table is refused.
    Refuse,
    /// Its readers look whether it is there. Nothing of its extent may be written.
    Look,
}

/// What owns blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Node(NodeId),
    NodeTable,
}

/// The refusal of a table that gives blocks to two owners.
pub(crate) fn refusal(unclaimed: Unclaimed) -> Error {
    let Unclaimed { id, why, .. } = unclaimed;
    match why {
        Error::Corrupt { what, offset, len, why } => {
            Error::Corrupt { what, offset, len, why: format!("node {id}: {why}") }
        }
        other => other,
    }
}

/// Gives nodes that could claim no blocks the places where the table has them. Their readers find out
/// whether they are there.
pub(crate) fn settle(
    disk: &Disk,
    space: &Arc<Space>,
    superblock: &Superblock,
    table: &mut Table,
    directories: &[Option<Arc<Extent>>],
    unclaimed: Vec<Unclaimed>,
) -> Disputed {
    if unclaimed.is_empty() {
        return Disputed::default();
    }
    let mut rivals = Rivals { space, superblock, owned: BTreeMap::new() };
    table.node_extents().for_each(|(id, extent)| rivals.add(extent, Owner::Node(id)));
    table.page_extents().for_each(|(_, extent)| rivals.add(extent, Owner::NodeTable));
    directories.iter().flatten().for_each(|extent| rivals.add(extent, Owner::NodeTable));
    let mut disputed = Disputed::default();
    let device_blocks = disk.len() / BLOCK;
    for Unclaimed { id, parts, copy, header_len, header_checksum, why } in unclaimed {
        let what = rivals.claim_of(id, &parts, &why);
        for held in
            [Some(&parts), copy.as_ref()].into_iter().flatten().filter_map(|all| space.claim_free(all))
        {
            rivals.add(&held, Owner::Node(id));
            disputed.held.push(held);
        }
        let offset = parts.first().map_or(0, |part| part.start_block.saturating_mul(BLOCK));
        let copy = copy.and_then(|parts| Space::disputed(parts, device_blocks).ok());
        let extent = match (Space::disputed(parts, device_blocks), copy) {
            (Ok(extent), copy) => Ok(copy.into_iter().fold(extent, Extent::with_copy)),
            // The first copy is nowhere on the device, the second may be there.
            (Err(_), Some(copy)) => Ok(copy),
            (Err(_), None) => Err(why),
        };
        if let Ok(extent) = &extent {
            table.put_place(id, NodePlace { extent: extent.clone(), header_len, header_checksum });
        }
        disputed.nodes.push(DisputedNode { id, offset, extent, what });
    }
    disputed
}

/// All that owns blocks.
struct Rivals<'s> {
    space: &'s Space,
    superblock: &'s Superblock,
    /// Blocks that one owner has: first block -> (the block behind the last one, owner).
    owned: BTreeMap<u64, (u64, Owner)>,
}

impl Rivals<'_> {
    fn add(&mut self, extent: &Extent, owner: Owner) {
        for part in extent.all_parts() {
            self.owned.insert(part.start_block, (part.start_block + part.len_blocks, owner));
        }
    }

    /// A sentence on the claim of a node to these parts, which was refused for a reason.
    fn claim_of(&self, id: NodeId, parts: &[BlockRange], why: &Error) -> String {
        let mut rivals: Vec<String> = Vec::new();
        let mut add = |rival: String| {
            if rivals.len() < RIVALS_MAX && !rivals.contains(&rival) {
                rivals.push(rival);
            }
        };
        let log_blocks = self.superblock.log_offset / BLOCK;
        for part in parts {
            let (start, end) = (part.start_block, part.start_block.saturating_add(part.len_blocks));
            if start < slots::BYTES / BLOCK {
                add("those of a superblock".into());
            }
            if start < self.space.first_block() && end > log_blocks {
                add("those of the log".into());
            }
            if end > self.space.end_block() {
                add("behind the end of the volume".into());
            }
            let mut before = end;
            for _ in 0..=RIVALS_MAX {
                let Some((from, (to, owner))) = self.owned.range(..before).next_back() else { break };
                if *to <= start {
                    break;
                }
                add(match owner {
                    Owner::Node(id) => format!("those of node {id}"),
                    Owner::NodeTable => "those of the node table".into(),
                });
                before = *from;
            }
        }
        let first = parts.iter().take(RIVALS_MAX).map(|p| format!("{}+{}", p.start_block, p.len_blocks));
        let mut blocks = first.collect::<Vec<_>>().join(", ");
        if parts.len() > RIVALS_MAX {
            blocks =
                format!("{blocks} and {} more", counted((parts.len() - RIVALS_MAX) as u64, "part", "parts"));
        }
        match rivals.is_empty() {
            true => format!("node {id}: {why}"),
            false => format!("node {id}: its blocks {blocks} are in part {}", rivals.join(", in part ")),
        }
    }
}
