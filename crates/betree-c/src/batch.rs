//! Batches: changes that are made together.

use std::ptr::null_mut;

use betree_store::WriteBatch;
use parking_lot::Mutex;

use crate::args::{self, Out, handle};
use crate::dict::Dict;
use crate::results::{free_handle, new_handle};
use crate::status::{Status, call};
use crate::store::Store;

/// A list of changes of any dictionaries of one store. Many threads can use it at once; their changes stand
/// in it in the order of the calls.
pub struct Batch(Mutex<WriteBatch>);

/// An empty batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_batch_new(store: *const Store, batch: *mut *mut Batch) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (out, store) =
            unsafe { (Out::new(batch, null_mut(), "the place for the batch")?, handle(store, "the store")?) };
        out.set(new_handle(Batch(Mutex::new(store.0.batch()))));
        Ok(Status::BetreeOk)
    })
}

/// Frees a batch; changes that were not committed are not made. NULL is let be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_batch_free(batch: *mut Batch) {
    // SAFETY: the caller's promise.
    unsafe { free_handle(batch) }
}

/// Sets the value of a key, once the batch is committed. On a failure the batch is as before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_batch_put(
    batch: *const Batch,
    dict: *const Dict,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (batch, dict) = unsafe { (handle(batch, "the batch")?, handle(dict, "the dictionary")?) };
        // SAFETY: the caller's promise.
        let (key, value) = unsafe { (args::key(key, key_len)?, args::value(value, value_len)?) };
        batch.0.lock().put(&dict.0, key, value)?;
        Ok(Status::BetreeOk)
    })
}

/// Removes a key, once the batch is committed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_batch_delete(
    batch: *const Batch,
    dict: *const Dict,
    key: *const u8,
    key_len: usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (batch, dict, key) = unsafe {
            (handle(batch, "the batch")?, handle(dict, "the dictionary")?, args::key(key, key_len)?)
        };
        batch.0.lock().delete(&dict.0, key)?;
        Ok(Status::BetreeOk)
    })
}

/// Changes the value of a key by the dictionary's merge, once the batch is committed: see betree_upsert.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_batch_upsert(
    batch: *const Batch,
    dict: *const Dict,
    key: *const u8,
    key_len: usize,
    delta: *const u8,
    delta_len: usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (batch, dict) = unsafe { (handle(batch, "the batch")?, handle(dict, "the dictionary")?) };
        // SAFETY: the caller's promise.
        let (key, delta) = unsafe { (args::key(key, key_len)?, args::value(delta, delta_len)?) };
        batch.0.lock().upsert(&dict.0, key, delta)?;
        Ok(Status::BetreeOk)
    })
}

/// Removes every key of a range, once the batch is committed: see betree_delete_range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_batch_delete_range(
    batch: *const Batch,
    dict: *const Dict,
    lo: *const u8,
    lo_len: usize,
    hi: *const u8,
    hi_len: usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (batch, dict) = unsafe { (handle(batch, "the batch")?, handle(dict, "the dictionary")?) };
        // SAFETY: the caller's promise.
        let range = unsafe { args::range((lo, lo_len), (hi, hi_len))? };
        batch.0.lock().delete_range::<&[u8]>(&dict.0, range)?;
        Ok(Status::BetreeOk)
    })
}

/// Removes every key that begins with a prefix, once the batch is committed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_batch_delete_prefix(
    batch: *const Batch,
    dict: *const Dict,
    prefix: *const u8,
    prefix_len: usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (batch, dict) = unsafe { (handle(batch, "the batch")?, handle(dict, "the dictionary")?) };
        // SAFETY: the caller's promise.
        let prefix = unsafe { args::key(prefix, prefix_len)? };
        batch.0.lock().delete_prefix(&dict.0, prefix)?;
        Ok(Status::BetreeOk)
    })
}

/// Makes the changes, all or none, in their order. The batch stays as it is, and can be committed again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_batch_commit(batch: *const Batch) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        unsafe { handle(batch, "the batch") }?.0.lock().commit()?;
        Ok(Status::BetreeOk)
    })
}

/// Forgets all changes of a batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_batch_clear(batch: *const Batch) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        unsafe { handle(batch, "the batch") }?.0.lock().clear();
        Ok(Status::BetreeOk)
    })
}
