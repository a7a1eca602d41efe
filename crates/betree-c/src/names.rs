//! The dictionaries of a store by their names.

use std::ffi::c_char;
use std::ptr::null_mut;

use betree_store::DictOptions;

use crate::args::{self, Out, handle};
use crate::dict::Dict;
use crate::results::{OutNames, Slice, new_handle};
use crate::status::{Failure, Status, call};
use crate::store::Store;

/// # Safety
/// Arguments are as the header says.
pub unsafe fn find(
    store: *const Store,
    name: *const c_char,
    name_len: usize,
    dict: *mut *mut Dict,
    find: impl FnOnce(&betree_store::Store, &str) -> Result<betree_store::Dict, Failure>,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (out, store, name) = unsafe {
            let out = Out::new(dict, null_mut(), "the place for the dictionary")?;
            (out, handle(store, "the store")?, args::name(name, name_len)?)
        };
        out.set(new_handle(Dict(find(&store.0, name)?)));
        Ok(Status::BetreeOk)
    })
}

/// The dictionary of a name, which is made if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_dict_ensure(
    store: *const Store,
    name: *const c_char,
    name_len: usize,
    dict: *mut *mut Dict,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { find(store, name, name_len, dict, |store, name| Ok(store.dict(name)?)) }
}

/// The dictionary of a name: BETREE_NO_SUCH_DICT if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_dict_open(
    store: *const Store,
    name: *const c_char,
    name_len: usize,
    dict: *mut *mut Dict,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { find(store, name, name_len, dict, |store, name| Ok(store.open_dict(name)?)) }
}

/// The options of a dictionary that is bound to a merge, if that is not NULL.
///
/// # Safety
/// As [`args::name`].
pub unsafe fn bound_to(merge: *const c_char, merge_len: usize) -> Result<DictOptions, Failure> {
    // SAFETY: the caller's promise.
    let merge = unsafe { args::optional_name(merge, merge_len)? };
    Ok(merge.map_or_else(DictOptions::new, |merge| DictOptions::new().merge(merge)))
}

/// The dictionary of a name that is bound to a merge; it is made if there is none. BETREE_MERGE if there is
/// one with another merge. If the merge is NULL, it has none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_dict_ensure_with(
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
            Ok(store.dict_with(name, &bound_to(merge, merge_len)?)?)
        })
    }
}

/// Makes a dictionary, bound to a merge if that is not NULL: BETREE_DICT_EXISTS if there is one of that name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_dict_create(
    store: *const Store,
    name: *const c_char,
    name_len: usize,
    merge: *const c_char,
    merge_len: usize,
    dict: *mut *mut Dict,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe {
        find(store, name, name_len, dict, |store, name| Ok(store.create(name, &bound_to(merge, merge_len)?)?))
    }
}

/// Removes a dictionary with all that it holds, at a cost that does not depend on that. Its handles fail with
/// BETREE_DICT_DROPPED from then on, and are still to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_dict_drop(
    store: *const Store,
    name: *const c_char,
    name_len: usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (store, name) = unsafe { (handle(store, "the store")?, args::name(name, name_len)?) };
        store.0.drop_dict(name)?;
        Ok(Status::BetreeOk)
    })
}

/// Renames a dictionary. Its handles stay good.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_dict_rename(
    store: *const Store,
    from: *const c_char,
    from_len: usize,
    to: *const c_char,
    to_len: usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (store, from, to) =
            unsafe { (handle(store, "the store")?, args::name(from, from_len)?, args::name(to, to_len)?) };
        store.0.rename_dict(from, to)?;
        Ok(Status::BetreeOk)
    })
}

/// Makes a dictionary that holds what another one holds at this moment, at a cost that does not depend on how
/// much that is. The place for a handle of the new one may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_dict_clone(
    store: *const Store,
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
        let (store, from, to) =
            unsafe { (handle(store, "the store")?, args::name(from, from_len)?, args::name(to, to_len)?) };
        let clone = store.0.clone_dict(from, to)?;
        if let Some(out) = out {
            out.set(new_handle(Dict(clone)));
        }
        Ok(Status::BetreeOk)
    })
}

/// The names of all dictionaries, in order. The names and their slices are one buffer, which is freed by one
/// betree_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_dict_list(
    store: *const Store,
    names: *mut *mut Slice,
    count: *mut usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (out, store) = unsafe { (OutNames::new(names, count)?, handle(store, "the store")?) };
        out.set(&store.0.dicts())?;
        Ok(Status::BetreeOk)
    })
}
