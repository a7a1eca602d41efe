//! Merges of programs in C, and upserts.

use std::ffi::{c_char, c_void};
use std::ptr::null;

use betree_store::{StoreOptions, VALUE_BYTES_MAX, merges};

use crate::args::{self, handle};
use crate::dict::Dict;
use crate::status::{Failure, Status, call};

/// What a merge makes. It is there for the call of the betree_merge_fn alone.
pub struct Merged(Option<Vec<u8>>);

/// A merge: makes a new value from the old one (NULL where the key is absent) and a delta, and gives it to
/// betree_merged_set; where that is not called, the key is removed. It returns whether that was possible: if
/// not, readers of the key get BETREE_MERGE, and old value and delta are kept.
///
/// It is called by any thread, by several at once, and in threads of the library. It must depend on its
/// arguments alone, must not call the library except for betree_merged_set, and must return: neither longjmp
/// nor an exception of C++ may leave it.
///
/// As `combine` it makes one delta with the effect of two: `old` is the older one, which is never NULL. Where
/// it returns false, both are kept.
pub type MergeFn = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        old: *const u8,
        old_len: usize,
        delta: *const u8,
        delta_len: usize,
        merged: *mut Merged,
    ) -> bool,
>;

/// The kinds of merges: values of betree_merge.kind.
#[repr(C)]
pub enum MergeKind {
    /// A function of the program.
    BetreeMergeFunction = 0,
    /// Adds numbers without a sign: value and delta are eight bytes, little-endian.
    BetreeMergeAddU64 = 1,
    /// Adds numbers with a sign.
    BetreeMergeAddI64 = 2,
    /// Keeps the greater one in the order of their bytes.
    BetreeMergeMax = 3,
    /// Puts the delta behind the value.
    BetreeMergeAppend = 4,
    /// Adds members to a set: each a length of four bytes, little-endian, and its bytes.
    BetreeMergeUnionSet = 5,
}

/// A merge by the name under which dictionaries are bound to it. The name must mean the same function for as
/// long as the store lives. The store's own merges are there without registration, under the names
/// "betree.add_u64", "betree.add_i64", "betree.max", "betree.append" and "betree.union_set".
#[repr(C)]
pub struct Merge {
    /// The name, UTF-8.
    pub name: *const c_char,
    /// Its length in bytes.
    pub name_len: usize,
    /// A betree_merge_kind.
    pub kind: i32,
    /// The function, of BETREE_MERGE_FUNCTION alone.
    pub merge: MergeFn,
    /// The function that combines two deltas; it may be NULL.
    pub combine: MergeFn,
    /// What the functions are called with. It must stay until the store is closed and all its handles are
    /// freed.
    pub context: *mut c_void,
}

/// A function of C.
struct Function {
    merge: unsafe extern "C" fn(*mut c_void, *const u8, usize, *const u8, usize, *mut Merged) -> bool,
    combine: MergeFn,
    context: *mut c_void,
}

// SAFETY: the header says that any thread calls the functions, several at once.
unsafe impl Send for Function {}
// SAFETY: as for `Send`.
unsafe impl Sync for Function {}

impl betree_store::Merge for Function {
    fn merge(&self, old: Option<&[u8]>, delta: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let (old, old_len) = old.map_or((null(), 0), |old| (old.as_ptr(), old.len()));
        let mut merged = Merged(None);
        // SAFETY: the header says how the function is called; the bytes and the place live until it returns.
        let is_done =
            unsafe { (self.merge)(self.context, old, old_len, delta.as_ptr(), delta.len(), &raw mut merged) };
        if is_done { Ok(merged.0) } else { Err("its function has returned false".into()) }
    }

    fn combine(&self, older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        let mut merged = Merged(None);
        let combine = self.combine?;
        // SAFETY: as in `merge`.
        let is_done = unsafe {
            combine(self.context, older.as_ptr(), older.len(), newer.as_ptr(), newer.len(), &raw mut merged)
        };
        merged.0.filter(|_| is_done)
    }
}

/// Gives the result of a merge, which is copied. Called again, it replaces what was given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_merged_set(
    merged: *mut Merged,
    value: *const u8,
    value_len: usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (merged, value) = unsafe { (merged.as_mut(), args::value(value, value_len)?) };
        let merged = merged.ok_or_else(|| Failure::bad_argument("the place for the result is NULL"))?;
        merged.0 = Some(value.to_vec());
        Ok(Status::BetreeOk)
    })
}

/// Registers merges.
///
/// # Safety
/// The pointer is NULL, or to as many merges as the number says, each as the header says.
pub unsafe fn with_merges(
    mut options: StoreOptions,
    merges: *const Merge,
    count: usize,
) -> Result<StoreOptions, Failure> {
    if count == 0 {
        return Ok(options);
    }
    if merges.is_null() {
        return Err(Failure::bad_argument("the merges are NULL"));
    }
    // A number that cannot be: it must not be looked at.
    if count > VALUE_BYTES_MAX {
        return Err(Failure::new(Status::BetreeTooLarge, format!("{count} merges are too many")));
    }
    // SAFETY: the caller's promise; it is not NULL, and the number is far below half of the address space.
    for merge in unsafe { std::slice::from_raw_parts(merges, count) } {
        // SAFETY: the caller's promise.
        let name = unsafe { args::name(merge.name, merge.name_len)? };
        options = registered(options, name, merge)?;
    }
    Ok(options)
}

fn registered(options: StoreOptions, name: &str, merge: &Merge) -> Result<StoreOptions, Failure> {
    const FUNCTION: i32 = MergeKind::BetreeMergeFunction as i32;
    const ADD_U64: i32 = MergeKind::BetreeMergeAddU64 as i32;
    const ADD_I64: i32 = MergeKind::BetreeMergeAddI64 as i32;
    const MAX: i32 = MergeKind::BetreeMergeMax as i32;
    const APPEND: i32 = MergeKind::BetreeMergeAppend as i32;
    const UNION_SET: i32 = MergeKind::BetreeMergeUnionSet as i32;
    match merge.kind {
        FUNCTION => {
            let function = merge.merge;
            let function = function.ok_or_else(|| {
                Failure::bad_argument(format!("the function of the merge {name:?} is NULL"))
            })?;
            let (combine, context) = (merge.combine, merge.context);
            Ok(options.merge_with(name, Function { merge: function, combine, context }))
        }
        ADD_U64 => Ok(options.merge_with(name, merges::AddU64)),
        ADD_I64 => Ok(options.merge_with(name, merges::AddI64)),
        MAX => Ok(options.merge_with(name, merges::Max)),
        APPEND => Ok(options.merge_with(name, merges::Append)),
        UNION_SET => Ok(options.merge_with(name, merges::UnionSet)),
        other => Err(Failure::bad_argument(format!("there is no kind {other} of merges"))),
    }
}

/// Changes the value of a key by the dictionary's merge, without reading it: the delta is kept, and merged
/// when the value is read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn betree_upsert(
    dict: *const Dict,
    key: *const u8,
    key_len: usize,
    delta: *const u8,
    delta_len: usize,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (dict, key, delta) = unsafe {
            (handle(dict, "the dictionary")?, args::key(key, key_len)?, args::value(delta, delta_len)?)
        };
        dict.0.upsert(key, delta)?;
        Ok(Status::BetreeOk)
    })
}
