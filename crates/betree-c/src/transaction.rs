//! Transactions: reads of one moment, and changes that are made together unless others came first.

use std::ffi::{c_char, c_void};
use std::ptr::null_mut;

use betree_store::{DictOptions, Outcome, Savepoint, SharedTransaction};

use crate::args::{self, Out, handle};
use crate::conflict::{Conflict, OutConflict};
use crate::dict::Dict;
use crate::iter::{Iter, new_iter};
use crate::results::{OutBytes, OutNames, Slice, free_handle, new_handle};
use crate::status::{Failure, Status, call};
use crate::store::Store;

/// Reads of one moment of a store, and changes of its dictionaries and their names that nobody else sees
/// before betree_transaction_commit. It waits for nobody and nobody for it. Its reads see its own changes.
/// Many threads can use it at once; their calls follow one another.
pub struct Transaction(SharedTransaction);

/// What hinders the commit of a transaction: values for betree_transaction_begin.
#[repr(C)]
pub enum Isolation {
    /// A change by others of what the transaction changes. Two that read what the other one changes may both
    /// commit.
    BetreeSnapshot = 0,
    /// A change by others of what the transaction has read. All that commit have an order in which they could
    /// have run one after the other.
    BetreeSerializable = 1,
}

/// A condition of a value, which is NULL where the key is absent. It is called by betree_transaction_expect
/// and by the commit, in the threads of these calls, and must not call the library.
pub type PredicateFn =
    Option<unsafe extern "C" fn(context: *mut c_void, value: *const u8, value_len: usize) -> bool>;

/// Begins a transaction; `isolation` is a betree_isolation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_transaction_begin(
    store: *const Store,
    isolation: i32,
    transaction: *mut *mut Transaction,
) -> Status {
    const SNAPSHOT: i32 = Isolation::BetreeSnapshot as i32;
    const SERIALIZABLE: i32 = Isolation::BetreeSerializable as i32;
    call(|| {
        // SAFETY: the caller's promise.
        let (out, store) = unsafe {
            let out = Out::new(transaction, null_mut(), "the place for the transaction")?;
            (out, handle(store, "the store")?)
        };
        let isolation = match isolation {
            SNAPSHOT => betree_store::Isolation::Snapshot,
            SERIALIZABLE => betree_store::Isolation::Serializable,
            other => return Err(Failure::bad_argument(format!("there is no isolation {other}"))),
        };
        out.set(new_handle(Transaction(SharedTransaction::from(store.0.begin(isolation)))));
        Ok(Status::BetreeOk)
    })
}

/// Frees a transaction. Changes that were not committed are dropped. NULL is let be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_transaction_free(transaction: *mut Transaction) {
    // SAFETY: the caller's promise.
    unsafe { free_handle(transaction) }
}

/// Makes the changes seen, all or none, and ends the transaction: all other calls with it fail with
/// BETREE_TRANSACTION_ENDED from then on, and the handle is still to be freed. BETREE_CONFLICT if another
/// change came first: nothing was changed, and all of it is to be tried again in a new transaction. The place
/// for what is known of the conflict may be NULL; it is freed by one betree_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_transaction_commit(
    transaction: *const Transaction,
    conflict: *mut *mut Conflict,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (out, transaction) =
            unsafe { (OutConflict::new(conflict), handle(transaction, "the transaction")?) };
        match transaction.0.commit()? {
            Outcome::Committed(_) => Ok(Status::BetreeOk),
            Outcome::Conflict(conflict) => Err(out.set(&conflict)?),
        }
    })
}

/// The dictionary of a name, as of the transaction's beginning and with its own changes: BETREE_NO_SUCH_DICT
/// if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_transaction_dict(
    transaction: *const Transaction,
    name: *const c_char,
    name_len: usize,
    dict: *mut *mut Dict,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (out, transaction, name) = unsafe {
            let out = Out::new(dict, null_mut(), "the place for the dictionary")?;
            (out, handle(transaction, "the transaction")?, args::name(name, name_len)?)
        };
        out.set(new_handle(Dict(transaction.0.with(|own| own.dict(name))?)));
        Ok(Status::BetreeOk)
    })
}

