//! The other work while latencies are measured.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::Extent;
use crate::data::Rng;
use crate::data::bytes;
use crate::workloads::fill;

const BLOCK_BYTES: u64 = 4096;
const FILES_PER_DIR: u64 = 200;
/// The bytes of each of the files that are read.
const FILE_BYTES: usize = 8 << 10;
const LARGE: &str = "large";
/// The trees of small files that are there at a time.
const TREES: u64 = 4;
const TREE_FILES: u64 = 300;
/// The large files that are there at a time, and their size.
const STREAMS: u64 = 3;
const STREAM_PIECES: u64 = 32;

/// One part of the load: works until it is over, and returns the number of pieces that it has done.
pub type Work = fn(&Path, &Extent, &dyn Fn() -> bool) -> Result<u64>;

/// All parts of the load; each has a thread.
pub const ALL: [Work; 3] = [overwrite, make_and_remove_trees, stream];

/// A file to read.
pub fn file(dir: &Path, number: u64) -> PathBuf {
    dir.join("files").join((number / FILES_PER_DIR).to_string()).join((number % FILES_PER_DIR).to_string())
}

/// The contents of a file to read.
pub fn contents(number: u64) -> Vec<u8> {
    bytes(number, 1, FILE_BYTES)
}

/// Makes the files to read, and the one that is overwritten.
pub fn prepare(dir: &Path, extent: &Extent) -> Result<()> {
    for number in 0..extent.files {
        let path = file(dir, number);
        if number % FILES_PER_DIR == 0
            && let Some(above) = path.parent()
        {
            fs::create_dir_all(above)?;
        }
        fs::write(path, contents(number))?;
    }
    fill(&dir.join(LARGE), extent.large_mib)
}

/// Overwrites random blocks of the large file.
fn overwrite(dir: &Path, extent: &Extent, is_over: &dyn Fn() -> bool) -> Result<u64> {
    let large = File::options().write(true).open(dir.join(LARGE))?;
    let blocks = (extent.large_mib << 20) / BLOCK_BYTES;
    let mut rng = Rng::of_stream(12, 0);
    let mut done = 0;
    while !is_over() {
        large.write_all_at(&bytes(done, 2, BLOCK_BYTES as usize), rng.below_u64(blocks) * BLOCK_BYTES)?;
        done += 1;
    }
    Ok(done)
}

/// Makes trees of small files, and removes the oldest.
fn make_and_remove_trees(dir: &Path, _: &Extent, is_over: &dyn Fn() -> bool) -> Result<u64> {
    let tree = |number: u64| dir.join(format!("tree{number}"));
    let mut done = 0;
    while !is_over() {
        fs::create_dir(tree(done))?;
        for file in (0..TREE_FILES).take_while(|_| !is_over()) {
            fs::write(tree(done).join(file.to_string()), bytes(file, 3, 2000 + 10 * file as usize))?;
        }
        if let Some(oldest) = done.checked_sub(TREES) {
            fs::remove_dir_all(tree(oldest))?;
        }
        done += 1;
    }
    Ok(done)
}

/// Writes large files in order, and removes the oldest.
fn stream(dir: &Path, extent: &Extent, is_over: &dyn Fn() -> bool) -> Result<u64> {
    let path = |number: u64| dir.join(format!("stream{number}"));
    let pieces = STREAM_PIECES.min(extent.large_mib);
    let mut done = 0;
    while !is_over() {
        let mut file = File::create(path(done))?;
        for piece in (0..pieces).take_while(|_| !is_over()) {
            file.write_all(&bytes(done << 8 | piece, 4, 1 << 20))?;
        }
        if let Some(oldest) = done.checked_sub(STREAMS) {
            fs::remove_file(path(oldest))?;
        }
        done += 1;
    }
    Ok(done)
}
