//! The changes of one key in a memtable, and the older ones that views still see.

use alloc::vec::Vec;

use crate::message::{Bytes, Kind, Msn, POINT_OVERHEAD_BYTES};
use crate::views::Seen;

/// What an entry does to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// A message of this kind.
    Message(Kind),
    /// A range delete covered the key: what is older counts for views alone.
    Covered,
}

/// One entry of a chain.
pub(super) struct Pending {
    pub msn: Msn,
    pub effect: Effect,
    pub value: Bytes,
}

impl Pending {
    pub fn message(msn: Msn, kind: Kind, value: Bytes) -> Pending {
        Pending { msn, effect: Effect::Message(kind), value }
    }

    pub fn covered(msn: Msn) -> Pending {
        Pending { msn, effect: Effect::Covered, value: Bytes::Own(Vec::new()) }
    }

    /// The message's kind; `None` of a mark.
    pub fn kind(&self) -> Option<Kind> {
        match self.effect {
            Effect::Message(kind) => Some(kind),
            Effect::Covered => None,
        }
    }

    fn is_upsert(&self) -> bool {
        matches!(self.effect, Effect::Message(Kind::Upsert(_)))
    }

    /// Its size in a buffer in bytes.
    pub fn cost(&self, key: &[u8]) -> usize {
        key.len() + self.value.len() + POINT_OVERHEAD_BYTES
    }
}

/// All entries of one key, oldest first. Those from the last put or delete on count; without one all of them
/// do, as upserts whose base is elsewhere. The entries before are there for views.
pub(super) enum Chain {
    One(Pending),
    /// The entries, and the index of the first that counts.
    Several(Vec<Pending>, usize),
}

impl Chain {
    pub fn all(&self) -> &[Pending] {
        match self {
            Chain::One(one) => core::slice::from_ref(one),
            Chain::Several(all, _) => all,
        }
    }

    /// The messages that make the key what it is, oldest first.
    pub fn messages(&self) -> &[Pending] {
        match self {
            Chain::One(one) if one.effect == Effect::Covered => &[],
            Chain::One(one) => core::slice::from_ref(one),
            Chain::Several(all, from) => all.get(*from..).unwrap_or_default(),
        }
    }

    /// The messages that make the key what it was when `at` was the newest number, oldest first.
    pub fn messages_at(&self, at: Msn) -> &[Pending] {
        if self.newest_msn().is_none_or(|newest| newest <= at) {
            return self.messages();
        }
        let all = self.all();
        let all = all.get(..all.partition_point(|entry| entry.msn <= at)).unwrap_or_default();
        let from = match all.iter().rposition(|entry| !entry.is_upsert()) {
            None => 0,
            Some(mark) if all.get(mark).is_some_and(|entry| entry.effect == Effect::Covered) => mark + 1,
            Some(base) => base,
        };
        all.get(from..).unwrap_or_default()
    }

    /// The number of the newest entry.
    pub fn newest_msn(&self) -> Option<Msn> {
        self.all().last().map(|entry| entry.msn)
    }

    /// Adds an entry newer than all. An upsert takes nothing's place, and costs the same however many there
    /// are; any other entry drops those that nobody sees any more. Returns the bytes that were dropped.
    pub fn push(&mut self, key: &[u8], new: Pending, seen: &Seen) -> usize {
        let (mut all, from) = match core::mem::replace(self, Chain::Several(Vec::new(), 0)) {
            Chain::One(old) if !new.is_upsert() && !seen.between(old.msn, new.msn) => {
                *self = Chain::One(new);
                return old.cost(key);
            }
            Chain::One(old) => {
                let from = usize::from(old.effect == Effect::Covered);
                (Vec::from([old]), from)
            }
            Chain::Several(all, from) => (all, from),
        };
        if new.is_upsert() {
            all.push(new);
            *self = Chain::Several(all, from);
            return 0;
        }
        // From the newest to the oldest: `until` is the number of the entry that took another's place.
        let (mut until, mut dropped_bytes) = (new.msn, 0);
        let mut kept = Vec::from([new]);
        for entry in all.into_iter().rev() {
            let (msn, ends) = (entry.msn, !entry.is_upsert());
            if seen.between(msn, until) {
                kept.push(entry);
            } else {
                dropped_bytes += entry.cost(key);
            }
            if ends {
                until = msn;
            }
        }
        kept.reverse();
        *self = match (kept.len(), kept.pop()) {
            (1, Some(one)) => Chain::One(one),
            (len, last) => {
                let is_mark = last.as_ref().is_some_and(|last| last.effect == Effect::Covered);
                kept.extend(last);
                Chain::Several(kept, len - usize::from(!is_mark))
            }
        };
        dropped_bytes
    }

