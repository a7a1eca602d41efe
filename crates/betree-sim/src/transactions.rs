//! A transaction beside its model: a copy of the contents at its beginning, with its own changes.

use betree::{Cut, DictId, Env, Error, Isolation, Outcome, Savepoint, Transaction};
use std::sync::Arc;

use crate::failure::{Failure, wrong};
use crate::model::{Edit, ModelEnv, show, show_pair};

/// A step inside of a transaction.
#[derive(Clone, Debug)]
pub enum InTransaction {
    /// A change; clones are none of a transaction's.
    Edit(Edit),
    /// An upsert that depends on nothing that was read.
    Blind(DictId, Vec<u8>, Vec<u8>),
    /// Reads one key.
    Get(DictId, Vec<u8>),
    /// Reads a number of pairs from an end of a range on.
    Scan {
        /// The dictionary.
        dict: DictId,
        /// The range's beginning.
        lo: Cut,
        /// Its end.
        hi: Cut,
        /// The most pairs that are read.
        pairs: usize,
        /// Whether from the end on.
        is_backward: bool,
    },
    /// Makes a savepoint.
    Save,
    /// Returns to the last savepoint.
    RollBack,
}

/// A part of a dictionary that a transaction depends on.
enum Part {
    Key(DictId, Vec<u8>),
    Range(DictId, Cut, Cut),
}

impl Part {
    fn pairs(&self, contents: &ModelEnv) -> Vec<(Vec<u8>, Vec<u8>)> {
        let owned = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
        match self {
            Part::Key(dict, key) => contents.dict(*dict).get_key_value(key).map(owned).into_iter().collect(),
            Part::Range(dict, lo, hi) => {
                let all = contents.dict(*dict).iter();
                all.filter(|(key, _)| !lo.is_above(key) && hi.is_above(key)).map(owned).collect()
            }
        }
    }

    fn holds(&self, dict: DictId, key: &[u8]) -> bool {
        match self {
            Part::Key(id, own) => *id == dict && own == key,
            // A conflict of a range names the place where it begins.
            Part::Range(id, lo, hi) => {
                *id == dict && (!lo.is_above(key) || lo.bytes() == key) && hi.is_above(key)
            }
        }
    }
}

/// What a savepoint keeps.
struct Saved {
    savepoint: Savepoint,
    seen: ModelEnv,
    edits: usize,
    writes: usize,
}

/// A transaction and its model.
pub struct ModelTransaction {
    transaction: Transaction,
    isolation: Isolation,
    at_begin: ModelEnv,
    /// The contents with the transaction's changes.
    seen: ModelEnv,
    edits: Vec<Edit>,
    reads: Vec<Part>,
    writes: Vec<Part>,
    saved: Vec<Saved>,
}

impl ModelTransaction {
    /// Begins a transaction on these contents.
    pub fn begin(env: &Arc<Env>, isolation: Isolation, contents: &ModelEnv) -> ModelTransaction {
        ModelTransaction {
            transaction: env.begin(isolation),
            isolation,
            at_begin: contents.clone(),
            seen: contents.clone(),
            edits: Vec::new(),
            reads: Vec::new(),
            writes: Vec::new(),
            saved: Vec::new(),
        }
    }

    /// Takes a step.
    ///
    /// # Errors
    /// The engine's, or the answer differs from the model's.
    pub fn step(&mut self, step: &InTransaction) -> Result<(), Failure> {
        match step {
            InTransaction::Edit(edit) => self.edit(edit, false),
            InTransaction::Blind(dict, key, delta) => {
                self.edit(&Edit::Upsert(*dict, key.clone(), delta.clone()), true)
            }
            InTransaction::Get(dict, key) => self.get(*dict, key),
            InTransaction::Scan { dict, lo, hi, pairs, is_backward } => {
                self.scan(*dict, lo, hi, *pairs, *is_backward)
            }
            InTransaction::Save => {
                let savepoint = self.transaction.savepoint();
                let (edits, writes) = (self.edits.len(), self.writes.len());
                self.saved.push(Saved { savepoint, seen: self.seen.clone(), edits, writes });
                Ok(())
            }
            InTransaction::RollBack => {
                if let Some(Saved { savepoint, seen, edits, writes }) = self.saved.pop() {
                    self.transaction.roll_back(savepoint);
                    self.seen = seen;
                    self.edits.truncate(edits);
                    self.writes.truncate(writes);
                }
                Ok(())
            }
        }
    }

