//! Counters of many pages that several threads add to, none of which reads what it adds to.
//!
//!     cargo run -p betree-store --example counters -- /tmp/counters.betree

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::thread;

use betree_store::{DictOptions, Store};

const THREADS: u64 = 4;
const VISITS: u64 = 3000;

fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Does it all on a new store at `path`, and reports to `out`.
pub fn run(path: &Path, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    // The sum of two numbers: the merge of the dictionary `visits`, which the store is opened with ever
    // after.
    let add = |old: Option<&[u8]>, delta: &[u8]| {
        let sum = number(old.unwrap_or_default()).wrapping_add(number(delta));
        Some(sum.to_le_bytes().to_vec())
    };
    let store = Store::options().merge("add", add).open(path)?;
    let visits = store.dict_with("visits", &DictOptions::new().merge("add"))?;
    let queries = store.stats().engine.point_queries;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let visits = &visits;
                scope.spawn(move || {
                    (0..VISITS).try_for_each(|visit| {
                        let page = format!("/page/{}", (visit + thread) % 100);
                        visits.upsert(page, 1_u64.to_le_bytes())
                    })
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
    })?;
    writeln!(
        out,
        "queries of {} additions: {}",
        THREADS * VISITS,
        store.stats().engine.point_queries - queries
    )?;
    let mut sum = 0;
    for pair in visits.prefix("/page/") {
        sum += number(&pair?.1);
    }
    writeln!(out, "visits of all pages: {sum}")?;
    store.close()?;
    Ok(())
}

/// Takes the path of a file that does not exist yet.
#[cfg(not(test))]
fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("which file? It is made.")?;
    run(path.as_ref(), &mut std::io::stdout())
}
