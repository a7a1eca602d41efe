//! Keys whose values are decided by changes after all damage: these are read whatever is lost below.

use std::collections::BTreeSet;

use super::Life;
use crate::damage::is_in;
use crate::history::History;
use crate::model::Edit;

impl Life {
    pub(super) fn note_keys(&mut self, edits: &[Edit]) {
        for edit in edits {
            if let Edit::Put(dict, key, _) | Edit::Delete(dict, key) | Edit::Upsert(dict, key, _) = edit {
                self.keys[usize::from(dict.0)].insert(key.clone());
            }
        }
    }

    /// Notes what is decided by edits that come before those of the history's latest state. Clones are
    /// decided as their sources were.
    pub(super) fn freshen(&mut self, edits: &[Edit]) {
        let mut clones = Vec::new();
        for edit in edits {
            if let Edit::Clone(dict, from, to, lo, hi) = edit
                && lo < hi
                && from != to
            {
                let of_source = self.fresh[usize::from(dict.0)].iter();
                let of_source = of_source.filter(|key| is_in(key, from, lo, hi));
                let found: Vec<Vec<u8>> =
                    of_source.map(|key| [to.as_slice(), &key[from.len()..]].concat()).collect();
                clones.push((*dict, to, lo, hi, found));
            }
        }
        let delete =
            |fresh: &mut BTreeSet<Vec<u8>>, keys: &BTreeSet<Vec<u8>>, history: &History, dict, lo, hi| {
                let all = keys.iter().chain(history.latest().dict(dict).keys());
                let gone: Vec<Vec<u8>> = all.filter(|key| is_in(key, &[], lo, hi)).cloned().collect();
                fresh.extend(gone);
            };
        let has_clones = !clones.is_empty();
        if has_clones {
            for edit in edits {
                if let Edit::DeleteRange(dict, lo, hi) = edit {
                    let at = usize::from(dict.0);
                    delete(&mut self.fresh[at], &self.keys[at], &self.history, *dict, lo, hi);
                }
            }
        }
        for (dict, to, lo, hi, found) in clones {
            let fresh = &mut self.fresh[usize::from(dict.0)];
            fresh.retain(|key| !is_in(key, to, lo, hi));
            fresh.extend(found);
        }
        for edit in edits {
            match edit {
                Edit::Put(dict, key, _) | Edit::Delete(dict, key) => {
                    self.fresh[usize::from(dict.0)].insert(key.clone());
                }
                Edit::DeleteRange(dict, lo, hi) if !has_clones => {
                    let at = usize::from(dict.0);
                    delete(&mut self.fresh[at], &self.keys[at], &self.history, *dict, lo, hi);
                }
                _ => {}
            }
        }
    }
}
