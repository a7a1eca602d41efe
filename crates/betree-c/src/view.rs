//! Views: one moment of all dictionaries.

use std::ffi::c_char;
use std::ptr::null_mut;

use crate::args::{self, Out, handle};
use crate::iter::{Iter, new_iter};
use crate::results::{OutBytes, OutNames, Slice, free_handle, new_handle};
use crate::status::{Status, call};
use crate::store::Store;

/// One moment of a store: what was changed before it began is seen, and nothing later, in all dictionaries
/// and with their names of then. It begins without a look at the disk and hinders nobody; the space of what
/// is overwritten meanwhile comes back when it is freed. Many threads can use it at once.
pub struct View(betree_store::View);

/// A dictionary as it was when a view began, also one that was dropped since. It keeps the view. Many threads
/// can use it at once.
pub struct ViewDict(betree_store::ViewDict);

/// Begins a view of this moment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_view_begin(store: *const Store, view: *mut *mut View) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (out, store) =
            unsafe { (Out::new(view, null_mut(), "the place for the view")?, handle(store, "the store")?) };
        out.set(new_handle(View(store.0.view())));
        Ok(Status::BetreeOk)
    })
}

/// Frees the handle of a view. The view ends when its dictionaries and iterators are freed too. NULL is let
/// be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_view_free(view: *mut View) {
    // SAFETY: the caller's promise.
    unsafe { free_handle(view) }
}

/// Ends a view: its dictionaries and iterators fail with BETREE_VIEW_ENDED from then on, and the space of
/// what it held comes back. All handles are still to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_view_end(view: *const View) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        unsafe { handle(view, "the view")? }.0.end();
        Ok(Status::BetreeOk)
    })
}

/// The number of the last change that a view sees. A later view has the same number or a greater one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_view_last_change(view: *const View, number: *mut u64) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (out, view) =
            unsafe { (Out::new(number, 0, "the place for the number")?, handle(view, "the view")?) };
        out.set(view.0.last_change());
        Ok(Status::BetreeOk)
    })
}

/// The names of all dictionaries that there were, as betree_dict_list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_view_dict_list(
    view: *const View,
    names: *mut *mut Slice,
    count: *mut usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (out, view) = unsafe { (OutNames::new(names, count)?, handle(view, "the view")?) };
        out.set(&view.0.dicts()?)?;
        Ok(Status::BetreeOk)
    })
}

/// The dictionary that had the name: BETREE_NO_SUCH_DICT if there was none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_view_dict_open(
    view: *const View,
    name: *const c_char,
    name_len: usize,
    dict: *mut *mut ViewDict,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (out, view, name) = unsafe {
            let out = Out::new(dict, null_mut(), "the place for the dictionary")?;
            (out, handle(view, "the view")?, args::name(name, name_len)?)
        };
        out.set(new_handle(ViewDict(view.0.dict(name)?)));
        Ok(Status::BetreeOk)
    })
}

/// Frees the handle of a view's dictionary. NULL is let be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_view_dict_free(dict: *mut ViewDict) {
    // SAFETY: the caller's promise.
    unsafe { free_handle(dict) }
}

/// The value that a key had, which is freed by betree_free: BETREE_NOT_FOUND if there was none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_view_get(
    dict: *const ViewDict,
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

/// The pairs that there were from the key `lo` on and before `hi`, as betree_iter_range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_view_range(
    dict: *const ViewDict,
    lo: *const u8,
    lo_len: usize,
    hi: *const u8,
    hi_len: usize,
    iter: *mut *mut Iter,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (out, dict, range) = unsafe {
            let out = Out::new(iter, null_mut(), "the place for the iterator")?;
            (out, handle(dict, "the dictionary")?, args::range((lo, lo_len), (hi, hi_len))?)
        };
        out.set(new_iter(dict.0.owned_range::<&[u8]>(range)));
        Ok(Status::BetreeOk)
    })
}

/// The pairs that there were whose keys begin with a prefix.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_view_prefix(
    dict: *const ViewDict,
    prefix: *const u8,
    prefix_len: usize,
    iter: *mut *mut Iter,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (out, dict, prefix) = unsafe {
            let out = Out::new(iter, null_mut(), "the place for the iterator")?;
            (out, handle(dict, "the dictionary")?, args::key(prefix, prefix_len)?)
        };
        out.set(new_iter(dict.0.owned_prefix(prefix)));
        Ok(Status::BetreeOk)
    })
}
