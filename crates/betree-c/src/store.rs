//! Stores: opening, ending, and their dictionaries by name.

use std::ffi::c_char;
use std::fmt::Write;
use std::ptr::null_mut;
use std::time::Duration;

use betree_store::DictOptions;

use crate::args::{self, Out, handle};
use crate::dict::Dict;
use crate::results::{OutBytes, Slice, free_handle, list, new_handle};
use crate::status::{Failure, Status, call};

/// An open store. Many threads can use it at once.
pub struct Store(pub(crate) betree_store::Store);

/// When changes survive a crash: values of betree_options.durability. In any case they survive in their
/// order, each whole.
#[repr(C)]
pub enum Durability {
    /// Some time after the call returned, at most: betree_options.sync_every_ms.
    BetreeEvery = 0,
    /// When the call returns.
    BetreePerCommit = 1,
    /// When betree_sync or betree_close returns.
    BetreeManual = 2,
}

/// How what is written is compressed: values of betree_options.compression. All can be read always.
#[repr(C)]
pub enum Compression {
    /// As the store does of itself: with LZ4.
    BetreeUsual = 0,
    /// Not at all.
    BetreeUncompressed = 1,
    /// With LZ4.
    BetreeLz4 = 2,
    /// With Zstandard.
    BetreeZstd = 3,
}

/// How a store is opened. All zeros stand for what is usual.
#[repr(C)]
pub struct Options {
    /// Memory for what was read and what is not written yet, in bytes; 0 is 64 MiB.
    pub cache_bytes: usize,
    /// With BETREE_EVERY: after how many milliseconds changes survive a crash; 0 is 1000.
    pub sync_every_ms: u64,
    /// A betree_durability.
    pub durability: i32,
    /// A betree_compression.
    pub compression: i32,
    /// Nothing is written, changes are refused, and others may have the store open for reading too.
    pub read_only: bool,
    /// Where there is no file, none is made.
    pub must_exist: bool,
}

fn options_of(options: &Options) -> Result<betree_store::StoreOptions, Failure> {
    const EVERY: i32 = Durability::BetreeEvery as i32;
    const PER_COMMIT: i32 = Durability::BetreePerCommit as i32;
    const MANUAL: i32 = Durability::BetreeManual as i32;
    const USUAL: i32 = Compression::BetreeUsual as i32;
    const UNCOMPRESSED: i32 = Compression::BetreeUncompressed as i32;
    const LZ4: i32 = Compression::BetreeLz4 as i32;
    const ZSTD: i32 = Compression::BetreeZstd as i32;
    let bad = |what| Failure::new(Status::BetreeBadArgument, what);
    let every = Duration::from_millis(if options.sync_every_ms == 0 { 1000 } else { options.sync_every_ms });
    let durability = match options.durability {
        EVERY => betree_store::Durability::Every(every),
        PER_COMMIT => betree_store::Durability::PerCommit,
        MANUAL => betree_store::Durability::Manual,
        other => return Err(bad(format!("there is no durability {other}"))),
    };
    let compression = match options.compression {
        USUAL => betree_store::Compression::default(),
        UNCOMPRESSED => betree_store::Compression::None,
        LZ4 => betree_store::Compression::Lz4,
        ZSTD => betree_store::Compression::Zstd,
        other => return Err(bad(format!("there is no compression {other}"))),
    };
    let mut with = betree_store::Store::options()
        .durability(durability)
        .compression(compression)
        .read_only(options.read_only)
        .create(!options.must_exist);
    if options.cache_bytes > 0 {
        with = with.cache_bytes(options.cache_bytes);
    }
    Ok(with)
}

/// Opens the store in a file, or makes one. The path ends with a zero; the options may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_open(
    path: *const c_char,
    options: *const Options,
    store: *mut *mut Store,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (out, path) =
            unsafe { (Out::new(store, null_mut(), "the place for the store")?, args::path(path)?) };
        // SAFETY: the caller's promise.
        let with = match unsafe { options.as_ref() } {
            Some(options) => options_of(options)?,
            None => betree_store::Store::options(),
        };
        out.set(new_handle(Store(with.open(path)?)));
        Ok(Status::BetreeOk)
    })
}

/// Makes everything durable, releases the file, and frees the handle. From then on the store's other handles
/// fail with BETREE_CLOSED, and are still to be freed. On a failure the handle stays: close it again, or free
/// it. NULL is let be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_close(store: *mut Store) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        if let Some(open) = unsafe { store.as_ref() } {
            open.0.close()?;
            // SAFETY: the caller's promise, and `open` ends here.
            unsafe { free_handle(store) };
        }
        Ok(Status::BetreeOk)
    })
}

/// Frees the handle of a store. The store stays open while it has others (dictionaries, batches, iterators);
/// the last one closes it, and cannot report a failure: betree_close does. NULL is let be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_store_free(store: *mut Store) {
    // SAFETY: the caller's promise.
    unsafe { free_handle(store) }
}

/// Makes all changes durable that were made before the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_sync(store: *const Store) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        unsafe { handle(store, "the store") }?.0.sync()?;
        Ok(Status::BetreeOk)
    })
}

/// What the store has done and what it takes, as text: lines of a name, a space and a number. The text is
/// freed by betree_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_stats(
    store: *const Store,
    text: *mut *mut c_char,
    len: *mut usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (out, store) =
            unsafe { (OutBytes::new(text.cast(), len, "the text")?, handle(store, "the store")?) };
        let stats = store.0.stats();
        let face = [
            ("used_bytes", stats.used_bytes),
            ("free_bytes", stats.free_bytes),
            ("dicts", stats.dicts as u64),
        ];
        let mut lines = String::new();
        for (name, number) in face.into_iter().chain(stats.engine.iter()) {
            let _ = writeln!(lines, "{name} {number}");
        }
        out.set(lines.as_bytes())?;
        Ok(Status::BetreeOk)
    })
}

/// How a dictionary is found by its name.
type Find = fn(&betree_store::Store, &str) -> betree_store::Result<betree_store::Dict>;

/// # Safety
/// Arguments are as the header says.
unsafe fn find(
    store: *const Store,
    name: *const c_char,
    name_len: usize,
    dict: *mut *mut Dict,
    find: Find,
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
    unsafe { find(store, name, name_len, dict, betree_store::Store::dict) }
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
    unsafe { find(store, name, name_len, dict, betree_store::Store::open_dict) }
}

/// Makes a dictionary: BETREE_DICT_EXISTS if there is one of that name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_dict_create(
    store: *const Store,
    name: *const c_char,
    name_len: usize,
    dict: *mut *mut Dict,
) -> Status {
    // SAFETY: the caller's promise.
    unsafe { find(store, name, name_len, dict, |store, name| store.create(name, &DictOptions::new())) }
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
        let (names, count) = unsafe {
            (
                Out::new(names, null_mut(), "the place for the names"),
                Out::new(count, 0, "the place for their number"),
            )
        };
        let (names, count) = (names?, count?);
        // SAFETY: the caller's promise.
        let dicts = unsafe { handle(store, "the store") }?.0.dicts();
        names.set(list(&dicts)?);
        count.set(dicts.len());
        Ok(Status::BetreeOk)
    })
}