/// The names of all dictionaries, as betree_dict_list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_transaction_dict_list(
    transaction: *const Transaction,
    names: *mut *mut Slice,
    count: *mut usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (out, transaction) =
            unsafe { (OutNames::new(names, count)?, handle(transaction, "the transaction")?) };
        out.set(&transaction.0.with(|own| own.dicts())?)?;
        Ok(Status::BetreeOk)
    })
}

/// Makes a dictionary, bound to a merge if that is not NULL. The handle is good for this transaction, and
/// everywhere once that has committed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_transaction_dict_create(
    transaction: *const Transaction,
    name: *const c_char,
    name_len: usize,
    merge: *const c_char,
    merge_len: usize,
    dict: *mut *mut Dict,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (out, transaction) = unsafe {
            let out = Out::new(dict, null_mut(), "the place for the dictionary")?;
            (out, handle(transaction, "the transaction")?)
        };
        // SAFETY: the caller's promise.
        let (name, merge) = unsafe { (args::name(name, name_len)?, args::optional_name(merge, merge_len)?) };
        let options = merge.map_or_else(DictOptions::new, |merge| DictOptions::new().merge(merge));
        out.set(new_handle(Dict(transaction.0.with(|own| own.create(name, &options))?)));
        Ok(Status::BetreeOk)
    })
}

/// Renames a dictionary, once the transaction commits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_transaction_dict_rename(
    transaction: *const Transaction,
    from: *const c_char,
    from_len: usize,
    to: *const c_char,
    to_len: usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (transaction, from, to) = unsafe {
            let transaction = handle(transaction, "the transaction")?;
            (transaction, args::name(from, from_len)?, args::name(to, to_len)?)
        };
        transaction.0.with(|own| own.rename_dict(from, to))?;
        Ok(Status::BetreeOk)
    })
}

/// Makes a dictionary that holds what another one holds, as the transaction sees it. The handle is good for
/// this transaction, and everywhere once that has committed; its place may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_transaction_dict_clone(
    transaction: *const Transaction,
    from: *const c_char,
    from_len: usize,
    to: *const c_char,
    to_len: usize,
    dict: *mut *mut Dict,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(dict, null_mut(), "the place for the dictionary") }.ok();
        // SAFETY: the caller's promise.
        let (transaction, from, to) = unsafe {
            let transaction = handle(transaction, "the transaction")?;
            (transaction, args::name(from, from_len)?, args::name(to, to_len)?)
        };
        let clone = transaction.0.with(|own| own.clone_dict(from, to))?;
        if let Some(out) = out {
            out.set(new_handle(Dict(clone)));
        }
        Ok(Status::BetreeOk)
    })
}

/// Removes a dictionary with all that it holds, once the transaction commits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_transaction_dict_drop(
    transaction: *const Transaction,
    name: *const c_char,
    name_len: usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (transaction, name) =
            unsafe { (handle(transaction, "the transaction")?, args::name(name, name_len)?) };
        transaction.0.with(|own| own.drop_dict(name))?;
        Ok(Status::BetreeOk)
    })
}

/// The value of a key as of the transaction's beginning, with its own changes, which is freed by betree_free:
/// BETREE_NOT_FOUND if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_transaction_get(
    transaction: *const Transaction,
    dict: *const Dict,
    key: *const u8,
    key_len: usize,
    value: *mut *mut u8,
    value_len: *mut usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (out, (transaction, dict), key) = unsafe {
            let out = OutBytes::new(value, value_len, "the place for the value")?;
            (out, handles(transaction, dict)?, args::key(key, key_len)?)
        };
        let found = transaction.0.with(|own| own.get(&dict.0, key))?;
        let Some(value) = found else { return Ok(Status::BetreeNotFound) };
        out.set(&value)?;
        Ok(Status::BetreeOk)
    })
}

/// Sets the value of a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_transaction_put(
    transaction: *const Transaction,
    dict: *const Dict,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let ((transaction, dict), key, value) = unsafe {
            (handles(transaction, dict)?, args::key(key, key_len)?, args::value(value, value_len)?)
        };
        transaction.0.with(|own| own.put(&dict.0, key, value))?;
        Ok(Status::BetreeOk)
    })
}

