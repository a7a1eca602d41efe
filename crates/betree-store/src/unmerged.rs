//! Values that wait for a merge: the last value that could be made, and the deltas that could not be merged
//! into it, because their merge is not registered or has failed.
//!
//! The size of the stored form is bounded. The deltas above that are only counted: the last delta of the
//! stored form is then one of no merge, with the two sums. An older version keeps it like any delta whose
//! merge it does not know.

use std::borrow::Cow;

use crate::value::{MARK, UNMERGED, stored, whole};

/// Before the base: whether there is one.
const ABSENT: u8 = 0;
const PRESENT: u8 = 1;

/// The number that the delta with the sums begins with. No merge has it.
pub(crate) const DROPPED_DELTA: [u8; 4] = *b"\xe6drp";
/// The mark, the kind, and whether there is a base.
const HEAD_BYTES: usize = MARK.len() + 2;
/// The length before the base, and before each delta.
const LEN_BYTES: usize = 4;
/// The delta with the sums.
const DROPPED_BYTES: usize = DROPPED_DELTA.len() + 16;

/// The deltas of a value that were not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// Their number. Deltas that were combined count as one.
    pub deltas: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Dropped {
    /// The sums in a delta, if it is the one that has them.
    fn of(delta: &[u8]) -> Option<Dropped> {
        let (deltas, rest) = delta.strip_prefix(&DROPPED_DELTA)?.split_first_chunk()?;
        let bytes = rest.try_into().ok()?;
        Some(Dropped { deltas: u64::from_le_bytes(*deltas), bytes: u64::from_le_bytes(bytes) })
    }

    fn add(&mut self, more: Dropped) {
        self.deltas = self.deltas.saturating_add(more.deltas);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }

    fn stored(self) -> Vec<u8> {
        [&DROPPED_DELTA[..], &self.deltas.to_le_bytes(), &self.bytes.to_le_bytes()].concat()
    }
}

/// A value that waits for a merge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unmerged<'v> {
    /// The value before the deltas, if there was one.
    pub base: Option<Cow<'v, [u8]>>,
    /// The deltas, the oldest first, each with the number of its merge.
    pub deltas: Vec<&'v [u8]>,
    /// Those that came later and were not kept.
    pub dropped: Option<Dropped>,
}

