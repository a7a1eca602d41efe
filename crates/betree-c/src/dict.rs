//! Dictionaries: reads and changes.

use crate::args::{self, handle};
use crate::results::{OutBytes, free_handle};
use crate::status::{Status, call};

/// A dictionary: an ordered map from byte strings to byte strings. Many threads can use it at once.
pub struct Dict(pub(crate) betree_store::Dict);

/// Frees the handle of a dictionary; the dictionary stays. NULL is let be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_dict_free(dict: *mut Dict) {
    // SAFETY: the caller's promise.
    unsafe { free_handle(dict) }
}

/// The value of a key, which is freed by betree_free: BETREE_NOT_FOUND if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_get(
    dict: *const Dict,
    key: *const u8,
    key_len: usize,
    value: *mut *mut u8,
    value_len: *mut usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (out, dict, key) = unsafe {
            let out = OutBytes::new(value, value_len, "the place for the value")?;
            (out, handle(dict, "the dictionary")?, args::key(key, key_len)?)
        };
        let Some(value) = dict.0.get(key)? else { return Ok(Status::BetreeNotFound) };
        out.set(&value)?;
        Ok(Status::BetreeOk)
    })
}

/// Sets the value of a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_put(
    dict: *const Dict,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (dict, key, value) = unsafe {
            (handle(dict, "the dictionary")?, args::key(key, key_len)?, args::value(value, value_len)?)
        };
        dict.0.put(key, value)?;
        Ok(Status::BetreeOk)
    })
}

/// Removes a key, if it is there; whether it was is not read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_delete(dict: *const Dict, key: *const u8, key_len: usize) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (dict, key) = unsafe { (handle(dict, "the dictionary")?, args::key(key, key_len)?) };
        dict.0.delete(key)?;
        Ok(Status::BetreeOk)
    })
}

/// Removes every key from `lo` on and before `hi`, at a cost that does not depend on how many there are.
/// Where `lo` is NULL, from the first key on; where `hi` is NULL, to the last.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_delete_range(
    dict: *const Dict,
    lo: *const u8,
    lo_len: usize,
    hi: *const u8,
    hi_len: usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (dict, range) =
            unsafe { (handle(dict, "the dictionary")?, args::range((lo, lo_len), (hi, hi_len))?) };
        dict.0.delete_range::<&[u8]>(range)?;
        Ok(Status::BetreeOk)
    })
}

/// Removes every key that begins with a prefix, at a cost that does not depend on how many there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_delete_prefix(
    dict: *const Dict,
    prefix: *const u8,
    prefix_len: usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (dict, prefix) = unsafe { (handle(dict, "the dictionary")?, args::key(prefix, prefix_len)?) };
        dict.0.delete_prefix(prefix)?;
        Ok(Status::BetreeOk)
    })
}