/// Removes a key, if it is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_transaction_delete(
    transaction: *const Transaction,
    dict: *const Dict,
    key: *const u8,
    key_len: usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let ((transaction, dict), key) = unsafe { (handles(transaction, dict)?, args::key(key, key_len)?) };
        transaction.0.with(|own| own.delete(&dict.0, key))?;
        Ok(Status::BetreeOk)
    })
}

/// Changes the value of a key by the dictionary's merge: see betree_upsert. With BETREE_SNAPSHOT it counts as
/// a change of the key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_transaction_upsert(
    transaction: *const Transaction,
    dict: *const Dict,
    key: *const u8,
    key_len: usize,
    delta: *const u8,
    delta_len: usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let ((transaction, dict), key, delta) = unsafe {
            (handles(transaction, dict)?, args::key(key, key_len)?, args::value(delta, delta_len)?)
        };
        transaction.0.with(|own| own.upsert(&dict.0, key, delta))?;
        Ok(Status::BetreeOk)
    })
}

/// As betree_transaction_upsert, for a delta that depends on nothing that was read: it conflicts with no
/// change of the key by others.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_transaction_upsert_blind(
    transaction: *const Transaction,
    dict: *const Dict,
    key: *const u8,
    key_len: usize,
    delta: *const u8,
    delta_len: usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let ((transaction, dict), key, delta) = unsafe {
            (handles(transaction, dict)?, args::key(key, key_len)?, args::value(delta, delta_len)?)
        };
        transaction.0.with(|own| own.upsert_blind(&dict.0, key, delta))?;
        Ok(Status::BetreeOk)
    })
}

/// Removes every key of a range: see betree_delete_range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_transaction_delete_range(
    transaction: *const Transaction,
    dict: *const Dict,
    lo: *const u8,
    lo_len: usize,
    hi: *const u8,
    hi_len: usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let ((transaction, dict), range) =
            unsafe { (handles(transaction, dict)?, args::range((lo, lo_len), (hi, hi_len))?) };
        transaction.0.with(|own| own.delete_range::<&[u8]>(&dict.0, range))?;
        Ok(Status::BetreeOk)
    })
}

/// Removes every key that begins with a prefix.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_transaction_delete_prefix(
    transaction: *const Transaction,
    dict: *const Dict,
    prefix: *const u8,
    prefix_len: usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let ((transaction, dict), prefix) =
            unsafe { (handles(transaction, dict)?, args::key(prefix, prefix_len)?) };
        transaction.0.with(|own| own.delete_prefix(&dict.0, prefix))?;
        Ok(Status::BetreeOk)
    })
}

/// Makes what begins with `to` what begins with `from`: see betree_clone_prefix.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_transaction_clone_prefix(
    transaction: *const Transaction,
    dict: *const Dict,
    from: *const u8,
    from_len: usize,
    to: *const u8,
    to_len: usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let ((transaction, dict), from, to) =
            unsafe { (handles(transaction, dict)?, args::key(from, from_len)?, args::key(to, to_len)?) };
        transaction.0.with(|own| own.clone_prefix(&dict.0, from, to))?;
        Ok(Status::BetreeOk)
    })
}

/// As betree_transaction_clone_prefix, and what began with `from` is gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_transaction_rename_prefix(
    transaction: *const Transaction,
    dict: *const Dict,
    from: *const u8,
    from_len: usize,
    to: *const u8,
    to_len: usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let ((transaction, dict), from, to) =
            unsafe { (handles(transaction, dict)?, args::key(from, from_len)?, args::key(to, to_len)?) };
        transaction.0.with(|own| own.rename_prefix(&dict.0, from, to))?;
        Ok(Status::BetreeOk)
    })
}

