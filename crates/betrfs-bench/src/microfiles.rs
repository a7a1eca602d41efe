//! TokuFS's tests of very small files: through the library, without a mount, on one CPU.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use betree_std::{ALLOCATOR, FileDevice, StdPlatform, Workers, WorkersOptions};
use betrfs::{Entry, FileType, FormatOptions, InodeId, NewNode, Objects, OpenOptions, Volume};
use rustix::process::Pid;
use rustix::thread::CpuSet;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::backing;
use crate::confine;
use crate::data::Rng;
use crate::output::print;
use crate::report::OURS;
use crate::saved::Saved;
use crate::store::Store;
use crate::teardown::Teardown;
use crate::workloads::Microfiles;

/// Its name on the command line.
pub const NAME: &str = "microfiles";
/// By this name this program runs itself: what embeds the library says how memory is given to it when it starts.
pub const CHILD: &str = "microfiles-child";

/// The node cache, as a mount has it.
const CACHE_BYTES: usize = 256 << 20;
const SEED: u64 = 0x6d69_6372;
/// What is in memory for each file of a round, at most about.
const FILE_MEMORY_BYTES: u64 = 2048;

/// Very small files in a volume that this program has to itself.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct LibraryTest {
    /// How many files are created, and read in order.
    pub files: u64,
    /// How many of them, the last ones, are opened and read when they are in memory.
    pub warm_files: u64,
}

/// A file by its path, with what names its content. Paths are made before the time begins: a program
/// has them.
struct NamedFile {
    dir: Arc<str>,
    name: String,
    seed: u64,
}

/// How many files a second, and how many in a second of this program's CPU time: of a CPU that it has
/// to itself they are the same, unless it waits for the disk.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Rate {
    /// By the clock.
    pub per_second: f64,
    /// By the CPU time of all threads.
    pub per_cpu_second: f64,
}

/// What one round came to.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Rates {
    /// Created and written, until all are durable.
    pub create: Rate,
    /// Opened by their paths in no order, and read, all of them in memory.
    pub open_and_read: Rate,
    /// Found by walking the tree and read, nothing of it in memory at first.
    pub scan: Rate,
}

/// All rounds.
#[derive(Debug, Serialize)]
pub struct LibraryFigure {
    /// Its name.
    pub workload: &'static str,
    /// What it does.
    pub about: String,
    /// What each round came to.
    pub rounds: Vec<Rates>,
}

impl LibraryTest {
    /// What it does, in a line.
    pub fn about(&self) -> String {
        format!(
            "through the library, on one CPU: create {} files of 200 bytes, open and read {} warm ones, scan",
            self.files, self.warm_files
        )
    }

    fn microfiles(&self) -> Microfiles {
        Microfiles { files: self.files, threads: 1 }
    }

    /// Rounds of it, each on a new volume on a disk; those that have been saved are taken as they are.
    pub fn measure(
        self,
        store: &Store,
        rounds: u32,
        saved: &Saved,
        teardown: &Teardown,
    ) -> Result<LibraryFigure> {
        let _alone = confine::wait_until_alone()?;
        // A thread of its own: the threads that a thread starts stay on its CPU, those of others do not.
        let measured = || {
            let mut one = CpuSet::new();
            one.set(rustix::thread::sched_getcpu());
            rustix::thread::sched_setaffinity(None, &one)?;
            let device = store.device();
            (0..rounds).map(|round| self.saved_round(device, round, saved, teardown)).collect::<Result<_>>()
        };
        // A workload before it leaves an emulated disk in haste.
        store.set_in_haste(false)?;
        let hasty_before = store.hasty_requests()?;
        let all = thread::scope(|scope| scope.spawn(measured).join());
        let rounds = all.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        ensure!(
            store.hasty_requests()? == hasty_before,
            "the emulated disk made haste while it was measured"
        );
        Ok(LibraryFigure { workload: NAME, about: self.about(), rounds })
    }

    fn saved_round(&self, path: &Path, round: u32, saved: &Saved, teardown: &Teardown) -> Result<Rates> {
        if let Some(rates) = saved.round(NAME, OURS, round)? {
            return Ok(rates);
        }
        let rates = self.in_child(path, teardown)?;
        saved.keep(NAME, OURS, round, &rates)?;
        Ok(rates)
    }

