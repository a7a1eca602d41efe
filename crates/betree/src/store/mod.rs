//! Nodes and pieces between memory and device: the one place that compresses, checks and places.

mod ahead;
mod read;
mod write;

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_sys::{BLOCK_BYTES, Codec};
use xxhash_rust::xxh3::xxh3_64;

pub(crate) use ahead::{Ahead, Request};
pub(crate) use read::Reading;

use crate::cache::{Cache, Stored};
use crate::error::{Error, Result};
use crate::format::node::StoredAs;
use crate::format::run::Run;
use crate::io::Disk;
use crate::settings::Compression;
use crate::space::{Extent, Space};

/// The device with all that is needed to keep nodes on it.
pub(crate) struct Store {
    pub disk: Arc<Disk>,
    pub space: Arc<Space>,
    pub cache: Cache,
    pub compression: Compression,
    /// zstd, where the home has brought it.
    pub zstd: Option<Arc<dyn Codec>>,
    /// Who reads what now.
    pub reading: Reading,
    /// What is to be read ahead.
    pub ahead: Ahead,
}

/// Where a node stands on the device.
#[derive(Clone)]
pub(crate) struct NodePlace {
    pub extent: Arc<Extent>,
    pub header_len: u32,
    pub header_checksum: u64,
}

/// A buffer of zeros.
///
/// # Errors
/// [`Error::NoMemory`].
fn zeroed(len: usize) -> Result<Vec<u8>> {
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(len).map_err(|_| Error::NoMemory { bytes: len as u64 })?;
    buffer.resize(len, 0);
    Ok(buffer)
}

impl Store {
    /// Turns a piece's stored bytes into its contents, verified.
    fn decode(&self, stored: &Stored, bytes: Vec<u8>) -> Result<Run> {
        let at = &stored.at;
        let corrupt = |why: &str| Error::Corrupt {
            what: "a node's piece",
            offset: stored.extent.place(u64::from(at.offset)),
            len: u64::from(at.stored_len),
            why: why.into(),
        };
        if xxh3_64(&bytes) != at.checksum {
            return Err(corrupt("the checksum does not match"));
        }
        let raw = match at.stored_as {
            StoredAs::Raw if bytes.len() == at.raw_len as usize => bytes,
            StoredAs::Raw => return Err(corrupt("stored and raw length differ")),
            StoredAs::Lz4 => {
                let mut raw = zeroed(at.raw_len as usize)?;
                match lz4_flex::block::decompress_into(&bytes, &mut raw) {
                    Ok(len) if len == raw.len() => raw,
                    _ => return Err(corrupt("it does not decompress")),
                }
            }
            StoredAs::Zstd => {
                let codec = self.zstd.as_ref().ok_or_else(|| corrupt("zstd is not at hand here"))?;
                let mut raw = zeroed(at.raw_len as usize)?;
                if !codec.decompress(&bytes, &mut raw) {
                    return Err(corrupt("it does not decompress"));
                }
                raw
            }
        };
        Run::parse(raw).map_err(corrupt)
    }

    /// Appends a piece's contents to `out` as they are to be stored: compressed where that saves at
    /// least a sixteenth.
    fn encode(&self, raw: &[u8], out: &mut Vec<u8>) -> Result<StoredAs> {
        let start = out.len();
        let worth = raw.len() - raw.len() / 16;
        match self.compression {
            Compression::None => {}
            Compression::Lz4 => {
                let most = lz4_flex::block::get_maximum_output_size(raw.len());
                out.try_reserve(most).map_err(|_| Error::NoMemory { bytes: most as u64 })?;
                out.resize(start + most, 0);
                let room = out.get_mut(start..).unwrap_or_default();
                if let Ok(len) = lz4_flex::block::compress_into(raw, room)
                    && len <= worth
                {
                    out.truncate(start + len);
                    return Ok(StoredAs::Lz4);
                }
            }
            Compression::Zstd => {
                if let Some(codec) = &self.zstd
                    && codec.compress(raw, out)
                    && out.len() - start <= worth
                {
                    return Ok(StoredAs::Zstd);
                }
            }
        }
        out.truncate(start);
        out.try_reserve(raw.len()).map_err(|_| Error::NoMemory { bytes: raw.len() as u64 })?;
        out.extend_from_slice(raw);
        Ok(StoredAs::Raw)
    }
}

/// The whole blocks around a range of bytes.
fn blocks_around(offset: u64, len: u64) -> (u64, usize) {
    let block = BLOCK_BYTES as u64;
    let start = offset / block * block;
    let end = (offset + len).div_ceil(block) * block;
    (start, ((end - start) / block) as usize)
}
