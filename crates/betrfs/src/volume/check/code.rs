//! The kinds of problems that the file system finds itself, beside the engine's.

use betree::{FindingCode, Remedy};

/// Declares [`Code`] with the names of its values and what a repair does about them.
macro_rules! codes {
    ($($(#[$doc:meta])* $code:ident = $name:literal, $remedy:ident($what:literal);)*) => {
        /// The kind of a problem.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Code {
            $($(#[$doc])* $code,)*
        }

        impl Code {
            const ALL: &[Code] = &[$(Code::$code,)*];

            /// The name for programs, which no later version changes.
            pub fn name(self) -> &'static str {
                match self {
                    $(Code::$code => $name,)*
                }
            }

            /// What a repair does about it.
            pub fn remedy(self) -> Remedy {
                match self {
                    $(Code::$code => Remedy::$remedy($what),)*
                }
            }
        }
    };
}

codes! {
    /// A record, redirect or marker cannot be decoded.
    BadRecord = "bad-record", Dropped("the record is removed; what it leads to is looked at again");
    /// A key, record or value is of a later version.
    LaterVersion = "later-version", Left("a later version of betrfs made it; nothing is written where one was found");
    /// A key has no meaning.
    BadKey = "bad-key", Dropped("the key is removed");
    /// The root has no record, or that of something else.
    NoRoot = "no-root", Dropped("the root gets the record of a new directory");
    /// The volume has no record.
    NoVolumeRecord = "no-volume-record", Dropped("it is made again, with numbers behind all that can have been given");
    /// An object has a number that was never given.
    NumberNotGiven = "number-not-given", Mended("the numbers given so far end behind it");
    /// An entry stands below what is no directory.
    NoDirectory = "no-directory", Mended("a directory is made for it where there is nothing");
    /// A directory counts other entries than it has.
    WrongEntryCounts = "wrong-entry-counts", Mended("the counts become what was found, and at least one more where names are lost");
    /// A directory counts fewer snapshots than it has.
    WrongSnapshotCount = "wrong-snapshot-count", Mended("the count becomes what was found");
    /// A file counts other names than it has.
    WrongLinkCount = "wrong-link-count", Mended("the count becomes what was found");
    /// A file has no name.
    NamelessFile = "nameless-file", Mended("it gets a name in /lost+found");
    /// A name leads to a file that is not there.
    LostFile = "lost-file", Dropped("the name is removed where no block of the file is there either");
    /// A name says another type or number than the file that it leads to.
    WrongRedirect = "wrong-redirect", Mended("the name gets the type and number of the file");
    /// A name of a linked file is not in the list of them, or wrongly.
    NotListed = "name-not-listed", Mended("it is listed");
    /// A name of a linked file is known damage, and the list of them has it.
    LostName = "lost-name", Mended("it is made again");
    /// The list of names of linked files has what is none.
    WronglyListed = "wrongly-listed", Mended("it is taken off the list");
    /// The size of a symbolic link is not that of its target.
    WrongSize = "wrong-size", Mended("the size becomes that of the target");
    /// There are bytes behind the end of a file.
    BytesBehindEnd = "bytes-behind-end", Dropped("the bytes, which nobody can read, are removed");
    /// A block of a file is not there.
    LostBlock = "lost-block", Dropped("it becomes known damage: nothing tells what was in it");
    /// A sparse file has other blocks than its record says.
    WrongBlocks = "wrong-blocks", Dropped("the record gets the blocks that are there; others read as zeros");
    /// The value of an extended attribute is not there, or is of another length.
    LostAttribute = "lost-attribute", Dropped("the attribute is removed");
    /// A record has a large attribute, and not the flag that says so.
    AttributeFlag = "attribute-flag", Mended("the flag is set");
    /// An access control list is none.
    BadAcl = "bad-access-control-list",
        Dropped("the list is removed, and if it was not a default one, the permissions of the group");
    /// An object has other permissions than its access control list says.
    WrongAclPermissions = "wrong-access-control-list", Mended("the list is changed as by chmod");
    /// A quota counts other bytes or objects than are below its directory.
    WrongQuotaUse = "wrong-quota-use", Mended("the use becomes what was found");
    /// A file has blocks, and no record.
    LostRecord = "lost-record", Mended("it gets the record of a new file, as long as its blocks");
    /// Blocks of a snapshot, or values, belong to no file.
    OwnerlessData = "ownerless-data", Dropped("what belongs to no file is removed");
    /// The dictionary for later versions is not empty.
    LaterDictionary = "later-dictionary", Left("a later version of betrfs made it; nothing is written where one was found");
    /// A table in memory is wrong.
    Memory = "memory-does-not-fit", Left("it is not on the device: open the volume anew");
    /// An error without a finding of the engine.
    NotRead = "not-read", Left("it can be read again or not at all");
}

/// Whether a problem of this code is that a later version of this program made something: it is no damage,
/// and no repair writes anything beside it.
pub fn is_of_later_version(code: &str) -> bool {
    let later = [FindingCode::LaterKind.name(), Code::LaterVersion.name(), Code::LaterDictionary.name()];
    later.contains(&code)
}

/// All codes that a [`Problem`](super::Problem) may have, each with what a repair does about it.
pub fn problem_codes() -> impl Iterator<Item = (&'static str, Remedy)> {
    let engine = FindingCode::ALL.iter().map(|code| (code.name(), code.remedy()));
    engine.chain(Code::ALL.iter().map(|code| (code.name(), code.remedy())))
}
