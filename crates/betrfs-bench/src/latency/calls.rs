//! The calls whose latencies are measured.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;

use super::{Extent, load};
use crate::data::Rng;
use crate::data::bytes;

const NEW: &str = "new";
const LOG: &str = "log";
/// The bytes of a new file, and of what is appended before an fsync.
const SMALL_BYTES: usize = 4096;

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Making a file with its contents, and closing it.
    Create,
    /// Opening and reading a small file, one of many.
    Read,
    /// The fsync of a file that has grown by 4 KiB.
    Fsync,
}

impl Call {
    /// All of them.
    pub const ALL: [Call; 3] = [Call::Create, Call::Read, Call::Fsync];

    /// The time between two calls of this kind, given the usual time. What is called more often than the
    /// system can answer beside the load would only wait behind itself.
    pub fn every(self, usual: Duration) -> Duration {
        match self {
            Call::Create | Call::Read => usual,
            Call::Fsync => usual * 10,
        }
    }

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Call::Create => "create",
            Call::Read => "read",
            Call::Fsync => "fsync",
        }
    }
}

/// The file that a call has made.
pub fn made(dir: &Path, number: u64) -> PathBuf {
    dir.join(NEW).join(number.to_string())
}

/// A program that makes one kind of call.
pub struct Client<'a> {
    call: Call,
    dir: &'a Path,
    files: u64,
    rng: Rng,
    log: File,
    number: u64,
}

impl<'a> Client<'a> {
    /// Opens what it needs.
    pub fn new(call: Call, dir: &'a Path, extent: &Extent) -> Result<Client<'a>> {
        fs::create_dir_all(dir.join(NEW))?;
        let log = File::options().create(true).append(true).open(dir.join(LOG))?;
        Ok(Client { call, dir, files: extent.files, rng: Rng::of_stream(11, call as u64), log, number: 0 })
    }

    /// What belongs to the next call and is not measured.
    pub fn prepare(&mut self) -> Result<()> {
        if self.call == Call::Fsync {
            self.log.write_all(&bytes(self.number, 0, SMALL_BYTES))?;
        }
        Ok(())
    }

    /// The call.
    pub fn call(&mut self) -> Result<()> {
        match self.call {
            Call::Create => fs::write(made(self.dir, self.number), bytes(self.number, 0, SMALL_BYTES))?,
            Call::Read => {
                let number = self.rng.below_u64(self.files);
                let path = load::file(self.dir, number);
                let found = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
                ensure!(found == load::contents(number), "{} is wrong", path.display());
            }
            Call::Fsync => self.log.sync_all()?,
        }
        self.number += 1;
        Ok(())
    }
}

/// Whether all that calls have written is there.
///
/// # Errors
/// Something is missing or wrong.
pub fn check(dir: &Path, extent: &Extent, latencies: &[Histogram<u64>]) -> Result<()> {
    let [creates, _, fsyncs] = latencies else { anyhow::bail!("{} kinds of calls", latencies.len()) };
    for number in 0..creates.len() {
        let path = made(dir, number);
        let found = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        ensure!(found == bytes(number, 0, SMALL_BYTES), "{} is wrong", path.display());
    }
    let log = fs::read(dir.join(LOG))?;
    let right = (0..fsyncs.len()).flat_map(|number| bytes(number, 0, SMALL_BYTES));
    ensure!(log.iter().copied().eq(right), "the log is wrong");
    let last = extent.files.saturating_sub(1);
    ensure!(fs::read(load::file(dir, last))? == load::contents(last), "the last file is wrong");
    Ok(())
}
