//! Values that wait for a merge: the last value that could be made, and the deltas that could not be merged
//! into it, because their merge is not registered or has failed.

use std::borrow::Cow;

use crate::value::{MARK, UNMERGED, stored, whole};

/// Before the base: whether there is one.
const ABSENT: u8 = 0;
const PRESENT: u8 = 1;

/// A value that waits for a merge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unmerged<'v> {
    /// The value before the deltas, if there was one.
    pub base: Option<Cow<'v, [u8]>>,
    /// The deltas, the oldest first, each with the number of its merge.
    pub deltas: Vec<&'v [u8]>,
}

impl<'v> Unmerged<'v> {
    /// A value in its stored form, with the deltas that wait, of which there may be none. `None` if it is
    /// stored in a form that no merge has made.
    pub fn of(value: Option<&'v [u8]>) -> Option<Unmerged<'v>> {
        let Some(value) = value else { return Some(Unmerged::default()) };
        let Some(rest) = value.strip_prefix(&MARK) else {
            return Some(Unmerged { base: Some(Cow::Borrowed(value)), deltas: Vec::new() });
        };
        match rest.split_first()? {
            (&UNMERGED, rest) => Unmerged::parsed(rest),
            _ => Some(Unmerged { base: Some(Cow::Borrowed(whole(value)?)), deltas: Vec::new() }),
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
        let mut deltas = Vec::new();
        while !rest.is_empty() {
            let (delta, behind) = framed(rest)?;
            deltas.push(delta);
            rest = behind;
        }
        Some(Unmerged { base, deltas })
    }

    /// The stored form; that of a value alone, if no delta waits.
    pub fn into_stored(self) -> Option<Vec<u8>> {
        if self.deltas.is_empty() {
            return self.base.map(|base| {
                if base.starts_with(&MARK) { stored(&base).into_owned() } else { base.into_owned() }
            });
        }
        let base = self.base.as_deref();
        let mut bytes = [&MARK[..], &[UNMERGED, if base.is_some() { PRESENT } else { ABSENT }]].concat();
        for part in std::iter::once(base.unwrap_or_default()).chain(self.deltas.iter().copied()) {
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
                let unmerged = Unmerged { base: base.clone(), deltas };
                let stored = unmerged.clone().into_stored();
                assert_eq!(Unmerged::of(stored.as_deref()), Some(unmerged));
            }
        }
        let unmerged = Unmerged { base: Some(Cow::Borrowed(b"base")), deltas: vec![b"delta"] };
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
}
