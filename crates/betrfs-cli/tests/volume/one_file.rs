//! One file compared with a byte array, through every call that changes or reads contents.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use betree_sim::Rng;
use rustix::fs::{FallocateFlags, copy_file_range, fallocate};

use crate::mounted::Mounted;
use crate::programs::{check_is_clean, noise, setting};

const OPERATIONS: u64 = 10_000;
const REMOUNT_EVERY: u64 = 2_500;
const FILE_BYTES_MAX: usize = 1 << 20;
const PART_BYTES_MAX: usize = 100_000;

/// A C program that maps a file, as this crate has no unsafe code: `mapped r FILE OFFSET LENGTH` prints the
/// bytes, `mapped w FILE OFFSET LENGTH` stores its input.
const MAPPED: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv) {
    if (argc != 5) return 2;
    int writes = argv[1][0] == 'w';
    size_t offset = strtoul(argv[3], 0, 10), length = strtoul(argv[4], 0, 10);
    int file = open(argv[2], O_RDWR);
    if (file < 0) { perror("open"); return 1; }
    char *all = mmap(0, offset + length, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (all == MAP_FAILED) { perror("mmap"); return 1; }
    size_t done = writes ? fread(all + offset, 1, length, stdin) : fwrite(all + offset, 1, length, stdout);
    if (done != length || fflush(stdout) != 0) { perror(argv[1]); return 1; }
    if (munmap(all, offset + length) != 0 || close(file) != 0) { perror("munmap"); return 1; }
    return 0;
}
"#;

/// The file and its expected contents.
struct Subject {
    path: PathBuf,
    file: File,
    model: Vec<u8>,
    mapped: PathBuf,
    rng: Rng,
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

impl Subject {
    /// A range within the file.
    fn range_within(&mut self) -> (usize, usize) {
        let start = self.rng.below(self.model.len() + 1);
        (start, self.rng.below((self.model.len() - start).min(PART_BYTES_MAX) + 1))
    }

    /// A range that is not empty and may reach beyond the file's end.
    fn range(&mut self) -> (usize, usize) {
        let start = self.rng.below((self.model.len() + 50_000).min(FILE_BYTES_MAX - 1));
        (start, self.rng.between(1, PART_BYTES_MAX.min(FILE_BYTES_MAX - start)))
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        noise(self.rng.next_u64(), len)
    }

    fn grow(&mut self, len: usize) {
        self.model.resize(self.model.len().max(len), 0);
    }

    fn store(&mut self, start: usize, bytes: &[u8]) {
        self.grow(start + bytes.len());
        self.model[start..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Runs the program that maps the file.
    fn map(&self, way: &str, start: usize, len: usize, input: &[u8]) -> Vec<u8> {
        let mut child = Command::new(&self.mapped)
            .args([way.as_ref(), self.path.as_os_str()])
            .args([start.to_string(), len.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "mapped {way} {start} {len}: {}", output.status);
        output.stdout
    }

    /// Applies one operation to both; returns its description.
    fn step(&mut self) -> String {
        match self.rng.below(100) {
            0..30 => {
                let (start, len) = self.range();
                let bytes = self.bytes(len);
                self.file.write_all_at(&bytes, start as u64).unwrap();
                self.store(start, &bytes);
                format!("write {start} {len}")
            }
            30..60 => {
                let (start, len) = self.range_within();
                let mut read = vec![0; len];
                self.file.read_exact_at(&mut read, start as u64).unwrap();
                self.assert_same("read", start, &read);
                format!("read {start} {len}")
            }
            60..68 => {
                let len = self.rng.below(FILE_BYTES_MAX);
                self.file.set_len(len as u64).unwrap();
                self.model.resize(len, 0);
                format!("truncate {len}")
            }
            68..74 => {
                let (start, len) = self.range();
                fallocate(&self.file, punch(), start as u64, len as u64).unwrap();
                let end = (start + len).min(self.model.len());
                self.model[start.min(end)..end].fill(0);
                format!("punch {start} {len}")
            }
            74..78 => {
                let (start, len) = self.range();
                fallocate(&self.file, FallocateFlags::empty(), start as u64, len as u64).unwrap();
                self.grow(start + len);
                format!("allocate {start} {len}")
            }
            78..82 => self.copy(),
            82..87 => {
                let (start, len) = self.range_within();
                if len > 0 {
                    let read = self.map("r", start, len, &[]);
                    self.assert_same("mapped read", start, &read);
                }
                format!("mapped read {start} {len}")
            }
            87..92 => {
                let (start, len) = self.range_within();
                if len > 0 {
                    let bytes = self.bytes(len);
                    self.map("w", start, len, &bytes);
                    self.store(start, &bytes);
                }
                format!("mapped write {start} {len}")
            }
            92..95 => {
                self.file.sync_all().unwrap();
                "sync".to_owned()
            }
            95..98 => {
                self.file = open(&self.path);
                "open".to_owned()
            }
            _ => {
                let other = self.path.with_extension("renamed");
                fs::rename(&self.path, &other).unwrap();
                fs::rename(&other, &self.path).unwrap();
                "rename".to_owned()
            }
        }
    }

    /// Copies a range of the file to another place.
    fn copy(&mut self) -> String {
        let (start, len) = self.range_within();
        let to = self.rng.below(FILE_BYTES_MAX - len);
        if to < start + len && start < to + len {
            return format!("no copy {start} {len} to {to}: they overlap");
        }
        let (mut from_offset, mut to_offset) = (start as u64, to as u64);
        let mut left = len;
        while left > 0 {
            let copied =
                copy_file_range(&self.file, Some(&mut from_offset), &self.file, Some(&mut to_offset), left);
            left -= copied.unwrap();
        }
        let bytes = self.model[start..][..len].to_vec();
        if len > 0 {
            self.store(to, &bytes);
        }
        format!("copy {start} {len} to {to}")
    }

    fn assert_same(&self, way: &str, start: usize, found: &[u8]) {
        let expected = &self.model[start..][..found.len()];
        if let Some(wrong) = found.iter().zip(expected).position(|(found, expected)| found != expected) {
            panic!("{way}: byte {} is {}, not {}", start + wrong, found[wrong], expected[wrong]);
        }
    }

    fn assert_all_same(&self) {
        let found = fs::read(&self.path).unwrap();
        assert_eq!(found.len(), self.model.len());
        self.assert_same("read", 0, &found);
    }
}

fn punch() -> FallocateFlags {
    FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE
}

/// Compiles the program that maps files.
fn mapped(dir: &Path) -> PathBuf {
    let (source, program) = (dir.join("mapped.c"), dir.join("mapped"));
    fs::write(&source, MAPPED).unwrap();
    let compiled = Command::new("cc").arg("-O1").arg("-o").arg(&program).arg(&source).status().unwrap();
    assert!(compiled.success());
    program
}

#[test]
fn a_file_holds_the_bytes_written_to_it() {
    let seed = setting("BETRFS_SEED", 1);
    let tools = tempfile::tempdir().unwrap();
    let mounted = Mounted::of_size("1G");
    mounted.mount();
    let path = mounted.path("subject");
    let file = open(&path);
    let rng = Rng::new(seed);
    let mut subject = Some(Subject { path, file, model: Vec::new(), mapped: mapped(tools.path()), rng });
    let mut trace = Trace { seed, steps: Vec::new() };
    for step in 1..=OPERATIONS {
        let one = subject.as_mut().unwrap();
        trace.steps.push(one.step());
        assert_eq!(one.file.metadata().unwrap().len(), one.model.len() as u64);
        if step.is_multiple_of(REMOUNT_EVERY) {
            let Subject { path, file, model, mapped, rng } = subject.take().unwrap();
            drop(file);
            mounted.remount();
            let file = open(&path);
            subject = Some(Subject { path, file, model, mapped, rng });
            trace.steps.push("remount".to_owned());
            subject.as_ref().unwrap().assert_all_same();
        }
    }
    drop(subject);
    mounted.umount();
    check_is_clean(&mounted.volume);
}

/// The steps so far; the last ones are printed after a failure.
struct Trace {
    seed: u64,
    steps: Vec<String>,
}

impl Drop for Trace {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let last = &self.steps[self.steps.len().saturating_sub(40)..];
            eprintln!("again with BETRFS_SEED={}; after step {}: {last:#?}", self.seed, self.steps.len());
        }
    }
}
