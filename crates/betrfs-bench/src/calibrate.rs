//! How the emulated disk compares with real ones: three figures of ext4 on it, beside those that the
//! papers on BetrFS give for a 7200 rpm disk.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Result, ensure};
use rustix::fs::OFlags;
use serde::Serialize;

use crate::confine::wait_until_alone;
use crate::contender::{Contender, Kernel, Peer};
use crate::output::print;
use crate::store::{Disk, Store};
use crate::teardown::Teardown;
use crate::tree::{NEEDLE, Tree};
use crate::workloads::fill;
use crate::{Format, Scale, tool};

const BLOCK_BYTES: usize = 4096;
const MIB: usize = 1 << 20;
/// What `grep` says when it found nothing.
const FOUND_NONE: i32 = 1;

/// What ext4 does on the emulated disk.
#[derive(Debug, Serialize)]
pub struct Calibration {
    /// Reads of 4 KiB at random places of a large file, one after the other.
    random_reads_per_second: f64,
    /// Writing a large file in order, until it is durable.
    write_mb_per_second: f64,
    /// Reading it in order.
    read_mb_per_second: f64,
    /// `grep -r` of the tree, cold.
    grep_ms_per_file: f64,
}

impl Calibration {
    /// Prints it beside what it should be.
    pub fn print(&self, format: Format) -> Result<()> {
        match format {
            Format::Json => print(serde_json::to_string_pretty(self)?),
            Format::Text => {
                print(format_args!("ext4 on the emulated disk{:>23}{:>18}", "", "a real one"))?;
                let row =
                    |what: &str, value: f64, real| print(format_args!("  {what:<36}{value:>10.2}{real:>18}"));
                row("random reads of 4 KiB a second", self.random_reads_per_second, "about 150")?;
                row("sequential write, MB/s", self.write_mb_per_second, "110 to 150")?;
                row("sequential read, MB/s", self.read_mb_per_second, "110 to 150")?;
                row("cold grep -r of a tree, ms a file", self.grep_ms_per_file, "0.7 to 1")
            }
        }
    }
}

/// Measures them.
pub fn calibrate(scratch: &Path, tree: &Tree, scale: Scale, teardown: &Teardown) -> Result<Calibration> {
    let _alone = wait_until_alone()?;
    let store = Rc::new(Store::new(Disk::Hdd, scratch, scale.pick(512 << 20, 8 << 30), teardown)?);
    let ext4 = Kernel::new(Peer::Ext4, scratch, &store, teardown)?;
    let file_mib = scale.pick(32, 2048);
    let large = ext4.dir().join("large");
    let megabytes = (file_mib * MIB as u64) as f64 / 1e6;

    ext4.format()?;
    ext4.mount()?;
    let start = Instant::now();
    fill(&large, file_mib)?;
    ext4.sync()?;
    let write_mb_per_second = megabytes / start.elapsed().as_secs_f64();

    ext4.mount_cold()?;
    let start = Instant::now();
    read_all(&large)?;
    let read_mb_per_second = megabytes / start.elapsed().as_secs_f64();

    ext4.mount_cold()?;
    let random_reads_per_second = random_reads(&large, file_mib, scale.pick(50, 1500))?;

    ext4.unmount()?;
    ext4.format()?;
    ext4.mount()?;
    tree.unpack(ext4.dir())?;
    ext4.mount_cold()?;
    let files = tool::count_lines(Command::new("find").arg(ext4.dir()).args(["-type", "f"]), None)?;
    ensure!(files > 0, "the tree has no files");
    ext4.mount_cold()?;
    let start = Instant::now();
    tool::count_lines(Command::new("grep").args(["-r", NEEDLE]).arg(ext4.dir()), Some(FOUND_NONE))?;
    let grep_ms_per_file = start.elapsed().as_secs_f64() * 1e3 / files as f64;
    ext4.unmount()?;
    Ok(Calibration { random_reads_per_second, write_mb_per_second, read_mb_per_second, grep_ms_per_file })
}

fn read_all(path: &Path) -> Result<()> {
    let mut piece = vec![0; MIB];
    let mut file = File::open(path)?;
    while file.read(&mut piece)? > 0 {}
    Ok(())
}

/// How many blocks of a file come in a second, one after the other, past the page cache.
fn random_reads(path: &Path, file_mib: u64, count: u32) -> Result<f64> {
    let file = OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits().cast_signed()).open(path)?;
    // Direct reads want a buffer at a block's boundary.
    let mut buffer = vec![0; 2 * BLOCK_BYTES];
    let from = buffer.as_ptr().align_offset(BLOCK_BYTES);
    let block = &mut buffer[from..from + BLOCK_BYTES];
    let blocks = file_mib * (MIB / BLOCK_BYTES) as u64;
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let start = Instant::now();
    for _ in 0..count {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        file.read_exact_at(block, state % blocks * BLOCK_BYTES as u64)?;
    }
    Ok(f64::from(count) / start.elapsed().as_secs_f64())
}
