//! Measurements of sensors by time: each month is deleted by one message, whatever it holds, and the last
//! ones are read from behind.
//!
//!     cargo run -p betree-store --example time_series -- /tmp/series.betree

use std::error::Error;
use std::io::Write;
use std::path::Path;

use betree_store::Store;

const DAYS: u32 = 28;
const HOURS: u32 = 24;

/// Does it all on a new store at `path`, and reports to `out`.
pub fn run(path: &Path, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let store = Store::open(path)?;
    let series = store.dict("temperature")?;
    let mut batch = store.batch();
    for month in 1..=6 {
        for (day, hour) in (1..=DAYS).flat_map(|day| (0..HOURS).map(move |hour| (day, hour))) {
            batch.put(
                &series,
                format!("2026-{month:02}-{day:02}T{hour:02}"),
                format!("{}", month * 3 + hour / 4),
            )?;
        }
        batch.commit()?;
        batch.clear();
    }

    // All before April, without a look at it.
    let before = store.stats().engine;
    series.delete_range(.."2026-04")?;
    let after = store.stats().engine;
    writeln!(out, "reads of the deletion: {}", after.device_reads - before.device_reads)?;
    writeln!(out, "left: {} of {}", series.iter().count(), 6 * DAYS * HOURS)?;

    for pair in series.prefix("2026-06-28").rev().take(2) {
        let (time, value) = pair?;
        writeln!(out, "{} {}", String::from_utf8_lossy(&time), String::from_utf8_lossy(&value))?;
    }
    store.close()?;
    Ok(())
}

/// Takes the path of a file that does not exist yet.
#[cfg(not(test))]
fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("which file? It is made.")?;
    run(path.as_ref(), &mut std::io::stdout())
}
