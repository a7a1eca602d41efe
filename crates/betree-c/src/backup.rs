//! Copies of a store in use.

use std::ffi::{c_char, c_void};
use std::ops::ControlFlow;

use crate::args::{self, handle};
use crate::results::Slice;
use crate::status::{Status, call};
use crate::store::Store;

/// How far a backup is.
#[repr(C)]
pub struct Progress {
    /// The name of the dictionary that is copied now.
    pub dict: Slice,
    /// The pairs and parts of large values that were copied.
    pub pairs: u64,
    /// The bytes of their keys and values.
    pub bytes: u64,
}

/// Called by betree_backup in its own thread, after each MiB or so. What it gets is valid until it returns;
/// where it returns false, the backup stops. It must return: neither longjmp nor an exception of C++ may
/// leave it.
pub type ProgressFn = Option<unsafe extern "C" fn(context: *mut c_void, progress: *const Progress) -> bool>;

/// Copies the store into a new file, as it is at this moment; writers go on meanwhile. The copy is a store of
/// its own, and is durable when this returns. BETREE_STOPPED if the callback has stopped it. Where it fails,
/// no file is left. The callback may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_backup(
    store: *const Store,
    path: *const c_char,
    progress: ProgressFn,
    context: *mut c_void,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (store, path) = unsafe { (handle(store, "the store")?, args::path(path)?) };
        store.0.backup_while(path, |at| {
            let Some(progress) = progress else { return ControlFlow::Continue(()) };
            let name = [at.dict.as_bytes(), &[0]].concat();
            let dict = Slice { data: name.as_ptr().cast(), len: at.dict.len() };
            let told = Progress { dict, pairs: at.pairs, bytes: at.bytes };
            // SAFETY: the caller's promise; what it gets lives until it returns.
            match unsafe { progress(context, &raw const told) } {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        Ok(Status::BetreeOk)
    })
}
