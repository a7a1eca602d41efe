//! Arguments from C: what can be refused is refused here.

use std::ffi::{CStr, OsStr, c_char};
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use betree_store::{KEY_BYTES_MAX, NAME_BYTES_MAX, VALUE_BYTES_MAX};

use crate::results::Slice;
use crate::status::{Failure, Status};

fn is_null(what: &str) -> Failure {
    Failure::bad_argument(format!("{what} is NULL"))
}

/// What a handle stands for.
///
/// # Safety
/// The pointer is NULL, or a handle that lives as long as the result.
pub unsafe fn handle<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| is_null(what))
}

/// Bytes with their length, of which there may be `limit_bytes`; a longer one is not looked at.
///
/// # Safety
/// The pointer is NULL, or there are `len` bytes for as long as the result lives.
unsafe fn bytes<'a>(
    pointer: *const u8,
    len: usize,
    what: &str,
    limit_bytes: usize,
) -> Result<&'a [u8], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(is_null(what));
    }
    if len > limit_bytes {
        let why = format!("{what} of {len} bytes is over the limit of {limit_bytes} bytes");
        return Err(Failure::new(Status::BetreeTooLarge, why));
    }
    // SAFETY: the caller's promise; it is not NULL, and the limit is far below half of the address space.
    Ok(unsafe { std::slice::from_raw_parts(pointer, len) })
}

/// A key.
///
/// # Safety
/// As [`bytes`].
pub unsafe fn key<'a>(pointer: *const u8, len: usize) -> Result<&'a [u8], Failure> {
    // SAFETY: the caller's promise.
    unsafe { bytes(pointer, len, "the key", KEY_BYTES_MAX) }
}

/// Keys.
///
/// # Safety
/// The pointer is NULL, or there are `count` slices, each as [`bytes`], for as long as the result lives.
pub unsafe fn keys<'a>(pointer: *const Slice, count: usize) -> Result<Vec<&'a [u8]>, Failure> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if pointer.is_null() {
        return Err(is_null("the list of keys"));
    }
    if count > isize::MAX as usize / size_of::<Slice>() {
        let why = format!("a list of {count} keys does not fit into memory");
        return Err(Failure::new(Status::BetreeTooLarge, why));
    }
    // SAFETY: the caller's promise; it is not NULL, and no longer than an object can be.
    let slices = unsafe { std::slice::from_raw_parts(pointer, count) };
    // SAFETY: the caller's promise.
    slices.iter().map(|slice| unsafe { key(slice.data.cast(), slice.len) }).collect()
}

/// A value.
///
/// # Safety
/// As [`bytes`].
pub unsafe fn value<'a>(pointer: *const u8, len: usize) -> Result<&'a [u8], Failure> {
    // SAFETY: the caller's promise.
    unsafe { bytes(pointer, len, "the value", VALUE_BYTES_MAX) }
}

/// The name of a dictionary.
///
/// # Safety
/// As [`bytes`].
pub unsafe fn name<'a>(pointer: *const c_char, len: usize) -> Result<&'a str, Failure> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { bytes(pointer.cast(), len, "the name", usize::MAX >> 1) };
    if len > NAME_BYTES_MAX {
        let why = format!("a name of {len} bytes is over the limit of {NAME_BYTES_MAX} bytes");
        return Err(Failure::new(Status::BetreeBadName, why));
    }
    str::from_utf8(bytes?).map_err(|_| Failure::bad_argument("the name is no UTF-8"))
}

/// A name where there may be none: `None` if it is NULL.
///
/// # Safety
/// As [`bytes`].
pub unsafe fn optional_name<'a>(pointer: *const c_char, len: usize) -> Result<Option<&'a str>, Failure> {
    if pointer.is_null() && len == 0 {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { name(pointer, len) }.map(Some)
}

/// A range of keys.
type Range<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// A range of keys, each end without a bound where it is NULL.
///
/// # Safety
/// As [`bytes`], for both.
pub unsafe fn range<'a>(
    (lo, lo_len): (*const u8, usize),
    (hi, hi_len): (*const u8, usize),
) -> Result<Range<'a>, Failure> {
    // SAFETY: the caller's promise.
    let (from, to) = unsafe { (key(lo, lo_len)?, key(hi, hi_len)?) };
    let from = if lo.is_null() { Bound::Unbounded } else { Bound::Included(from) };
    let to = if hi.is_null() { Bound::Unbounded } else { Bound::Excluded(to) };
    Ok((from, to))
}

/// A path.
///
/// # Safety
/// The pointer is NULL, or to a text that ends with a zero and lives as long as the result.
pub unsafe fn path<'a>(pointer: *const c_char) -> Result<&'a Path, Failure> {
    if pointer.is_null() {
        return Err(is_null("the path"));
    }
    // SAFETY: the caller's promise; it is not NULL.
    Ok(Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(pointer) }.to_bytes())))
}

/// A place for a result.
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// A place, which holds `empty` until there is a result.
    ///
    /// # Safety
    /// The pointer is NULL, or to a place for a `T` that nobody else uses until the call is over.
    pub unsafe fn new(place: *mut T, empty: T, what: &str) -> Result<Out<T>, Failure> {
        if place.is_null() {
            return Err(is_null(what));
        }
        let out = Out(place);
        out.set(empty);
        Ok(out)
    }

    /// Sets it. There is nothing to drop in C.
    pub fn set(&self, value: T) {
        // SAFETY: the promise of the caller of `new`; it is not NULL.
        unsafe { self.0.write(value) }
    }
}
