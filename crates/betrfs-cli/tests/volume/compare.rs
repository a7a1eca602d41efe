//! Comparison of two trees.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::programs::{program, succeed};

/// An object's attributes by lstat and readlink, except those in which file systems may differ.
#[derive(Debug, PartialEq, Eq)]
struct Attributes {
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    /// `None` for directories.
    size: Option<u64>,
    /// `None` for directories.
    links: Option<u64>,
    target: Option<PathBuf>,
}

fn attributes(path: &Path, metadata: &Metadata) -> Attributes {
    let unless_dir = |value| (!metadata.is_dir()).then_some(value);
    Attributes {
        mode: metadata.mode(),
        owner: (metadata.uid(), metadata.gid()),
        mtime: (metadata.mtime(), metadata.mtime_nsec()),
        size: unless_dir(metadata.size()),
        links: unless_dir(metadata.nlink()),
        target: metadata.is_symlink().then(|| fs::read_link(path).unwrap()),
    }
}

fn list(dir: &Path) -> BTreeMap<OsString, Metadata> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name(), entry.path().symlink_metadata().unwrap())).collect()
}

/// Asserts that two trees have the same names with the same attributes; returns their number.
fn assert_same_attributes(left: &Path, right: &Path) -> u64 {
    let (in_left, in_right) = (list(left), list(right));
    assert!(in_left.keys().eq(in_right.keys()), "the names in {} differ", left.display());
    let pairs = in_left.iter().zip(in_right.values());
    let counts = pairs.map(|((name, metadata), other)| {
        let (left, right) = (left.join(name), right.join(name));
        assert_eq!(attributes(&left, metadata), attributes(&right, other), "{}", left.display());
        1 + if metadata.is_dir() { assert_same_attributes(&left, &right) } else { 0 }
    });
    counts.sum()
}

/// Asserts that two trees are equal in names, attributes and contents; returns the number of objects.
pub fn assert_same(left: &Path, right: &Path) -> u64 {
    let told = succeed(program(900, ["diff", "--recursive", "--no-dereference"]).arg(left).arg(right));
    assert_eq!(told, "");
    assert_same_attributes(left, right)
}
