//! The translation of keys across an edge.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use super::Cut;

/// The translation of keys from a parent's coordinates to its child's: drop the first `strip_len`
/// bytes (*lifting*, dissertation §4.2.2), then put `prepend` before the rest (the *xf* function,
/// §5.2.2). Nothing else in the engine strips or prepends.
///
/// Keys and cuts are clipped to the edge's window before they are translated: the window's bounds
/// share at least `strip_len` bytes, and so does everything between them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Translation {
    /// The number of bytes dropped from the front of a key.
    pub strip_len: usize,
    /// The bytes put before the rest.
    pub prepend: Vec<u8>,
}

impl Translation {
    /// Lifting alone.
    pub(crate) fn strip(strip_len: usize) -> Translation {
        Translation { strip_len, prepend: Vec::new() }
    }

    /// The way back, from the child's coordinates to the parent's, inside the image of a window; `in_window`
    /// is any key or bound of that window.
    pub(crate) fn inverse(&self, in_window: &[u8]) -> Translation {
        Translation {
            strip_len: self.prepend.len(),
            prepend: in_window.get(..self.strip_len).unwrap_or(in_window).to_vec(),
        }
    }

    /// `self` first, `second` after it, as one translation.
    pub(crate) fn then(&self, second: &Translation) -> Translation {
        match self.prepend.get(second.strip_len..) {
            Some(kept) => {
                let mut prepend = second.prepend.clone();
                prepend.extend_from_slice(kept);
                Translation { strip_len: self.strip_len, prepend }
            }
            None => Translation {
                strip_len: self.strip_len + second.strip_len - self.prepend.len(),
                prepend: second.prepend.clone(),
            },
        }
    }

    /// Whether it changes nothing.
    pub(crate) fn is_identity(&self) -> bool {
        self.strip_len == 0 && self.prepend.is_empty()
    }

    /// The key in the child's coordinates; borrowed where nothing is prepended.
    pub(crate) fn key<'k>(&self, key: &'k [u8]) -> Cow<'k, [u8]> {
        let rest = key.get(self.strip_len..).unwrap_or_default();
        if self.prepend.is_empty() {
            return Cow::Borrowed(rest);
        }
        let mut translated = Vec::with_capacity(self.prepend.len() + rest.len());
        translated.extend_from_slice(&self.prepend);
        translated.extend_from_slice(rest);
        Cow::Owned(translated)
    }

    /// Appends the key in the child's coordinates to `out`.
    pub(crate) fn append_key(&self, key: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&self.prepend);
        out.extend_from_slice(key.get(self.strip_len..).unwrap_or_default());
    }

    /// The cut in the child's coordinates. A cut shorter than the stripped prefix (the bound of the whole key
    /// space, clipped to nothing) keeps its side.
    pub(crate) fn cut(&self, cut: &Cut) -> Cut {
        let bytes = self.key(cut.bytes()).into_owned();
        if cut.is_after() { Cut::after(bytes) } else { Cut::before(bytes) }
    }

    /// As [`cut`](Translation::cut); borrowed where nothing changes.
    pub(crate) fn cut_ref<'c>(&self, cut: &'c Cut) -> Cow<'c, Cut> {
        if self.is_identity() { Cow::Borrowed(cut) } else { Cow::Owned(self.cut(cut)) }
    }
}

/// The length of the prefix that all keys between two cuts share, in bytes.
pub(crate) fn shared_len(lo: &Cut, hi: &Cut) -> usize {
    lo.bytes().iter().zip(hi.bytes()).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn translations_compose_and_invert_inside_a_window() {
        let window = [Cut::before(*b"/R/a"), Cut::after(*b"/R/")];
        assert_eq!(shared_len(&window[0], &window[1]), 3);
        for strip_len in 0..=3 {
            for prepend in [&b""[..], b"x", b"/B/"] {
                let down = Translation { strip_len, prepend: prepend.to_vec() };
                let up = down.inverse(window[0].bytes());
                for key in [&b"/R/a"[..], b"/R/abc", b"/R/\xff"] {
                    let there = down.key(key).into_owned();
                    assert_eq!(up.key(&there).as_ref(), key);
                    for strip_len in 0..=there.len() {
                        let next = Translation { strip_len, prepend: b"q".to_vec() };
                        assert_eq!(down.then(&next).key(key), next.key(&there));
                    }
                }
                assert!(down.then(&up).key(b"/R/zz").as_ref() == b"/R/zz");
            }
        }
    }

    #[test]
    fn a_cut_keeps_its_side() {
        let down = Translation { strip_len: 2, prepend: b"z".to_vec() };
        assert_eq!(down.cut(&Cut::after(*b"abc")), Cut::after(*b"zc"));
        assert_eq!(down.cut(&Cut::before(*b"ab")), Cut::before(*b"z"));
    }
}
