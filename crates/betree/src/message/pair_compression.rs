//! What pairs ask for of compression.

/// The most that a zstd level can be, as in zstd(1) without `--ultra`.
const ZSTD_LEVEL_MAX: u8 = 19;
/// The code before that of zstd's level 1.
const ZSTD: u8 = 2;

/// The compression that a change asks for, for the pair that it makes. The pair takes it along on its way
/// down, and a piece of a node is compressed as most of its bytes ask. Of several changes of a key the newest
/// decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PairCompression {
    /// That of the environment ([`Options::compression`](crate::Options::compression)).
    #[default]
    Usual,
    /// None.
    None,
    /// LZ4.
    Lz4,
    /// zstd of a level; LZ4 where there is no codec for it.
    Zstd(ZstdLevel),
}

/// A level of zstd: 1 is fast, 19 compresses well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ZstdLevel(u8);

impl ZstdLevel {
    /// Level 3, the default of zstd.
    pub const DEFAULT: ZstdLevel = ZstdLevel(3);

    /// The level of a number; `None` if it is not in 1 to 19.
    pub fn new(level: u8) -> Option<ZstdLevel> {
        (1..=ZSTD_LEVEL_MAX).contains(&level).then_some(ZstdLevel(level))
    }

    /// Its number.
    pub fn get(self) -> u8 {
        self.0
    }
}

impl PairCompression {
    /// Codes are below this, and fit into six bits.
    pub(crate) const CODES_END: u8 = ZSTD + ZSTD_LEVEL_MAX + 1;

    /// The number under which it is stored: 0 for the usual one.
    pub fn code(self) -> u8 {
        match self {
            PairCompression::Usual => 0,
            PairCompression::None => 1,
            PairCompression::Lz4 => 2,
            PairCompression::Zstd(level) => ZSTD + level.get(),
        }
    }

    /// The compression with this code.
    pub fn from_code(code: u8) -> Option<PairCompression> {
        match code {
            0 => Some(PairCompression::Usual),
            1 => Some(PairCompression::None),
            2 => Some(PairCompression::Lz4),
            code => ZstdLevel::new(code - ZSTD).map(PairCompression::Zstd),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_come_back_and_others_are_none() {
        let known: alloc::vec::Vec<_> = (0..=u8::MAX).filter_map(PairCompression::from_code).collect();
        assert_eq!(known.len(), usize::from(PairCompression::CODES_END));
        for (code, known) in (0..).zip(&known) {
            assert_eq!((known.code(), PairCompression::from_code(code)), (code, Some(*known)));
        }
        const { assert!(PairCompression::CODES_END <= 64) };
        assert_eq!(PairCompression::from_code(PairCompression::CODES_END), None);
        assert_eq!((ZstdLevel::new(0), ZstdLevel::new(20)), (None, None));
    }
}
