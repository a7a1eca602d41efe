//! A batch takes effect whole, over several dictionaries, and a sync makes it durable, while background
//! threads write, flush and read ahead.
//!
//!     cargo run -p betree --example batches -- /tmp/orders.betree

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use betree::{Batch, DictId, Env, Geometry, Options, Replace};
use betree_std::{FileDevice, Workers, WorkersOptions};

const ORDERS: DictId = DictId(0);
const BY_CUSTOMER: DictId = DictId(1);
const VOLUME_BYTES: u64 = 64 << 20;

/// Does it all on a new file at `path`, and reports to `out`.
pub fn run(path: &Path, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let device = Arc::new(FileDevice::create(path, VOLUME_BYTES)?);
    Env::format(device.clone(), &Geometry::for_volume(VOLUME_BYTES, 2), [7; 16])?;
    let env = Arc::new(Env::open(device, Options::new(16 << 20, Arc::new(Replace)))?);
    // Without these threads the calls do the work themselves, and nothing is synced every five seconds.
    let workers = Workers::start(Arc::clone(&env), WorkersOptions::default())?;

    let mut batch = Batch::new();
    batch.put(ORDERS, b"order 1", b"three plums");
    batch.put(BY_CUSTOMER, b"ada/order 1", b"");
    // Both, or neither: for readers, and after a crash.
    env.commit(&batch)?;
    // Commits before a sync that returned survive a crash.
    env.sync()?;
    workers.stop();
    // The process may end here without a close: opening replays the log.
    env.abandon();
    drop(env);

    let env = Env::open(Arc::new(FileDevice::open(path)?), Options::new(16 << 20, Arc::new(Replace)))?;
    writeln!(out, "replayed batches: {}", env.replayed_batches())?;
    let order = env.get(ORDERS, b"order 1")?.unwrap_or_default();
    writeln!(out, "order 1: {}", String::from_utf8_lossy(&order))?;
    writeln!(out, "in the index: {}", env.get(BY_CUSTOMER, b"ada/order 1")?.is_some())?;
    env.close()?;
    Ok(())
}

/// Takes the path of a file that does not exist yet.
#[cfg(not(test))]
fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("which file? It is made.")?;
    run(path.as_ref(), &mut std::io::stdout())
}
