//! A transaction beside its model: a copy of the contents at its beginning, with its own changes.

use betree::{Cut, DictId, Env, Error, Isolation, Outcome, Savepoint, Transaction};
use std::sync::Arc;

use crate::expiry::has_expired;
use crate::failure::{Failure, wrong};
use crate::model::{Edit, ModelEnv, show, show_pair};

/// A step inside of a transaction.
#[derive(Clone, Debug)]
pub enum InTransaction {
    /// A change of points, or a range delete.
    Edit(Edit),
    /// A clone of what is behind the first prefix to the second.
    Clone(DictId, Vec<u8>, Vec<u8>),
    /// A rename.
    Rename(DictId, Vec<u8>, Vec<u8>),
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
            Part::Range(id, lo, hi) => *id == dict && !lo.is_above(key) && hi.is_above(key),
        }
    }
}

/// A change of a transaction, in the form in which reads are followed back through it.
#[derive(Clone)]
enum Own {
    Edit(Edit),
    Clone(DictId, Vec<u8>, Vec<u8>),
    Rename(DictId, Vec<u8>, Vec<u8>),
}

impl Own {
    /// The same as a batch, which reads its sources first.
    fn batch(&self) -> Vec<Edit> {
        let clone = |dict: &DictId, from: &Vec<u8>, to: &Vec<u8>| {
            Edit::Clone(*dict, from.clone(), to.clone(), Cut::LOW, Cut::HIGH)
        };
        match self {
            Own::Edit(edit) => vec![edit.clone()],
            Own::Clone(dict, from, to) => vec![clone(dict, from, to)],
            Own::Rename(dict, from, to) => {
                let (lo, hi) = (Cut::before(from.clone()), Cut::after(from.clone()));
                vec![Edit::DeleteRange(*dict, lo, hi), clone(dict, from, to)]
            }
        }
    }
}

/// The bounds of a range of keys.
type Range = (Cut, Cut);

/// The range of a prefix.
fn behind(prefix: &[u8]) -> Range {
    (Cut::before(prefix), Cut::after(prefix))
}

/// The parts of `[lo, hi)` outside and inside of another range.
fn split((lo, hi): &Range, (from, to): &Range) -> (Vec<Range>, Option<Range>) {
    let part = |a: &Cut, b: &Cut| Some((a.clone(), b.clone())).filter(|(a, b)| a < b);
    let outside = [part(lo, hi.min(from)), part(lo.max(to), hi)];
    (outside.into_iter().flatten().collect(), part(lo.max(from), hi.min(to)))
}

/// A cut behind one prefix, behind another one.
fn moved(cut: &Cut, from: &[u8], to: &[u8]) -> Cut {
    let bytes = [to, cut.bytes().get(from.len()..).unwrap_or_default()].concat();
    if cut.is_after() { Cut::after(bytes) } else { Cut::before(bytes) }
}

/// What a savepoint keeps.
struct Saved {
    savepoint: Savepoint,
    seen: ModelEnv,
    own: usize,
    writes: usize,
    sources: usize,
}

/// A transaction and its model.
pub struct ModelTransaction {
    transaction: Transaction,
    isolation: Isolation,
    /// The time by which values have expired for it.
    time_ns: i64,
    at_begin: ModelEnv,
    /// The contents with the transaction's changes.
    seen: ModelEnv,
    own: Vec<Own>,
    reads: Vec<Part>,
    writes: Vec<Part>,
    /// The sources of clones.
    sources: Vec<Part>,
    saved: Vec<Saved>,
}

