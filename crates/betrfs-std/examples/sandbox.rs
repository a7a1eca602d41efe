//! Tries a change on a directory: a snapshot before, a directory handle for the work, and back if it fails.
//!
//!     cargo run -p betrfs-std --example sandbox -- /tmp/sandbox.betrfs

use std::error::Error;
use std::io::Write;
use std::path::Path;

use betrfs_std::{Dir, Errno, Fs};

const VOLUME_BYTES: u64 = 64 << 20;

/// Does it all on a new file at `path`, and reports to `out`.
pub fn run(path: &Path, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let fs = Fs::create(path, VOLUME_BYTES)?;
    fs.create_dir("site")?;
    fs.write("site/index", "version 1")?;

    for (version, change) in [("bad", fails as fn(&Dir) -> betrfs_std::Result<()>), ("good", succeeds)] {
        fs.clone_tree("site", "trial")?;
        match change(&fs.open_dir("trial")?) {
            Ok(()) => {
                // Readers see the old directory or the new one, and nothing between.
                fs.rename_exchange("site", "trial")?;
                writeln!(out, "{version}: published")?;
            }
            Err(error) if error.errno() == Errno::NOENT => writeln!(out, "{version}: {error}")?,
            Err(error) => return Err(error.into()),
        }
        fs.rm_tree("trial")?;
    }
    writeln!(out, "the site has {}", fs.read_to_string("site/index")?)?;
    fs.close()?;
    Ok(())
}

fn fails(dir: &Dir) -> betrfs_std::Result<()> {
    dir.write("index", "version x")?;
    dir.rename("style", "style.css")
}

fn succeeds(dir: &Dir) -> betrfs_std::Result<()> {
    dir.write("index", "version 2")
}

/// Takes the path of a file that does not exist yet.
#[cfg(not(test))]
fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("which file? It is made.")?;
    run(path.as_ref(), &mut std::io::stdout())
}
