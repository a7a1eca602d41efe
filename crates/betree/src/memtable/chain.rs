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
        self.effect == Effect::Message(Kind::Upsert)
    }

    /// Its size in a buffer in bytes.
    pub fn cost(&self, key: &[u8]) -> usize {
        key.len() + self.value.len() + POINT_OVERHEAD_BYTES
    }
}

/// All entries of one key, oldest first. Those from the last put or delete on count; without one all of them
/// do, as upserts whose base is elsewhere. What is before that is there for views.
pub(super) enum Chain {
    One(Pending),
    Several(Vec<Pending>),
}

impl Chain {
    pub fn all(&self) -> &[Pending] {
        match self {
            Chain::One(one) => core::slice::from_ref(one),
            Chain::Several(all) => all,
        }
    }

    /// The messages that make the key what it was when `at` was the newest number, oldest first.
    pub fn messages_at(&self, at: Msn) -> &[Pending] {
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

    /// Adds an entry newer than all, and drops those that nobody sees any more.
    pub fn push(&mut self, new: Pending, seen: &Seen) {
        let before = core::mem::replace(self, Chain::Several(Vec::new()));
        if let Chain::One(old) = &before
            && !new.is_upsert()
            && !seen.between(old.msn, new.msn)
        {
            *self = Chain::One(new);
            return;
        }
        let mut all = match before {
            Chain::One(old) => Vec::from([old]),
            Chain::Several(all) => all,
        };
        all.push(new);
        // From the newest to the oldest: `until` is the number of what took an entry's place.
        let (mut until, mut at) = (None, all.len());
        while let Some(index) = at.checked_sub(1) {
            at = index;
            let Some(entry) = all.get(index) else { break };
            let (msn, ends) = (entry.msn, !entry.is_upsert());
            if until.is_some_and(|until| !seen.between(msn, until)) {
                all.remove(index);
            }
            if ends {
                until = Some(msn);
            }
        }
        *self = match (all.len(), all.pop()) {
            (1, Some(one)) => Chain::One(one),
            (_, last) => {
                all.extend(last);
                Chain::Several(all)
            }
        };
    }

    /// Puts one upsert in the place of the newest, which it includes.
    pub fn replace_newest(&mut self, new: Pending) {
        match self {
            Chain::One(one) => *one = new,
            Chain::Several(all) => {
                all.pop();
                all.push(new);
            }
        }
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

    fn put(msn: Msn) -> Pending {
        Pending::message(msn, Kind::Put, Bytes::Own(Vec::new()))
    }

    fn upsert(msn: Msn) -> Pending {
        Pending::message(msn, Kind::Upsert, Bytes::Own(Vec::new()))
    }

    fn numbers(entries: &[Pending]) -> Vec<Msn> {
        entries.iter().map(|entry| entry.msn).collect()
    }

    #[test]
    fn an_entry_stays_while_a_view_is_between_it_and_its_successor() {
        let mut seen = Seen::default();
        let mut chain = Chain::One(upsert(1));
        chain.push(upsert(2), &seen);
        seen.add(2);
        chain.push(put(4), &seen);
        assert_eq!(numbers(chain.all()), [1, 2, 4]);
        seen.add(6);
        chain.push(Pending::covered(7), &seen);
        chain.push(put(8), &seen);
        assert_eq!(numbers(chain.all()), [1, 2, 4, 8], "no view is between 7 and 8");
        assert_eq!(numbers(chain.messages_at(1)), [1]);
        assert_eq!(numbers(chain.messages_at(3)), [1, 2]);
        assert_eq!(numbers(chain.messages_at(7)), [4]);
        assert_eq!(numbers(chain.messages_at(Msn::MAX)), [8]);
        seen.remove(2);
        chain.push(put(9), &seen);
        assert_eq!(numbers(chain.all()), [4, 9]);
        seen.remove(6);
        chain.push(put(10), &seen);
        assert_eq!(numbers(chain.all()), [10]);
    }

    #[test]
    fn what_a_range_covered_counts_for_views_alone() {
        let mut seen = Seen::default();
        seen.add(1);
        let mut chain = Chain::One(put(1));
        chain.push(Pending::covered(2), &seen);
        assert_eq!(numbers(chain.messages_at(Msn::MAX)), []);
        assert_eq!(numbers(chain.messages_at(1)), [1]);
        assert!(!chain.is_spent());
        seen.remove(1);
        chain.push(Pending::covered(3), &seen);
        assert!(chain.is_spent());
    }
}
