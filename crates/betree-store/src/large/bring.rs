//! What others have changed since a large transaction began is brought into its clones.

use betree::{Batch, Difference};

use super::{Branch, LargeTransaction};
use crate::error::Result;
use crate::keys::{self, ENGINE_DICT, Meaning};
use crate::shared::Shared;
use crate::transaction::{Conflict, Isolation};

/// More than a change takes in a batch beside its key and value, in bytes.
const CHANGE_BYTES: usize = 64;

/// What became of it.
pub(super) enum Brought {
    /// So many keys were brought in.
    Keys(u64),
    Conflict(Conflict),
}

/// Changes of clones that nobody else sees, in batches.
struct Batches<'s> {
    shared: &'s Shared,
    batch: Batch,
}

impl Batches<'_> {
    fn change(&mut self, number: u32, rest: &[u8], value: Option<&[u8]>) -> Result<()> {
        let key = [&number.to_be_bytes(), rest].concat();
        let bytes = key.len() + value.map_or(0, <[u8]>::len) + CHANGE_BYTES;
        if self.batch.bytes() + bytes > self.shared.env.batch_bytes_max() {
            self.commit()?;
        }
        match value {
            Some(value) => self.batch.put(ENGINE_DICT, &key, value),
            None => self.batch.delete(ENGINE_DICT, &key),
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        self.shared.commit(&std::mem::take(&mut self.batch))
    }
}

impl LargeTransaction {
    /// Brings what others have changed into bases and works, which the caller has alone.
    pub(super) fn bring(&self, branches: &[Branch]) -> Result<Brought> {
        let mut brought = 0;
        for branch in branches {
            match self.bring_into(branch)? {
                Brought::Keys(keys) => brought += keys,
                conflict @ Brought::Conflict(_) => return Ok(conflict),
            }
        }
        Ok(Brought::Keys(brought))
    }

    fn bring_into(&self, Branch { origin, base, work }: &Branch) -> Result<Brought> {
        let shared = &*self.shared;
        let view = shared.env.view();
        let wholes = work.wholes();
        let mut batches = Batches { shared, batch: Batch::new() };
        let mut brought = 0;
        let mut differences =
            view.differences(ENGINE_DICT, &base.to_be_bytes(), &origin.number.to_be_bytes());
        while let Some(difference) = differences.next().map_err(|error| shared.error(error))? {
            let Difference { rest, first: then, second: now, .. } = difference;
            let own = view.get(ENGINE_DICT, &[&work.number.to_be_bytes()[..], &rest].concat());
            let is_own = own.map_err(|error| shared.error(error))? != then;
            let key = match keys::meaning(&[&origin.number.to_be_bytes()[..], &rest].concat()) {
                Meaning::Pair(_, key) => key,
                Meaning::Name(_) | Meaning::Dict(_) => Vec::new(),
            };
            let is_in_whole = || wholes.iter().any(|keys| keys.hold(&key));
            if self.isolation == Isolation::Serializable || is_own || is_in_whole() {
                let (dict, by) = (origin.name(), view.last_change());
                return Ok(Brought::Conflict(Conflict { dict, key: Some(key.into()), by }));
            }
            for number in [*base, work.number] {
                batches.change(number, &rest, now.as_deref())?;
            }
            brought += 1;
        }
        batches.commit()?;
        if origin.has_parts() {
            work.set_has_parts();
        }
        Ok(Brought::Keys(brought))
    }
}