/// The pairs from the key `lo` on and before `hi` with the transaction's own changes, as betree_iter_range.
/// It reads some pairs at a time, which all count as read. It fails with BETREE_TRANSACTION_ENDED once the
/// transaction has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_transaction_range(
    transaction: *const Transaction,
    dict: *const Dict,
    lo: *const u8,
    lo_len: usize,
    hi: *const u8,
    hi_len: usize,
    iter: *mut *mut Iter,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (out, (transaction, dict), range) = unsafe {
            let out = Out::new(iter, null_mut(), "the place for the iterator")?;
            (out, handles(transaction, dict)?, args::range((lo, lo_len), (hi, hi_len))?)
        };
        out.set(new_iter(transaction.0.owned_range::<&[u8]>(&dict.0, range)));
        Ok(Status::BetreeOk)
    })
}

/// The pairs whose keys begin with a prefix, as betree_transaction_range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_transaction_prefix(
    transaction: *const Transaction,
    dict: *const Dict,
    prefix: *const u8,
    prefix_len: usize,
    iter: *mut *mut Iter,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (out, (transaction, dict), prefix) = unsafe {
            let out = Out::new(iter, null_mut(), "the place for the iterator")?;
            (out, handles(transaction, dict)?, args::key(prefix, prefix_len)?)
        };
        out.set(new_iter(transaction.0.owned_prefix(&dict.0, prefix)));
        Ok(Status::BetreeOk)
    })
}

/// What a predicate is called with. The caller promises that any thread may.
struct Context(*mut c_void);

// SAFETY: the header says that the commit calls the predicate, in whatever thread it is.
unsafe impl Send for Context {}
// SAFETY: as for `Send`; one thread has the transaction at a time.
unsafe impl Sync for Context {}

impl Context {
    fn pointer(&self) -> *mut c_void {
        self.0
    }
}

/// Makes the commit depend on a condition of a value in place of the value: a change of the key by others is
/// a conflict only if the condition no longer holds. `holds` says whether it holds now; if not, nothing
/// depends on it. The predicate and its context must stay until the transaction is committed or freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_transaction_expect(
    transaction: *const Transaction,
    dict: *const Dict,
    key: *const u8,
    key_len: usize,
    predicate: PredicateFn,
    context: *mut c_void,
    holds: *mut bool,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (out, (transaction, dict), key) = unsafe {
            let out = Out::new(holds, false, "the place for the answer")?;
            (out, handles(transaction, dict)?, args::key(key, key_len)?)
        };
        let predicate = predicate.ok_or_else(|| Failure::bad_argument("the predicate is NULL"))?;
        let context = Context(context);
        let asked = move |value: Option<&[u8]>| {
            let (data, len) = value.map_or((std::ptr::null(), 0), |value| (value.as_ptr(), value.len()));
            // SAFETY: the caller's promise: the function and its context are there until the transaction
            // ends.
            unsafe { predicate(context.pointer(), data, len) }
        };
        out.set(transaction.0.with(|own| own.expect(&dict.0, key, asked))?);
        Ok(Status::BetreeOk)
    })
}

/// A place in a transaction to which betree_transaction_roll_back returns: a number of this transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_transaction_savepoint(
    transaction: *const Transaction,
    savepoint: *mut u64,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (out, transaction) = unsafe {
            let out = Out::new(savepoint, 0, "the place for the savepoint")?;
            (out, handle(transaction, "the transaction")?)
        };
        out.set(transaction.0.with(|own| Ok(own.savepoint()))?.into());
        Ok(Status::BetreeOk)
    })
}

/// Drops the changes since a savepoint, which stays; those behind it end. What was read since still counts as
/// read. BETREE_BAD_ARGUMENT, and nothing is dropped, if the savepoint has ended or never was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_transaction_roll_back(
    transaction: *const Transaction,
    savepoint: u64,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let transaction = unsafe { handle(transaction, "the transaction")? };
        match transaction.0.with(|own| Ok(own.roll_back(Savepoint::from(savepoint))))? {
            true => Ok(Status::BetreeOk),
            false => Err(Failure::bad_argument(format!("the transaction has no savepoint {savepoint}"))),
        }
    })
}

/// # Safety
/// As [`handle`], for both.
unsafe fn handles<'a>(
    transaction: *const Transaction,
    dict: *const Dict,
) -> Result<(&'a Transaction, &'a Dict), Failure> {
    // SAFETY: the caller's promise.
    unsafe { Ok((handle(transaction, "the transaction")?, handle(dict, "the dictionary")?)) }
}
