//! Upserts: changes that are described by a delta and applied later.

use alloc::borrow::Cow;
use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::BLOCK_BYTES;

use crate::message::{Kind, Point};

/// The meaning of upsert messages: the user's function from an old value and a delta to a new one
/// (TOS paper §2.4, *Upserts*).
pub trait Upsert: Send + Sync {
    /// The function's name, 1 to 27 bytes. The volume stores it and refuses to open with another function,
    /// which would apply the upserts that wait in the trees differently.
    fn name(&self) -> &str;

    /// Increased whenever the function returns another value for the same arguments; stored like the name.
    fn version(&self) -> u32 {
        1
    }

    /// Returns the new value of a key, or `None` to remove the key.
    ///
    /// It must depend on its arguments alone: it runs once for each reader until the message reaches its
    /// leaf, and again when the log is replayed. It must not panic.
    ///
    /// It cannot fail: one key that has no value must not stop a flush, which carries the changes of other
    /// keys, nor the replay that opens the volume. For a delta that it cannot apply, it returns the value as
    /// it was, or a value from which its readers learn of the failure.
    fn apply(&self, old: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>>;

    /// As [`apply`](Upsert::apply), on a volume that stores values of at most `bytes_max` bytes: those for
    /// which a batch has room. Unless a function does better, a larger value is not stored, and the key keeps
    /// its old one. The engine calls this one.
    fn apply_within(&self, old: Option<&[u8]>, delta: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
        match self.apply(old, delta) {
            Some(made) if made.len() > bytes_max => old.map(<[u8]>::to_vec),
            made => made,
        }
    }

    /// When a value expires, in nanoseconds since 1970-01-01 00:00 UTC by the clock of
    /// [`Options::clock`](crate::Options::clock); `None` if never. From then on readers do not see it, and
    /// background work removes it once no live view sees it. It must depend on its argument alone.
    ///
    /// [`apply`](Upsert::apply) gets values whether they have expired or not: it knows no time. Deltas to
    /// values that expire must say when they were made, and find no value where that was later.
    fn expires_at_ns(&self, value: &[u8]) -> Option<i64> {
        let _ = value;
        None
    }

    /// What background work leaves of a value that has expired, until another takes its place; `None` if
    /// nothing. It must have expired at the same time as the value.
    ///
    /// A delta that was made before the value expired may still be on its way to it. Where there are deltas,
    /// enough must stay for [`apply`](Upsert::apply) to make of it a value that has expired too.
    fn left_of_expired(&self, value: &[u8]) -> Option<Vec<u8>> {
        let _ = value;
        None
    }

    /// One delta with the effect of two, if there is one; `older` is applied first. It must depend on its
    /// arguments alone.
    fn combine(&self, older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        let _ = (older, newer);
        None
    }
}

/// An upsert that replaces the old value by the delta, for dictionaries that use none.
pub struct Replace;

impl Upsert for Replace {
    fn name(&self) -> &str {
        "replace"
    }

    fn apply(&self, _old: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>> {
        Some(delta.to_vec())
    }

    fn combine(&self, _older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        Some(newer.to_vec())
    }
}

/// Appends, so that a message applied twice shows.
#[cfg(test)]
pub(crate) struct Append;

#[cfg(test)]
impl Upsert for Append {
    fn name(&self) -> &str {
        "append"
    }

    fn apply(&self, old: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>> {
        Some([old.unwrap_or_default(), delta].concat())
    }
}

/// A function with the bound of a volume. A node with a larger value than can be put may be more than the
/// limits of the volume let it read.
pub(crate) struct Bounded {
    function: Arc<dyn Upsert>,
    bytes_max: usize,
}

impl Bounded {
    /// The function on a volume whose batches have at most `batch_bytes_max` bytes.
    pub fn new(function: Arc<dyn Upsert>, batch_bytes_max: u64) -> Bounded {
        let batch_bytes_max = usize::try_from(batch_bytes_max).unwrap_or(usize::MAX);
        Bounded { function, bytes_max: batch_bytes_max.max(BLOCK_BYTES) }
    }
}

impl Upsert for Bounded {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn version(&self) -> u32 {
        self.function.version()
    }

    fn apply(&self, old: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>> {
        self.function.apply_within(old, delta, self.bytes_max)
    }

    fn expires_at_ns(&self, value: &[u8]) -> Option<i64> {
        self.function.expires_at_ns(value)
    }

    fn left_of_expired(&self, value: &[u8]) -> Option<Vec<u8>> {
        self.function.left_of_expired(value)
    }

    fn combine(&self, older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        self.function.combine(older, newer).filter(|both| both.len() <= self.bytes_max)
    }
}

/// Applies the messages for one key, oldest first, to its old value.
pub(crate) fn fold<'v>(
    old: Option<&'v [u8]>,
    messages: &[Point<'v>],
    upsert: &dyn Upsert,
) -> Option<Cow<'v, [u8]>> {
    let mut value = old.map(Cow::Borrowed);
    for message in messages {
        value = match message.kind {
            Kind::Put(_) => Some(Cow::Borrowed(message.value)),
            Kind::Delete => None,
            Kind::Upsert(_) => upsert.apply(value.as_deref(), message.value).map(Cow::Owned),
        };
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Appends, and combines.
    struct Joined;

    impl Upsert for Joined {
        fn name(&self) -> &str {
            "joined"
        }

        fn apply(&self, old: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>> {
            Some([old.unwrap_or_default(), delta].concat())
        }

        fn combine(&self, older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
            Some([older, newer].concat())
        }
    }

    #[test]
    fn no_value_and_no_delta_is_larger_than_a_batch() {
        let most = 12 << 10;
        let bounded = Bounded::new(Arc::new(Joined), most as u64);
        let old = alloc::vec![7; most - 1];
        assert_eq!(bounded.apply(Some(&old), b"x").map(|made| made.len()), Some(most));
        assert_eq!(bounded.apply(Some(&old), b"xy"), Some(old.clone()));
        assert_eq!(bounded.apply(None, &alloc::vec![7; most + 1]), None);
        assert_eq!(bounded.combine(&old, b"x").map(|both| both.len()), Some(most));
        assert_eq!(bounded.combine(&old, b"xy"), None);
    }
}
