//! Iterators over ranges and prefixes, from both ends.

use std::ptr::{null, null_mut};

use betree_store::{Key, OwnedIter, Value};

use crate::args::{self, Out, handle};
use crate::dict::Dict;
use crate::results::{free_handle, new_handle};
use crate::status::{Failure, Status, call};

/// An iterator over the pairs of a range, from both ends, which ends with the first failure, unless that is
/// BETREE_MERGE: then it goes on after the key. One thread uses it at a time. It reads some pairs at a time.
/// That of a view reads the view's moment, that of a transaction what the transaction sees; that of a
/// dictionary is no snapshot, and meets what is changed behind the pairs that it has read.
pub struct Iter {
    pairs: OwnedIter,
    /// What the caller's pointers lead to.
    last: (Key, Value),
}

/// A handle for an iterator.
pub fn new_iter(pairs: OwnedIter) -> *mut Iter {
    new_handle(Iter { pairs, last: Default::default() })
}

/// The pairs from the key `lo` on and before `hi`. Where `lo` is NULL, from the first one on; where `hi` is
/// NULL, to the last.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_iter_range(
    dict: *const Dict,
    lo: *const u8,
    lo_len: usize,
    hi: *const u8,
    hi_len: usize,
    out: *mut *mut Iter,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (out, dict, range) = unsafe {
            let out = Out::new(out, null_mut(), "the place for the iterator")?;
            (out, handle(dict, "the dictionary")?, args::range((lo, lo_len), (hi, hi_len))?)
        };
        out.set(new_iter(dict.0.owned_range::<&[u8]>(range)));
        Ok(Status::BetreeOk)
    })
}

/// The pairs whose keys begin with a prefix.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_iter_prefix(
    dict: *const Dict,
    prefix: *const u8,
    prefix_len: usize,
    out: *mut *mut Iter,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (out, dict, prefix) = unsafe {
            let out = Out::new(out, null_mut(), "the place for the iterator")?;
            (out, handle(dict, "the dictionary")?, args::key(prefix, prefix_len)?)
        };
        out.set(new_iter(dict.0.owned_prefix(prefix)));
        Ok(Status::BetreeOk)
    })
}

/// Where a pair goes.
struct OutPair {
    key: (Out<*const u8>, Out<usize>),
    value: (Out<*const u8>, Out<usize>),
}

impl OutPair {
    /// # Safety
    /// As [`Out::new`].
    unsafe fn new(
        (key, key_len): (*mut *const u8, *mut usize),
        (value, value_len): (*mut *const u8, *mut usize),
    ) -> Result<OutPair, Failure> {
        // SAFETY: the caller's promise. All are asked, so that each that is there is emptied.
        let (key, key_len, value, value_len) = unsafe {
            (
                Out::new(key, null(), "the place for the key"),
                Out::new(key_len, 0, "the place for the key's length"),
                Out::new(value, null(), "the place for the value"),
                Out::new(value_len, 0, "the place for the value's length"),
            )
        };
        Ok(OutPair { key: (key?, key_len?), value: (value?, value_len?) })
    }
}

/// # Safety
/// As the header says; nobody else uses the iterator.
unsafe fn step(
    iter: *mut Iter,
    pair: impl FnOnce() -> Result<OutPair, Failure>,
    take: impl FnOnce(&mut OwnedIter) -> Option<betree_store::Result<(Key, Value)>>,
) -> Status {
    call(|| {
        let out = pair()?;
        // SAFETY: the caller's promise.
        let iter = unsafe { iter.as_mut() };
        let iter = iter.ok_or_else(|| Failure::bad_argument("the iterator is NULL"))?;
        iter.last = Default::default();
        let Some(pair) = take(&mut iter.pairs) else { return Ok(Status::BetreeNotFound) };
        iter.last = pair?;
        let (key, value) = &iter.last;
        out.key.0.set(key.as_ptr());
        out.key.1.set(key.len());
        out.value.0.set(value.as_ptr());
        out.value.1.set(value.len());
        Ok(Status::BetreeOk)
    })
}

/// The next pair from the front: BETREE_NOT_FOUND if all were met. Key and value are valid until the next
/// call with this iterator, and are not to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_iter_next(
    iter: *mut Iter,
    key: *mut *const u8,
    key_len: *mut usize,
    value: *mut *const u8,
    value_len: *mut usize,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { step(iter, || OutPair::new((key, key_len), (value, value_len)), OwnedIter::next) }
}

/// The next pair from the back, as betree_iter_next. A pair is met once, from the front or from the back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_iter_prev(
    iter: *mut Iter,
    key: *mut *const u8,
    key_len: *mut usize,
    value: *mut *const u8,
    value_len: *mut usize,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { step(iter, || OutPair::new((key, key_len), (value, value_len)), OwnedIter::next_back) }
}

/// Frees an iterator. NULL is let be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_iter_free(iter: *mut Iter) {
    // SAFETY: the caller's promise.
    unsafe { free_handle(iter) }
}
