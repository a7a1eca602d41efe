//! Values that expire.

use std::ffi::c_char;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::args::{self, Out, handle};
use crate::dict::Dict;
use crate::names::{bound_to, find};
use crate::status::{Status, call};
use crate::store::Store;

/// A time from nanoseconds since 1970-01-01 00:00 UTC.
fn time(ns: i64) -> SystemTime {
    let distance = Duration::from_nanos(ns.unsigned_abs());
    if ns < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}

/// The dictionary of a name whose values may expire, bound to a merge if that is not NULL; it is made if
/// there is none. BETREE_NO_EXPIRY if there is one that was made without, BETREE_MERGE if its merge is
/// another.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_dict_ensure_expiring(
    store: *const Store,
    name: *const c_char,
    name_len: usize,
    merge: *const c_char,
    merge_len: usize,
    dict: *mut *mut Dict,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        find(store, name, name_len, dict, |store, name| {
            Ok(store.dict_with(name, &bound_to(merge, merge_len)?.expiring())?)
        })
    }
}

/// Sets the value of a key until a time, in nanoseconds since 1970-01-01 00:00 UTC, from which on nobody sees
/// it: BETREE_NO_EXPIRY if the dictionary was made without betree_dict_ensure_expiring.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_put_until(
    dict: *const Dict,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
    expires_ns: i64,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (dict, key, value) = unsafe {
            (handle(dict, "the dictionary")?, args::key(key, key_len)?, args::value(value, value_len)?)
        };
        dict.0.put_until(key, value, time(expires_ns))?;
        Ok(Status::BetreeOk)
    })
}

/// The time at which the value of a key expires, in nanoseconds since 1970-01-01 00:00 UTC: BETREE_NOT_FOUND
/// if it never does, or if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_expires_at(
    dict: *const Dict,
    key: *const u8,
    key_len: usize,
    expires_ns: *mut i64,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (out, dict, key) = unsafe {
            let out = Out::new(expires_ns, 0, "the place for the time")?;
            (out, handle(dict, "the dictionary")?, args::key(key, key_len)?)
        };
        let Some(expires) = dict.0.expires_at(key)? else { return Ok(Status::BetreeNotFound) };
        // The store has no times that do not fit.
        let ns = |since: Duration| i64::try_from(since.as_nanos()).unwrap_or(i64::MAX);
        out.set(match expires.duration_since(UNIX_EPOCH) {
            Ok(since) => ns(since),
            Err(before) => -ns(before.duration()),
        });
        Ok(Status::BetreeOk)
    })
}
