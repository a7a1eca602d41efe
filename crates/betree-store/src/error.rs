//! What can go wrong, with the file, the dictionary and the key.

use std::io;
use std::path::PathBuf;

use crate::bytes::Key;

/// The result of a store's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// So many bytes of a key are shown in a sentence.
const SHOWN_BYTES: usize = 40;

/// What can go wrong. Unless it says otherwise, nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another process has the store open, or this one has it open already.
    #[error("{} is open already{}", path.display(), by(*holder))]
    InUse {
        /// The store's file.
        path: PathBuf,
        /// The process that has it open, if the system tells.
        holder: Option<u32>,
    },
    /// There is no such file, and the options say that none is to be made.
    #[error("there is no store {}", path.display())]
    NoSuchStore {
        /// The path.
        path: PathBuf,
    },
    /// There is a file already where one is to be made.
    #[error("there is a file {} already", path.display())]
    FileExists {
        /// The path.
        path: PathBuf,
    },
    /// The file holds something else than a store.
    #[error("{} is not a store: {why}", path.display())]
    NotAStore {
        /// The file.
        path: PathBuf,
        /// What it is, or what it lacks.
        why: String,
    },
    /// The store was made by a later version of this library.
    #[error("{} was made by a later version of this library: {why}", path.display())]
    NewerStore {
        /// The store's file.
        path: PathBuf,
        /// What is not known.
        why: String,
    },
    /// The operating system refused.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// There is no room: in the store, or on the disk that holds it. What was accepted before is kept, and
    /// the store goes on once there is room. If a call that waits for the disk returns this, its change is
    /// seen, and becomes durable then.
    #[error("no space left for {}: {why}", path.display())]
    NoSpace {
        /// The store's file.
        path: PathBuf,
        /// What is full.
        why: String,
    },
    /// The store takes no changes: a write failed, or it was opened for reading.
    #[error("{} is read-only: {why}", path.display())]
    ReadOnly {
        /// The store's file.
        path: PathBuf,
        /// The failure, or why it can only be read.
        why: String,
    },
    /// The store was closed.
    #[error("{} was closed", path.display())]
    Closed {
        /// The store's file.
        path: PathBuf,
    },
    /// The store has no dictionary of that name.
    #[error("there is no dictionary {name:?}")]
    NoSuchDict {
        /// The name.
        name: String,
    },
    /// The store has a dictionary of that name.
    #[error("there is a dictionary {name:?} already")]
    DictExists {
        /// The name.
        name: String,
    },
    /// The dictionary was dropped after the handle was made.
    #[error("the dictionary {name:?} was dropped")]
    DictDropped {
        /// Its last name.
        name: String,
    },
    /// No dictionary can have that name.
    #[error("{name:?} cannot be a name: {why}")]
    BadName {
        /// The name.
        name: String,
        /// Why not.
        why: &'static str,
    },
    /// The number of dictionaries that a store can ever have had is reached.
    #[error("no store has more dictionaries in its life than 2^32")]
    TooManyDicts,
    /// The pairs of an ingest are not in the order of their keys, or a key comes twice.
    #[error("dictionary {dict:?}: pair {position}, counted from 0, does not come behind the one before it")]
    NotInOrder {
        /// The dictionary.
        dict: String,
        /// Which pair it is, counted from 0.
        position: u64,
    },
    /// A key is too long, or one that a clone would make.
    #[error("dictionary {dict:?}: a key of {bytes} bytes is over the limit of {limit_bytes} bytes")]
    KeyTooLong {
        /// The dictionary.
        dict: String,
        /// Its length.
        bytes: usize,
        /// The longest that is allowed.
        limit_bytes: usize,
    },
    /// A value is too large.
    #[error(
        "dictionary {dict:?}, key {}: a value of {bytes} bytes is over the limit of {limit_bytes} bytes",
        shown(key)
    )]
    ValueTooLarge {
        /// The dictionary.
        dict: String,
        /// The key.
        key: Key,
        /// Its length.
        bytes: usize,
        /// The longest that is allowed here.
        limit_bytes: usize,
    },
    /// A batch is too large to be one.
    #[error("a batch of {bytes} bytes is over the limit of {limit_bytes} bytes")]
    BatchTooLarge {
        /// Its size.
        bytes: usize,
        /// The largest that is allowed.
        limit_bytes: usize,
    },
    /// A transaction has more changes than one can have: a sixteenth of the cache, and no more than a batch.
    #[error("a transaction of {bytes} bytes is over the limit of {limit_bytes} bytes")]
    TransactionTooLarge {
        /// The size that it would have.
        bytes: usize,
        /// The largest that is allowed.
        limit_bytes: usize,
    },
    /// A transaction has at most so many clones, and parts of such that its deletes leave.
    #[error("a transaction has at most {limit} clones, or parts of them")]
    TooManyClones {
        /// The most that one has.
        limit: usize,
    },
    /// The view, or that of the transaction, ended because the store needs the space of what it holds.
    #[error("{}: the view has ended, because the store needs its space", path.display())]
    ViewEnded {
        /// The store's file.
        path: PathBuf,
    },
    /// The transaction was committed, or has ended otherwise.
    #[error("the transaction has ended")]
    TransactionEnded,
    /// A backup was stopped by its callback. No file is left.
    #[error("the backup {} was stopped", path.display())]
    BackupStopped {
        /// The path of the copy.
        path: PathBuf,
    },
    /// The process was forked: only the one that opened the store can use it.
    #[error("{} was opened by process {opened_by}, of which this one is a fork", path.display())]
    Forked {
        /// The store's file.
        path: PathBuf,
        /// The process that has opened it.
        opened_by: u32,
    },
    /// A batch or a transaction holds changes of a dictionary of another store.
    #[error("the dictionary {dict:?} belongs to another store")]
    OtherStore {
        /// The dictionary.
        dict: String,
    },
    /// An upsert in a dictionary without a merge.
    #[error("the dictionary {dict:?} was made without a merge, which an upsert needs")]
    NoMerge {
        /// The dictionary.
        dict: String,
    },
    /// A value is to expire in a dictionary that was made without that, or one is asked for that has it.
    #[error("the dictionary {dict:?} was not made for values that expire")]
    NoExpiry {
        /// The dictionary.
        dict: String,
    },
    /// A merge was not registered when the store was opened, and the store is refused, or a value needs it:
    /// see [`MissingMerges`](crate::MissingMerges).
    #[error("{}the merge {merge:?} is not registered", of(dict.as_deref()))]
    UnknownMerge {
        /// The merge's name.
        merge: String,
        /// A dictionary that is bound to it.
        dict: Option<String>,
    },
    /// A dictionary is bound to another merge than the one that is asked for.
    #[error("the dictionary {dict:?} is bound to {}, not to {}", named(bound.as_deref()), named(asked.as_deref()))]
    OtherMerge {
        /// The dictionary.
        dict: String,
        /// Its merge.
        bound: Option<String>,
        /// The one that is asked for.
        asked: Option<String>,
    },
    /// A merge is registered that does something else than the one of that name with which the dictionary was
    /// used: see [`Merge::kind`](crate::Merge::kind).
    #[error(
        "{}: dictionary {dict:?} was used with a merge {merge:?} of the kind {was:?}, and {is:?} is registered \
         under that name: open it with the same merge, or give the new one another name",
        path.display()
    )]
    OtherKindOfMerge {
        /// The store's file.
        path: PathBuf,
        /// The dictionary.
        dict: String,
        /// The merge's name.
        merge: String,
        /// The kind that it had.
        was: Box<str>,
        /// The kind that is registered.
        is: Box<str>,
    },
    /// A merge cannot be registered.
    #[error("the merge {merge:?} cannot be registered: {why}")]
    BadMerge {
        /// Its name.
        merge: String,
        /// Why not.
        why: &'static str,
    },
    /// A key has no value because its merge failed, panicked, or made a value that is too large. Other keys
    /// are not affected. See [`Merge`](crate::Merge) for what is kept.
    #[error("no value for the key {} of dictionary {dict:?}: the merge {merge:?} failed: {why}", shown(key))]
    MergeFailed {
        /// The dictionary.
        dict: String,
        /// The key.
        key: Key,
        /// The merge's name.
        merge: String,
        /// Why it failed.
        why: String,
    },
    /// The store holds something that this library does not write.
    #[error("{} is damaged: {why}", path.display())]
    Damaged {
        /// The store's file.
        path: PathBuf,
        /// What does not fit.
        why: String,
    },
    /// The dictionary engine failed.
    #[error("{}: {source}", path.display())]
    Engine {
        /// The store's file.
        path: PathBuf,
        /// The engine's error.
        source: betree::Error,
    },
}

impl Error {
    /// Whether it says nothing about other keys than the one that was read.
    pub(crate) fn is_of_one_key(&self) -> bool {
        matches!(self, Error::MergeFailed { .. } | Error::UnknownMerge { .. })
    }
}

fn by(holder: Option<u32>) -> String {
    holder.map_or_else(String::new, |pid| format!(", by process {pid}"))
}

fn of(dict: Option<&str>) -> String {
    dict.map_or_else(String::new, |dict| format!("dictionary {dict:?}: "))
}

fn named(merge: Option<&str>) -> String {
    merge.map_or_else(|| "no merge".into(), |merge| format!("the merge {merge:?}"))
}

fn shown(key: &[u8]) -> String {
    match key.get(..SHOWN_BYTES) {
        Some(head) if key.len() > SHOWN_BYTES => format!("\"{}…\"", head.escape_ascii()),
        _ => format!("\"{}\"", key.escape_ascii()),
    }
}
