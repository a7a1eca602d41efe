//! Clones a range of keys under another prefix, and deletes one, each at a cost that does not depend on the
//! range's size.
//!
//!     cargo run -p betree --example ranges -- /tmp/ranges.betree

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use betree::{Batch, Cut, DictId, Env, Geometry, Options, Replace};
use betree_std::FileDevice;

const FILES: DictId = DictId(0);
const VOLUME_BYTES: u64 = 256 << 20;

fn count(env: &Env, prefix: &str) -> betree::Result<usize> {
    let mut cursor = env.cursor(FILES, Cut::before(prefix), Cut::after(prefix));
    let mut pairs = 0;
    while cursor.next()?.is_some() {
        pairs += 1;
    }
    Ok(pairs)
}

/// Does it all on a new file at `path`, and reports to `out`.
pub fn run(path: &Path, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let device = Arc::new(FileDevice::create(path, VOLUME_BYTES)?);
    Env::format(device.clone(), &Geometry::for_volume(VOLUME_BYTES, 1), [7; 16])?;
    let env = Env::open(device, Options::new(32 << 20, Arc::new(Replace)))?;
    for chunk in 0..20 {
        let mut batch = Batch::new();
        for i in 0..1000 {
            batch.put(FILES, format!("src/{:05}", chunk * 1000 + i).as_bytes(), &[chunk as u8; 100]);
        }
        env.commit(&batch)?;
    }
    env.checkpoint()?;
    let written_bytes = env.stats().device_write_bytes;

    // One message: keys below "src/" appear below "copy/" too, and both share the data.
    let mut batch = Batch::new();
    batch.clone_range(FILES, b"src/", b"copy/");
    env.commit(&batch)?;
    env.checkpoint()?;
    let is_small = env.stats().device_write_bytes - written_bytes < 300_000;
    writeln!(out, "src/ has {}, copy/ has {}", count(&env, "src/")?, count(&env, "copy/")?)?;
    writeln!(out, "the clone wrote less than 300 kB of 2 MB: {is_small}")?;

    // One message again; the copy keeps its keys.
    let mut batch = Batch::new();
    batch.delete_range(FILES, &Cut::before("src/"), &Cut::after("src/"));
    env.commit(&batch)?;
    writeln!(out, "src/ has {}, copy/ has {}", count(&env, "src/")?, count(&env, "copy/")?)?;
    env.close()?;
    Ok(())
}

/// Takes the path of a file that does not exist yet.
#[cfg(not(test))]
fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("which file? It is made.")?;
    run(path.as_ref(), &mut std::io::stdout())
}
