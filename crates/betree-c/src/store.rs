//! Stores: opening, ending, durability, and what they tell of themselves.

use std::ffi::c_char;
use std::fmt::Write;
use std::ptr::null_mut;
use std::time::Duration;

use betree_store::MissingMerges;

use crate::args::{self, Out, handle};
use crate::merge::{Merge, with_merges};
use crate::results::{OutBytes, free_handle, new_handle};
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
    /// The store is opened though a merge of its dictionaries is not registered: deltas wait for it, and a
    /// read of a value that has some fails with BETREE_MERGE.
    pub keep_missing_merges: bool,
    /// The merges that are registered; NULL if there are none.
    pub merges: *const Merge,
    /// The number of merges.
    pub merge_count: usize,
}

/// # Safety
/// The merges are as the header says.
unsafe fn options_of(options: &Options) -> Result<betree_store::StoreOptions, Failure> {
    const EVERY: i32 = Durability::BetreeEvery as i32;
    const PER_COMMIT: i32 = Durability::BetreePerCommit as i32;
    const MANUAL: i32 = Durability::BetreeManual as i32;
    const USUAL: i32 = Compression::BetreeUsual as i32;
    const UNCOMPRESSED: i32 = Compression::BetreeUncompressed as i32;
    const LZ4: i32 = Compression::BetreeLz4 as i32;
    const ZSTD: i32 = Compression::BetreeZstd as i32;
    let bad = |what: String| Failure::bad_argument(what);
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
        .create(!options.must_exist)
        .missing_merges(if options.keep_missing_merges {
            MissingMerges::Keep
        } else {
            MissingMerges::Refuse
        });
    if options.cache_bytes > 0 {
        with = with.cache_bytes(options.cache_bytes);
    }
    // SAFETY: the caller's promise.
    unsafe { with_merges(with, options.merges, options.merge_count) }
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
            // SAFETY: the caller's promise.
            Some(options) => unsafe { options_of(options)? },
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

/// Frees the handle of a store. The store stays open while it has others (dictionaries, batches, iterators,
/// views, transactions); the last one closes it, and cannot report a failure: betree_close does. NULL is let
/// be.
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

/// Walks through everything in the file: structure, checksums, references, space. The text has a line for
/// each finding, and is freed by betree_free; `findings` is their number, 0 for a sound store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_check(
    store: *const Store,
    text: *mut *mut c_char,
    len: *mut usize,
    findings: *mut usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (out, count, store) = unsafe {
            let out = OutBytes::new(text.cast(), len, "the text");
            let count = Out::new(findings, 0, "the place for the number of findings");
            (out?, count?, handle(store, "the store")?)
        };
        let found = store.0.check()?;
        let mut lines = String::new();
        for finding in &found {
            let _ = writeln!(lines, "{finding}");
        }
        out.set(lines.as_bytes())?;
        count.set(found.len());
        Ok(Status::BetreeOk)
    })
}
