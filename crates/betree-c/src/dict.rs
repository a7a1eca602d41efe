//! Dictionaries: reads and changes.

use crate::args::{self, Out, handle};
use crate::results::{OutBytes, Slice, free_handle, list};
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

/// The values of several keys, in one list of as many slices, in their order, which is freed as a whole by
/// betree_free: that of a key without a value has NULL as its data. What the keys need of the disk is asked
/// for together.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_get_many(
    dict: *const Dict,
    keys: *const Slice,
    count: usize,
    values: *mut *mut Slice,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (out, dict, keys) = unsafe {
            let out = Out::new(values, std::ptr::null_mut(), "the place for the values")?;
            (out, handle(dict, "the dictionary")?, args::keys(keys, count)?)
        };
        let found = dict.0.get_many(&keys)?;
        let found: Vec<Option<&[u8]>> = found.iter().map(|value| value.as_deref()).collect();
        out.set(list(&found)?);
        Ok(Status::BetreeOk)
    })
}

/// Takes the first pair out, and returns key and value, each to be freed by betree_free: BETREE_NOT_FOUND if
/// there is none. Of threads that do so at the same time each gets another pair.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_pop_first(
    dict: *const Dict,
    key: *mut *mut u8,
    key_len: *mut usize,
    value: *mut *mut u8,
    value_len: *mut usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise. Both places are asked, so that each that is there is emptied.
        let (key, value, dict) = unsafe {
            (
                OutBytes::new(key, key_len, "the place for the key"),
                OutBytes::new(value, value_len, "the place for the value"),
                handle(dict, "the dictionary"),
            )
        };
        let (key, value, dict) = (key?, value?, dict?);
        let Some((first, held)) = dict.0.pop_first()? else { return Ok(Status::BetreeNotFound) };
        if let Err(failure) = OutBytes::set_both([&key, &value], [&first, &held]) {
            // Without memory for it the caller does not get it: it stays.
            dict.0.put(&first, &held)?;
            return Err(failure);
        }
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

/// Makes what begins with `to` what begins with `from`: the same pairs under other names. The cost does not
/// depend on how many there are. What began with `to` before is gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_clone_prefix(
    dict: *const Dict,
    from: *const u8,
    from_len: usize,
    to: *const u8,
    to_len: usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (dict, from, to) =
            unsafe { (handle(dict, "the dictionary")?, args::key(from, from_len)?, args::key(to, to_len)?) };
        dict.0.clone_prefix(from, to)?;
        Ok(Status::BetreeOk)
    })
}

/// As betree_clone_prefix, and what began with `from` is gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_rename_prefix(
    dict: *const Dict,
    from: *const u8,
    from_len: usize,
    to: *const u8,
    to_len: usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (dict, from, to) =
            unsafe { (handle(dict, "the dictionary")?, args::key(from, from_len)?, args::key(to, to_len)?) };
        dict.0.rename_prefix(from, to)?;
        Ok(Status::BetreeOk)
    })
}

/// The bytes that a range takes in the file, those of them that no clone shares, which a deletion would
/// free, and about how many pairs it has: the nearer, the more alike they are in size, and the fewer changes
/// have come since the last checkpoints. The ends of the range are as for betree_delete_range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_estimate(
    dict: *const Dict,
    lo: *const u8,
    lo_len: usize,
    hi: *const u8,
    hi_len: usize,
    stored_bytes: *mut u64,
    exclusive_bytes: *mut u64,
    pairs: *mut u64,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (stored, exclusive, count) = unsafe {
            (
                Out::new(stored_bytes, 0, "the place for the stored bytes"),
                Out::new(exclusive_bytes, 0, "the place for the exclusive bytes"),
                Out::new(pairs, 0, "the place for the number of pairs"),
            )
        };
        let (stored, exclusive, count) = (stored?, exclusive?, count?);
        // SAFETY: the caller's promise.
        let (dict, range) =
            unsafe { (handle(dict, "the dictionary")?, args::range((lo, lo_len), (hi, hi_len))?) };
        let found = dict.0.estimate::<&[u8]>(range)?;
        stored.set(found.stored_bytes);
        exclusive.set(found.exclusive_bytes);
        count.set(found.pairs);
        Ok(Status::BetreeOk)
    })
}

/// Rewrites a range in the order of its keys, so that it takes less of the file, and a scan reads it in large
/// pieces. Nobody sees other pairs meanwhile, and others go on beside it. What clones share is left as it is.
/// Returns the bytes that it has written to the file. BETREE_NO_SPACE if there is no room beside what it
/// replaces. The ends of the range are as for betree_delete_range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_compact(
    dict: *const Dict,
    lo: *const u8,
    lo_len: usize,
    hi: *const u8,
    hi_len: usize,
    written_bytes: *mut u64,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let written = unsafe { Out::new(written_bytes, 0, "the place for the written bytes") }?;
        // SAFETY: the caller's promise.
        let (dict, range) =
            unsafe { (handle(dict, "the dictionary")?, args::range((lo, lo_len), (hi, hi_len))?) };
        written.set(dict.0.compact::<&[u8]>(range)?.written_bytes);
        Ok(Status::BetreeOk)
    })
}
