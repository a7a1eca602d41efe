//! Keeps notes in a volume in a file, without a mount: writes some, branches them, lists and finds words.
//!
//!     cargo run -p betrfs-std --example notes -- /tmp/notes.betrfs

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use betrfs_std::{FileType, Fs, OpenOptions};

const VOLUME_BYTES: u64 = 64 << 20;

/// Does it all on a new file at `path`, and reports to `out`.
pub fn run(path: &Path, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let fs = Fs::create(path, VOLUME_BYTES)?;
    fs.create_dir_all("notes/2026")?;
    fs.write("notes/2026/monday", "buy bread\ncall Ada\n")?;
    let mut file = OpenOptions::new().append(true).create(true).open(&fs, "notes/2026/tuesday")?;
    writeln!(file, "call Bob")?;
    // What was written before a sync that returned survives a crash.
    file.sync_all()?;

    // A whole directory is copied at the cost of a message, however many notes it has.
    fs.clone_tree("notes", "draft")?;
    fs.append("draft/2026/monday", "call Eve\n")?;

    for entry in fs.walk("/").min_depth(1) {
        let entry = entry?;
        if entry.file_type() != FileType::Regular {
            continue;
        }
        let lines = BufReader::new(fs.open_file(entry.path())?).lines();
        let calls = lines.filter(|line| line.as_ref().is_ok_and(|line| line.starts_with("call"))).count();
        writeln!(out, "{}: {calls} to call", entry.path().display())?;
    }
    fs.rm_tree("draft")?;
    fs.close()?;
    Ok(())
}

/// Takes the path of a file that does not exist yet.
#[cfg(not(test))]
fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("which file? It is made.")?;
    run(path.as_ref(), &mut std::io::stdout())
}
