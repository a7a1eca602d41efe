//! Draws of properties and quotas.

use betrfs::{DataCompression, PropertyChange, QuotaLimits, SetProperties};
use seeded::Rng;

use super::Draw;
use crate::at::At;
use crate::model::Spot;
use crate::op::Op;

impl Draw {
    pub(super) fn set_properties(&mut self) -> Op {
        fn change<T: Copy>(rng: &mut Rng, values: [T; 2]) -> PropertyChange<T> {
            match rng.below(4) {
                0 => PropertyChange::Keep,
                1 => PropertyChange::Inherit,
                _ => PropertyChange::Set(*rng.pick(&values)),
            }
        }
        let at = self.dir();
        let noatime = change(&mut self.rng, [true, false]);
        let compression = change(&mut self.rng, [DataCompression::None, DataCompression::Lz4]);
        Op::SetProperties { at, set: SetProperties { noatime, compression } }
    }

    /// Limits mostly near what is used.
    pub(super) fn set_quota(&mut self) -> Op {
        let at = self.dir();
        if self.rng.percent(25) {
            return Op::SetQuota { at, limits: None };
        }
        let used = self.used(&at);
        let bytes = match self.rng.below(4) {
            0 => None,
            1 => Some(self.rng.below_u64(100_000)),
            _ => Some(used.0 + self.rng.below_u64(20_000)),
        };
        let objects = match self.rng.below(4) {
            0 | 1 => None,
            2 => Some(self.rng.below_u64(20)),
            _ => Some(used.1 + self.rng.below_u64(6)),
        };
        Op::SetQuota { at, limits: Some(QuotaLimits { bytes, objects }) }
    }

    fn used(&self, at: &At) -> (u64, u64) {
        match self.state.resolve(at) {
            Ok(Spot::Object(id)) => {
                let used = self.state.used(id);
                (used.bytes, used.objects)
            }
            _ => (0, 0),
        }
    }
}