impl ModelTransaction {
    /// Begins a transaction on these contents.
    pub fn begin(
        env: &Arc<Env>,
        isolation: Isolation,
        contents: &ModelEnv,
        time_ns: i64,
    ) -> ModelTransaction {
        ModelTransaction {
            transaction: env.begin(isolation),
            isolation,
            time_ns,
            at_begin: contents.clone(),
            seen: contents.clone(),
            own: Vec::new(),
            reads: Vec::new(),
            writes: Vec::new(),
            sources: Vec::new(),
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
            InTransaction::Clone(dict, from, to) => self.copy(&Own::Clone(*dict, from.clone(), to.clone())),
            InTransaction::Rename(dict, from, to) => self.copy(&Own::Rename(*dict, from.clone(), to.clone())),
            InTransaction::Blind(dict, key, delta) => {
                self.edit(&Edit::Upsert(*dict, key.clone(), delta.clone()), true)
            }
            InTransaction::Get(dict, key) => self.get(*dict, key),
            InTransaction::Scan { dict, lo, hi, pairs, is_backward } => {
                self.scan(*dict, lo, hi, *pairs, *is_backward)
            }
            InTransaction::Save => {
                let savepoint = self.transaction.savepoint();
                let (own, writes, sources) = (self.own.len(), self.writes.len(), self.sources.len());
                self.saved.push(Saved { savepoint, seen: self.seen.clone(), own, writes, sources });
                Ok(())
            }
            InTransaction::RollBack => {
                if let Some(Saved { savepoint, seen, own, writes, sources }) = self.saved.pop() {
                    self.transaction.roll_back(savepoint);
                    self.seen = seen;
                    self.own.truncate(own);
                    self.writes.truncate(writes);
                    self.sources.truncate(sources);
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
        self.own.push(Own::Edit(edit.clone()));
        if !is_blind {
            self.writes.push(part);
        }
        Ok(())
    }

    /// A clone or a rename.
    fn copy(&mut self, own: &Own) -> Result<(), Failure> {
        // Clones of clones double without end.
        const KEYS_MAX: usize = 1000;
        const KEY_BYTES_MAX: usize = 100;
        let (keys, longest) = self.seen.size();
        if keys > KEYS_MAX || longest > KEY_BYTES_MAX {
            return Ok(());
        }
        let (dict, from, to, done) = match own {
            Own::Clone(dict, from, to) => (dict, from, to, self.transaction.clone_range(*dict, from, to)),
            Own::Rename(dict, from, to) => (dict, from, to, self.transaction.rename_range(*dict, from, to)),
            Own::Edit(_) => return Ok(()),
        };
        match done {
            Ok(()) if from == to => return Ok(()),
            Ok(()) => {}
            // Caches are tiny here. Nothing was changed.
            Err(Error::TooLarge { .. } | Error::TooManyClones { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let source = self.parts_of(*dict, behind(from));
        self.sources.extend(source);
        let (lo, hi) = behind(to);
        self.writes.push(Part::Range(*dict, lo, hi));
        if matches!(own, Own::Rename(..)) {
            let (lo, hi) = behind(from);
            self.writes.push(Part::Range(*dict, lo, hi));
        }
        self.seen.commit(&own.batch());
        self.own.push(own.clone());
        Ok(())
    }

    /// The key at the transaction's beginning that says what a key is, with its changes, followed back one by
    /// one. `None`: its changes alone say so.
    fn source_of(&self, dict: DictId, key: &[u8]) -> Option<Vec<u8>> {
        let mut key = key.to_vec();
        for own in self.own.iter().rev() {
            match own {
                Own::Edit(Edit::Put(id, own, _) | Edit::Delete(id, own)) if *id == dict && *own == key => {
                    return None;
                }
                Own::Edit(Edit::DeleteRange(id, lo, hi))
                    if *id == dict && !lo.is_above(&key) && hi.is_above(&key) =>
                {
                    return None;
                }
                Own::Clone(id, from, to) | Own::Rename(id, from, to)
                    if *id == dict && key.starts_with(to) =>
                {
                    key = [from.as_slice(), &key[to.len()..]].concat();
                }
                Own::Rename(id, from, _) if *id == dict && key.starts_with(from) => return None,
                _ => {}
            }
        }
        Some(key)
    }

    /// As [`source_of`](ModelTransaction::source_of) of a range, whose points nobody looks at.
    fn parts_of(&self, dict: DictId, range: Range) -> Vec<Part> {
        let mut parts = vec![range];
        for own in self.own.iter().rev() {
            let (id, from, to) = match own {
                Own::Edit(Edit::DeleteRange(id, lo, hi)) if *id == dict => {
                    let deleted = (lo.clone(), hi.clone());
                    parts = parts.iter().flat_map(|part| split(part, &deleted).0).collect();
                    continue;
                }
                Own::Clone(id, from, to) | Own::Rename(id, from, to) => (id, from, to),
                Own::Edit(_) => continue,
            };
            if *id != dict {
                continue;
            }
            let mut further = Vec::new();
            for part in parts {
                let (outside, inside) = split(&part, &behind(to));
                further.extend(inside.map(|(lo, hi)| (moved(&lo, to, from), moved(&hi, to, from))));
                for part in outside {
                    match own {
                        Own::Rename(..) => further.extend(split(&part, &behind(from)).0),
                        _ => further.push(part),
                    }
                }
            }
            parts = further;
        }
        parts.into_iter().filter(|(lo, hi)| lo < hi).map(|(lo, hi)| Part::Range(dict, lo, hi)).collect()
    }

    fn get(&mut self, dict: DictId, key: &[u8]) -> Result<(), Failure> {
        let found = self.transaction.get(dict, key)?;
        let should = self.seen(dict, key);
        if found.as_ref() != should {
            let value = |value: Option<&Vec<u8>>| value.map_or("absent".into(), |value| show(value));
            let (found, should) = (value(found.as_ref()), value(should));
            return wrong(format!(
                "{:?}: {dict:?}: get {} is {found}, should be {should}",
                self.transaction,
                show(key)
            ));
        }
        if let Some(source) = self.source_of(dict, key) {
            self.reads.push(Part::Key(dict, source));
        }
        self.get_near(dict, key)
    }

    /// Reads a key together with one that is mostly absent.
    fn get_near(&mut self, dict: DictId, key: &[u8]) -> Result<(), Failure> {
        let near = [key, &[0]].concat();
        let keys = [near.as_slice(), key];
        let found = self.transaction.get_many(dict, &keys)?;
        let should = keys.map(|key| self.seen(dict, key).cloned());
        if found != should {
            return wrong(format!("{:?}: {dict:?}: get_many at {} is wrong", self.transaction, show(key)));
        }
        if let Some(source) = self.source_of(dict, &near) {
            self.reads.push(Part::Key(dict, source));
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
            .filter(|(k, v)| is_in(k) && !has_expired(v, self.time_ns))
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
        let read = self.parts_of(dict, (from, to));
        self.reads.extend(read);
        Ok(())
    }

    /// The value of a key that the transaction should see.
    fn seen(&self, dict: DictId, key: &[u8]) -> Option<&Vec<u8>> {
        self.seen.dict(dict).get(key).filter(|value| !has_expired(value, self.time_ns))
    }

    /// The changes that a commit makes of contents, as a batch without clones.
    pub fn changes_of(&self, now: &ModelEnv) -> Vec<Edit> {
        let mut then = now.clone();
        self.own.iter().for_each(|own| then.commit(&own.batch()));
        now.edits_to(&then)
    }

    /// Whether it has changed nothing.
    pub fn is_empty(&self) -> bool {
        self.own.is_empty()
    }

    /// Commits. `true` if the changes were made; `now` is the contents before that.
    ///
    /// # Errors
    /// The engine's; or it committed although a part that it depends on differs from its beginning; or it met
    /// a conflict although nothing differs and nothing was committed since, or one outside of what it depends
    /// on.
    pub fn commit(self, now: &ModelEnv, is_alone: bool) -> Result<bool, Failure> {
        // A rename and its reverse can cancel out, and discard edits made between them: the engine then has
        // nothing to commit.
        let has_ranges = self.own.iter().any(|own| !matches!(own, Own::Edit(_)));
        let changes = match has_ranges {
            true => self.seen != self.at_begin || !self.changes_of(now).is_empty(),
            false => !self.own.is_empty(),
        };
        let mut parts = match self.isolation {
            Isolation::Snapshot => self.writes,
            Isolation::Serializable => self.reads,
        };
        parts.extend(self.sources);
        let (then, now) = (self.at_begin.seen_at(self.time_ns), now.seen_at(self.time_ns));
        let differs = parts.iter().any(|part| part.pairs(&then) != part.pairs(&now));
        match self.transaction.commit()? {
            Outcome::Committed(_) if differs && changes => {
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
