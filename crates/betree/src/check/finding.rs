//! The findings of a check: a code for programs, a place, and a sentence for people.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::error::{Error, counted};
use crate::key::Cut;
use crate::node_id::NodeId;
use crate::settings::DictId;
use crate::table::DisputedNode;

/// What a repair does about a problem, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// It is mended, and takes nothing away.
    Mended(&'static str),
    /// It is mended by taking something away.
    Dropped(&'static str),
    /// Nothing, for this reason.
    Left(&'static str),
}

/// Declares [`FindingCode`] with the names of its values and what a repair does about them.
macro_rules! codes {
    ($($(#[$doc:meta])* $code:ident = $name:literal, $remedy:ident($what:literal);)*) => {
        /// The kind of a finding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum FindingCode {
            $($(#[$doc])* $code,)*
        }

        impl FindingCode {
            /// All codes.
            pub const ALL: &[FindingCode] = &[$(FindingCode::$code,)*];

            /// The name for programs, which no later version changes.
            pub fn name(self) -> &'static str {
                match self {
                    $(FindingCode::$code => $name,)*
                }
            }

            /// What a repair does about it.
            pub fn remedy(self) -> Remedy {
                match self {
                    $(FindingCode::$code => Remedy::$remedy($what),)*
                }
            }
        }
    };
}

codes! {
    /// A copy of the superblock cannot be used.
    BadSuperblock = "bad-superblock", Mended("all copies are written anew");
    /// No copy of the superblock can be used, or neither of two that belong together.
    LostSuperblocks = "lost-superblocks", Dropped("one is made of the newest copy or node table that is whole; without a copy, label, UUID, feature words and limit of growth are lost");
    /// The newest checkpoint cannot be read, and an older one was checked.
    OldCheckpoint = "old-checkpoint", Left("what was lost may be newer than all that is left");
    /// The node table, or an entry of it, cannot be believed.
    BadNodeTable = "bad-node-table", Dropped("slots of a page that agree with the headers of their nodes are taken, and what the others had becomes known damage; where not most of them do, or the device does not read a copy of the page, or the directory is lost: left");
    /// One of two copies of a part of the node table cannot be read.
    BadCopy = "bad-copy", Mended("it is written anew; the other copy is good");
    /// Blocks of a node are also those of something else, or none.
    DisputedBlocks = "disputed-blocks", Dropped("what is there by its checksums is written elsewhere, and the rest becomes known damage");
    /// One of two copies of a part of an interior node cannot be read.
    BadNodeCopy = "bad-node-copy", Mended("the node is written anew; the other copy is good");
    /// Nodes whose places were lost were found by their headers, and may be older than those that were lost.
    NodesByHeader = "nodes-by-header", Left("it is no damage: a rescue has found them");
    /// The log cannot be replayed to its end.
    BadLog = "bad-log", Dropped("the log ends there: the changes behind are lost");
    /// The log was not replayed, so its changes were not checked.
    LogNotChecked = "log-not-checked", Left("it is no damage");
    /// The header of a node cannot be read.
    BadNode = "bad-node", Dropped("nodes below it are found again if they fill its place, else what was in it becomes known damage");
    /// A node does not match its entry in the node table.
    NodeMismatch = "node-mismatch", Dropped("what was in it becomes known damage");
    /// A basement or partition cannot be read.
    BadPiece = "bad-piece", Dropped("what was in it becomes known damage");
    /// Keys were lost, and a repair has noted that.
    KnownDamage = "known-damage", Left("what is written or deleted over it heals it");
    /// A basement holds pairs that do not belong there.
    BasementContents = "basement-contents", Left("nothing tells which pairs are right");
    /// A partition holds messages that do not belong there.
    PartitionContents = "partition-contents", Left("nothing tells which messages are right");
    /// An edge leads to a node that the node table does not hold.
    DanglingEdge = "dangling-edge", Dropped("what was in the node becomes known damage");
    /// An edge shows more than its node has.
    EdgeTooWide = "edge-too-wide", Dropped("its window becomes known damage");
    /// An edge or a GOTO does not lead downwards.
    EdgeNotDown = "edge-not-down", Left("nothing tells where it should lead");
    /// The translation of an edge does not fit its window.
    BadTranslation = "bad-translation", Left("nothing tells which keys are meant");
    /// A key is longer than the bound above it allows.
    KeyOverBound = "key-over-bound", Left("readers are not hindered; the next rewrite of the nodes above sets the bound");
    /// A node has more or fewer references than the node table says.
    WrongReferences = "wrong-references", Mended("the node table gets the number that was counted; a node that nothing leads to goes");
    /// References could not be counted, because nodes could not be read.
    ReferencesNotChecked = "references-not-checked", Left("it is no damage");
    /// A node without references cannot be freed.
    NotFreed = "not-freed", Dropped("it goes, with all that no tree leads to");
    /// Something is of a kind that only later versions know.
    LaterKind = "later-kind", Left("a later version of betrfs made it; nothing is written where one was found");
    /// Blocks are taken that nothing uses, or used twice.
    WrongSpace = "wrong-space", Left("it is not on the device: open the volume anew");
    /// The use of blocks could not be checked.
    SpaceNotChecked = "space-not-checked", Left("it is no damage");
}

impl FindingCode {
    /// The code of a finding by an error: this one, unless a later version made what was to be read.
    pub(crate) fn by(self, error: &Error) -> FindingCode {
        match error {
            Error::UnknownKind { .. } => FindingCode::LaterKind,
            _ => self,
        }
    }
}

impl fmt::Display for FindingCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The structure that a finding is about. Offsets are in bytes from the start of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Place {
    /// The volume as a whole.
    Volume,
    /// A copy of the superblock, or all of them (`None`).
    Superblock {
        /// The copy's offset.
        offset: Option<u64>,
    },
    /// The node table.
    NodeTable {
        /// The offset of the page or extent, if it is known.
        offset: Option<u64>,
    },
    /// The log.
    Log {
        /// The offset of the segment or, if unknown, of the log.
        offset: u64,
    },
    /// A node.
    Node {
        /// Its slot in the node table.
        slot: u32,
        /// Which user of the slot it is.
        generation: u32,
        /// Its offset, if the node table holds it.
        offset: Option<u64>,
    },
}

impl Place {
    pub(crate) fn node(id: NodeId, offset: Option<u64>) -> Place {
        Place::Node { slot: id.slot, generation: id.generation, offset }
    }

    /// The structure's name for programs, which no later version changes.
    pub fn name(&self) -> &'static str {
        match self {
            Place::Volume => "volume",
            Place::Superblock { .. } => "superblock",
            Place::NodeTable { .. } => "node-table",
            Place::Log { .. } => "log",
            Place::Node { .. } => "node",
        }
    }

    /// Its offset on the device, if that is known.
    pub fn offset(&self) -> Option<u64> {
        match self {
            Place::Volume => None,
            Place::Log { offset } => Some(*offset),
            Place::Superblock { offset } | Place::NodeTable { offset } | Place::Node { offset, .. } => {
                *offset
            }
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if let Place::Node { slot, generation, .. } = self {
            write!(f, " {}", NodeId { slot: *slot, generation: *generation })?;
        }
        self.offset().map_or(Ok(()), |offset| write!(f, " at byte {offset}"))
    }
}

/// One report of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The kind of a finding.
    pub code: FindingCode,
    /// The structure that it is about.
    pub place: Place,
    /// A sentence that names the place.
    pub what: String,
    /// Whether it means damage that nobody has noted. Otherwise it is a note: known damage, or a check that
    /// could not be done, and why.
    pub is_problem: bool,
    /// The error that readers of the damaged data get, if the damage makes anything unreadable. By it a
    /// reader's error can be matched with the finding.
    pub hides: Option<Error>,
    /// The keys that it makes unreadable, by the first way that leads to them. A clone may show the same data
    /// under other keys.
    pub keys: Option<KeyRange>,
    /// Those by other ways, as far as they were looked for: a scrub does, and tells the first thousand.
    pub more_keys: Vec<KeyRange>,
}

/// The keys in `[lo, hi)` of a dictionary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The dictionary.
    pub dict: DictId,
    /// Where they begin.
    pub lo: Cut,
    /// Where they end.
    pub hi: Cut,
}

impl Finding {
    pub(crate) fn problem(code: FindingCode, place: Place, what: String) -> Finding {
        Finding { code, place, what, is_problem: true, hides: None, keys: None, more_keys: Vec::new() }
    }

    pub(crate) fn note(code: FindingCode, place: Place, what: String) -> Finding {
        Finding { code, place, what, is_problem: false, hides: None, keys: None, more_keys: Vec::new() }
    }

    /// Damage that makes data unreadable: readers get `hides`.
    pub(crate) fn unreadable(code: FindingCode, place: Place, what: String, hides: Error) -> Finding {
        Finding { code, place, what, is_problem: true, hides: Some(hides), keys: None, more_keys: Vec::new() }
    }

    /// Damage of the node table, in the words of the error that readers get.
    pub(crate) fn lost(error: Error) -> Finding {
        let place = Place::NodeTable { offset: error.offset() };
        Finding::unreadable(FindingCode::BadNodeTable, place, error.to_string(), error)
    }

    /// Nodes that were found by their headers alone.
    pub(crate) fn by_header(count: u64) -> Finding {
        let what = format!(
            "{} by the header, as the place was lost; of a node that is lost itself this may be an older state",
            counted(count, "node was found", "nodes were found")
        );
        Finding::note(FindingCode::NodesByHeader, Place::NodeTable { offset: None }, what)
    }

    /// A node whose blocks others claim too.
    pub(crate) fn disputed(node: &DisputedNode) -> Finding {
        let DisputedNode { id, offset, extent, what } = node;
        let (code, place) = (FindingCode::DisputedBlocks, Place::node(*id, Some(*offset)));
        match extent {
            Ok(_) => Finding::problem(code, place, what.clone()),
            Err(error) => Finding::unreadable(code, place, what.clone(), error.clone()),
        }
    }

    /// The sentence, if it is a problem.
    pub fn into_problem(self) -> Option<String> {
        self.is_problem.then_some(self.what)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.what, self.code)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn each_code_has_a_kebab_case_name_of_its_own() {
        let mut names: alloc::vec::Vec<_> = FindingCode::ALL.iter().map(|code| code.name()).collect();
        assert!(
            names.iter().all(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')),
            "{names:?}"
        );
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FindingCode::ALL.len());
    }

    #[test]
    fn a_place_reads_as_its_structure_and_offset() {
        let id = NodeId { slot: 7, generation: 2 };
        assert_eq!(Place::node(id, Some(8192)).to_string(), "node 7.2 at byte 8192");
        assert_eq!(Place::NodeTable { offset: None }.to_string(), "node-table");
    }
}
