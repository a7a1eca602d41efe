//! Where the blocks of a file lie.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use betree::{Holds, Level, Located, PairCompression, Sharing, StoredRun};

use crate::error::Result;
use crate::rules::check_file;
use crate::schema::{DATA, block, key};
use crate::types::InodeId;
use crate::volume::Volume;

/// Of parts of a file the first block, the block behind the last, and what has their bytes: the place of the
/// values, then those of deltas over them, as indices.
type Places = BTreeMap<u64, (u64, Vec<usize>)>;

/// A part of a file whose bytes lie in one place, or in several that together make them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// Its first byte in the file.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
    /// The depth of the newest bytes in the tree.
    pub level: Level,
    /// Whether the newest bytes are in memory alone, or in memory and in the log.
    pub is_in_memory: bool,
    /// The compression that the newest bytes ask for, or those of most blocks stored with them; `None` if
    /// that is not told without reading them.
    pub asked: Option<PairCompression>,
    /// The runs that have it, the oldest bytes first, each with its places on the device. Runs have other
    /// bytes too: keys, and neighbours.
    pub runs: Vec<Arc<StoredRun>>,
    /// Whether several ways lead to the blocks, or to nodes above them: copies, snapshots.
    pub sharing: Sharing,
}

impl Volume {
    /// Where the bytes of a file in `[offset, offset + len)` lie, in order, rounded to blocks of 4096 bytes;
    /// what is not told is nowhere: holes, and what lies behind the end. Holes within a basement of a leaf
    /// (64 KiB) are told as a part of it: [`seek`](Volume::seek) knows them.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betrfs::Result<()> {
    /// # let (volume, new_file, _new_dir) = doc::volume()?;
    /// use betrfs::InodeId;
    ///
    /// let file = volume.create_with(InodeId::ROOT, b"file", &new_file, &[7; 10_000])?.node;
    /// let extents = volume.map(file, 0, u64::MAX)?;
    /// assert_eq!((extents[0].offset, extents[0].len), (0, 12_288));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`View::locate`](betree::View::locate); [`Error::IsADirectory`](crate::Error::IsADirectory)
    /// and [`Error::Invalid`](crate::Error::Invalid) for what is no file.
    pub fn map(&self, node: InodeId, offset: u64, len: u64) -> Result<Vec<FileExtent>> {
        let (own, size, view) = {
            let _shared = self.namespace.shared();
            let inode = self.inode(node)?;
            let own = inode.own_key()?;
            let state = inode.state.read();
            check_file(&state.record)?;
            (own, state.record.size, self.env.view())
        };
        let blocks = size.div_ceil(block::BLOCK);
        let first = offset / block::BLOCK;
        let end = offset.saturating_add(len).div_ceil(block::BLOCK).min(blocks);
        if first >= end {
            return Ok(Vec::new());
        }
        let (lo, hi) = key::blocks(&own, first, end);
        let mut found = Vec::new();
        view.locate(DATA, &lo, &hi, &mut |located| found.push(located))?;
        // What is higher in the tree is newer.
        found.sort_by_key(|located| located.level);
        let mut places = Places::new();
        for (index, Located { lo, hi, holds, .. }) in found.iter().enumerate() {
            let from = key::first_block_behind(&own, lo).max(first);
            let to = key::first_block_behind(&own, hi).min(end);
            if from < to {
                let mut sources = if *holds == Holds::Deltas { at(&places, from) } else { Vec::new() };
                sources.push(index);
                paint(&mut places, from, to, sources);
            }
        }
        Ok(joined(&places, &found))
    }
}

/// What has the bytes of a block so far.
fn at(places: &Places, block: u64) -> Vec<usize> {
    let last = places.range(..=block).next_back().filter(|(_, (end, _))| *end > block);
    last.map(|(_, (_, sources))| sources.clone()).unwrap_or_default()
}

/// Puts blocks at a place, whatever was there.
fn paint(places: &mut Places, from: u64, to: u64, sources: Vec<usize>) {
    let mut rest = Vec::new();
    if let Some((_, (end, before))) = places.range_mut(..from).next_back()
        && *end > from
    {
        if *end > to {
            rest.push((to, (*end, before.clone())));
        }
        *end = from;
    }
    let inside: Vec<u64> = places.range(from..to).map(|(start, _)| *start).collect();
    for start in inside {
        if let Some((end, other)) = places.remove(&start)
            && end > to
        {
            rest.push((to, (end, other)));
        }
    }
    places.extend(rest);
    places.insert(from, (to, sources));
}

/// The extents in order; neighbours in one place are one.
fn joined(places: &Places, found: &[Located]) -> Vec<FileExtent> {
    let mut extents: Vec<FileExtent> = Vec::new();
    for (from, (to, sources)) in places {
        let sources: Vec<&Located> = sources.iter().filter_map(|index| found.get(*index)).collect();
        let Some(Located { level, asked, runs: newest, .. }) = sources.last() else { continue };
        let is_in_memory = newest.is_empty();
        let mut runs: Vec<Arc<StoredRun>> = Vec::new();
        for run in sources.iter().flat_map(|source| &source.runs) {
            if !runs.contains(run) {
                runs.push(run.clone());
            }
        }
        let are_own = sources.iter().all(|source| source.sharing == Sharing::Own);
        let sharing = if are_own { Sharing::Own } else { Sharing::Shared };
        let (offset, len) = (from * block::BLOCK, (to - from) * block::BLOCK);
        match extents.last_mut() {
            Some(last)
                if last.offset + last.len == offset
                    && (last.level, last.sharing, last.is_in_memory) == (*level, sharing, is_in_memory)
                    && (last.asked, &last.runs) == (*asked, &runs) =>
            {
                last.len += len;
            }
            _ => extents.push(FileExtent {
                offset,
                len,
                level: *level,
                is_in_memory,
                asked: *asked,
                runs,
                sharing,
            }),
        }
    }
    extents
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Beside a place for each block.
    #[test]
    fn what_is_painted_last_is_seen() {
        for seed in 0..200 {
            let mut rng = seeded::Rng::new(seed);
            let mut places = Places::new();
            let mut blocks = [None; 40];
            for place in 0..12 {
                let from = rng.below(39);
                let to = from + 1 + rng.below(40 - from);
                paint(&mut places, from as u64, to.min(40) as u64, Vec::from([place]));
                blocks[from..to.min(40)].fill(Some(place));
            }
            let mut seen = [None; 40];
            for (from, (to, sources)) in &places {
                for block in *from..*to {
                    assert_eq!(at(&places, block), *sources);
                    assert_eq!(seen[block as usize].replace(sources[0]), None, "seed {seed}: {places:?}");
                }
            }
            assert_eq!(seen, blocks, "seed {seed}");
        }
    }
}
