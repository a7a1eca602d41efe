//! The quota of a directory: its limits are a tag of its record, and its use is a value beside it in `data`,
//! changed by the differences of each batch. So a crash leaves a use that fits, and renames, clones and
//! snapshots of directories above take it along.
//!
//! ```text
//! limits: bytes u64 | objects u64, all ones for any number
//! use:    bytes i64 | objects i64
//! ```

use alloc::vec::Vec;
use core::ops::{Add, Neg, Sub};

use crate::schema::Record;
use crate::types::{QuotaLimits, QuotaUse};

/// The number that stands for no limit.
const ANY: u64 = u64::MAX;

impl QuotaLimits {
    /// Its bytes in a record's tail.
    pub(super) fn encode(self) -> [u8; 16] {
        pair(self.bytes.unwrap_or(ANY), self.objects.unwrap_or(ANY))
    }

    /// Decodes them.
    pub(super) fn decode(bytes: &[u8]) -> Option<QuotaLimits> {
        let (bytes, objects) = numbers(bytes)?;
        let limit = |number| (number != ANY).then_some(number);
        Some(QuotaLimits { bytes: limit(bytes), objects: limit(objects) })
    }
}

/// An amount of what quotas count, or the difference of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub bytes: i64,
    pub objects: i64,
}

impl Amount {
    /// One object without bytes.
    pub const OBJECT: Amount = Amount { bytes: 0, objects: 1 };

    /// What an object with this record counts.
    pub fn of(record: &Record) -> Amount {
        Amount { bytes: record.units_512().saturating_mul(512).cast_signed(), ..Amount::OBJECT }
    }

    /// Whether it is nothing.
    pub fn is_zero(self) -> bool {
        self == Amount::default()
    }

    /// As callers see it. An amount below nothing, which only damage leaves, is shown as nothing.
    pub fn shown(self) -> QuotaUse {
        let shown = |number: i64| number.max(0).cast_unsigned();
        QuotaUse { bytes: shown(self.bytes), objects: shown(self.objects) }
    }

    /// Its bytes: as the value of a use, and as a difference.
    pub fn encode(self) -> Vec<u8> {
        pair(self.bytes.cast_unsigned(), self.objects.cast_unsigned()).to_vec()
    }

    /// Decodes them; `None` if there are not as many.
    pub fn decode(bytes: &[u8]) -> Option<Amount> {
        let (bytes, objects) = numbers(bytes)?;
        Some(Amount { bytes: bytes.cast_signed(), objects: objects.cast_signed() })
    }
}

// Differences wrap, so that their order does not matter.

impl Add for Amount {
    type Output = Amount;

    fn add(self, other: Amount) -> Amount {
        Amount {
            bytes: self.bytes.wrapping_add(other.bytes),
            objects: self.objects.wrapping_add(other.objects),
        }
    }
}

impl Neg for Amount {
    type Output = Amount;

    fn neg(self) -> Amount {
        Amount { bytes: self.bytes.wrapping_neg(), objects: self.objects.wrapping_neg() }
    }
}

impl Sub for Amount {
    type Output = Amount;

    fn sub(self, other: Amount) -> Amount {
        self + -other
    }
}

fn pair(a: u64, b: u64) -> [u8; 16] {
    (u128::from(a) | u128::from(b) << 64).to_le_bytes()
}

fn numbers(bytes: &[u8]) -> Option<(u64, u64)> {
    let both = u128::from_le_bytes(bytes.try_into().ok()?);
    Some((both as u64, (both >> 64) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_uses_come_back_and_other_lengths_are_refused() {
        for limits in [
            QuotaLimits::default(),
            QuotaLimits { bytes: Some(7), objects: None },
            QuotaLimits { bytes: Some(0), objects: Some(1 << 40) },
        ] {
            assert_eq!(QuotaLimits::decode(&limits.encode()), Some(limits));
        }
        let used = Amount { bytes: -5, objects: 1 << 40 };
        assert_eq!(Amount::decode(&used.encode()), Some(used));
        assert_eq!(used.shown(), QuotaUse { bytes: 0, objects: 1 << 40 });
        assert_eq!((Amount::decode(&[0; 15]), QuotaLimits::decode(&[0; 17])), (None, None));
    }
}
