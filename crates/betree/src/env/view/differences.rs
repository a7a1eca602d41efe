//! The keys behind two prefixes whose values differ.

use alloc::vec::Vec;

use super::View;
use crate::error::Result;
use crate::key::Cut;
use crate::settings::DictId;
use crate::tree::Cursor;

/// A key behind two prefixes whose values are not the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The key without the prefix.
    pub rest: Vec<u8>,
    /// Its value behind the first prefix.
    pub first: Option<Vec<u8>>,
    /// Its value behind the second.
    pub second: Option<Vec<u8>>,
}

/// A pair without its prefix.
type Pair = (Vec<u8>, Vec<u8>);

/// What is behind one of the prefixes.
struct Side<'v> {
    cursor: Cursor<'v>,
    prefix_len: usize,
    /// A pair that was read and not compared yet.
    ahead: Option<Pair>,
}

impl Side<'_> {
    /// Reads the next pair ahead, unless there is one.
    fn look_ahead(&mut self) -> Result<()> {
        if self.ahead.is_none()
            && let Some((key, value)) = self.cursor.next()?
        {
            self.ahead = Some((without(key, self.prefix_len).to_vec(), value.to_vec()));
        }
        Ok(())
    }
}

fn without(key: &[u8], prefix_len: usize) -> &[u8] {
    key.get(prefix_len..).unwrap_or_default()
}

/// The differences between what is behind two prefixes, in the order of the keys.
pub struct Differences<'v> {
    first: Side<'v>,
    second: Side<'v>,
}

impl View {
    /// Compares what is behind two prefixes of a dictionary, as of the view's moment. It reads all pairs of
    /// both.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/volume.rs")); }
    /// # fn main() -> betree::Result<()> {
    /// # let (env, _folder) = doc::volume()?;
    /// # let env = std::sync::Arc::new(env);
    /// use betree::{Batch, DictId};
    ///
    /// let mut batch = Batch::new(); batch.put(DictId(0), b"a/1", b"same"); batch.put(DictId(0), b"a/2",
    /// b"old"); batch.put(DictId(0), b"b/1", b"same"); batch.put(DictId(0), b"b/2", b"new");
    /// env.commit(&batch)?; let view = env.view(); let mut differences = view.differences(DictId(0), b"a/",
    /// b"b/"); let difference = differences.next()?.expect("one"); assert_eq!((difference.rest.as_slice(),
    /// difference.second.as_deref()), (&b"2"[..], Some(&b"new"[..]))); assert_eq!(differences.next()?, None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn differences(&self, dict: DictId, first: &[u8], second: &[u8]) -> Differences<'_> {
        let side = |prefix: &[u8]| {
            let cursor = self.cursor(dict, Cut::before(prefix), Cut::after(prefix));
            Side { cursor, prefix_len: prefix.len(), ahead: None }
        };
        Differences { first: side(first), second: side(second) }
    }
}

impl Differences<'_> {
    /// Returns the next difference, or `None` at the end.
    ///
    /// # Errors
    /// Those of [`Cursor::next`].
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Difference>> {
        let Differences { first, second } = self;
        loop {
            if first.ahead.is_none() && second.ahead.is_none() {
                // Most pairs are equal, and need not be copied.
                let (one, other) = (first.cursor.next()?, second.cursor.next()?);
                let part = |pair: Option<(&[u8], &[u8])>, prefix_len: usize| -> Option<Pair> {
                    pair.map(|(key, value)| (without(key, prefix_len).to_vec(), value.to_vec()))
                };
                match (one, other) {
                    (None, None) => return Ok(None),
                    (Some((key, value)), Some((other_key, other_value)))
                        if value == other_value
                            && without(key, first.prefix_len) == without(other_key, second.prefix_len) =>
                    {
                        continue;
                    }
                    (one, other) => {
                        (first.ahead, second.ahead) =
                            (part(one, first.prefix_len), part(other, second.prefix_len));
                    }
                }
            }
            first.look_ahead()?;
            second.look_ahead()?;
            let rest = |side: &Side<'_>| side.ahead.as_ref().map(|(rest, _)| rest.clone());
            let Some(rest) = rest(first).into_iter().chain(rest(second)).min() else { return Ok(None) };
            let take =
                |side: &mut Side<'_>| side.ahead.take_if(|(ahead, _)| *ahead == rest).map(|(_, value)| value);
            let (one, other) = (take(first), take(second));
            if one != other {
                return Ok(Some(Difference { rest, first: one, second: other }));
            }
        }
    }
}

#[cfg(test)]
mod tests;
