//! The operations of B3 on its files: `foo` and `bar` in a directory and in one below it.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use betree_platform::AlignedBuf;
use rustix::fs::{FallocateFlags, OFlags, XattrFlags};

use crate::mapping::Mapping;

/// The length of a file at the beginning.
const FILE_BYTES: usize = 16 << 10;
/// A file that a call of its own makes.
const FIRST: [&str; 2] = ["foo", "A/foo"];
/// The other files.
const SECOND: [&str; 2] = ["bar", "A/bar"];
const ATTRIBUTE: &str = "user.attribute";

/// Where a write goes, relative to a file of [`FILE_BYTES`].
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// Behind the end.
    Append,
    /// Over blocks inside, not at their bounds.
    Inside,
    /// Over the end.
    OverEnd,
    /// Over whole blocks inside.
    Blocks,
}

impl Place {
    fn range(self) -> (u64, usize) {
        match self {
            Place::Append => (16 << 10, 4096),
            Place::Inside => (5000, 4096),
            Place::OverEnd => (14_000, 5000),
            Place::Blocks => (8192, 4096),
        }
    }
}

/// One operation.
#[derive(Clone, Debug)]
pub enum Operation {
    Create(&'static str),
    MakeDir(&'static str),
    Allocate(&'static str, FallocateFlags, Place),
    Write(&'static str, Place),
    WriteDirect(&'static str, Place),
    /// By a mapping, with msync(2).
    WriteMapped(&'static str, Place),
    Link(&'static str, &'static str),
    Symlink(&'static str, &'static str),
    Unlink(&'static str),
    /// remove(3), which also takes empty directories.
    Remove(&'static str),
    Rename(&'static str, &'static str),
    SetAttribute(&'static str),
    RemoveAttribute(&'static str),
    Truncate(&'static str, u64),
}

/// The other file of a directory, or the other directory.
pub fn sibling(path: &'static str) -> &'static str {
    match path {
        "foo" => "bar",
        "bar" => "foo",
        "A/foo" => "A/bar",
        "A/bar" => "A/foo",
        "A" => "B",
        _ => "A",
    }
}

/// The directory of a file.
pub fn parent(path: &'static str) -> &'static str {
    if path.contains('/') { "A" } else { "" }
}

/// All operations within the bounds.
pub fn all() -> Vec<Operation> {
    let keep = FallocateFlags::KEEP_SIZE;
    let modes = [
        FallocateFlags::empty(),
        keep,
        FallocateFlags::ZERO_RANGE,
        FallocateFlags::ZERO_RANGE | keep,
        FallocateFlags::PUNCH_HOLE | keep,
    ];
    let mut all = vec![Operation::MakeDir("B"), Operation::Rename("A", "B"), Operation::Remove("B")];
    for path in FIRST {
        all.extend([
            Operation::Create(path),
            Operation::SetAttribute(path),
            Operation::RemoveAttribute(path),
        ]);
        all.extend([8192, 10_000].map(|len| Operation::Truncate(path, len)));
        for place in [Place::Append, Place::Inside, Place::OverEnd] {
            all.push(Operation::Write(path, place));
            all.extend(modes.map(|mode| Operation::Allocate(path, mode, place)));
        }
        all.extend([Place::Append, Place::Blocks].map(|place| Operation::WriteDirect(path, place)));
        all.extend([Place::Blocks, Place::Inside].map(|place| Operation::WriteMapped(path, place)));
    }
    for from in FIRST.into_iter().chain(SECOND) {
        all.extend([Operation::Unlink(from), Operation::Remove(from)]);
        for to in SECOND.into_iter().filter(|to| *to != from) {
            all.extend([
                Operation::Link(from, to),
                Operation::Symlink(from, to),
                Operation::Rename(from, to),
            ]);
        }
    }
    all
}

/// Makes the directory of a workload with the files that its operations need.
pub fn prepare<'a>(dir: &Path, operations: impl Iterator<Item = &'a Operation> + Clone) {
    fs::create_dir_all(dir.join("A")).unwrap();
    let is_made = |path: &str| {
        // By the first operation, which then makes it.
        operations.clone().any(|operation| operation.makes() == Some(path))
    };
    for (seed, path) in (0..).zip(FIRST.into_iter().chain(SECOND)).filter(|(_, path)| !is_made(path)) {
        fs::write(dir.join(path), seeded::bytes(seed, 0, FILE_BYTES)).unwrap();
        rustix::fs::setxattr(dir.join(path), ATTRIBUTE, b"old", XattrFlags::empty()).unwrap();
    }
    if operations.clone().any(|operation| matches!(operation, Operation::Remove("B"))) {
        fs::create_dir(dir.join("B")).unwrap();
    }
}

impl Operation {
    /// The paths that it names.
    pub fn paths(&self) -> Vec<&'static str> {
        use Operation::*;
        match *self {
            Create(path) | MakeDir(path) | Unlink(path) | Remove(path) => vec![path],
            Allocate(path, ..) | Write(path, _) | WriteDirect(path, _) | WriteMapped(path, _) => vec![path],
            SetAttribute(path) | RemoveAttribute(path) | Truncate(path, _) => vec![path],
            Link(from, to) | Symlink(from, to) | Rename(from, to) => vec![from, to],
        }
    }

    /// The path that must not be there before it. A rename replaces what is there.
    fn makes(&self) -> Option<&'static str> {
        match *self {
            Operation::Create(path) | Operation::Link(_, path) | Operation::Symlink(_, path) => Some(path),
            _ => None,
        }
    }

    /// Whether its end says that all before it is durable.
    pub fn is_durable(&self) -> bool {
        matches!(self, Operation::WriteMapped(..))
    }

    /// Does it. Behind another operation it may fail: then it has done nothing.
    pub fn run(&self, dir: &Path) {
        let at = |path: &str| dir.join(path);
        let open = |path: &str| OpenOptions::new().read(true).write(true).open(at(path));
        match *self {
            Operation::Create(path) => drop(File::create_new(at(path))),
            Operation::MakeDir(path) => drop(fs::create_dir(at(path))),
            Operation::Allocate(path, mode, place) => {
                let (offset, len) = place.range();
                let allocate = |file| rustix::fs::fallocate(file, mode, offset, len as u64).unwrap();
                drop(open(path).map(allocate));
            }
            Operation::Write(path, place) => drop(open(path).map(|file| {
                let (offset, len) = place.range();
                file.write_all_at(&seeded::bytes(77, 0, len), offset).unwrap();
            })),
            Operation::WriteDirect(path, place) => {
                let flags = OFlags::DIRECT.bits().cast_signed();
                let file = OpenOptions::new().write(true).custom_flags(flags).open(at(path));
                let (offset, len) = place.range();
                let mut data = AlignedBuf::of_bytes(len).unwrap();
                data.bytes_mut().copy_from_slice(&seeded::bytes(78, 0, len));
                drop(file.map(|file| file.write_all_at(data.bytes(), offset).unwrap()));
            }
            Operation::WriteMapped(path, place) => match open(path) {
                Ok(file) if file.metadata().unwrap().len() >= FILE_BYTES as u64 => {
                    let (offset, _) = place.range();
                    let mut mapping = Mapping::of(&file, FILE_BYTES);
                    // Within one page: pages arrive one by one.
                    mapping[offset as usize..][..1000].copy_from_slice(&seeded::bytes(79, 0, 1000));
                    mapping.sync().unwrap();
                }
                _ => File::open(dir).unwrap().sync_all().unwrap(),
            },
            Operation::Link(from, to) => drop(fs::hard_link(at(from), at(to))),
            Operation::Symlink(from, to) => drop(std::os::unix::fs::symlink(from, at(to))),
            Operation::Unlink(path) => drop(fs::remove_file(at(path))),
            Operation::Remove(path) => drop(fs::remove_file(at(path)).or_else(|_| fs::remove_dir(at(path)))),
            Operation::Rename(from, to) => drop(fs::rename(at(from), at(to))),
            Operation::SetAttribute(path) => {
                let _ = rustix::fs::setxattr(at(path), ATTRIBUTE, b"new value", XattrFlags::empty());
            }
            Operation::RemoveAttribute(path) => {
                let _ = rustix::fs::removexattr(at(path), ATTRIBUTE);
            }
            Operation::Truncate(path, len) => drop(open(path).map(|file| file.set_len(len).unwrap())),
        }
    }
}