    fn edit(&mut self, edit: &Edit, is_blind: bool) -> Result<(), Failure> {
        let transaction = &mut self.transaction;
        let (done, part) = match edit {
            Edit::Put(dict, key, value) => {
                (transaction.put(*dict, key, value), Part::Key(*dict, key.clone()))
            }
            Edit::Delete(dict, key) => (transaction.delete(*dict, key), Part::Key(*dict, key.clone())),
            Edit::Upsert(dict, key, delta) if is_blind => {
                (transaction.upsert_blind(*dict, key, delta), Part::Key(*dict, key.clone()))
            }
            Edit::Upsert(dict, key, delta) => {
                (transaction.upsert(*dict, key, delta), Part::Key(*dict, key.clone()))
            }
            Edit::DeleteRange(dict, lo, hi) => {
                (transaction.delete_range(*dict, lo, hi), Part::Range(*dict, lo.clone(), hi.clone()))
            }
            Edit::Clone(..) => return Ok(()),
        };
        match done {
            Ok(()) => {}
            // Caches are tiny here. Nothing was changed.
            Err(Error::TooLarge { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        self.seen.commit(std::slice::from_ref(edit));
        self.edits.push(edit.clone());
        if !is_blind {
            self.writes.push(part);
        }
        Ok(())
    }

    /// Whether the transaction's changes alone say what a key is.
    fn is_own(&self, dict: DictId, key: &[u8]) -> bool {
        self.edits.iter().any(|edit| match edit {
            Edit::Put(id, own, _) | Edit::Delete(id, own) => *id == dict && own == key,
            Edit::DeleteRange(id, lo, hi) => *id == dict && !lo.is_above(key) && hi.is_above(key),
            _ => false,
        })
    }

    fn get(&mut self, dict: DictId, key: &[u8]) -> Result<(), Failure> {
        let found = self.transaction.get(dict, key)?;
        let should = self.seen.dict(dict).get(key);
        if found.as_ref() != should {
            let value = |value: Option<&Vec<u8>>| value.map_or("absent".into(), |value| show(value));
            let (found, should) = (value(found.as_ref()), value(should));
            return wrong(format!(
                "{:?}: {dict:?}: get {} is {found}, should be {should}",
                self.transaction,
                show(key)
            ));
        }
        if !self.is_own(dict, key) {
            self.reads.push(Part::Key(dict, key.to_vec()));
        }
        Ok(())
    }

    fn scan(
        &mut self,
        dict: DictId,
        lo: &Cut,
        hi: &Cut,
        pairs: usize,
        is_backward: bool,
    ) -> Result<(), Failure> {
        let is_in = |key: &[u8]| !lo.is_above(key) && hi.is_above(key);
        let mut should: Vec<(&[u8], &[u8])> = self
            .seen
            .dict(dict)
            .iter()
            .map(|(k, v)| (k.as_slice(), v.as_slice()))
            .filter(|(k, _)| is_in(k))
            .collect();
        if is_backward {
            should.reverse();
        }
        let mut cursor = self.transaction.cursor(dict, lo.clone(), hi.clone());
        if is_backward {
            cursor.seek(hi);
        }
        let mut passed = if is_backward { hi.clone() } else { lo.clone() };
        for index in 0..pairs {
            let found = if is_backward { cursor.prev()? } else { cursor.next()? };
            let wanted = should.get(index).copied();
            if found != wanted {
                let (found, wanted) = (show_pair(found), show_pair(wanted));
                return wrong(format!("{dict:?}: a scan of a transaction gives {found}, should be {wanted}"));
            }
            passed = match (found, is_backward) {
                (Some((key, _)), false) => Cut::just_after(key),
                (Some((key, _)), true) => Cut::before(key),
                (None, false) => hi.clone(),
                (None, true) => lo.clone(),
            };
            if found.is_none() {
                break;
            }
        }
        drop(cursor);
        let (from, to) = if is_backward { (passed, hi.clone()) } else { (lo.clone(), passed) };
        if from < to {
            self.reads.push(Part::Range(dict, from, to));
        }
        Ok(())
    }

    /// The changes that a commit makes.
    pub fn edits(&self) -> &[Edit] {
        &self.edits
    }

    /// Commits. `true` if the changes were made; `now` is the contents before that.
    ///
    /// # Errors
    /// The engine's; or it committed although a part that it depends on differs from its beginning; or it met
    /// a conflict although nothing differs and nothing was committed since, or one outside of what it depends
    /// on.
    pub fn commit(self, now: &ModelEnv, is_alone: bool) -> Result<bool, Failure> {
        let parts = match self.isolation {
            Isolation::Snapshot => self.writes,
            Isolation::Serializable => self.reads,
        };
        let differs = parts.iter().any(|part| part.pairs(&self.at_begin) != part.pairs(now));
        let is_empty = self.edits.is_empty();
        match self.transaction.commit()? {
            Outcome::Committed(_) if differs && !is_empty => {
                wrong(format!("a transaction of {:?} committed over a change", self.isolation))
            }
            Outcome::Committed(_) => Ok(true),
            Outcome::Conflict(conflict) if is_alone => wrong(format!("{conflict:?} with nobody")),
            Outcome::Conflict(conflict) => {
                match parts.iter().any(|part| part.holds(conflict.dict, &conflict.key)) {
                    true => Ok(false),
                    false => wrong(format!("{conflict:?} is outside of what the transaction depends on")),
                }
            }
        }
    }
}
