//! Compares answers of an environment with those that its model should give.

use betree::{Cut, DictId, Error};

use crate::failure::{Failure, wrong};
use crate::model::{Map, ModelEnv, show, show_pair};

/// How many pairs are read at once, beside the key of a step.
const KEYS_AT_ONCE: usize = 20;

/// Compares the value of a key.
///
/// # Errors
/// A sentence about both.
pub(crate) fn compare_value(
    dict: DictId,
    key: &[u8],
    is: Option<Vec<u8>>,
    should: Option<&Vec<u8>>,
) -> Result<(), String> {
    if is.as_ref() == should {
        return Ok(());
    }
    let value = |value: Option<&Vec<u8>>| value.map_or("absent".into(), |value| show(value));
    Err(format!("{dict:?}: get {} gives {}, should be {}", show(key), value(is.as_ref()), value(should)))
}

/// Reads a key, absent neighbours and pairs behind it at once, out of order and one of them twice, and
/// compares the values.
pub(crate) fn compare_many(
    should: &ModelEnv,
    dict: DictId,
    key: &[u8],
    get_many: impl FnOnce(&[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, Error>,
) -> Result<(), Failure> {
    let map = should.dict(dict);
    let every = map.len() / KEYS_AT_ONCE + 1;
    let mut keys: Vec<Vec<u8>> =
        map.range(key.to_vec()..).map(|(key, _)| key.clone()).step_by(every).collect();
    keys.extend([[key, &[0]].concat(), key.to_vec(), [key, &[0xff]].concat(), key.to_vec()]);
    keys.reverse();
    let found = get_many(&keys)?;
    if found.len() != keys.len() {
        return wrong(format!("{} values for {} keys", found.len(), keys.len()));
    }
    keys.iter().zip(found).try_for_each(|(key, found)| {
        let compared = compare_value(dict, key, found, map.get(key));
        compared.map_err(|error| Failure::Wrong(format!("of several keys: {error}")))
    })
}

/// Compares the pair of a cursor.
///
/// # Errors
/// A sentence about both.
pub(crate) fn compare_pair(is: Option<(&[u8], &[u8])>, should: Option<(&[u8], &[u8])>) -> Result<(), String> {
    if is == should {
        return Ok(());
    }
    Err(format!("gives {}, should be {}", show_pair(is), show_pair(should)))
}

/// The model of a cursor.
pub(crate) struct ModelCursor {
    pub lo: Cut,
    pub hi: Cut,
    pub at: Cut,
}

impl ModelCursor {
    pub fn seek(&mut self, to: &Cut) {
        // An empty range has no inside; any place in it will do.
        self.at = to.clone().min(self.hi.clone()).max(self.lo.clone());
    }

    pub fn next<'m>(&mut self, map: &'m Map) -> Option<(&'m [u8], &'m [u8])> {
        let found = map
            .range(self.at.bytes().to_vec()..)
            .find(|(key, _)| !self.at.is_above(key))
            .filter(|(key, _)| self.hi.is_above(key));
        let (key, value) = found?;
        self.at = Cut::just_after(key);
        Some((key, value))
    }

    pub fn prev<'m>(&mut self, map: &'m Map) -> Option<(&'m [u8], &'m [u8])> {
        let found = map
            .iter()
            .rev()
            .find(|(key, _)| self.at.is_above(key))
            .filter(|(key, _)| !self.lo.is_above(key) && self.hi.is_above(key));
        let (key, value) = found?;
        self.at = Cut::before(key.as_slice());
        Some((key, value))
    }
}
