//! Compressors that a platform lends to the engine.

use alloc::vec::Vec;

/// A compressor that is not part of the engine (zstd is C, so the platform brings it).
pub trait Codec: Send + Sync {
    /// Appends the compressed form of `raw` to `out`, at a level or, without one, at the codec's own; `false`
    /// if the codec cannot compress it, in which case `out` is unspecified and the caller stores `raw` as it
    /// is.
    fn compress(&self, raw: &[u8], level: Option<i32>, out: &mut Vec<u8>) -> bool;

    /// Fills `raw` exactly with the decompressed form of `stored`; `false` if `stored` is not the
    /// compressed form of exactly `raw.len()` bytes.
    fn decompress(&self, stored: &[u8], raw: &mut [u8]) -> bool;
}
