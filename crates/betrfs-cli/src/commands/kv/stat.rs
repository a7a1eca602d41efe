//! `betrfs kv FILE stat`: what a store holds.

use betree_store::Store;
use serde::Serialize;

use crate::failure::Outcome;
use crate::format::{Format, print, print_json};
use crate::size;

#[derive(Serialize)]
struct Stat {
    used_bytes: u64,
    tree_levels: u64,
    dictionaries: Vec<DictStat>,
}

#[derive(Serialize)]
struct DictStat {
    name: String,
    stored_bytes: u64,
    exclusive_bytes: u64,
    /// About how many.
    pairs: u64,
    /// Whether its values may expire.
    expiring: bool,
}

/// Prints what the store holds.
pub fn run(store: &Store, format: Format) -> Outcome {
    let mut dictionaries = Vec::new();
    for name in store.dicts() {
        let dict = store.open_dict(&name)?;
        let (found, expiring) = (dict.estimate::<&[u8]>(..)?, dict.is_expiring());
        let (stored_bytes, exclusive_bytes) = (found.stored_bytes, found.exclusive_bytes);
        dictionaries.push(DictStat { name, stored_bytes, exclusive_bytes, pairs: found.pairs, expiring });
    }
    let stats = store.stats();
    let stat = Stat { used_bytes: stats.used_bytes, tree_levels: stats.engine.height, dictionaries };
    if format == Format::Json {
        return print_json(&stat);
    }
    print(format_args!("used   {:>12}", size::show(stat.used_bytes)))?;
    print(format_args!("levels {:>12}", stat.tree_levels))?;
    print(format_args!(
        "\n{:>12} {:>12} {:>12} {:>8}  dictionary",
        "stored", "not shared", "pairs, about", "expiring"
    ))?;
    stat.dictionaries.iter().try_for_each(|dict| {
        let (stored, exclusive) = (size::show(dict.stored_bytes), size::show(dict.exclusive_bytes));
        let expiring = if dict.expiring { "yes" } else { "no" };
        print(format_args!("{stored:>12} {exclusive:>12} {:>12} {expiring:>8}  {}", dict.pairs, dict.name))
    })
}
