//! The room on a volume, and what lies where on it, as commands show it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use betree::{Compressed, Occupancy, Occupant, Sharing};
use betrfs::Volume;
use serde::{Deserialize, Serialize};

/// The room on a volume, in bytes, as [`SpaceStats`](betree::SpaceStats) has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// The log.
    pub log_bytes: u64,
    /// All but log and superblocks.
    pub total_bytes: u64,
    /// Neither used nor owed to changes in memory.
    pub unused_bytes: u64,
    /// The part of it that a writer can get: the rest is the reserve for deletes.
    pub available_bytes: u64,
    /// The whole volume.
    #[serde(default)]
    pub volume_bytes: u64,
    /// The size up to which it grows by itself; `None` if it does not.
    #[serde(default)]
    pub grow_to_bytes: Option<u64>,
}

impl Room {
    /// The room on a volume now.
    pub fn of(volume: &Volume) -> Room {
        let space = volume.env().space();
        Room {
            log_bytes: volume.env().geometry().log_bytes,
            total_bytes: space.total_bytes,
            unused_bytes: space.unused_bytes,
            available_bytes: volume.available_bytes(),
            volume_bytes: volume.env().volume_bytes(),
            grow_to_bytes: Some(volume.env().growth_limit_bytes()).filter(|limit| *limit > 0),
        }
    }

    /// What is used, or owed to changes in memory.
    pub fn used_bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.unused_bytes)
    }
}

/// What lies in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// The copies of the superblock.
    Superblocks,
    /// The log.
    Log,
    /// The node table.
    Table,
    /// Its second copy.
    TableCopy,
    /// A node with names, attributes and links.
    Metadata {
        /// 0 for a leaf.
        height: u8,
        /// Whether clones or snapshots share it.
        is_shared: bool,
    },
    /// A node with contents of files.
    Data {
        /// 0 for a leaf.
        height: u8,
        /// Whether clones or snapshots share it.
        is_shared: bool,
    },
    /// Earlier versions of nodes that are not free yet, and nodes to which no way leads.
    Held,
    /// Nothing.
    Free,
}

impl From<Occupant> for Content {
    fn from(occupant: Occupant) -> Content {
        match occupant {
            Occupant::Superblocks => Content::Superblocks,
            Occupant::Log => Content::Log,
            Occupant::Table => Content::Table,
            Occupant::TableCopy => Content::TableCopy,
            Occupant::Node { dict, height, sharing } => {
                let is_shared = sharing == Sharing::Shared;
                match dict == betrfs::DATA {
                    true => Content::Data { height, is_shared },
                    false => Content::Metadata { height, is_shared },
                }
            }
            Occupant::Unreached | Occupant::Held => Content::Held,
            Occupant::Free => Content::Free,
        }
    }
}

/// What lies where on a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// The volume's label; empty if it has none.
    pub label: String,
    /// The size of a cell in bytes; the last one may be smaller.
    pub cell_bytes: u64,
    /// The volume, cut into cells: the bytes of each by what lies there.
    pub cells: Vec<Vec<(Content, u64)>>,
    /// The length of the leaves' contents before compression in bytes, of those that were looked at.
    pub raw_bytes: u64,
    /// Their length as stored, in bytes.
    pub stored_bytes: u64,
    /// The number of leaves that were looked at.
    pub leaves_read: u64,
    /// The number of leaves.
    pub leaves: u64,
    /// The number of nodes whose headers cannot be read; what is below them counts as held.
    pub unreadable_nodes: u64,
    /// The room on the volume.
    pub room: Room,
    /// The number of copies that interior nodes above the parents of leaves are to have; `None` of a server
    /// of an earlier version.
    #[serde(default)]
    pub metadata_copies: Option<u32>,
}

impl Layout {
    /// The layout of a volume in at most `cells_max` cells; `step` is called before each header that is
    /// looked at, and ends the work with `Break`.
    ///
    /// # Errors
    /// Those of [`View::occupancy`](betree::View::occupancy).
    pub fn of(
        volume: &Volume,
        cells_max: u32,
        step: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> betrfs::Result<Layout> {
        let occupancy = volume.env().view().occupancy(cells_max, step)?;
        let Occupancy { cell_bytes, ref cells, compressed, unreadable_nodes, .. } = occupancy;
        let Compressed { raw_bytes, stored_bytes, leaves_read, leaves } = compressed;
        let cells = cells.iter().map(by_content).collect();
        let room = Room::of(volume);
        let label = volume.env().identity().label;
        Ok(Layout {
            label,
            cell_bytes,
            cells,
            raw_bytes,
            stored_bytes,
            leaves_read,
            leaves,
            unreadable_nodes,
            room,
            metadata_copies: Some(volume.env().node_copies().count()),
        })
    }

    /// The bytes of the whole volume by what lies there.
    pub fn sums(&self) -> BTreeMap<Content, u64> {
        let mut sums = BTreeMap::new();
        for (content, bytes) in self.cells.iter().flatten() {
            *sums.entry(*content).or_default() += bytes;
        }
        sums
    }
}

/// A cell's bytes; several occupants may be one content.
fn by_content(cell: &BTreeMap<Occupant, u64>) -> Vec<(Content, u64)> {
    let mut sums: BTreeMap<Content, u64> = BTreeMap::new();
    for (occupant, bytes) in cell {
        *sums.entry((*occupant).into()).or_default() += bytes;
    }
    sums.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_free_and_not_reached_is_held() {
        let node = |dict| Occupant::Node { dict, height: 2, sharing: Sharing::Shared };
        let other = betree::DictId(betrfs::DATA.0 ^ 1);
        let cell = [(Occupant::Unreached, 3), (Occupant::Held, 4), (Occupant::Free, 5)];
        let nodes = [(node(betrfs::DATA), 6), (node(other), 7)];
        let expected = [
            (Content::Metadata { height: 2, is_shared: true }, 7),
            (Content::Data { height: 2, is_shared: true }, 6),
            (Content::Held, 7),
            (Content::Free, 5),
        ];
        assert_eq!(by_content(&cell.into_iter().chain(nodes).collect()), expected);
    }
}
