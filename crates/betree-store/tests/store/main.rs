//! What a store does, through its public face.
#![allow(clippy::unwrap_used, clippy::panic)]

mod backups;
mod batches;
#[path = "../../../betree-std/tests/fork/child.rs"]
mod child;
mod compactions;
mod costs;
mod endings;
mod expiry;
mod expiry_model;
mod files;
mod full_disk;
mod ingests;
mod isolation;
mod iterators;
mod large_transactions;
mod large_values;
mod merges;
mod model;
mod names;
mod threads;
mod transaction_model;
mod transactions;
mod wrong_use;

use betree_store::{Dict, DictOptions, Durability, Store, StoreOptions};
use tempfile::TempDir;

/// A merge that appends the delta, so that one that is applied twice, or out of order, is seen.
pub fn append(old: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>> {
    Some([old.unwrap_or_default(), delta].concat())
}

/// Small, so that little data makes a tree of some height, and durable when it is asked for.
pub fn options() -> StoreOptions {
    Store::options().cache_bytes(1 << 20).durability(Durability::Manual).merge("append", append)
}

/// Options of a dictionary with that merge.
pub fn appending() -> DictOptions {
    DictOptions::new().merge("append")
}

/// A folder, and a store in it.
pub fn store() -> (TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = options().open(folder.path().join("store")).unwrap();
    (folder, store)
}

/// A dictionary with pairs whose values are their keys.
pub fn filled(store: &Store, name: &str, keys: impl IntoIterator<Item = String>) -> Dict {
    let dict = store.dict(name).unwrap();
    let mut batch = store.batch();
    keys.into_iter().for_each(|key| batch.put(&dict, &key, &key).unwrap());
    batch.commit().unwrap();
    dict
}

/// All keys of a dictionary as text.
pub fn keys(dict: &Dict) -> Vec<String> {
    dict.iter().map(|pair| String::from_utf8(pair.unwrap().0.into_vec()).unwrap()).collect()
}