    /// Puts one upsert in the place of the newest, which it includes. Returns the bytes that were dropped.
    pub fn replace_newest(&mut self, key: &[u8], new: Pending) -> usize {
        let newest = match self {
            Chain::One(one) => Some(one),
            Chain::Several(all, _) => all.last_mut(),
        };
        newest.map_or(0, |newest| core::mem::replace(newest, new).cost(key))
    }

    /// Whether no message counts and nothing is kept for views.
    pub fn is_spent(&self) -> bool {
        self.all().iter().all(|entry| entry.effect == Effect::Covered)
    }

    /// Its size in a buffer in bytes.
    pub fn cost(&self, key: &[u8]) -> usize {
        self.all().iter().map(|entry| entry.cost(key)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::PairCompression;

    fn put(msn: Msn) -> Pending {
        Pending::message(msn, Kind::Put(PairCompression::Usual), Bytes::Own(Vec::new()))
    }

    fn upsert(msn: Msn) -> Pending {
        Pending::message(msn, Kind::Upsert(PairCompression::Usual), Bytes::Own(Vec::new()))
    }

    fn numbers(entries: &[Pending]) -> Vec<Msn> {
        entries.iter().map(|entry| entry.msn).collect()
    }

    #[test]
    fn an_entry_stays_while_a_view_is_between_it_and_its_successor() {
        let mut seen = Seen::default();
        let mut chain = Chain::One(upsert(1));
        chain.push(b"", upsert(2), &seen);
        seen.add(2);
        chain.push(b"", put(4), &seen);
        assert_eq!(numbers(chain.all()), [1, 2, 4]);
        seen.add(6);
        chain.push(b"", Pending::covered(7), &seen);
        chain.push(b"", put(8), &seen);
        assert_eq!(numbers(chain.all()), [1, 2, 4, 8], "no view is between 7 and 8");
        assert_eq!(numbers(chain.messages_at(1)), [1]);
        assert_eq!(numbers(chain.messages_at(3)), [1, 2]);
        assert_eq!(numbers(chain.messages_at(7)), [4]);
        assert_eq!(numbers(chain.messages_at(Msn::MAX)), [8]);
        seen.remove(2);
        chain.push(b"", put(9), &seen);
        assert_eq!(numbers(chain.all()), [4, 9]);
        seen.remove(6);
        chain.push(b"", put(10), &seen);
        assert_eq!(numbers(chain.all()), [10]);
    }

    #[test]
    fn an_upsert_over_others_drops_nothing_and_its_place_is_known() {
        let seen = Seen::default();
        let mut chain = Chain::One(put(1));
        for msn in 2..5 {
            assert_eq!(chain.push(b"", upsert(msn), &seen), 0);
        }
        assert_eq!(numbers(chain.messages()), [1, 2, 3, 4]);
        assert_eq!(numbers(chain.messages_at(2)), [1, 2]);
        assert_eq!(chain.push(b"", put(5), &seen), 4 * POINT_OVERHEAD_BYTES);
        assert_eq!(numbers(chain.all()), [5]);
        let mut covered = Chain::One(Pending::covered(6));
        covered.push(b"", upsert(7), &seen);
        assert_eq!(numbers(covered.messages()), [7]);
    }

    #[test]
    fn what_a_range_covered_counts_for_views_alone() {
        let mut seen = Seen::default();
        seen.add(1);
        let mut chain = Chain::One(put(1));
        chain.push(b"", Pending::covered(2), &seen);
        assert_eq!(numbers(chain.messages_at(Msn::MAX)), []);
        assert_eq!(numbers(chain.messages_at(1)), [1]);
        assert!(!chain.is_spent());
        seen.remove(1);
        chain.push(b"", Pending::covered(3), &seen);
        assert!(chain.is_spent());
    }
}
