//! Makes a volume in a file, puts pairs, gets one, scans a range, and finds all of it after opening again.
//!
//!     cargo run -p betree --example first_steps -- /tmp/pairs.betree

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use betree::{Batch, Cut, DictId, Env, Geometry, Options, Replace};
use betree_platform::Platform;
use betree_std::{FileDevice, StdPlatform};

/// A volume has up to 8 dictionaries; this one has one.
const FRUIT: DictId = DictId(0);
const VOLUME_BYTES: u64 = 64 << 20;
const CACHE_BYTES: usize = 16 << 20;

/// Does it all on a new file at `path`, and reports to `out`.
pub fn run(path: &Path, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    // A volume is made once, with an identity of 16 random bytes.
    let device = Arc::new(FileDevice::create(path, VOLUME_BYTES)?);
    let platform = StdPlatform::new();
    let mut identity = [0; 16];
    identity[..8].copy_from_slice(&platform.random_u64().to_le_bytes());
    identity[8..].copy_from_slice(&platform.random_u64().to_le_bytes());
    Env::format(device.clone(), &Geometry::for_volume(VOLUME_BYTES, 1), identity)?;

    let env = Env::open(device, Options::new(CACHE_BYTES, Arc::new(Replace)))?;
    let mut batch = Batch::new();
    for (name, color) in [("apple", "red"), ("banana", "yellow"), ("cherry", "red"), ("plum", "blue")] {
        batch.put(FRUIT, name.as_bytes(), color.as_bytes());
    }
    env.commit(&batch)?;
    env.close()?;
    drop(env);

    let device = Arc::new(FileDevice::open(path)?);
    let env = Env::open(device, Options::new(CACHE_BYTES, Arc::new(Replace)))?;
    let color = env.get(FRUIT, b"banana")?.unwrap_or_default();
    writeln!(out, "a banana is {}", String::from_utf8_lossy(&color))?;
    // From "b" on, and before "p".
    let mut cursor = env.cursor(FRUIT, Cut::before("b"), Cut::before("p"));
    while let Some((name, color)) = cursor.next()? {
        writeln!(out, "{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(color))?;
    }
    drop(cursor);
    env.close()?;
    Ok(())
}

/// Takes the path of a file that does not exist yet.
#[cfg(not(test))]
fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("which file? It is made.")?;
    run(path.as_ref(), &mut std::io::stdout())
}
