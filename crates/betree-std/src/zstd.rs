//! The zstd codec. It is C, and so not part of the engine.

use betree_platform::Codec;

/// The zstd codec at one compression level.
#[derive(Clone, Copy, Debug)]
pub struct Zstd {
    level: i32,
}

impl Zstd {
    /// A codec of a level: 1 is fast, 19 compresses well.
    pub fn new(level: i32) -> Zstd {
        Zstd { level }
    }
}

impl Default for Zstd {
    /// Level 3, the default of zstd.
    fn default() -> Zstd {
        Zstd::new(3)
    }
}

impl Codec for Zstd {
    fn compress(&self, raw: &[u8], level: Option<i32>, out: &mut Vec<u8>) -> bool {
        match zstd::bulk::compress(raw, level.unwrap_or(self.level)) {
            Ok(stored) => {
                out.extend_from_slice(&stored);
                true
            }
            Err(_) => false,
        }
    }

    fn decompress(&self, stored: &[u8], raw: &mut [u8]) -> bool {
        zstd::bulk::decompress_to_buffer(stored, raw).is_ok_and(|n| n == raw.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_bytes_are_restored() {
        let codec = Zstd::default();
        for raw in [Vec::new(), vec![7; 100_000], (0..9000u32).map(|i| ((i * i) >> 3) as u8).collect()] {
            let mut stored = vec![1, 2, 3];
            assert!(codec.compress(&raw, None, &mut stored));
            assert_eq!(stored[..3], [1, 2, 3], "compress appends");
            let mut back = vec![0xaa; raw.len()];
            assert!(codec.decompress(&stored[3..], &mut back));
            assert_eq!(back, raw);
        }
    }

    #[test]
    fn a_wrong_length_or_a_damaged_stream_is_refused() {
        let codec = Zstd::default();
        let raw = vec![7; 1000];
        let mut stored = Vec::new();
        assert!(codec.compress(&raw, None, &mut stored));
        assert!(!codec.decompress(&stored, &mut [0; 999]));
        assert!(!codec.decompress(&stored, &mut [0; 1001]));
        assert!(!codec.decompress(&stored[..stored.len() - 1], &mut [0; 1000]));
        assert!(!codec.decompress(b"not zstd at all", &mut [0; 1000]));
    }
}
