//! Upserts: changes that are described by a delta and applied later.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use crate::error::Result;
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

    /// The new value of a key, or `None` where there is to be none.
    ///
    /// It must depend on its arguments alone: it runs once for each reader until the message reaches its
    /// leaf, and again when the log is replayed. A delta that it does not know should leave the value as it
    /// was.
    ///
    /// # Errors
    /// [`Error::Upsert`](crate::Error::Upsert), where no value can be made. A reader of the key gets the
    /// error. A flush that would apply the change in a leaf makes the volume read-only, and the change is
    /// kept.
    fn apply(&self, old: Option<&[u8]>, delta: &[u8]) -> Result<Option<Vec<u8>>>;

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

    fn apply(&self, _old: Option<&[u8]>, delta: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(Some(delta.to_vec()))
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

    fn apply(&self, old: Option<&[u8]>, delta: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(Some([old.unwrap_or_default(), delta].concat()))
    }
}

/// Applies the messages for one key, oldest first, to its old value.
///
/// # Errors
/// That of the upsert function.
pub(crate) fn fold<'v>(
    old: Option<&'v [u8]>,
    messages: &[Point<'v>],
    upsert: &dyn Upsert,
) -> Result<Option<Cow<'v, [u8]>>> {
    let mut value = old.map(Cow::Borrowed);
    for message in messages {
        value = match message.kind {
            Kind::Put(_) => Some(Cow::Borrowed(message.value)),
            Kind::Delete => None,
            Kind::Upsert(_) => upsert.apply(value.as_deref(), message.value)?.map(Cow::Owned),
        };
    }
    Ok(value)
}
