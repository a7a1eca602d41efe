//! Ingests as steps: pairs, and what others do while they come.

use betree::DictId;

use super::{Generator, Step};

/// The most pairs of an ingest.
const PAIRS_MAX: usize = 60;

/// An ingest.
#[derive(Clone, Debug)]
pub struct Ingest {
    /// The dictionary.
    pub dict: DictId,
    /// The pairs; if they are not in order, it is to be refused.
    pub pairs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Steps that are taken before pairs, by the number of the pair.
    pub meanwhile: Vec<(usize, Step)>,
    /// The number of the pair in place of which the caller fails.
    pub fails_at: Option<usize>,
}

impl Ingest {
    /// The number of the first pair that does not come behind the one before it.
    pub fn disorder(&self) -> Option<usize> {
        self.pairs.windows(2).position(|pair| pair[0].0 >= pair[1].0).map(|at| at + 1)
    }
}

impl Generator {
    /// An ingest: over the keys that others have, behind one prefix, or where nobody has any.
    pub(super) fn ingest(&mut self) -> Step {
        let count = self.rng.between(1, PAIRS_MAX);
        let prefix = match self.rng.below(100) {
            0..40 => Vec::new(),
            40..60 => self.universe.prefix(&mut self.rng),
            _ => {
                self.values += 1;
                [&b"\xfe"[..], &self.values.to_be_bytes()].concat()
            }
        };
        let mut keys: Vec<Vec<u8>> = (0..count).map(|_| [prefix.clone(), self.key()].concat()).collect();
        keys.sort();
        keys.dedup();
        let mut pairs: Vec<_> = keys.into_iter().map(|key| (key, self.value())).collect();
        if self.rng.percent(5) {
            let doubled = self.rng.below(pairs.len());
            pairs.insert(doubled, pairs[doubled].clone());
        }
        let fails_at = self.rng.percent(5).then(|| self.rng.below(pairs.len()));
        let others = if self.rng.percent(60) { self.rng.between(1, 3) } else { 0 };
        let meanwhile = (0..others).map(|_| (self.rng.below(pairs.len()), self.of_another(&pairs))).collect();
        Step::Ingest(Ingest { dict: self.dict(), pairs, meanwhile, fails_at })
    }

    /// What somebody else does during an ingest; often to one of its keys.
    fn of_another(&mut self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Step {
        match self.rng.below(100) {
            0..40 => Step::Commit(self.batch()),
            40..75 => {
                // Behind a key of the ingest: mostly between two of them.
                let key = [pairs[self.rng.below(pairs.len())].0.as_slice(), b"\0"].concat();
                Step::Commit(Vec::from([crate::model::Edit::Put(self.dict(), key, self.value())]))
            }
            75..90 => Step::Pump(self.rng.between(1, 8)),
            _ => Step::Checkpoint,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mix, history_of_seed};

    #[test]
    fn ingests_come_in_order_out_of_order_and_with_others_meanwhile() {
        let steps = (0..40).flat_map(|seed| history_of_seed(seed, 100, Mix::INGESTS).1);
        let ingests: Vec<Ingest> = steps
            .filter_map(|step| match step {
                Step::Ingest(ingest) => Some(ingest),
                _ => None,
            })
            .collect();
        let count = |wanted: fn(&Ingest) -> bool| ingests.iter().filter(|ingest| wanted(ingest)).count();
        assert!(count(|_| true) > 200);
        assert!(count(|ingest| ingest.disorder().is_some()) > 5);
        assert!(count(|ingest| ingest.fails_at.is_some()) > 5);
        assert!(count(|ingest| !ingest.meanwhile.is_empty()) > 80);
    }
}
