//! Compactions as steps: a range, and what others do meanwhile.

use betree::{Cut, DictId};

use super::{Generator, Step};
use crate::model::Edit;

/// A compaction.
#[derive(Clone, Debug)]
pub struct Compaction {
    /// The dictionary.
    pub dict: DictId,
    /// The lower bound.
    pub lo: Cut,
    /// The upper bound.
    pub hi: Cut,
    /// Steps that are taken before leaves are put in place, by the number of times that this has been so.
    pub meanwhile: Vec<(usize, Step)>,
}

impl Generator {
    /// A compaction of all or of a part, often with changes of its keys by others.
    pub(super) fn compact(&mut self) -> Step {
        let (lo, hi) =
            if self.rng.percent(40) { (Cut::LOW, Cut::HIGH) } else { self.universe.range(&mut self.rng) };
        let dict = self.dict();
        let others = if self.rng.percent(60) { self.rng.between(1, 4) } else { 0 };
        let meanwhile = (0..others).map(|_| (self.rng.below(4), self.beside_compaction(dict))).collect();
        Step::Compact(Compaction { dict, lo, hi, meanwhile })
    }

    fn beside_compaction(&mut self, dict: DictId) -> Step {
        match self.rng.below(100) {
            0..40 => Step::Commit(self.batch()),
            40..70 => Step::Commit(Vec::from([Edit::Put(dict, self.key(), self.value())])),
            70..80 => Step::BeginView,
            80..90 => Step::Pump(self.rng.between(1, 8)),
            _ => Step::Checkpoint,
        }
    }
}
