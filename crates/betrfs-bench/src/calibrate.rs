//! Figures of ext4 on the emulated disk, beside those of the BetrFS papers for a 7200 rpm disk.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Result, ensure};
use bench_harness::disk::{Disk, DiskKind};
use bench_harness::machine;
use bench_harness::output::print;
use bench_harness::scale::{Format, Scale};
use bench_harness::teardown::Teardown;
use bench_harness::tool;
use betree_platform::{AlignedBuf, BLOCK_BYTES};
use rustix::fs::OFlags;
use seeded::Rng;
use serde::Serialize;

use crate::system::{Kernel, Peer, System};
use crate::tree::{NEEDLE, Tree};
use crate::workloads::fill;

const MIB: usize = 1 << 20;
/// The exit code of `grep` when it finds nothing.
const FOUND_NONE: i32 = 1;

/// Figures of ext4 on the emulated disk.
#[derive(Debug, Serialize)]
pub struct Calibration {
    /// Reads of 4 KiB at random places of a large file, one after the other.
    random_reads_per_second: f64,
    /// Writing a large file sequentially, until it is durable.
    write_mb_per_second: f64,
    /// Reading it sequentially.
    read_mb_per_second: f64,
    /// `grep -r` of the tree, cold.
    grep_ms_per_file: f64,
}

impl Calibration {
    /// Prints it beside the figures of real disks.
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
    let _machine = machine::lock()?;
    let disk = Rc::new(Disk::new(DiskKind::Hdd, scratch, scale.pick(512 << 20, 8 << 30), teardown)?);
    let ext4 = Kernel::new(Peer::Ext4, scratch, &disk, teardown)?;
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

/// Reads of random blocks of a file a second, one at a time, past the page cache.
fn random_reads(path: &Path, file_mib: u64, count: u32) -> Result<f64> {
    let file = OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits().cast_signed()).open(path)?;
    let mut block = AlignedBuf::of_bytes(BLOCK_BYTES)?;
    let blocks = file_mib * (MIB / BLOCK_BYTES) as u64;
    let mut rng = Rng::new(0);
    let start = Instant::now();
    for _ in 0..count {
        file.read_exact_at(block.bytes_mut(), rng.below_u64(blocks) * BLOCK_BYTES as u64)?;
    }
    Ok(f64::from(count) / start.elapsed().as_secs_f64())
}
