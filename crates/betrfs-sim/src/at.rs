//! How an operation names an object: by a path from the root, or from an object that the history holds.

use std::fmt;

use betrfs::SNAPSHOTS_NAME;

/// The number of a place for an object that the history holds: looked up, and perhaps open.
pub type SlotId = u8;

/// Where a path begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// At the root directory.
    Root,
    /// At a held object, wherever that is by now.
    Slot(SlotId),
}

/// A path to an object; without names it is the base itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At {
    /// Where it begins.
    pub base: Base,
    /// The names on the way.
    pub names: Vec<Vec<u8>>,
}

impl At {
    /// The root directory.
    pub const ROOT: At = At { base: Base::Root, names: Vec::new() };

    /// A held object.
    pub fn slot(slot: SlotId) -> At {
        At { base: Base::Slot(slot), names: Vec::new() }
    }

    /// The entry of this name.
    #[must_use]
    pub fn child(&self, name: &[u8]) -> At {
        let mut names = self.names.clone();
        names.push(name.to_vec());
        At { base: self.base, names }
    }

    /// The directory above and the last name; `None` for a base.
    pub fn split(&self) -> Option<(At, &[u8])> {
        let (last, above) = self.names.split_last()?;
        Some((At { base: self.base, names: above.to_vec() }, last))
    }

    /// Whether the path leads through the snapshots of a directory.
    pub fn is_in_snapshot(&self) -> bool {
        self.names.iter().any(|name| name == SNAPSHOTS_NAME)
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.base {
            Base::Root if self.names.is_empty() => return f.write_str("/"),
            Base::Root => {}
            Base::Slot(slot) => write!(f, "#{slot}")?,
        }
        self.names.iter().try_for_each(|name| write!(f, "/{}", name.escape_ascii()))
    }
}