impl<'v> Unmerged<'v> {
    /// A value in its stored form, with the deltas that wait, of which there may be none. `None` if it is
    /// stored in a form that no merge has made.
    pub fn of(value: Option<&'v [u8]>) -> Option<Unmerged<'v>> {
        let Some(value) = value else { return Some(Unmerged::default()) };
        let Some(rest) = value.strip_prefix(&MARK) else {
            return Some(Unmerged { base: Some(Cow::Borrowed(value)), ..Unmerged::default() });
        };
        match rest.split_first()? {
            (&UNMERGED, rest) => Unmerged::parsed(rest),
            _ => Some(Unmerged { base: Some(Cow::Borrowed(whole(value)?)), ..Unmerged::default() }),
        }
    }

    fn parsed(bytes: &'v [u8]) -> Option<Unmerged<'v>> {
        let (has_base, rest) = bytes.split_first()?;
        let (base, mut rest) = framed(rest)?;
        let base = match *has_base {
            PRESENT => Some(Cow::Borrowed(base)),
            ABSENT if base.is_empty() => None,
            _ => return None,
        };
        let (mut deltas, mut dropped) = (Vec::new(), None::<Dropped>);
        while !rest.is_empty() {
            let (delta, behind) = framed(rest)?;
            match Dropped::of(delta) {
                None => deltas.push(delta),
                Some(more) => dropped.get_or_insert_default().add(more),
            }
            rest = behind;
        }
        Some(Unmerged { base, deltas, dropped })
    }

    /// Drops and counts the newest delta if the stored form would have more than `bytes_max` bytes with it,
    /// or if an older one was dropped.
    pub fn bound(&mut self, bytes_max: usize) {
        if (self.dropped.is_some() || self.stored_bytes() > bytes_max)
            && let Some(newest) = self.deltas.pop()
        {
            let more = Dropped { deltas: 1, bytes: newest.len() as u64 };
            self.dropped.get_or_insert_default().add(more);
        }
    }

    /// The size of the stored form, with room for the sums of dropped deltas.
    fn stored_bytes(&self) -> usize {
        let deltas = self.deltas.iter().map(|delta| LEN_BYTES + delta.len()).sum::<usize>();
        let base = LEN_BYTES + self.base.as_deref().map_or(0, <[u8]>::len);
        HEAD_BYTES + base + deltas + LEN_BYTES + DROPPED_BYTES
    }

    /// The stored form; that of a value alone, if no delta waits.
    pub fn into_stored(self) -> Option<Vec<u8>> {
        if self.deltas.is_empty() && self.dropped.is_none() {
            return self.base.map(|base| {
                if base.starts_with(&MARK) { stored(&base).into_owned() } else { base.into_owned() }
            });
        }
        let (base, dropped) = (self.base.as_deref(), self.dropped.map(Dropped::stored));
        let mut bytes = Vec::with_capacity(self.stored_bytes());
        bytes.extend(MARK);
        bytes.extend([UNMERGED, if base.is_some() { PRESENT } else { ABSENT }]);
        let deltas = self.deltas.iter().copied().chain(dropped.as_deref());
        for part in std::iter::once(base.unwrap_or_default()).chain(deltas) {
            bytes.extend((part.len() as u32).to_le_bytes());
            bytes.extend(part);
        }
        Some(bytes)
    }
}

/// Bytes behind their length, and the rest.
fn framed(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u32::from_le_bytes(*len) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_comes_back_and_what_is_cut_off_is_refused() {
        let bases = [None, Some(&b""[..]), Some(b"base"), Some(&MARK)];
        for base in bases {
            let base = base.map(Cow::Borrowed);
            for deltas in [vec![], vec![&b""[..]], vec![b"one", b"", b"another"]] {
                let unmerged = Unmerged { base: base.clone(), deltas, dropped: None };
                let stored = unmerged.clone().into_stored();
                assert_eq!(Unmerged::of(stored.as_deref()), Some(unmerged));
            }
        }
        let unmerged = Unmerged { base: Some(Cow::Borrowed(b"base")), deltas: vec![b"delta"], dropped: None };
        let stored = unmerged.into_stored().unwrap();
        // Where a delta ends, fewer deltas are as good; everywhere else it is cut off.
        let ends = [stored.len() - b"delta".len() - 4, stored.len()];
        for len in MARK.len()..stored.len() {
            assert_eq!(Unmerged::of(Some(&stored[..len])).is_some(), ends.contains(&len), "{len}");
        }
        let mut forged = stored;
        forged[MARK.len() + 1] = 7;
        assert_eq!(Unmerged::of(Some(&forged)), None);
    }

    /// Deltas up to the limit are kept; those above it are counted, however many there are.
    #[test]
    fn deltas_above_the_limit_are_counted() {
        let delta = vec![7; 1 << 20];
        let mut value: Option<Vec<u8>> = Some(b"base".to_vec());
        for number in 0..20 {
            let mut unmerged = Unmerged::of(value.as_deref()).unwrap();
            assert_eq!(unmerged.deltas.len(), number.min(5));
            unmerged.deltas.push(&delta);
            unmerged.bound(6 << 20);
            let stored = unmerged.into_stored().unwrap();
            assert!(stored.len() <= 6 << 20);
            value = Some(stored);
        }
        let unmerged = Unmerged::of(value.as_deref()).unwrap();
        assert_eq!(unmerged.base.as_deref(), Some(&b"base"[..]));
        assert_eq!(unmerged.dropped, Some(Dropped { deltas: 15, bytes: 15 << 20 }));
        // A small one that would fit is not kept behind a gap. Sums that an older version has kept apart are
        // added.
        let mut unmerged = Unmerged::of(value.as_deref()).unwrap();
        unmerged.deltas.push(b"small");
        unmerged.bound(6 << 20);
        assert_eq!((unmerged.deltas.len(), unmerged.dropped.map(|sums| sums.deltas)), (5, Some(16)));
        let sums = Dropped { deltas: 1, bytes: 2 }.stored();
        let twice = Unmerged { base: None, deltas: vec![&sums, b"delta", &sums], dropped: None };
        let stored = twice.into_stored();
        let unmerged = Unmerged::of(stored.as_deref()).unwrap();
        assert_eq!(unmerged.deltas, [b"delta"]);
        assert_eq!(unmerged.dropped, Some(Dropped { deltas: 2, bytes: 4 }));
    }
}