    fn in_child(&self, path: &Path, teardown: &Teardown) -> Result<Rates> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child =
            command.arg(CHILD).envs(ALLOCATOR).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let pid = Pid::from_child(&child);
        teardown.started(pid);
        let sent = child.stdin.take().map(|mut stdin| {
            stdin.write_all(&serde_json::to_vec(&(self, path))?).map_err(anyhow::Error::from)
        });
        let output = child.wait_with_output();
        teardown.ended(pid);
        let output = output?;
        ensure!(output.status.success(), "the child ended with {}", output.status);
        sent.transpose()?;
        serde_json::from_slice(&output.stdout).context("the child printed what is not expected")
    }

    /// One round; `touch` touches so many bytes of memory.
    fn round(&self, path: &Path, touch: impl Fn(u64) -> Result<()>) -> Result<Rates> {
        let device = FileDevice::open(path)?;
        Volume::format(Arc::new(device), &FormatOptions::default(), &StdPlatform::new())?;
        let (create, open_and_read) = with_volume(path, |volume| {
            self.make_dirs(volume)?;
            let files = self.named_files();
            touch(self.files * FILE_MEMORY_BYTES)?;
            let create = rate(self.files, || create_files(volume, &files))?;
            let mut rng = Rng::new(SEED, 0);
            let mut warm: Vec<(String, u64)> = files[(self.files - self.warm_files) as usize..]
                .iter()
                .map(|file| (format!("{}/{}", file.dir, file.name), file.seed))
                .collect();
            for at in (1..warm.len()).rev() {
                warm.swap(at, rng.index(at + 1));
            }
            // Once to bring them into memory.
            open_and_read(volume, &warm)?;
            Ok((create, rate(self.warm_files, || open_and_read(volume, &warm))?))
        })?;
        touch(self.files * FILE_MEMORY_BYTES)?;
        let scan = with_volume(path, |volume| rate(self.files, || self.scan(volume)))?;
        Ok(Rates { create, open_and_read, scan })
    }

    fn make_dirs(&self, volume: &Volume) -> Result<()> {
        let layout = self.microfiles().layout();
        for leaf in 0..layout.leaves() {
            let mut at = InodeId::ROOT;
            for name in layout.leaf(leaf).iter() {
                let name = name.as_encoded_bytes();
                let found = match volume.lookup(at, name) {
                    Err(betrfs::Error::NotFound) => volume.create(at, name, &new_node(FileType::Directory)),
                    found => found,
                };
                at = found?.node;
            }
        }
        Ok(volume.sync()?)
    }

    /// The files in the order of their creation.
    fn named_files(&self) -> Vec<NamedFile> {
        let layout = self.microfiles().layout();
        let leaves: Vec<Arc<str>> =
            (0..layout.leaves()).map(|leaf| layout.leaf(leaf).to_string_lossy().into()).collect();
        let files = self.microfiles().of_thread(0);
        files
            .map(|(leaf, seed)| NamedFile {
                dir: leaves[leaf as usize].clone(),
                name: Microfiles::name(seed),
                seed,
            })
            .collect()
    }

    /// Walks the tree and reads every file.
    fn scan(&self, volume: &Volume) -> Result<()> {
        let (mut dirs, mut files) = (vec![InodeId::ROOT], 0);
        let mut content = Vec::new();
        while let Some(dir) = dirs.pop() {
            for (name, entry) in list(volume, dir)? {
                if entry.attr.file_type == FileType::Directory {
                    dirs.push(entry.node);
                    continue;
                }
                read(volume, &entry, &mut content)?;
                volume.forget(entry.node, 1);
                let seed = u64::from_str_radix(&name, 16).with_context(|| format!("a file named {name}"))?;
                ensure!(content == Microfiles::content(seed), "{name} is wrong");
                files += 1;
            }
        }
        ensure!(files == self.files, "it found {files} files of {}", self.files);
        Ok(())
    }
}

/// Does the round that standard input tells, and prints what it came to.
pub fn run_child() -> Result<()> {
    let (test, path): (LibraryTest, PathBuf) =
        serde_json::from_reader(io::stdin()).context("what to do is not readable")?;
    serde_json::to_writer(io::stdout(), &test.round(&path, backing::touch)?)?;
    Ok(())
}

