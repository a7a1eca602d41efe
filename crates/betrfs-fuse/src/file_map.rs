//! Where the bytes of a file lie, as `betrfs map` shows it.

use betree::debug::StoredAs;
use betree::{Level, Sharing, StoredRun};
use betrfs::FileExtent;
use serde::{Deserialize, Serialize};

/// A part of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRange {
    /// The first byte on the device.
    pub offset_bytes: u64,
    /// The length in bytes.
    pub length_bytes: u64,
}

/// A run of a node: what is read and verified as one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapRun {
    /// Its places on the device, in the order of its bytes.
    pub device: Vec<DeviceRange>,
    /// Its length as stored, in bytes.
    pub stored_bytes: u64,
    /// Its length before compression, in bytes.
    pub raw_bytes: u64,
    /// The compression: `none`, `lz4` or `zstd`.
    pub codec: String,
}

/// A part of a file whose bytes lie in one place, or in several that together make them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapExtent {
    /// Its first byte in the file.
    pub offset_bytes: u64,
    /// Its length in bytes.
    pub length_bytes: u64,
    /// The depth in the tree: `leaf`, `buffer` of an interior node, or `memtable`.
    pub level: String,
    /// Whether its newest bytes are in memory alone, or in memory and in the log.
    pub is_in_memory: bool,
    /// Whether copies or snapshots share it.
    pub is_shared: bool,
    /// The runs that have it, or what is older of it, the oldest first.
    pub runs: Vec<MapRun>,
}

impl From<&StoredRun> for MapRun {
    fn from(run: &StoredRun) -> MapRun {
        let codec = match run.stored_as {
            StoredAs::Raw => "none",
            StoredAs::Lz4 => "lz4",
            StoredAs::Zstd => "zstd",
        };
        let range = |(offset_bytes, length_bytes): &(u64, u64)| DeviceRange {
            offset_bytes: *offset_bytes,
            length_bytes: *length_bytes,
        };
        MapRun {
            device: run.places.iter().map(range).collect(),
            stored_bytes: run.stored_bytes,
            raw_bytes: run.raw_bytes,
            codec: codec.to_owned(),
        }
    }
}

impl From<FileExtent> for MapExtent {
    fn from(extent: FileExtent) -> MapExtent {
        let level = match extent.level {
            Level::Leaf => "leaf",
            Level::Buffer(_) => "buffer",
            Level::Memtable => "memtable",
        };
        MapExtent {
            offset_bytes: extent.offset,
            length_bytes: extent.len,
            level: level.to_owned(),
            is_in_memory: extent.is_in_memory,
            is_shared: extent.sharing == Sharing::Shared,
            runs: extent.runs.iter().map(|run| MapRun::from(&**run)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use betree::PairCompression;

    use super::*;

    #[test]
    fn an_extent_is_told_with_its_places_and_words() {
        let run = |stored_as| {
            let places = vec![(8192, 100), (4096, 20)];
            Arc::new(StoredRun {
                places,
                stored_bytes: 120,
                raw_bytes: 300,
                stored_as,
                asked: PairCompression::Usual,
            })
        };
        for (level, word) in
            [(Level::Leaf, "leaf"), (Level::Buffer(3), "buffer"), (Level::Memtable, "memtable")]
        {
            for (is_in_memory, sharing) in [(false, Sharing::Shared), (true, Sharing::Own)] {
                let runs = [StoredAs::Raw, StoredAs::Lz4, StoredAs::Zstd].map(run).to_vec();
                let extent =
                    FileExtent { offset: 5, len: 7, level, asked: None, is_in_memory, runs, sharing };
                let told = MapExtent::from(extent);
                assert_eq!((told.offset_bytes, told.length_bytes, told.level.as_str()), (5, 7, word));
                assert_eq!((told.is_in_memory, told.is_shared), (is_in_memory, sharing == Sharing::Shared));
                let codecs: Vec<&str> = told.runs.iter().map(|run| run.codec.as_str()).collect();
                assert_eq!(codecs, ["none", "lz4", "zstd"]);
                let MapRun { device, stored_bytes, raw_bytes, .. } = &told.runs[0];
                let places: Vec<_> = device.iter().map(|at| (at.offset_bytes, at.length_bytes)).collect();
                assert_eq!((places, *stored_bytes, *raw_bytes), (vec![(8192, 100), (4096, 20)], 120, 300));
            }
        }
    }
}
