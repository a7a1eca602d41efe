//! A counter that additions do not read: each addition is an upsert, a message that waits in the tree until a
//! reader wants the value.
//!
//!     cargo run -p betree --example counter -- /tmp/counters.betree

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use betree::{Batch, DictId, Env, Geometry, Options, Upsert};
use betree_std::FileDevice;

const COUNTERS: DictId = DictId(0);
const VOLUME_BYTES: u64 = 64 << 20;

/// The merge function: value and delta are little-endian numbers, and the new value is their sum.
struct Sum;

fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

impl Upsert for Sum {
    fn name(&self) -> &str {
        "sum"
    }

    fn apply(&self, old: Option<&[u8]>, delta: &[u8]) -> Option<Vec<u8>> {
        let sum = number(old.unwrap_or_default()).wrapping_add(number(delta));
        Some(sum.to_le_bytes().to_vec())
    }
}

/// Does it all on a new file at `path`, and reports to `out`.
pub fn run(path: &Path, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let device = Arc::new(FileDevice::create(path, VOLUME_BYTES)?);
    Env::format(device.clone(), &Geometry::for_volume(VOLUME_BYTES, 1), [7; 16])?;
    let env = Env::open(device, Options::new(16 << 20, Arc::new(Sum)))?;

    for visit in 0..10_000_u64 {
        let mut batch = Batch::new();
        let page = format!("page {}", visit % 3);
        batch.upsert(COUNTERS, page.as_bytes(), &1_u64.to_le_bytes());
        env.commit(&batch)?;
    }
    // None of these additions read the value that it adds to.
    writeln!(out, "queries of the additions: {}", env.stats().point_queries)?;
    let visits = env.get(COUNTERS, b"page 0")?.unwrap_or_default();
    writeln!(out, "visits of page 0: {}", number(&visits))?;
    env.close()?;
    Ok(())
}

/// Takes the path of a file that does not exist yet.
#[cfg(not(test))]
fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("which file? It is made.")?;
    run(path.as_ref(), &mut std::io::stdout())
}
