//! What readers of a rotten volume get.

use betree::{Cut, DictId, Error, Unreadable};

use super::Life;
use crate::compare::{ModelCursor, compare_pair, compare_value};
use crate::damage::is_in;
use crate::model::show;
use crate::step::Move;

/// Absent keys are looked for as long as there are no more keys in a dictionary.
const KEYS_MAX: usize = 600;
/// The most keys that are read together.
const TOGETHER_MAX: usize = 20;

impl Life {
    /// Whether an error of a reader is right.
    fn may_be_unread(&self, dict: DictId, key: Option<&[u8]>, error: &Error) -> Result<(), String> {
        let at = key.map(show).unwrap_or_default();
        if !self.names_rot(error) {
            return Err(format!("{dict:?}: {at}: an error without damage: {error}"));
        }
        match key.filter(|key| self.fresh[usize::from(dict.0)].contains(*key)) {
            Some(_) => {
                Err(format!("{dict:?}: {at} was changed after all damage, and cannot be read: {error}"))
            }
            None => Ok(()),
        }
    }

    pub(super) fn get(&mut self, dict: DictId, key: &[u8]) -> Result<(), String> {
        match self.env()?.get(dict, key) {
            Ok(found) => compare_value(dict, key, found, self.history.latest().dict(dict).get(key)),
            Err(error) => {
                self.reached.unread += 1;
                self.may_be_unread(dict, Some(key), &error)
            }
        }
    }

    pub(super) fn walk(&mut self, dict: DictId, lo: &Cut, hi: &Cut, moves: &[Move]) -> Result<(), String> {
        let env = self.env.as_ref().ok_or("the volume is not open")?;
        let map = self.history.latest().dict(dict);
        let mut cursor = env.cursor(dict, lo.clone(), hi.clone());
        let mut model = ModelCursor { lo: lo.clone(), hi: hi.clone(), at: lo.clone() };
        for (index, step) in moves.iter().enumerate() {
            let (found, should) = match step {
                Move::Next => (cursor.next(), model.next(map)),
                Move::Prev => (cursor.prev(), model.prev(map)),
                Move::Seek(to) => {
                    model.seek(to);
                    cursor.seek(to);
                    continue;
                }
                Move::Commit(_) => continue,
            };
            match found {
                Ok(pair) => compare_pair(pair, should).map_err(|what| {
                    format!("{dict:?}: cursor over [{lo:?}, {hi:?}), move {index}: {what}")
                })?,
                Err(error) => return self.may_be_unread(dict, None, &error),
            }
        }
        Ok(())
    }

    /// Compares everything: each key by a query and among others, and scans in both directions.
    pub(super) fn compare(&mut self) -> Result<(), String> {
        for dict in (0..self.setup.geometry.dicts).map(DictId) {
            let all = self.history.latest().dict(dict).keys().cloned();
            let known = &mut self.keys[usize::from(dict.0)];
            known.extend(all.take(KEYS_MAX.saturating_sub(known.len())));
            let keys: Vec<Vec<u8>> = self.keys[usize::from(dict.0)].iter().cloned().collect();
            keys.iter().try_for_each(|key| self.get(dict, key))?;
            self.compare_fresh(dict)?;
            self.compare_scan_past(dict)?;
            let map_len = self.history.latest().dict(dict).len();
            let ends = [Move::Next, Move::Prev];
            for (from, step) in [Cut::LOW, Cut::HIGH].into_iter().zip(ends) {
                let moves = [vec![Move::Seek(from)], vec![step; map_len + 1]].concat();
                self.walk(dict, &Cut::LOW, &Cut::HIGH, &moves)?;
            }
        }
        Ok(())
    }

    /// What was changed after all damage is read, together too.
    fn compare_fresh(&mut self, dict: DictId) -> Result<(), String> {
        let fresh = &self.fresh[usize::from(dict.0)];
        let every = fresh.len() / TOGETHER_MAX + 1;
        let fresh: Vec<&Vec<u8>> = fresh.iter().step_by(every).collect();
        let found = self.env()?.get_many(dict, &fresh);
        let found = found.map_err(|error| format!("{dict:?}: keys changed after all damage: {error}"))?;
        if self.disk.rotten_blocks() > 0 {
            self.reached.over_lost += fresh.len();
        }
        let map = self.history.latest().dict(dict);
        fresh.iter().zip(found).try_for_each(|(key, found)| compare_value(dict, key, found, map.get(*key)))
    }

    /// A scan past damage has all pairs but those in what it passes.
    fn compare_scan_past(&self, dict: DictId) -> Result<(), String> {
        let mut passed: Vec<Unreadable> = Vec::new();
        let mut cursor = self.env()?.cursor(dict, Cut::LOW, Cut::HIGH);
        let mut should = self.history.latest().dict(dict).iter().peekable();
        let mut missed: Vec<&Vec<u8>> = Vec::new();
        while let Some((key, value)) = cursor.next_past(&mut |unreadable| passed.push(unreadable)) {
            while let Some((before, _)) = should.next_if(|(next, _)| next.as_slice() < key) {
                missed.push(before);
            }
            compare_pair(
                Some((key, value)),
                should.next().map(|(key, value)| (key.as_slice(), value.as_slice())),
            )
            .map_err(|what| format!("{dict:?}: a scan past damage {what}"))?;
        }
        missed.extend(should.map(|(key, _)| key));
        for unreadable in &passed {
            unreadable.errors.iter().try_for_each(|error| self.may_be_unread(dict, None, error))?;
        }
        for key in missed {
            let is_passed = passed.iter().any(|range| is_in(key, &[], &range.lo, &range.hi));
            if !is_passed || self.fresh[usize::from(dict.0)].contains(key) {
                return Err(format!("{dict:?}: a scan past damage misses {}: {passed:?}", show(key)));
            }
        }
        Ok(())
    }

    /// Each key has its value, or a repair has noted it as lost. Returns how many are lost.
    pub(super) fn compare_repaired(&self) -> Result<usize, String> {
        let mut lost = 0;
        for dict in (0..self.setup.geometry.dicts).map(DictId) {
            let map = self.history.latest().dict(dict);
            for key in &self.keys[usize::from(dict.0)] {
                match self.env()?.get(dict, key) {
                    Ok(found) => compare_value(dict, key, found, map.get(key))?,
                    Err(Error::KnownDamage { .. }) if !self.fresh[usize::from(dict.0)].contains(key) => {
                        lost += 1
                    }
                    Err(error) => return Err(format!("{dict:?}: {}: {error}", show(key))),
                }
            }
        }
        Ok(lost)
    }
}