fn create_files(volume: &Volume, files: &[NamedFile]) -> Result<()> {
    for NamedFile { dir, name, seed } in files {
        let dir = volume.resolve(dir.as_bytes())?;
        let content = Microfiles::content(*seed);
        let file = volume.create_with(dir.node, name.as_bytes(), &new_node(FileType::Regular), &content)?;
        volume.forget(file.node, 1);
        volume.forget(dir.node, 1);
    }
    Ok(volume.sync()?)
}

fn open_and_read(volume: &Volume, files: &[(String, u64)]) -> Result<()> {
    let mut content = Vec::new();
    for (path, seed) in files {
        let file = volume.resolve(path.as_bytes()).with_context(|| format!("no {path}"))?;
        volume.open_inode(file.node)?;
        read(volume, &file, &mut content)?;
        volume.release_node(file.node);
        volume.forget(file.node, 1);
        ensure!(content == Microfiles::content(*seed), "{path} is wrong");
    }
    Ok(())
}

fn new_node(file_type: FileType) -> NewNode {
    NewNode { file_type, perm: 0o755, uid: 0, gid: 0, rdev: 0 }
}

fn read(volume: &Volume, file: &Entry, content: &mut Vec<u8>) -> Result<()> {
    content.clear();
    Ok(volume.read(file.node, 0, file.attr.size as usize, content)?)
}

/// All entries of a directory.
fn list(volume: &Volume, dir: InodeId) -> Result<Vec<(String, Entry)>> {
    let mut entries = Vec::new();
    let mut without_object = None;
    volume.readdir(dir, 0, Objects::All, &mut |listed| {
        let name = String::from_utf8_lossy(listed.name).into_owned();
        match listed.entry {
            Some(entry) => entries.push((name, entry)),
            None => without_object = Some(name),
        }
        true
    })?;
    match without_object {
        Some(name) => bail!("{name} is listed without its object"),
        None => Ok(entries),
    }
}

/// Opens a volume for something, and closes it.
fn with_volume<T>(path: &Path, use_it: impl FnOnce(&Volume) -> Result<T>) -> Result<T> {
    let device = FileDevice::open(path)?;
    let platform = Arc::new(StdPlatform::new());
    let options = OpenOptions { cache_bytes: CACHE_BYTES, ..OpenOptions::new(platform) };
    let volume = Volume::open(Arc::new(device), options)?;
    let workers = Workers::start(Arc::clone(volume.env()), WorkersOptions::default())?;
    let used = use_it(&volume);
    workers.stop();
    volume.close()?;
    used
}

/// The CPU time of this program so far.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// How fast so many of something are done.
fn rate(count: u64, work: impl FnOnce() -> Result<()>) -> Result<Rate> {
    let (start, start_cpu) = (Instant::now(), cpu_seconds());
    work()?;
    let count = count as f64;
    Ok(Rate {
        per_second: count / start.elapsed().as_secs_f64(),
        per_cpu_second: count / (cpu_seconds() - start_cpu),
    })
}

impl LibraryFigure {
    /// Prints it.
    pub fn print(&self) -> Result<()> {
        print(format_args!("\n{}: {}", self.workload, self.about))?;
        print("  files a second (a second of CPU time), by rounds")?;
        let line = |name: &str, of: fn(&Rates) -> Rate| {
            let rates = self.rounds.iter().map(of);
            let rates: Vec<String> = rates
                .map(|rate| {
                    format!("{:>12.0} {:>12}", rate.per_second, format!("({:.0})", rate.per_cpu_second))
                })
                .collect();
            print(format_args!("  {name:<14}{}", rates.join("")))
        };
        line("create", |rates| rates.create)?;
        line("open and read", |rates| rates.open_and_read)?;
        line("scan, cold", |rates| rates.scan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_created_read_and_found_again() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(64 << 20).unwrap();
        let test = LibraryTest { files: 500, warm_files: 100 };
        for _ in 0..2 {
            let rates = test.round(file.path(), backing::touch_here).unwrap();
            assert!(rates.create.per_second > 0.0 && rates.scan.per_cpu_second > 0.0);
        }
    }
}
