//! What is on a volume, as programs see it on a mount, and as the library finds it on a disk.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use betrfs::{FileType, SNAPSHOTS_NAME, Volume};
use betrfs_sim::tree::{Found, FoundEntry, read_volume};
use xxhash_rust::xxh3::xxh3_64;

/// The beginning of the hidden names under which copies are made.
const UNFINISHED: &str = ".betrfs-clone-";

/// An object, but for its times and the number of a directory's subdirectories, which a hidden copy changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The type's letter, as in ls(1).
    kind: char,
    perm: u32,
    owner: (u32, u32),
    ino: u64,
    /// Number of names, of all but directories.
    names: u64,
    /// Length and checksum of a file's bytes, or of a link's target.
    contents: (u64, u64),
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// All objects by their paths; those in snapshots too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree(BTreeMap<String, Node>);

fn contents(bytes: &[u8]) -> (u64, u64) {
    (bytes.len() as u64, xxh3_64(bytes))
}

impl Tree {
    /// Reads a mount.
    pub fn of_mount(dir: &Path) -> Tree {
        let mut tree = Tree::default();
        tree.add(dir, "", false);
        tree
    }

    fn add(&mut self, at: &Path, path: &str, is_frozen: bool) {
        let found = fs::symlink_metadata(at).unwrap();
        let (kind, bytes) = if found.is_dir() {
            ('d', Vec::new())
        } else if found.is_symlink() {
            ('l', fs::read_link(at).unwrap().as_os_str().as_bytes().to_vec())
        } else {
            ('-', fs::read(at).unwrap())
        };
        let node = Node {
            kind,
            perm: found.mode() & 0o7777,
            owner: (found.uid(), found.gid()),
            ino: found.ino(),
            names: if kind == 'd' { 0 } else { found.nlink() },
            contents: contents(&bytes),
            xattrs: xattrs(at),
        };
        self.0.insert(path.to_owned(), node);
        if kind == 'd' {
            self.add_entries(at, path, is_frozen);
            if !is_frozen {
                let name = String::from_utf8_lossy(SNAPSHOTS_NAME);
                self.add_entries(&at.join(&*name), &format!("{path}/{name}"), true);
            }
        }
    }

    fn add_entries(&mut self, at: &Path, path: &str, is_frozen: bool) {
        for entry in fs::read_dir(at).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            self.add(&at.join(&name), &format!("{path}/{name}"), is_frozen);
        }
    }

    /// Reads a volume by the library.
    ///
    /// # Errors
    /// What cannot be read.
    pub fn of_volume(volume: &Volume) -> Result<Tree, String> {
        let (found, unread) = read_volume(volume).map_err(|(path, error)| format!("{path}: {error}"))?;
        if let Some((path, error)) = unread.first() {
            return Err(format!("{path}: {error}"));
        }
        let mut tree = Tree::default();
        tree.add_found("", &found);
        Ok(tree)
    }

    fn add_found(&mut self, path: &str, found: &Found) {
        let kind = match found.attr.file_type {
            FileType::Directory => 'd',
            FileType::Symlink => 'l',
            _ => '-',
        };
        let node = Node {
            kind,
            perm: found.attr.perm.into(),
            owner: (found.attr.uid, found.attr.gid),
            ino: found.attr.ino,
            names: if kind == 'd' { 0 } else { found.attr.nlink.into() },
            contents: contents(&found.bytes),
            xattrs: found.xattrs.clone(),
        };
        self.0.insert(path.to_owned(), node);
        let snapshots = format!("{path}/{}", String::from_utf8_lossy(SNAPSHOTS_NAME));
        for (path, entries) in [(path, &found.entries), (&*snapshots, &found.snapshots)] {
            for FoundEntry { name, found, .. } in entries {
                let name = String::from_utf8_lossy(name);
                if let Some(found) = found.as_ref().filter(|_| !name.starts_with(UNFINISHED)) {
                    self.add_found(&format!("{path}/{name}"), found);
                }
            }
        }
    }

    /// The same with a file's bytes replaced.
    pub fn with(&self, path: &str, bytes: &[u8]) -> Tree {
        let mut tree = self.clone();
        tree.0.get_mut(path).unwrap().contents = contents(bytes);
        tree
    }

    /// The same without all that is below a directory.
    pub fn without_below(&self, path: &str) -> Tree {
        let below = format!("{path}/");
        let kept = self.0.iter().filter(|(path, _)| !path.starts_with(&below));
        Tree(kept.map(|(path, node)| (path.clone(), node.clone())).collect())
    }

    /// Whether a file is there with these bytes.
    pub fn has_file(&self, path: &str, bytes: &[u8]) -> bool {
        self.0.get(path).is_some_and(|node| node.kind == '-' && node.contents == contents(bytes))
    }

    /// The length of a file, if it is there.
    pub fn file_bytes(&self, path: &str) -> Option<u64> {
        self.0.get(path).map(|node| node.contents.0)
    }

    /// The first difference to another tree, as a sentence.
    pub fn difference(&self, right: &Tree) -> String {
        for (path, node) in &self.0 {
            match right.0.get(path) {
                None => return format!("{path} is there, and should not be"),
                Some(other) if other != node => {
                    return format!("{path} is {node:?}, and should be {other:?}");
                }
                Some(_) => {}
            }
        }
        let missing = right.0.keys().find(|path| !self.0.contains_key(*path));
        missing.map_or_else(|| "they are alike".into(), |path| format!("{path} is missing"))
    }
}

fn xattrs(at: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    const LIST_BYTES_MAX: usize = 65_536;
    let mut list = vec![0; LIST_BYTES_MAX];
    let len = rustix::fs::llistxattr(at, &mut list[..]).unwrap();
    let names = list[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let mut value = vec![0; LIST_BYTES_MAX];
        let len = rustix::fs::lgetxattr(at, name, &mut value[..]).unwrap();
        value.truncate(len);
        value
    };
    names.map(|name| (name.to_vec(), value(name))).collect()
}
