//! TokuFS's benchmarks of very small files: through the library, without a mount, on one CPU.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use bench_harness::disk::Disk;
use bench_harness::output::print;
use bench_harness::teardown::Teardown;
use bench_harness::{child, machine, touch};
use betree_std::{FileDevice, StdPlatform, Workers, WorkersOptions};
use betrfs::{Entry, FileType, FormatOptions, InodeId, NewNode, Objects, OpenOptions, Volume};
use rustix::thread::CpuSet;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::data::Rng;
use crate::saved::Saved;
use crate::system::OURS;
use crate::workloads::Microfiles;

/// Its name on the command line.
pub const NAME: &str = "microfiles";
/// The argument with which this program runs itself: a process sets its allocator's options when it starts.
pub const CHILD: &str = "microfiles-child";

/// The node cache, as a mount has it.
const CACHE_BYTES: usize = 256 << 20;
const SEED: u64 = 0x6d69_6372;
/// About the most memory for each file of a round.
const FILE_MEMORY_BYTES: u64 = 2048;

/// The benchmark, on a volume that this program has to itself.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct LibraryTest {
    /// The number of files that are created, and scanned.
    pub files: u64,
    /// The number of files, the last of all, that are opened and read with warm caches.
    pub warm_files: u64,
}

/// A file's path, and the seed of its content. Paths are made before the time begins, as programs have them
/// already.
struct NamedFile {
    dir: Arc<str>,
    name: String,
    seed: u64,
}

/// Files a second, and files a second of this program's CPU time. The two are the same on a CPU of its own,
/// unless the program waits for the disk.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Rate {
    /// By the clock.
    pub per_second: f64,
    /// By the CPU time of all threads.
    pub per_cpu_second: f64,
}

/// The rates of one round.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Rates {
    /// Creating and writing files, until all are durable.
    pub create: Rate,
    /// Opening files by their paths, in random order, and reading them, with warm caches.
    pub open_and_read: Rate,
    /// Walking the tree and reading each file, with cold caches.
    pub scan: Rate,
}

/// All rounds.
#[derive(Debug, Serialize, Deserialize)]
pub struct LibraryFigure {
    /// Its name.
    pub workload: String,
    /// Its work.
    pub about: String,
    /// The rates of each round.
    pub rounds: Vec<Rates>,
}

impl LibraryTest {
    /// Its work in one line.
    pub fn about(&self) -> String {
        format!(
            "through the library, on one CPU: create {} files of 200 bytes, open and read {} warm ones, scan",
            self.files, self.warm_files
        )
    }

    fn microfiles(&self) -> Microfiles {
        Microfiles { files: self.files, threads: 1 }
    }

    /// Runs rounds, each on a new volume on a disk. Saved rounds are taken as they are.
    ///
    /// # Errors
    /// The library fails, or a file is wrong.
    pub fn measure(
        self,
        disk: &Disk,
        rounds: u32,
        saved: &Saved,
        teardown: &Teardown,
    ) -> Result<LibraryFigure> {
        let _machine = machine::lock()?;
        // A thread of its own: threads inherit the CPU of the thread that starts them.
        let measured = || {
            let mut one = CpuSet::new();
            one.set(rustix::thread::sched_getcpu());
            rustix::thread::sched_setaffinity(None, &one)?;
            let device = disk.device();
            (0..rounds).map(|round| self.saved_round(device, round, saved, teardown)).collect::<Result<_>>()
        };
        // A workload before it leaves an emulated disk in fast-forward.
        disk.set_fast_forward(false)?;
        let forwarded_before = disk.fast_forwarded_requests()?;
        let all = thread::scope(|scope| scope.spawn(measured).join());
        let rounds = all.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        ensure!(
            disk.fast_forwarded_requests()? == forwarded_before,
            "the emulated disk was in fast-forward while it was measured"
        );
        Ok(LibraryFigure { workload: NAME.to_owned(), about: self.about(), rounds })
    }

    fn saved_round(&self, path: &Path, round: u32, saved: &Saved, teardown: &Teardown) -> Result<Rates> {
        if let Some(rates) = saved.round(NAME, OURS, round)? {
            return Ok(rates);
        }
        let rates = child::finish(child::start(CHILD)?, &(self, path), teardown)?;
        saved.keep(NAME, OURS, round, &rates)?;
        Ok(rates)
    }

    /// One round. `touch` touches a number of bytes of memory.
    fn round(&self, path: &Path, touch: impl Fn(u64) -> Result<()>) -> Result<Rates> {
        let device = FileDevice::open(path)?;
        Volume::format(Arc::new(device), &FormatOptions::default(), &StdPlatform::new())?;
        let (create, open_and_read) = with_volume(path, |volume| {
            self.make_dirs(volume)?;
            let files = self.named_files();
            touch(self.files * FILE_MEMORY_BYTES)?;
            let create = rate(self.files, || create_files(volume, &files))?;
            let mut rng = Rng::of_stream(SEED, 0);
            let mut warm: Vec<(String, u64)> = files[(self.files - self.warm_files) as usize..]
                .iter()
                .map(|file| (format!("{}/{}", file.dir, file.name), file.seed))
                .collect();
            for at in (1..warm.len()).rev() {
                warm.swap(at, rng.below(at + 1));
            }
            // Once untimed, to warm the caches.
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

/// Runs the round described on standard input, and prints its rates.
///
/// # Errors
/// The library fails, or a file is wrong.
pub fn run_child() -> Result<()> {
    child::serve(|(test, path): (LibraryTest, PathBuf)| test.round(&path, touch::touch))
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
    NewNode { file_type, perm: 0o755, uid: 0, gid: 0, rdev: 0, umask: 0 }
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

/// Opens a volume, uses it, and closes it.
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

/// The rate of work on `count` files.
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
            let rates = test.round(file.path(), touch::touch_here).unwrap();
            assert!(rates.create.per_second > 0.0 && rates.scan.per_cpu_second > 0.0);
        }
    }
}
