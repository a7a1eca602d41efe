//! A branch of a dictionary: cloned at once, changed at will, and then taken or thrown away.
//!
//!     cargo run -p betree-store --example branch -- /tmp/prices.betree

use std::error::Error;
use std::io::Write;
use std::path::Path;

use betree_store::{Dict, Store};

const ARTICLES: u32 = 20_000;

fn price(dict: &Dict, article: u32) -> Result<u32, Box<dyn Error>> {
    let found = dict.get(article.to_be_bytes())?.ok_or("no such article")?;
    Ok(String::from_utf8(found.into_vec())?.parse()?)
}

/// Makes all prices of a branch lower; a loss is an error.
fn reduce(store: &Store, branch: &Dict, by: u32) -> Result<(), Box<dyn Error>> {
    let mut batch = store.batch();
    for pair in branch.iter() {
        let (article, price) = pair?;
        let price: u32 = String::from_utf8(price.into_vec())?.parse()?;
        let lower = price.checked_sub(by).ok_or("an article would cost less than nothing")?;
        batch.put(branch, &article, lower.to_string())?;
    }
    Ok(batch.commit()?)
}

/// Does it all on a new store at `path`, and reports to `out`.
pub fn run(path: &Path, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let store = Store::open(path)?;
    let prices = store.dict("prices")?;
    let mut batch = store.batch();
    for article in 0..ARTICLES {
        batch.put(&prices, article.to_be_bytes(), (10 + article % 90).to_string())?;
    }
    batch.commit()?;

    for by in [50, 5] {
        // As cheap for a billion articles.
        let trial = store.clone_dict("prices", "trial")?;
        match reduce(&store, &trial, by) {
            Err(error) => {
                writeln!(out, "less {by}: {error}")?;
                store.drop_dict("trial")?;
            }
            Ok(()) => {
                writeln!(
                    out,
                    "less {by}: article 7 costs {}, until now {}",
                    price(&trial, 7)?,
                    price(&prices, 7)?
                )?;
                store.drop_dict("prices")?;
                store.rename_dict("trial", "prices")?;
            }
        }
    }
    writeln!(out, "{:?}: article 7 costs {}", store.dicts(), price(&store.open_dict("prices")?, 7)?)?;
    store.close()?;
    Ok(())
}

/// Takes the path of a file that does not exist yet.
#[cfg(not(test))]
fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("which file? It is made.")?;
    run(path.as_ref(), &mut std::io::stdout())
}
