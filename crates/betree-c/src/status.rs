//! Status codes, the last error of a thread, and the wall that no panic leaves.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use betree_store::Error;

/// What a call has come to. Numbers stay the same in later versions, and new ones may be added.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It was done.
    BetreeOk = 0,
    /// There is no such key, or no further pair. It is no failure, and betree_last_error() is as before.
    BetreeNotFound = 1,
    /// An argument is NULL that must not be, a name is no UTF-8, or an option has no such value.
    BetreeBadArgument = 2,
    /// Another process has the store open, or this one has it open already.
    BetreeInUse = 3,
    /// There is no such file, and none was to be made.
    BetreeNoSuchStore = 4,
    /// The file holds something else than a store.
    BetreeNotAStore = 5,
    /// The store was made by a later version of the library.
    BetreeNewerStore = 6,
    /// The operating system refused.
    BetreeIo = 7,
    /// There is no room, in the store or on its disk. The store goes on once there is.
    BetreeNoSpace = 8,
    /// The store takes no changes: a write failed, or it was opened for reading.
    BetreeReadOnly = 9,
    /// The store was closed.
    BetreeClosed = 10,
    /// The store has no dictionary of that name.
    BetreeNoSuchDict = 11,
    /// The store has a dictionary of that name.
    BetreeDictExists = 12,
    /// The dictionary was dropped after the handle was made.
    BetreeDictDropped = 13,
    /// No dictionary can have that name.
    BetreeBadName = 14,
    /// A key, a value, a batch or a transaction is larger than the store takes.
    BetreeTooLarge = 15,
    /// A batch or a transaction and a dictionary belong to different stores.
    BetreeOtherStore = 16,
    /// A merge is not registered, is another one than the dictionary's, or has failed.
    BetreeMerge = 17,
    /// The store's file is damaged.
    BetreeDamaged = 18,
    /// There is no memory for the result.
    BetreeNoMemory = 19,
    /// The engine failed otherwise; betree_last_error() says how.
    BetreeEngine = 20,
    /// A mistake in the library. The call may be half done; the store is as after a crash when it is opened
    /// again.
    BetreePanic = 21,
    /// Another change came first, and the transaction has changed nothing: it is to be tried again.
    BetreeConflict = 22,
    /// The view, or that of the transaction, has ended, because the store needed the space of what it held.
    BetreeViewEnded = 23,
    /// The transaction was committed.
    BetreeTransactionEnded = 24,
    /// There is a file already where one is to be made.
    BetreeFileExists = 25,
    /// The callback has stopped the call.
    BetreeStopped = 26,
    /// The store was opened by another process, of which this one is a fork.
    BetreeForked = 27,
    /// A value is to expire in a dictionary that was not made for that.
    BetreeNoExpiry = 28,
}

/// A call that was not done, and why.
#[derive(Debug)]
pub struct Failure {
    pub status: Status,
    pub why: String,
}

impl Failure {
    pub fn new(status: Status, why: impl Into<String>) -> Failure {
        Failure { status, why: why.into() }
    }

    /// An argument that cannot be.
    pub fn bad_argument(why: impl Into<String>) -> Failure {
        Failure::new(Status::BetreeBadArgument, why)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let status = match &error {
            Error::InUse { .. } => Status::BetreeInUse,
            Error::NoSuchStore { .. } => Status::BetreeNoSuchStore,
            Error::NotAStore { .. } => Status::BetreeNotAStore,
            Error::NewerStore { .. } => Status::BetreeNewerStore,
            Error::Io { .. } => Status::BetreeIo,
            Error::NoSpace { .. } => Status::BetreeNoSpace,
            Error::ReadOnly { .. } => Status::BetreeReadOnly,
            Error::Closed { .. } => Status::BetreeClosed,
            Error::NoSuchDict { .. } => Status::BetreeNoSuchDict,
            Error::DictExists { .. } => Status::BetreeDictExists,
            Error::DictDropped { .. } => Status::BetreeDictDropped,
            Error::BadName { .. } => Status::BetreeBadName,
            Error::KeyTooLong { .. }
            | Error::ValueTooLarge { .. }
            | Error::BatchTooLarge { .. }
            | Error::TransactionTooLarge { .. } => Status::BetreeTooLarge,
            Error::ViewEnded { .. } => Status::BetreeViewEnded,
            Error::TransactionEnded => Status::BetreeTransactionEnded,
            Error::FileExists { .. } => Status::BetreeFileExists,
            Error::BackupStopped { .. } => Status::BetreeStopped,
            Error::Forked { .. } => Status::BetreeForked,
            Error::NoExpiry { .. } => Status::BetreeNoExpiry,
            Error::OtherStore { .. } => Status::BetreeOtherStore,
            Error::NoMerge { .. }
            | Error::UnknownMerge { .. }
            | Error::OtherMerge { .. }
            | Error::OtherKindOfMerge { .. }
            | Error::BadMerge { .. }
            | Error::MergeFailed { .. } => Status::BetreeMerge,
            Error::Damaged { .. } => Status::BetreeDamaged,
            _ => Status::BetreeEngine,
        };
        Failure::new(status, error.to_string())
    }
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Runs a call, notes its failure, and returns its status.
pub fn call(run: impl FnOnce() -> Result<Status, Failure>) -> Status {
    // What it may leave half done is the store's, whose locks do not care for panics, or the caller's.
    let done = catch_unwind(AssertUnwindSafe(run));
    let failure = match done {
        Ok(Ok(status)) => return status,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let why = panic.downcast_ref::<String>().map(String::as_str);
            let why = why.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
            Failure::new(Status::BetreePanic, why)
        }
    };
    // Zeros would end the text; a name may have some.
    let text = CString::new(failure.why.replace('\0', "\\0")).unwrap_or_default();
    // A thread that ends has no last error any more.
    let _ = LAST_ERROR.try_with(|last| last.replace(text));
    failure.status
}

/// What the last failure of the calling thread was, as text that ends with a zero: empty if there was none.
/// It is valid until the thread's next failure, and is not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn betree_last_error() -> *const c_char {
    LAST_ERROR.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}
